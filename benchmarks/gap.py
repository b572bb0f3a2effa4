"""Why different encoders may do no better together than alone: the same clients with anchors of random rollouts, with
anchors that follow the teacher, and on their own; each federated run through `fedqhd gap`. Resumable."""

from __future__ import annotations

import argparse
import json

import numpy as np
from cells import ROOT, folder, head, run

from fedqhd import api

NAME = "gap"
COMMON = {
    "MountainCar-v0": "--episodes 200",
    "LunarLander-v3": "--episodes 120 --clients 3 --dims 500 800 1000",
}
CELLS = {
    "rollout": "--anchor-source rollout",
    "teacher": "--anchor-source teacher",
    "alone": "--method independent-qhd",
}


def measure(env: str, cell: str, seed: int):
    arguments = f"--env {env} --setting heterogeneous --learner least-squares {COMMON[env]} {CELLS[cell]}".split()
    summary = run(NAME, f"{env} {cell}", arguments, seed)
    row = {
        "env": env, "cell": cell, "seed": seed, "command": f"fedqhd train {' '.join(arguments)} --seed {seed}",
        "final_return": summary["final_return"], "greedy_return": summary["greedy_return"],
    }  # fmt: skip
    if cell != "alone":
        clients = api.gap(folder(NAME, f"{env} {cell}", seed), episodes=5)["clients"]
        row["effective_rank"] = [round(c["effective_rank"], 1) for c in clients]
        for where in ("rollouts", "policy"):
            for when in ("before", "after", "other_compile", "greedy_changed", "misfit", "held_back"):
                row[f"{where}, {when}"] = [float(f"{c['errors'][where][when]:.3g}") for c in clients]
    return row


HEADER = """# What an exchange does where policies go

Made by `python benchmarks/gap.py`, commit `{commit}`: clients with different encoders, `--learner least-squares`.
*Distance*: root mean square difference from the teacher, median of all clients and seeds, before and after the last
exchange. *Other compile*: what it would be after an exchange with `--compile overwrite`. *Changed*: states in which the
greedy action is not the teacher's. Returns are means of seeds; each seed and client is in gap.json.

| | seeds | final return | greedy | effective rank | on rollouts | where policies go | other compile | changed |
|---|---:|---:|---:|---:|---|---|---:|---:|
"""


def line(env: str, cell: str, rows) -> str:
    def middle(key: str) -> str:
        value = np.median([x for r in rows for x in r[key]])
        return f"{value:.0f}" if value >= 100 else f"{value:.2g}"

    shown = [f"{env}, {cell}", str(len(rows))]
    shown += [f"{np.mean([r[k] for r in rows]):.1f}" for k in ("final_return", "greedy_return")]
    if cell == "alone":
        shown += ["–"] * 5
    else:
        shown += [middle("effective_rank")]
        shown += [f"{middle(f'{w}, before')} → {middle(f'{w}, after')}" for w in ("rollouts", "policy")]
        shown += [middle("policy, other_compile"), middle("policy, greedy_changed")]
    return f"| {' | '.join(shown)} |"


def table(rows) -> str:
    groups = {(e, c): [r for r in rows if (r["env"], r["cell"]) == (e, c)] for e in COMMON for c in CELLS}
    lines = [line(*key, mine) for key, mine in groups.items() if mine]
    commands = [r["command"] for r in rows]
    return HEADER.format(commit=head()) + "\n".join([*lines, "", "```", *commands, "```", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", nargs="+", default=list(COMMON), choices=list(COMMON))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    wanted = parser.parse_args()
    file = ROOT / "results" / f"{NAME}.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    for env in wanted.envs:
        for seed in wanted.seeds:
            for cell in CELLS:
                rows = [r for r in rows if (r["env"], r["cell"], r["seed"]) != (env, cell, seed)]
                rows.append(measure(env, cell, seed))
                file.write_text(json.dumps(rows, indent=1) + "\n")
                file.with_suffix(".md").write_text(table(rows))
    print(f"written to results/{NAME}.md and results/{NAME}.json")


if __name__ == "__main__":
    main()
