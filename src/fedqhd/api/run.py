"""A finished run and what can be done with it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedqhd.agents.policy import Policy, greedy_returns, load_policy, model_path
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.lines import read_complete_lines
from fedqhd.core.protocols import Array
from fedqhd.core.trust import grant
from fedqhd.report.figures import curves_figure
from fedqhd.runs import metrics, summary
from fedqhd.runs.callback import EVALUATIONS
from fedqhd.runs.config import load_config
from fedqhd.runs.outcome import training_returns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Run(Mapping[str, Any]):
    """A finished run: `run.summary`, `run.metrics()`, `run.policy(client)`, `run.evaluate()`, `run.plot()`.

    It can also be read like the dictionary of its summary: `run["greedy_return"]`.

    Args:
        folder: The folder of the run.
        trust: Whether to import code that the run names, even if this user did not make it on this machine.
    """

    def __init__(self, folder: str | PathLike[str], trust: bool = False) -> None:
        self.folder = Path(folder)
        if trust:
            grant(folder)
        if not (self.folder / summary.NAME).exists():
            why = "is not finished" if (self.folder / "config.toml").exists() else "holds no run"
            raise FedQHDError(f"{str(self.folder)!r} {why}: a folder with the results of fedqhd.train is needed")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The contents of summary.json, and the folder of the run under "out"."""
        return {**summary.read_summary(self.folder), "out": str(self.folder)}

    @cached_property
    def config(self) -> Config:
        """The settings of the run."""
        return load_config(self.folder / "config.toml")

    @property
    def returns(self) -> Array:
        """The return of every training episode, (clients, episodes); NaN for episodes that were not played."""
        return training_returns(self.folder, self.summary["clients"], self.summary["episodes"])

    def metrics(self) -> Any:
        """Return one row for each training episode: round, client, episode, return, length, epsilon.

        Returns:
            A pandas DataFrame or, if pandas is not installed, a dictionary with an array for each column.
        """
        return table_of(read_complete_lines(self.folder / metrics.NAME))

    def evaluations(self) -> Any:
        """Return one row for each evaluation during training, as `metrics` returns training episodes."""
        return table_of(read_complete_lines(self.folder / EVALUATIONS))

    def policy(self, client: int = 0) -> Policy:
        """Return the trained policy of a client."""
        return load_policy(self.folder, client)

    def evaluate(self, episodes: int = 100, seed: int = 1) -> Array:
        """Return the returns of fresh greedy episodes, (clients, episodes); see `fedqhd.evaluate`."""
        return evaluate(self.folder, episodes, seed)

    def plot(self) -> Figure:
        """Return a matplotlib figure of the learning curves, which a notebook displays."""
        return curves_figure(self.folder)

    def __getitem__(self, name: str) -> Any:
        return self.summary[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.summary)

    def __len__(self) -> int:
        return len(self.summary)

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"<Run {str(self.folder)!r}: {s['env']}, {s['method']}, {s['setting']}, "
            f"final return {s['final_return']:.1f}, greedy return {s['greedy_return']:.1f}>"
        )

    def _repr_html_(self) -> str:
        s, names = self.summary, ("env", "method", "setting", "learner", "clients", "episodes", "seed")
        rows = [(name, str(s[name])) for name in names]
        rows += [(name.replace("_", " "), f"{s[name]:.1f}") for name in ("final_return", "greedy_return")]
        cells = "".join(f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in rows)
        return f"<table>{cells}</table>"


def table_of(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a pandas DataFrame or, without pandas, as a dictionary of columns."""
    try:
        import pandas
    except ModuleNotFoundError:
        return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    return pandas.DataFrame(rows)


def evaluate(run: str | PathLike[str] | Run, episodes: int = 100, seed: int = 1, trust: bool = False) -> Array:
    """Play fresh episodes with the greedy policy of every client of a finished run.

    Args:
        run: The run, or its folder.
        episodes: How many episodes each client plays.
        seed: The seed of these episodes.
        trust: Whether to import code that the run names, even if this user did not make it on this machine.

    Returns:
        The returns, an array of shape (clients, episodes).
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    if trust:
        grant(folder)
    rows = []
    for client in range(len(list(model_path(folder, 0).parent.glob("client-*.npz"))) or 1):
        policy = load_policy(folder, client)
        env = policy.make_env()
        rows.append(greedy_returns(policy, env, episodes, seed, client))
        env.close()
    return np.array(rows)
