"""Compare single operations with other implementations of the same mathematics, in turn in one process and thread.

A ratio is the median time of the other implementation divided by ours or, in rows with a limit, our time divided by
that limit.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from sklearn.kernel_approximation import RBFSampler

from fedqhd import kernels
from fedqhd.agents import OnlineQHD, OnlineSettings, ReplayQHD, ReplaySettings
from fedqhd.agents.learners.dqn import DQN, DQNSettings
from fedqhd.agents.td import double_q_target, q_values, semi_gradient, td_error
from fedqhd.core.protocols import Transition
from fedqhd.encoders import RandomFourier
from fedqhd.linalg.ridge import Ridge

B, ETA, CAPACITY, REPEATS = 32, 1e-3, 10_000, 30
Row = dict[str, Any]
Operation = Callable[[], object]

LIMITS = """
#include <stdint.h>
#include <stddef.h>
/* The arithmetic of an update: Q of the sampled rows, Q of the next rows by two readouts, and the step on W. */
float arithmetic(const int8_t *X, const int64_t *rows, const int64_t *a, int B, int D, int A, float *W,
                 const float *V) {
    float total = 0;
    for (int i = 0; i < B; i++) {
        const int8_t *x = X + (size_t)rows[i] * D, *y = x + D;
        for (int k = 0; k < A; k++) {
            float p = 0, q = 0;
            const float *w = W + (size_t)k * D, *v = V + (size_t)k * D;
            for (int d = 0; d < D; d++) { p += y[d] * w[d]; q += y[d] * v[d]; }
            total += p + q;
        }
        const float *w = W + (size_t)a[i] * D;
        float p = 0;
        for (int d = 0; d < D; d++) p += x[d] * w[d];
        total += p;
    }
    for (int i = 0; i < B; i++) {
        const int8_t *x = X + (size_t)rows[i] * D;
        float *w = W + (size_t)a[i] * D;
        for (int d = 0; d < D; d++) w[d] += 1e-12f * x[d];
    }
    return total;
}
/* The memory traffic of an update: the sampled rows and the next rows are read once. */
int64_t bandwidth(const int64_t *X, const int64_t *rows, int B, int words) {
    int64_t total = 0;
    for (int i = 0; i < B; i++) {
        const int64_t *x = X + (size_t)rows[i] * words;
        for (int d = 0; d < 2 * words; d++) total ^= x[d];
    }
    return total;
}
"""


def in_turn(operations: dict[str, Operation], calls: int = 10, repeats: int = REPEATS) -> dict[str, float]:
    """Time operations in turn and return the median seconds of one call of each."""
    times: dict[str, list[float]] = {name: [] for name in operations}
    for repeat in range(repeats + 2):
        for name, operation in operations.items():
            start = perf_counter()
            for _ in range(calls):
                operation()
            if repeat >= 2:  # the first two warm up
                times[name].append((perf_counter() - start) / calls)
    return {name: float(np.median(t)) for name, t in times.items()}


def row(
    name: str, against: str, ratio: float, goal: float | None, at_most: bool = False, repeats: int = REPEATS
) -> Row:
    """Return a row of the result file. The ratio must be at least the goal, or at most with `at_most`."""
    return {"name": name, "against": against, "ratio": round(ratio, 2), "goal": goal, "at_most": at_most,
            "repeats": repeats}  # fmt: skip


def replay_agent(D: int, n: int, actions: int) -> ReplayQHD:
    """Return an agent whose replay memory is full of episodes of 200 steps."""
    rng = np.random.default_rng(0)
    settings = ReplaySettings(batch_size=B, eta=ETA, replay_size=CAPACITY, features="int8", update_every=CAPACITY + 1)
    agent = ReplayQHD(RandomFourier.sample(n, D, 1.5, rng), actions, settings, rng)
    states = rng.normal(size=(CAPACITY + 1, n)).astype(np.float32)
    for k in range(CAPACITY):
        s_next = rng.normal(size=n).astype(np.float32) if k % 200 == 199 else states[k + 1]
        agent.observe(Transition(states[k], int(rng.integers(actions)), float(rng.normal()), 0.99, s_next))
    return agent


def our_update(agent: ReplayQHD) -> Operation:
    """Return a replay update by our kernel."""
    m, rng = agent.memory, np.random.default_rng(1)
    args = (*agent._last.args, agent.memory.X, agent.memory.scale, m.joined, m.a, m.r, m.discount, m.s_next)
    weights = (ETA, agent._rows, agent._target_rows, agent._N_target, agent._unit_target, agent._phi_next)
    return lambda: kernels.stored_step(*args, rng.random(B), m.size, *weights)


def numpy_update(agent: ReplayQHD) -> Operation:
    """Return the same update in numpy, in float32 like the kernels."""
    m, rng = agent.memory, np.random.default_rng(1)
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


def torch_update(agent: ReplayQHD) -> Operation:
    """Return the same update in eager torch."""
    m, rng = agent.memory, np.random.default_rng(1)
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


def limits(agent: ReplayQHD, library: ctypes.CDLL) -> dict[str, Operation]:
    """Return two lower bounds of an update: its arithmetic alone, on cached rows, and its memory traffic alone."""
    rng, D, A = np.random.default_rng(1), agent.encoder.D, agent.W.shape[1]
    X, a = agent.memory.X, agent.memory.a[:B].copy()
    W, V = agent._rows.copy(), agent._target_rows.copy()
    same = np.arange(0, 2 * B, 2)

    def at(array: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    def bandwidth() -> None:
        rows = rng.integers(CAPACITY - 1, size=B)
        library.bandwidth(at(X), at(rows), B, D // 8)

    return {"C loop": lambda: library.arithmetic(at(X), at(same), at(a), B, D, A, at(W), at(V)), "memory": bandwidth}


def build_limits(folder: str) -> ctypes.CDLL:
    """Compile LIMITS."""
    source = Path(folder) / "limits.c"
    source.write_text(LIMITS)
    built = source.with_suffix(".so")
    command = ["gcc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", str(source), "-o", str(built)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(built))


def updates() -> Iterator[Row]:
    """Compare a replay update with torch, numpy and its lower bounds."""
    with tempfile.TemporaryDirectory() as folder:
        library = build_limits(folder)
        for D, n, actions in ((1000, 4, 2), (1000, 8, 4), (10_000, 4, 2), (10_000, 8, 4)):
            agent = replay_agent(D, n, actions)
            others = {"torch": torch_update(agent), "numpy": numpy_update(agent), **limits(agent, library)}
            spent = in_turn({"ours": our_update(agent), **others})
            name = f"replay update, D={D:,}, A={actions}"
            large = D == 10_000
            yield row(name, "eager torch", spent["torch"] / spent["ours"], 20 if large else None)
            yield row(name, "numpy", spent["numpy"] / spent["ours"], 10 if large else None)
            limit = "C loop" if spent["C loop"] > spent["memory"] else "memory"
            yield row(f"{name}, ours over the limit", limit, spent["ours"] / spent[limit], 1.5, at_most=True)


def encoding() -> Iterator[Row]:
    """Compare the encoding of states with torchhd and scikit-learn."""
    import torchhd

    states = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    tensor = torch.from_numpy(states)
    for D in (1000, 10_000):
        ours = RandomFourier.sample(8, D, 1.5, np.random.default_rng(0))
        sinusoid = torchhd.embeddings.Sinusoid(8, D)
        sampler = RBFSampler(n_components=D, random_state=0).fit(states)
        with torch.no_grad():
            spent = in_turn(
                {"ours": lambda e=ours: e.features(states), "torchhd Sinusoid": lambda e=sinusoid: e(tensor),
                 "scikit-learn RBFSampler": lambda e=sampler: e.transform(states)}, calls=1,
            )  # fmt: skip
        for against in list(spent)[1:]:
            yield row(f"encode 1,000 states, D={D:,}", against, spent[against] / spent["ours"], 5)


def acting() -> Iterator[Row]:
    """Compare acting and an online step with a small network in torch."""
    D, n, actions = 10_000, 8, 4
    rng = np.random.default_rng(0)
    agent = OnlineQHD(RandomFourier.sample(n, D, 1.5, rng), actions, OnlineSettings(eta=ETA, epsilon_start=0.0), rng)
    mlp = torch.nn.Sequential(
        torch.nn.Linear(n, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, actions),
    )
    adam = torch.optim.Adam(mlp.parameters())
    states = rng.normal(size=(1000, n)).astype(np.float32)
    at = iter(range(10**9))

    def state() -> np.ndarray:
        return states[next(at) % len(states)]

    def forward() -> int:
        with torch.no_grad():
            return int(mlp(torch.from_numpy(state())).argmax())

    def step() -> None:
        s, s_next = torch.from_numpy(state()), torch.from_numpy(state())
        with torch.no_grad():
            y = 1.0 + 0.99 * mlp(s_next).max()
        loss = (y - mlp(s)[0]) ** 2
        adam.zero_grad()
        loss.backward()
        adam.step()

    spent = in_turn({"ours": lambda: agent.act(state()), "torch": forward}, calls=100)
    yield row(f"act, D={D:,}", "torch MLP 2x128, forward", spent["torch"] / spent["ours"], 1)
    online = {"ours": lambda: agent.observe(Transition(state(), 0, 1.0, 0.99, state())), "torch": step}
    spent = in_turn(online, calls=100)
    yield row(f"online step, D={D:,}", "torch MLP 2x128, forward and backward", spent["torch"] / spent["ours"], 20)


def compiling() -> Iterator[Row]:
    """Measure a client's part of a round after the first: it evaluates Q at the anchors and compiles the teacher."""
    D, m, actions = 10_000, 2000, 2
    rng = np.random.default_rng(0)
    agent = OnlineQHD(RandomFourier.sample(4, D, 1.5, rng), actions, OnlineSettings(), rng)
    anchors, Q = rng.normal(size=(m, 4)).astype(np.float32), rng.normal(size=(m, actions))
    agent.fit_anchors(anchors, Q)
    X, W = Ridge(agent.encoder(anchors), 1e-2).X, rng.normal(size=(D, actions))

    def ours() -> None:
        agent.q(anchors)
        agent.fit_anchors(anchors, Q)

    spent = in_turn({"ours": ours, "products": lambda: (X @ W, X.T @ Q)}, calls=1)
    name = f"federation round, m={m:,}, D={D:,}, ours over the limit"
    yield row(name, "two matrix products", spent["ours"] / spent["products"], 1.3, at_most=True)


