"""PPO on gymnax's CartPole in one compiled function: the fast way to learn CartPole without FedQHD.

The equations are those of Schulman et al., "Proximal policy optimization algorithms" (2017), and the defaults are the
usual settings for CartPole. As a program it prints one line of JSON: the CPU seconds that imports, compilation and
training took, the steps that were made, and the mean return of the latest episodes.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from time import process_time
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import optax

GAMMA, LAMBDA, CLIP, VALUE, ENTROPY = 0.99, 0.95, 0.2, 0.5, 0.01
EPOCHS, MINIBATCHES, HIDDEN = 4, 4, 64
LAST = 20  # episodes whose mean return is compared with the goal
Weights = list[tuple[jax.Array, jax.Array]]


class Sample(NamedTuple):
    """A step of every environment. `episode` is the return of an episode that has ended here."""

    s: jax.Array
    a: jax.Array
    log_pi: jax.Array
    value: jax.Array
    r: jax.Array
    done: jax.Array
    episode: jax.Array


class Training(NamedTuple):
    """The state of a training: networks, optimiser, environments, and the returns of the latest episodes."""

    weights: tuple[Weights, Weights]
    adam: Any
    worlds: Any
    s: jax.Array
    episode: jax.Array
    latest: jax.Array
    updates: jax.Array
    key: jax.Array


def network(rng: np.random.Generator, outputs: int, scale: float) -> Weights:
    """Return two hidden layers and a last one, orthogonal, the last one with the given scale.

    numpy draws them, since JAX would take a second to compile the decomposition.
    """
    sizes, scales = (4, HIDDEN, HIDDEN, outputs), (2**0.5, 2**0.5, scale)
    Qs = [np.linalg.qr(rng.normal(size=(max(m, n), min(m, n))))[0] for m, n in pairwise(sizes)]
    shaped = [Q if m >= n else Q.T for Q, (m, n) in zip(Qs, pairwise(sizes), strict=True)]
    return [(jnp.asarray(g * Q, jnp.float32), jnp.zeros(Q.shape[1])) for g, Q in zip(scales, shaped, strict=True)]


def forward(weights: Weights, s: jax.Array) -> jax.Array:
    """Return the outputs of a network."""
    for W, b in weights[:-1]:
        s = jnp.tanh(s @ W + b)
    W, b = weights[-1]
    return s @ W + b


def advantages(samples: Sample, last: jax.Array) -> jax.Array:
    """Return A(t) = δ(t) + γλ (1 - done) A(t + 1), with δ(t) = r + γ (1 - done) V(t + 1) - V(t)."""

    def back(later: tuple[jax.Array, jax.Array], x: Sample) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        A, v_next = later
        discount = GAMMA * (1 - x.done)
        A = x.r + discount * v_next - x.value + discount * LAMBDA * A
        return (A, x.value), A

    return jax.lax.scan(back, (jnp.zeros_like(last), last), samples, reverse=True)[1]


def loss(weights: tuple[Weights, Weights], x: Sample, A: jax.Array, goal: jax.Array) -> jax.Array:
    """Return the clipped loss of the policy, with the loss of the values and the entropy."""
    actor, critic = weights
    log_p = jax.nn.log_softmax(forward(actor, x.s))
    value = forward(critic, x.s)[:, 0]
    ratio = jnp.exp(jnp.take_along_axis(log_p, x.a[:, None], 1)[:, 0] - x.log_pi)
    A = (A - A.mean()) / (A.std() + 1e-8)
    policy = -jnp.minimum(ratio * A, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * A).mean()
    near = x.value + jnp.clip(value - x.value, -CLIP, CLIP)
    error = 0.5 * jnp.maximum((value - goal) ** 2, (near - goal) ** 2).mean()
    entropy = -(jnp.exp(log_p) * log_p).sum(1).mean()
    return policy + VALUE * error - ENTROPY * entropy


def program(envs: int, horizon: int, steps: int, rate: float, goal: float) -> Any:
    """Return the function of a key that trains until the goal, or for the given number of steps, and returns both."""
    env, params = gymnax.make("CartPole-v1")
    total = max(1, steps // (envs * horizon))
    per_update = EPOCHS * MINIBATCHES
    schedule = optax.linear_schedule(rate, 0.0, total * per_update)
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(schedule, eps=1e-5))

    def act(state: tuple[Training, Any, jax.Array, jax.Array], key: jax.Array) -> tuple[Any, Sample]:
        (actor, critic), worlds, s, episode = state
        choose, move = jax.random.split(key)
        log_p = jax.nn.log_softmax(forward(actor, s))
        a = jax.random.categorical(choose, log_p)
        log_pi = jnp.take_along_axis(log_p, a[:, None], 1)[:, 0]
        step = jax.vmap(env.step, in_axes=(0, 0, 0, None))
        s_next, worlds, r, *ended, _ = step(jax.random.split(move, envs), worlds, a, params)
        done = ended[0] | ended[-1]  # newer versions of gymnax return terminated and truncated
        episode = episode + r
        sample = Sample(s, a, log_pi, forward(critic, s)[:, 0], r, done, jnp.where(done, episode, jnp.nan))
        return ((actor, critic), worlds, s_next, jnp.where(done, 0.0, episode)), sample

    def learn(state: tuple[Any, Any], batch: tuple[Sample, jax.Array, jax.Array]) -> tuple[Any, None]:
        weights, adam = state
        change, adam = optimiser.update(jax.grad(loss)(weights, *batch), adam)
        return (optax.apply_updates(weights, change), adam), None

    def update(t: Training) -> Training:
        key, play, shuffle = jax.random.split(t.key, 3)
        (_, worlds, s, episode), samples = jax.lax.scan(
            act, (t.weights, t.worlds, t.s, t.episode), jax.random.split(play, horizon)
        )
        A = advantages(samples, forward(t.weights[1], s)[:, 0])
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (samples, A, A + samples.value))

        def epoch(state: tuple[Any, Any], key: jax.Array) -> tuple[Any, None]:
            order = jax.random.permutation(key, envs * horizon).reshape(MINIBATCHES, -1)
            return jax.lax.scan(lambda w, rows: learn(w, jax.tree.map(lambda x: x[rows], batch)), state, order)

        (weights, adam), _ = jax.lax.scan(epoch, (t.weights, t.adam), jax.random.split(shuffle, EPOCHS))
        returns = jnp.concatenate([t.latest, batch[0].episode])
        places = jnp.where(jnp.isnan(returns), -1, jnp.arange(len(returns)))
        return Training(weights, adam, worlds, s, episode, returns[jax.lax.top_k(places, LAST)[0]][::-1],
                        t.updates + 1, key)  # fmt: skip

    def more(t: Training) -> jax.Array:
        return (t.updates < total) & ~(t.latest.mean() >= goal)

    def train(weights: tuple[Weights, Weights], key: jax.Array) -> tuple[jax.Array, jax.Array]:
        key, reset = jax.random.split(key)
        s, worlds = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(reset, envs), params)
        t = Training(weights, optimiser.init(weights), worlds, s, jnp.zeros(envs), jnp.zeros(LAST), jnp.int32(0), key)
        t = jax.lax.while_loop(more, update, t)
        return t.updates * envs * horizon, t.latest.mean()

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--horizon", type=int, default=128, help="steps of each environment between updates")
    parser.add_argument("--steps", type=int, default=500_000, help="steps after which the step size is zero")
    parser.add_argument("--rate", type=float, default=2.5e-4, help="step size of Adam at the start")
    parser.add_argument("--goal", type=float, default=float("inf"), help=f"mean return of {LAST} episodes to stop at")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", default="", help="folder in which JAX keeps compiled programs")
    args = parser.parse_args()
    if args.cache:
        jax.config.update("jax_compilation_cache_dir", args.cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    times = [process_time()]
    rng = np.random.default_rng(args.seed)
    start = (network(rng, 2, 0.01), network(rng, 1, 1.0)), jax.random.key(args.seed)
    ready = jax.jit(program(args.envs, args.horizon, args.steps, args.rate, args.goal)).lower(*start).compile()
    times.append(process_time())
    steps, mean = jax.block_until_ready(ready(*start))
    times.append(process_time())
    print(json.dumps({"imports": times[0], "compilation": times[1] - times[0], "training": times[2] - times[1],
                      "steps": int(steps), "mean": float(mean)}))  # fmt: skip


if __name__ == "__main__":
    main()
