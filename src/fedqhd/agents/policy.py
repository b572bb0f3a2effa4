"""Policies: trained models that map raw observations to actions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.agents.loops import greedy_in_kernel, twin_for
from fedqhd.agents.model import code_names, load_model, note_of
from fedqhd.core import rng
from fedqhd.core import trust as trusting
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged, read_arrays, write_arrays
from fedqhd.core.protocols import Array, Model
from fedqhd.envs.adapt import Env
from fedqhd.envs.make import make_env
from fedqhd.envs.scaling import StateScaler

LONGEST = 200
"""The longest name of an environment in a file, in characters."""


class Policy:
    """The greedy policy of one client. Its `predict` has the signature of Stable-Baselines3, whose tools can use it.

    Args:
        model: The trained Q-function.
        scaler: The scaling of observations.
        env: The environment in which it was trained, a Gymnasium id or `module:Env`.
        epsilon: The exploration rate at the end of training, for `predict(..., deterministic=False)`.
        action_repeat: Steps of the environment for which it was trained to repeat an action.
        seed: The seed of exploration.
    """

    def __init__(
        self, model: Model, scaler: StateScaler, env: str, epsilon: float = 0.0, action_repeat: int = 1, seed: int = 0
    ) -> None:
        if len(scaler.shift) != model.n:
            raise FedQHDError(f"a scaler of {len(scaler.shift)} state variables does not fit a model of {model.n}")
        self.model = model
        self.scaler = scaler
        self.env = env
        self.epsilon = epsilon
        self.action_repeat = action_repeat
        self._rng = rng.generator(seed, rng.PUBLIC, "policy")

    def make_env(self, **kwargs: Any) -> Env:
        """Make the environment in which it was trained, with the same action repeat."""
        return make_env(self.env, repeat=self.action_repeat, **kwargs)

    def q(self, obs: Array) -> Array:
        """Return the Q-values (B, A) of raw observations (B, n)."""
        return self.model.q(self.scaler(obs))

    def predict(
        self,
        obs: Array,
        state: tuple[Array, ...] | None = None,
        episode_start: Array | None = None,
        deterministic: bool = True,
    ) -> tuple[Array, tuple[Array, ...] | None]:
        """Return the actions for one observation (n,) or a batch (B, n).

        Args:
            obs: The raw observations.
            state: Returned as it is, because the policy is not recurrent.
            episode_start: Ignored.
            deterministic: If False, explore with the epsilon at the end of training.

        Returns:
            The action or actions, and `state`.
        """
        obs = np.asarray(obs)
        batch = np.atleast_2d(obs)
        n = self.model.n
        if batch.ndim != 2 or batch.shape[1] != n:
            raise FedQHDError(f"observations of shape {obs.shape} do not fit: ({n},) or (B, {n}) is needed")
        actions = self.model.act(self.scaler(batch))
        if not deterministic:
            explore = self._rng.random(len(actions)) < self.epsilon
            random = self.model.random_actions(self._rng, len(actions))
            actions[explore] = random[explore]
        return (actions if obs.ndim == 2 else actions[0]), state

    def save(self, path: str | Path, *, durable: bool = True) -> None:
        """Save the policy to a file that `load` reads. If not `durable`, the file may not be on the disk yet."""
        scaler = {f"scaler.{k}": np.asarray(v) for k, v in self.scaler._asdict().items()}
        training = {"env": self.env, "epsilon": self.epsilon, "action_repeat": self.action_repeat}
        note = {**training, **note_of(self.model)}
        write_arrays(path, {**self.model.arrays(), **scaler}, {"kind": note["kind"], **note},
                     durable=durable)  # fmt: skip
        trusting.remember_also(Path(path), code_names(note))

    @classmethod
    def load(cls, path: str | Path, trust: bool = False) -> Policy:
        """Load a policy from a file.

        Args:
            path: The file.
            trust: Whether to import code that the file names, such as the user's own environment or encoder, even if it
                does not belong to a run that this user made on this machine.

        Raises:
            DamagedFile: If the file is not what `save` wrote.
            FedQHDError: If it names code that is not trusted.
        """
        arrays, about = read_arrays(path)
        if trust:
            trusting.grant(path)
        trusting.check_code(code_names(about), Path(path))
        try:
            check_training(about)
            scaler = StateScaler(*(arrays.pop(f"scaler.{k}") for k in StateScaler._fields))
            scaler.check()
        except KeyError as error:
            raise damaged(path, f"{error} is missing") from error
        except ValueError as error:
            raise damaged(path, str(error)) from error
        model = load_model(arrays, about, str(path))
        if len(scaler.shift) != model.n:
            raise damaged(path, f"its scaler has {len(scaler.shift)} state variables and its model {model.n}")
        return cls(model, scaler, about["env"], about["epsilon"], about.get("action_repeat", 1))


def check_training(about: Mapping[str, Any]) -> None:
    """Raise ValueError unless the note of a policy says in which environment, and how, it was trained."""
    env, epsilon, repeat = about["env"], about["epsilon"], about.get("action_repeat", 1)
    if not (isinstance(env, str) and 0 < len(env) <= LONGEST and env.isprintable()):
        raise ValueError(f"env={env!r:.80} is not the name of an environment")
    if type(epsilon) not in (int, float) or not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon={epsilon!r:.80} is not a number from 0 to 1")
    if type(repeat) is not int or not 1 <= repeat < 2**31:
        raise ValueError(f"action_repeat={repeat!r:.80} is not a positive integer")


def models_of(run: str | Path) -> Path:
    """Return the folder of the clients' policies in the folder of a run."""
    return Path(run) / "models"


