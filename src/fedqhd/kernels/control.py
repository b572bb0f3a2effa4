"""Compiled steps of Gymnasium's classic control tasks, with the same bits as Gymnasium's.

Each step is `step(constants, state, action, observation, reward) -> terminated`: it replaces the state and writes the
observation and the reward. Every operation is done in Gymnasium's order and precision, so these functions are compiled
without the liberties that other kernels take (`exact`). The equations are those of the environments' documentation.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from fedqhd.kernels.cache import StepFunction, exact


@exact
def _clip(x, low, high):
    return min(max(x, low), high)


@partial(StepFunction, cached=True)
def cartpole(constants, state, action, observation, reward):
    """A step of CartPole.

    Constants: gravity, total mass, mass of the pole, its half length, mass times half length, force, time step, bounds
    of angle and position, 1 for semi-implicit integration, and the rewards of a step and of the last step.
    """
    c, x = carray(constants, 12), carray(state, 4)
    gravity, total_mass, mass, length, moment, force, tau = c[0], c[1], c[2], c[3], c[4], c[5], c[6]
    position, velocity, angle, spin = x[0], x[1], x[2], x[3]
    push = force if action == 1 else -force
    cosine, sine = math.cos(angle), math.sin(angle)
    temp = (push + moment * (spin * spin) * sine) / total_mass
    angular = (gravity * sine - cosine * temp) / (length * (4.0 / 3.0 - mass * (cosine * cosine) / total_mass))
    linear = temp - moment * angular * cosine / total_mass
    if c[9] == 0.0:
        position = position + tau * velocity
        velocity = velocity + tau * linear
        angle = angle + tau * spin
        spin = spin + tau * angular
    else:
        velocity = velocity + tau * linear
        position = position + tau * velocity
        spin = spin + tau * angular
        angle = angle + tau * spin
    x[0], x[1], x[2], x[3] = position, velocity, angle, spin
    for j in range(4):
        observation[j] = np.float32(x[j])
    terminated = position < -c[8] or position > c[8] or angle < -c[7] or angle > c[7]
    reward[0] = c[11] if terminated else c[10]
    return terminated


@partial(StepFunction, cached=True)
def mountain_car(constants, state, action, observation, reward):
    """A step of MountainCar.

    Constants: force, gravity, largest speed, lowest and highest position, and position and speed of the goal.
    """
    c, x = carray(constants, 7), carray(state, 2)
    position, velocity = x[0], x[1]
    velocity += (action - 1) * c[0] + math.cos(3 * position) * (-c[1])
    velocity = _clip(velocity, -c[2], c[2])
    position = _clip(position + velocity, c[3], c[4])
    if position == c[3] and velocity < 0:
        velocity = 0.0
    x[0], x[1] = position, velocity
    observation[0], observation[1] = np.float32(position), np.float32(velocity)
    reward[0] = -1.0
    return position >= c[5] and velocity >= c[6]


@exact
def _acrobot_slope(c, y, torque, out):
    """Write the time derivative of the state y of Acrobot to out.

    Squares are computed by `pow`, as Gymnasium computes them. The exponent is one of the constants, because the
    compiler would replace the power 2 by a product, which is sometimes rounded differently.
    """
    m1, m2, l1, lc1, lc2, moi, g, two = c[0], c[1], c[2], c[3], c[4], c[5], 9.8, c[13]
    theta1, theta2, dtheta1, dtheta2 = y[0], y[1], y[2], y[3]
    l1_2, lc1_2, lc2_2 = math.pow(l1, two), math.pow(lc1, two), math.pow(lc2, two)
    d1 = m1 * lc1_2 + m2 * (l1_2 + lc2_2 + 2 * l1 * lc2 * math.cos(theta2)) + moi + moi
    d2 = m2 * (lc2_2 + l1 * lc2 * math.cos(theta2)) + moi
    phi2 = m2 * lc2 * g * math.cos(theta1 + theta2 - math.pi / 2.0)
    phi1 = (
        -m2 * l1 * lc2 * math.pow(dtheta2, two) * math.sin(theta2)
        - 2 * m2 * l1 * lc2 * dtheta2 * dtheta1 * math.sin(theta2)
        + (m1 * lc1 + m2 * l1) * g * math.cos(theta1 - math.pi / 2)
        + phi2
    )
    inertia = m2 * lc2_2 + moi - math.pow(d2, two) / d1
    if c[11] == 0.0:  # the equations of the book, not those of the paper
        lift = torque + d2 / d1 * phi1 - m2 * l1 * lc2 * math.pow(dtheta1, two) * math.sin(theta2) - phi2
    else:
        lift = torque + d2 / d1 * phi1 - phi2
    ddtheta2 = lift / inertia
    out[0], out[1], out[2], out[3] = dtheta1, dtheta2, -(d2 * ddtheta2 + phi1) / d1, ddtheta2


@exact
def _wrap(x):
    """Return an angle between -pi and pi."""
    turn = math.pi - (-math.pi)
    while x > math.pi:
        x = x - turn
    while x < -math.pi:
        x = x + turn
    return x


@partial(StepFunction, cached=True)
def acrobot(constants, state, action, observation, reward):
    """A step of Acrobot, by the classic Runge-Kutta method.

    Constants: masses of the links, length of the first, centres of mass, moment of inertia, time step, largest speeds
    of the links, torques of the first and the last action, 1 for the paper's equations, torque of the second action,
    and the number 2.
    """
    c, x = carray(constants, 14), carray(state, 4)
    torque = c[9] if action == 0 else c[12] if action == 1 else c[10]
    dt = c[6]
    half = dt / 2.0
    y, k1, k2, k3, k4 = np.empty(4), np.empty(4), np.empty(4), np.empty(4), np.empty(4)
    _acrobot_slope(c, x, torque, k1)
    for j in range(4):
        y[j] = x[j] + half * k1[j]
    _acrobot_slope(c, y, torque, k2)
    for j in range(4):
        y[j] = x[j] + half * k2[j]
    _acrobot_slope(c, y, torque, k3)
    for j in range(4):
        y[j] = x[j] + dt * k3[j]
    _acrobot_slope(c, y, torque, k4)
    for j in range(4):
        x[j] = x[j] + dt / 6.0 * (k1[j] + 2 * k2[j] + 2 * k3[j] + k4[j])
    x[0], x[1] = _wrap(x[0]), _wrap(x[1])
    x[2], x[3] = _clip(x[2], -c[7], c[7]), _clip(x[3], -c[8], c[8])
    observation[0], observation[1] = np.float32(math.cos(x[0])), np.float32(math.sin(x[0]))
    observation[2], observation[3] = np.float32(math.cos(x[1])), np.float32(math.sin(x[1]))
    observation[4], observation[5] = np.float32(x[2]), np.float32(x[3])
    terminated = -math.cos(x[0]) - math.cos(x[1] + x[0]) > 1.0
    reward[0] = 0.0 if terminated else -1.0
    return terminated
