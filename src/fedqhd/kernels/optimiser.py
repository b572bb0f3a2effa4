"""The optimiser of the DQN baselines."""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.cache import jit

f32 = np.float32


@jit(error_model="numpy")  # a loop that checks for division by zero does not vectorise
def adam(theta, g, mean, square, lr, t):
    """Take step t = 1, 2, ... of Adam with its usual constants on the parameters theta with gradient g, in place.

    `mean` and `square` are the moving averages of the gradient and its square, and lr is the step size.
    """
    rate = f32(lr / (1 - 0.9**t))
    up = f32(1 / np.sqrt(1 - 0.999**t))
    for d in range(theta.shape[0]):
        mean[d] += f32(0.1) * (g[d] - mean[d])
        square[d] += f32(0.001) * (g[d] * g[d] - square[d])
        theta[d] -= rate * mean[d] / (up * np.sqrt(square[d]) + f32(1e-8))