def model_path(run: str | Path, client: int) -> Path:
    """Return the file of a client's policy in the folder of a run."""
    return models_of(run) / f"client-{client}.npz"


def load_policy(run: str | Path, client: int = 0, trust: bool = False) -> Policy:
    """Load the policy of one client from the folder of a finished run.

    Args:
        run: The folder of the run.
        client: The number of the client.
        trust: Whether to import code that the run names, even if this user did not make it on this machine. It holds
            for the folder until the Python process ends.

    Raises:
        FedQHDError: If there is no such folder, run or client, if the file of the policy is damaged, or if it names
            code that is not trusted.
    """
    if trust:
        trusting.grant(run)
    path = model_path(run, client)
    if not Path(run).is_dir():
        raise FedQHDError(f"run={str(run)!r} does not exist: give the folder of a finished run")
    if not path.exists():
        have = sorted(p.stem.removeprefix("client-") for p in path.parent.glob("client-*.npz"))
        if not have:
            raise FedQHDError(f"run={str(run)!r} holds no trained models: give the folder of a finished run")
        raise FedQHDError(f"client={client} has no model in {str(run)!r}: it has clients {', '.join(have)}")
    return Policy.load(path)


def greedy_returns(
    policy: Policy, env: Env, episodes: int, seed: int, client: int, purpose: str = "evaluate", compiled: bool = True
) -> Array:
    """Return the returns (episodes,) of new greedy episodes, whose seeds differ from those of training.

    Args:
        policy: The policy to play.
        env: The environment to play in.
        episodes: How many episodes are played.
        seed: The seed of the episodes.
        client: The number of the client, which has episodes of its own.
        purpose: What the episodes are for; each purpose has episodes of its own.
        compiled: Whether a kernel plays them if it can.
    """
    returns = np.zeros(episodes)
    twin = twin_for(policy.model, env, policy.scaler) if compiled else None
    for episode in range(episodes):
        obs, _ = env.reset(seed=rng.env_seed(seed, client, purpose, episode))
        if twin is not None:
            returns[episode], _ = greedy_in_kernel(policy.model, twin, policy.scaler(obs))
            continue
        done = False
        while not done:
            action, _ = policy.predict(obs)
            obs, reward, terminated, truncated, _ = env.step(action)
            returns[episode] += float(reward)
            done = terminated or truncated
    return returns
