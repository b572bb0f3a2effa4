"""Callbacks, which follow a run, evaluate it on the way and may stop it.

A callback overrides the hooks that it needs. All hooks run in the process of the server, whatever the engine, and none
of them changes the bits of the run: an evaluation undoes what it did to the clients.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedqhd.core.config import Config
from fedqhd.core.engine import Engine, Trial
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.files import write_bytes
from fedqhd.core.length import each_round, planned, whole_run
from fedqhd.core.lines import append_lines, read_complete_lines, write_lines
from fedqhd.core.protocols import Array, Episode, Payload, Reply
from fedqhd.core.registry import Registry

EVALUATIONS = "evaluations.jsonl"
"""The file with one line for each evaluation during training."""


STOPPED = "stopped.json"
"""The file that says after which round a callback stopped the run, and why."""


class Evaluation(NamedTuple):
    """The greedy returns of all clients after a round."""

    round: int
    """The number of the round, from 0."""
    episode: int
    """How many episodes each client has been trained for; see `Training.episodes_done`."""
    returns: Array
    """The returns, (clients, episodes); NaN for a client that did not answer."""
    step: int | None = None
    """How many steps each client has been trained for in a run by steps, or None."""

    @property
    def when(self) -> str:
        """How long each client has been trained for, as "episode 10" or "step 5,000"."""
        return f"episode {self.episode}" if self.step is None else f"step {self.step:,}"

    @property
    def mean(self) -> float:
        """The mean over all clients that answered, or NaN if none did."""
        answered = self.returns[~np.isnan(self.returns)]
        return float(answered.mean()) if len(answered) else float("nan")


class Training:
    """A run in progress: what callbacks know of it, and what they may ask for."""

    engine: Engine
    """Where the clients live, once the run has begun."""

    def __init__(self, config: Config, callbacks: Sequence[Callback] = ()) -> None:
        self.config = config
        self.callbacks = [*callbacks, *map(make_callback, config.callbacks)]
        """Those of the caller, and those that the settings name."""
        self.plan = planned(config)
        """What each client plays in each planned round."""
        self.rounds_done = 0
        """The number of rounds that are complete."""
        self.ended = 0
        """The largest number of episodes of a client that have ended."""
        self.teacher: Payload | None = None
        """The teacher of the last round."""
        self.stopped = ""
        """Why a callback has stopped the run; empty if none has."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.config.folder

    @property
    def episodes_done(self) -> int:
        """How many episodes each client has been trained for; in a run by steps, the most that have ended for one."""
        return self.done if self.steps_done is None else self.ended

    @property
    def steps_done(self) -> int | None:
        """How many steps each client has been trained for in a run by steps; None in a run by episodes."""
        return self.done if whole_run(self.config).steps else None

    @property
    def done(self) -> int:
        """How much each client has been trained for: steps in a run by steps, and episodes otherwise."""
        return min(self.rounds_done * each_round(self.config).amount, whole_run(self.config).amount)

    def evaluate(self, episodes: int = 20, seed: int | None = None) -> Evaluation:
        """Play greedy episodes with every client as it would be if training ended now, and tell all callbacks.

        The result is also appended to evaluations.jsonl.

        Args:
            episodes: How many episodes each client plays.
            seed: The seed of these episodes; None takes that of the run. They differ from those of the evaluation at
                the end of the run, so that choosing by one does not flatter the other.
        """
        rows = self._try_out(Trial(episodes, self.config.seed if seed is None else seed, keep=False))
        evaluation = Evaluation(self.rounds_done - 1, self.episodes_done, rows, self.steps_done)
        per_client = [None if np.isnan(row).any() else float(row.mean()) for row in rows]
        line = {
            "round": evaluation.round,
            "episode": evaluation.episode,
            **({} if evaluation.step is None else {"step": evaluation.step}),
            "greedy_return": evaluation.mean,
            "greedy_return_per_client": per_client,
        }
        append_lines(self.folder / EVALUATIONS, [line])
        self.tell("on_evaluation", evaluation)
        return evaluation

    def save_best(self) -> None:
        """Save every client's model, as it would be if training ended now, in the folder best/ of the run.

        A client on another machine saves it in a folder best/ beside its own model.
        """
        self._try_out(Trial(0, self.config.seed, keep=True))

    def _try_out(self, trial: Trial) -> Array:
        assert self.teacher is not None, "there is something to evaluate from the first round on"
        rows = self.engine.trial(self.teacher, trial)
        sites = [rows.get(i, np.full((1, trial.episodes), np.nan)) for i in range(max(rows, default=0) + 1)]
        return np.concatenate(sites)

    def tell_episode(self, episode: Episode) -> None:
        """Call the hook for episodes."""
        self.tell("on_episode", episode)

    def tell(self, hook: str, *facts: Any) -> None:
        """Call a hook of all callbacks, in their order."""
        for callback in self.callbacks:
            getattr(callback, hook)(self, *facts)

    def evaluations(self) -> list[dict[str, Any]]:
        """Return the lines of evaluations.jsonl."""
        return read_complete_lines(self.folder / EVALUATIONS)

    def stop(self, reason: str) -> None:
        """End training after this round. The run is then evaluated and finished as usual.

        Args:
            reason: Why, as the rest of a sentence that begins with "training was stopped because".
        """
        self.stopped = self.stopped or reason


