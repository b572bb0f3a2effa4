"""Weights as the real rows that the kernels read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def real_view(W: Array) -> Array:
    """Return a view of weights (D, A) in Fortran order as the real rows (A, R) that the kernels read.

    Complex weights appear as interleaved real and imaginary parts (R = 2D), because
    Re(Phi^H w) = Re Phi . Re w + Im Phi . Im w is a real dot product of such rows.
    """
    rows = W.T
    return rows.view(W.real.dtype) if np.iscomplexobj(W) else rows
