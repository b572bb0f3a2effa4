"""The learner's update beside the same mathematics in eager torch and in plain numpy.

Ratios from alternating repeats in one process; absolute times depend on the machine.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fedqhd.agents import QHDSettings, ReplayQHD
from fedqhd.agents.td import double_q_target, q_values, semi_gradient, td_error
from fedqhd.encoders import RandomFourier
from fedqhd.interfaces import Transition

B, ETA, REPEATS = 32, 0.01, 30
RESULTS = Path(__file__).parent.parent / "results" / "bench.json"


def make_agent(D: int, n: int, actions: int) -> ReplayQHD:
    rng = np.random.default_rng(0)
    agent = ReplayQHD(RandomFourier.sample(n, D, 1.5, rng), actions, QHDSettings(batch_size=B, eta=ETA), rng)
    for _ in range(1000):
        s, s_next = rng.normal(size=(2, n)).astype(np.float32)
        agent.replay.add(Transition(s, int(rng.integers(actions)), float(rng.normal()), 0.99, s_next))
    return agent


def ours(agent: ReplayQHD):
    from fedqhd import kernels

    m = agent.replay
    args = (*agent._args, m.s, m.a, m.r, m.discount, m.s_next)
    rng = np.random.default_rng(1)
    return lambda: kernels.replay_step(*args, m.sample(B, rng), ETA, agent._rows, agent._target_rows, agent._kept)


def numpy_update(agent: ReplayQHD):
    """float32 throughout, as in the kernels."""
    m, rng = agent.replay, np.random.default_rng(1)
    Omega, b = agent.encoder.arrays["Omega"] * np.float32(2 * np.pi), agent.encoder.arrays["b"] * np.float32(2 * np.pi)
    scale = np.float32(1 / np.sqrt(agent.encoder.D))
    state = {"W": agent.W.copy()}
    W_target = agent.W_target.copy()

    def update() -> None:
        rows, W = m.sample(B, rng), state["W"]
        X, X_next = np.cos(m.s[rows] @ Omega + b) * scale, np.cos(m.s_next[rows] @ Omega + b) * scale
        y = double_q_target(m.r[rows], m.discount[rows], q_values(X_next, W), q_values(X_next, W_target))
        state["W"] = semi_gradient(W, X, m.a[rows], td_error(y, q_values(X, W), m.a[rows]).astype(np.float32), ETA)

    return update


def torch_update(agent: ReplayQHD):
    m, rng = agent.replay, np.random.default_rng(1)
    Omega, b = (torch.from_numpy(agent.encoder.arrays[k] * np.float32(2 * np.pi)) for k in ("Omega", "b"))
    S, A, R, discount, S_next = (torch.from_numpy(x) for x in (m.s, m.a, m.r, m.discount, m.s_next))
    W, W_target = torch.from_numpy(agent.W.copy()), torch.from_numpy(agent.W_target.copy())
    scale = agent.encoder.D**-0.5

    @torch.no_grad()
    def update() -> None:
        rows = torch.from_numpy(m.sample(B, rng))
        a = A[rows, None]
        X, X_next = torch.cos(S[rows] @ Omega + b) * scale, torch.cos(S_next[rows] @ Omega + b) * scale
        best = (X_next @ W).argmax(1, keepdim=True)
        y = R[rows] + discount[rows] * (X_next @ W_target).gather(1, best)[:, 0]
        delta = y - (X @ W).gather(1, a)[:, 0]
        W.addmm_(X.T, torch.zeros(B, W.shape[1]).scatter_(1, a, delta[:, None]), alpha=ETA)

    return update


def seconds(update, calls: int) -> float:
    start = perf_counter()
    for _ in range(calls):
        update()
    return (perf_counter() - start) / calls


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for D, n, actions in ((1000, 4, 2), (1000, 8, 4), (10_000, 4, 2), (10_000, 8, 4)):
        agent = make_agent(D, n, actions)
        contenders = {"ours": ours(agent), "torch": torch_update(agent), "numpy": numpy_update(agent)}
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for repeat in range(REPEATS + 2):
            for name, update in contenders.items():
                spent = seconds(update, 10)
                if repeat >= 2:  # the first two warm up
                    times[name].append(spent)
        for against in ("torch", "numpy"):
            ratio = float(np.median(times[against]) / np.median(times["ours"]))
            rows.append(
                {
                    "name": f"replay update, D={D}, A={actions}",
                    "against": against,
                    "ratio": round(ratio, 2),
                    "repeats": REPEATS,
                }
            )
    table = Table(title=f"times as fast as the same mathematics, B={B}, one thread")
    for column in ("what", "against", "ratio"):
        table.add_column(column, justify="right" if column == "ratio" else "left")
    for row in rows:
        table.add_row(row["name"], row["against"], f"{row['ratio']:.1f}x")
    Console().print(table)
    RESULTS.write_text(
        json.dumps(
            {"command": "make bench", "machine": platform.processor() or platform.machine(), "rows": rows}, indent=1
        )
        + "\n"
    )
    print(f"written to {RESULTS.relative_to(RESULTS.parent.parent)}")


if __name__ == "__main__":
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        main()
