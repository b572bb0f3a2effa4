"""Compare the cost of learning by least squares with that of replay TD, per environment step and at the same D.

The runs are on CartPole, in turn in one process. Only the time of learning and acting counts, not that of the
environment. This needs an otherwise idle machine.
"""

from __future__ import annotations

import json
import tempfile

import numpy as np
from common import ROOT, head

from fedqhd.runs.config import resolve
from fedqhd.runs.run import train

NAME, REPEATS, EPISODES = "fit-cost", 3, 100
GOALS = {500: 1.0, 1000: 3.0, 2000: 3.0}
KINDS = {
    "least squares": {"learner": "least-squares"},
    "replay": {"learner": "replay"},
    "replay, recompute": {"learner": "replay", "features": "recompute"},
}


def cost(D: int, seed: int, kind: dict[str, str]) -> float:
    """Return the seconds of learning and acting per environment step."""
    with tempfile.TemporaryDirectory() as out:
        settings = {"env": "CartPole-v1", "clients": 1, "episodes": EPISODES, "dims": [D], "engine": "local", **kind}
        summary = train(
            resolve({}, preset="plain", shared={**settings, "seed": seed, "eval_episodes": 1, "out": f"{out}/run"})
        )
    split = summary["split_seconds"]
    return float(split["learning"] + split["acting"]) / summary["env_steps"]


def main() -> None:
    rows = []
    for D, goal in GOALS.items():
        spent = {name: [cost(D, seed, kind) for seed in range(REPEATS)] for name, kind in KINDS.items()}
        for against in list(KINDS)[1:]:
            ratio = float(np.median(spent["least squares"]) / np.median(spent[against]))
            rows.append({"D": D, "against": against, "ratio": round(ratio, 2), "goal": goal, "repeats": REPEATS})
    file = ROOT / "results" / f"{NAME}.json"
    about = {"command": "python benchmarks/fit_cost.py", "commit": head(), "rows": rows}
    file.write_text(json.dumps(about, indent=1) + "\n")
    for row in rows:
        print(f"D={row['D']}: least squares takes {row['ratio']:.2f} times as long as {row['against']}")
    print(f"written to results/{NAME}.json")


if __name__ == "__main__":
    main()