class Callback:
    """The base of all callbacks. Its hooks do nothing; override those of interest."""

    name: ClassVar[str] = ""
    """The name for the setting `callbacks`; callbacks of your own are named `module:Class`."""

    def on_start(self, training: Training) -> None:
        """Training starts, or resumes after `training.rounds_done` rounds."""

    def on_episode(self, training: Training, episode: Episode) -> None:
        """A client has played a training episode. Clients on other machines report them at the end of a round."""

    def on_round(self, training: Training, replies: Sequence[Reply]) -> None:
        """A round is complete. Its checkpoint is written afterwards, so that no round misses this call."""

    def on_evaluation(self, training: Training, evaluation: Evaluation) -> None:
        """The clients were evaluated during training."""

    def on_training_end(self, training: Training) -> None:
        """All rounds are played, and the evaluation at the end starts."""

    def on_end(self, training: Training, summary: Mapping[str, Any]) -> None:
        """The run is finished, and its summary is written."""


CALLBACKS: Registry[Callback] = Registry("callbacks", "fedqhd.callbacks", Callback)


def callback_name(text: str) -> str:
    """Return the name of a callback without its arguments."""
    name, colon, last = text.rpartition(":")
    return name if colon and "=" in last else text


def make_callback(text: str) -> Callback:
    """Make a callback from its name and, after a colon, its arguments: `evaluate:every=5,episodes=10`.

    Raises:
        FedQHDError: If there is no such callback, or it does not take these arguments.
    """
    name = callback_name(text)
    last = text[len(name) + 1 :]
    kind = CALLBACKS.find(name)
    known = [p for p in inspect.signature(kind).parameters if p != "self"]
    given: dict[str, Any] = {}
    for part in filter(None, last.split(",")):
        key, equals, value = part.partition("=")
        if key not in known or not equals:
            raise FedQHDError(
                f"callbacks={text!r}: {name} has no argument {key!r}{nearest(key, known)}: "
                f"it takes {', '.join(known) or 'none'}"
            )
        given[key] = _parsed(value)
    try:
        return kind(**given)
    except TypeError as error:
        raise FedQHDError(f"callbacks={text!r} is not possible: {error}") from error


def _parsed(text: str) -> Any:
    """Return a number, True or False for a text that is one, and the text itself otherwise."""
    try:
        value = json.loads(text.lower())
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, bool | int | float) else text


def cut_back(folder: Path, rounds_done: int) -> None:
    """Drop evaluations of rounds that will be played again, before a run resumes."""
    file = folder / EVALUATIONS
    if file.exists():
        write_lines(file, (line for line in read_complete_lines(file) if line["round"] < rounds_done))


def record_stop(folder: Path, rounds_done: int, reason: str) -> None:
    """Record that a callback has stopped the run, before the checkpoint of the round is written."""
    write_bytes(folder / STOPPED, json.dumps({"rounds_done": rounds_done, "reason": reason}).encode())


def stopped_before(folder: Path, rounds_done: int) -> str:
    """Return why a run was stopped after this many rounds, or "" if it was not."""
    file = folder / STOPPED
    record = json.loads(file.read_text()) if file.exists() else {}
    return str(record["reason"]) if record.get("rounds_done") == rounds_done else ""
