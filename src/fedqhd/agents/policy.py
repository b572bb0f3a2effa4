"""A trained model as it is used: raw observations in, actions out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fedqhd.agents.model import load_model
from fedqhd.core import rng
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged, read_arrays, write_arrays
from fedqhd.core.protocols import Array, Model
from fedqhd.envs.make import make_env
from fedqhd.envs.scaling import StateScaler


class Policy:
    """The greedy policy of one client; `predict` is Stable-Baselines3's, so its tools take it."""

    def __init__(
        self, model: Model, scaler: StateScaler, env: str, epsilon: float = 0.0, action_repeat: int = 1, seed: int = 0
    ) -> None:
        if len(scaler.shift) != model.n:
            raise FedQHDError(f"a scaler of {len(scaler.shift)} variables does not fit a model of {model.n}")
        self.model = model
        self.scaler = scaler
        self.env = env
        self.epsilon = epsilon
        self.action_repeat = action_repeat
        """Steps of the environment for which it was trained to keep an action."""
        self._rng = rng.generator(seed, rng.PUBLIC, "policy")

    def make_env(self, **kwargs: Any) -> gymnasium.Env[Array, np.int64]:
        """The environment it was trained in, acting as often as there."""
        return make_env(self.env, repeat=self.action_repeat, **kwargs)

    def q(self, obs: Array) -> Array:
        """(B, n) raw observations -> (B, A)."""
        return self.model.q(self.scaler(obs))

    def predict(
        self,
        obs: Array,
        state: tuple[Array, ...] | None = None,
        episode_start: Array | None = None,
        deterministic: bool = True,
    ) -> tuple[Array, tuple[Array, ...] | None]:
        """Actions for one observation (n,) or a batch (B, n). `state` passes through: nothing is recurrent here.

        deterministic=False explores with the epsilon that training ended on.
        """
        obs = np.asarray(obs)
        batch = np.atleast_2d(obs)
        n = self.model.n
        if batch.ndim != 2 or batch.shape[1] != n:
            raise FedQHDError(f"observations of shape {obs.shape} do not fit: ({n},) or (B, {n}) is needed")
        actions = self.q(batch).argmax(axis=1)
        if not deterministic:
            explore = self._rng.random(len(actions)) < self.epsilon
            actions = np.where(explore, self._rng.integers(self.model.actions, size=len(actions)), actions)
        return (actions if obs.ndim == 2 else actions[0]), state

    def save(self, path: str | Path) -> None:
        scaler = {f"scaler.{k}": np.asarray(v) for k, v in self.scaler._asdict().items()}
        own = {"env": self.env, "epsilon": self.epsilon, "action_repeat": self.action_repeat}
        about = {"kind": self.model.kind, **own, **self.model.about()}
        write_arrays(path, {**self.model.arrays(), **scaler}, about)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        arrays, about = read_arrays(path)
        try:
            model = load_model(arrays, about, str(path))
            scaler = StateScaler(*(arrays[f"scaler.{k}"] for k in StateScaler._fields))
            return cls(model, scaler, about["env"], about["epsilon"], about.get("action_repeat", 1))
        except KeyError as error:
            raise damaged(path, f"{error} is missing") from error


def model_path(run: str | Path, client: int) -> Path:
    return Path(run) / "models" / f"client-{client}.npz"


def load_policy(run: str | Path, client: int = 0) -> Policy:
    """The trained policy of one client of a finished run."""
    path = model_path(run, client)
    if not path.exists():
        have = sorted(p.stem.removeprefix("client-") for p in path.parent.glob("client-*.npz"))
        what = f"it has clients {', '.join(have)}" if have else "it holds no trained models; has its training finished?"
        raise FedQHDError(f"client={client} has no model in {str(run)!r}: {what}")
    return Policy.load(path)


def greedy_returns(policy: Policy, env: gymnasium.Env[Array, np.int64], episodes: int, seed: int, client: int) -> Array:
    """Returns of fresh greedy episodes; their seeds are never those of training."""
    returns = np.zeros(episodes)
    for episode in range(episodes):
        obs, _ = env.reset(seed=rng.env_seed(seed, client, "evaluate", episode))
        done = False
        while not done:
            action, _ = policy.predict(obs)
            obs, reward, terminated, truncated, _ = env.step(action)  # type: ignore[arg-type]
            returns[episode] += float(reward)
            done = terminated or truncated
    return returns