def networks() -> Iterator[Row]:
    """Compare our compiled DQN, which is the baseline elsewhere, with the same DQN in eager torch."""
    n, actions, hidden = 8, 4, (128, 128)
    rng = np.random.default_rng(0)
    agent = DQN(n, actions, hidden, DQNSettings(batch_size=B, learning_starts=CAPACITY), rng, rng)
    for _ in range(1000):
        s, s_next = rng.normal(size=(2, n)).astype(np.float32)
        agent.observe(Transition(s, int(rng.integers(actions)), 0.0, 0.99, s_next))
    network, target = (
        torch.nn.Sequential(torch.nn.Linear(n, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(),
                            torch.nn.Linear(128, actions)) for _ in range(2)
    )  # fmt: skip
    adam = torch.optim.Adam(network.parameters(), fused=True)
    m = agent.memory

    def update() -> None:
        rows = m.sample(B, rng)
        s, a, r, discount, s_next = (torch.from_numpy(x[rows]) for x in (m.s, m.a, m.r, m.discount, m.s_next))
        with torch.no_grad():
            best = network(s_next).argmax(1, keepdim=True)
            y = r + discount * target(s_next).gather(1, best)[:, 0]
        loss = torch.nn.functional.huber_loss(network(s).gather(1, a[:, None])[:, 0], y)
        adam.zero_grad()
        loss.backward()
        adam.step()

    spent = in_turn({"ours": agent._update, "torch": update})
    yield row(f"DQN minibatch of {B}, the one we are compared with", "eager torch", spent["torch"] / spent["ours"], 1)


def floors() -> Iterator[Row]:
    """Compare minibatches of QHD and of the DQN with which whole runs are compared step by step."""
    n, actions, rng = 4, 2, np.random.default_rng(0)
    network = DQN(n, actions, (128, 128), DQNSettings(batch_size=B, learning_starts=CAPACITY), rng, rng)
    for _ in range(1000):
        s, s_next = rng.normal(size=(2, n)).astype(np.float32)
        network.observe(Transition(s, int(rng.integers(actions)), 0.0, 0.99, s_next))
    for D in (2000, 10_000):
        spent = in_turn({"ours": our_update(replay_agent(D, n, actions)), "network": network._update})
        name = f"minibatch of {B}, D={D:,}, A={actions}"
        yield row(name, "our DQN with two layers of 128", spent["network"] / spent["ours"], None)


def rows() -> Iterator[Row]:
    """Yield the rows of all comparisons in this file."""
    torch.set_num_threads(1)
    for part in (updates, encoding, acting, compiling, networks, floors):
        yield from part()
