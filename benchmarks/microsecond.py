"""Where the time of an online training step on CartPole goes: each of its parts, repeated alone in one kernel.

    python benchmarks/microsecond.py

It prints a table in nanoseconds per step, the fastest of several repetitions.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numba import njit

from fedqhd.agents import OnlineQHD, OnlineSettings
from fedqhd.encoders import RandomFourier
from fedqhd.envs.compiled import Twin
from fedqhd.envs.make import make_env
from fedqhd.envs.scaling import StateScaler
from fedqhd.kernels.actions import epsilon_greedy
from fedqhd.kernels.calls import draw
from fedqhd.kernels.encode import encode_block
from fedqhd.kernels.episode import advance, play
from fedqhd.kernels.products import add_one, value

STEPS, REPEATS = 200_000, 7
DIMS = (500, 2000, 10_000)


@njit(nogil=True)
def environment(n, world, own, z):
    for i in range(n):
        world.state[:] = 0.01
        advance(world, i % 2, 500, z)


@njit
def exploring(n, world, own, z):
    chosen = 0
    for _ in range(n):
        chosen += epsilon_greedy(own.q, 0.1, draw(own.next_double, own.generator), draw(own.next_double, own.generator))
    return chosen


@njit
def encoding(n, world, own, z):
    for i in range(n):
        z[0] = 0.001 * (i % 100)
        encode_block(own.kind, z, own.Omega, own.b, own.items, 0, own.phi.shape[0], own.phi)


@njit
def values(n, world, own, z):
    total = 0.0
    for i in range(n):
        own.phi[0] = i % 3
        for a in range(own.W.shape[0]):
            total += value(own.phi, own.W[a])
        total += value(own.phi, own.W[i % 2])  # that of the action whose weights were updated
    return total


@njit
def update(n, world, own, z):
    for i in range(n):
        add_one(own.W[i % 2], own.phi, np.float32(1e-9))


@njit
def nothing(n, world, own, z):
    return own.phi[0]


def nanoseconds(part: Callable[..., Any], *arguments: Any) -> float:
    """Return the nanoseconds of a step of a part."""
    spent = []
    for _ in range(REPEATS + 1):
        began = perf_counter()
        part(STEPS, *arguments)
        spent.append(perf_counter() - began)
    return 1e9 * min(spent[1:]) / STEPS


def whole(world: Any, record: Any, z: Any) -> float:
    """Return the nanoseconds of a training step in the kernel that plays episodes."""

    def steps(n: int) -> None:
        for _ in range(n // 20):  # about the length of an episode of a client that has learned nothing
            world.state[:], z[:] = 0.01, 0.0
            play(world, record, 1.0, 0.99, z, z.copy(), np.empty((0, 4), np.float32), 20, 0, 0.0)

    return nanoseconds(steps)


def main() -> None:
    env = make_env("CartPole-v1")
    zeros = np.zeros(4)
    twin = Twin(env, StateScaler(zeros, zeros + 1, zeros - 4, zeros + 4))
    env.reset(seed=0)
    world, z = twin.world(), np.zeros(4, np.float32)
    rows: dict[str, list[float]] = {}
    for D in DIMS:
        encoder = RandomFourier.sample(4, D, 1.5, np.random.default_rng(0))
        agent = OnlineQHD(encoder, 2, OnlineSettings(eta=1e-4), np.random.default_rng(0))
        record = agent.in_kernel()
        for name, part in (
            ("environment", environment), ("two draws and the choice", exploring), ("encoding of s'", encoding),
            ("three values", values), ("update of one action", update),
        ):  # fmt: skip
            rows.setdefault(name, []).append(nanoseconds(part, world, record.own, z))
        rows.setdefault("the whole step", []).append(whole(world, record, z))
    print("| nanoseconds |", " | ".join(f"D = {D:,}" for D in DIMS), "|\n|---|" + "---:|" * len(DIMS))
    for name, each in rows.items():
        print(f"| {name} |", " | ".join(f"{x:,.0f}" for x in each), "|")


if __name__ == "__main__":
    main()
