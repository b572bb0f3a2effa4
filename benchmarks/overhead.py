"""Measure the share of checkpoints, validation and robust aggregation in the CPU time of default runs."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from time import process_time
from typing import Any

from common import ROOT, head

from fedqhd.federation import Server
from fedqhd.runs import checkpoint, metrics, run
from fedqhd.runs.checkpoint import Parties
from fedqhd.runs.config import resolve

RUNS = {
    "CartPole-v1, one encoder, replay": {"setting": "homogeneous"},
    "CartPole-v1, different encoders, replay": {"setting": "heterogeneous", "dims": [250, 500, 750, 1000, 1500]},
    "CartPole-v1, different encoders, least squares": {"setting": "heterogeneous", "learner": "least-squares"},
}
spent: dict[str, float] = {}


def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its CPU seconds are added to `spent`.

    If an argument is a `Parties`, the CPU seconds of its worker processes count, too.
    """

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        clock = next((a.engine.cpu_seconds for a in args if isinstance(a, Parties)), process_time)
        began = clock()
        try:
            return call(*args, **kwargs)
        finally:
            spent[name] = spent.get(name, 0.0) + clock() - began

    return wrapped


def main() -> None:
    checkpoint.save = timed("checkpoints", checkpoint.save)
    metrics.append = timed("checkpoints", metrics.append)
    Server.admit = timed("validation", Server.admit)
    Server.select = timed("whom to believe", Server.select)
    episodes, rows = int((sys.argv[1:] or ["150"])[0]), []
    for name, settings in RUNS.items():
        spent.clear()
        with tempfile.TemporaryDirectory() as folder:
            config = resolve(
                {}, preset="plain", shared={"episodes": episodes, "eval_episodes": 1, **settings, "out": folder}
            )
            cpu = run.train(config)["cpu_seconds"] + spent["checkpoints"]  # the summary does not count these
        shares = {what: round(100 * seconds / cpu, 3) for what, seconds in spent.items()}
        total = round(sum(shares.values()), 3)
        rows.append({"run": name, "episodes": episodes, "percent": shares, "sum": total, "commit": head()})
        print(f"{name}: {total} % of {cpu:.1f} CPU s, {shares}", flush=True)
    (ROOT / "results" / "overhead.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
