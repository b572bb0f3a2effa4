"""What the two ablations share: their runs, and rows without training and after it."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from fedqhd.core.files import write_bytes
from fedqhd.gap.reference import reference
from fedqhd.runs.commit import commit
from fedqhd.studies.ablation import CLIENTS, MODES, Setting, analytic, slope, trained
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import Cell, plain
from fedqhd.studies.study import Row, Rows, Run, Study, finished

ABLATED: dict[str, Any] = {
    "env": "CartPole-v1", "method": "fedqhd", "setting": "heterogeneous", "learner": "least-squares",
    "clients": CLIENTS, "episodes": 80, "round_episodes": 10, "anchor_source": "rollout", "lam": 1e-2,
}  # fmt: skip
"""Of the trained ablations; the analytic ones take from it what they need."""
ANALYTIC = ("env", "setting", "clients", "anchor_source", "lam")
WORDS = {"without": "without training", "after": "after training"}
Pairs = Sequence[tuple[int, int]]


@lru_cache(maxsize=2)
def world(settings: tuple[tuple[str, Any], ...]) -> Setting:
    """The states and Q* of one seed."""
    own = dict(settings)
    return Setting.make(plain(own), reference(str(own["env"]))[0])


def groups(rows: Rows, over: str) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of each figure, by its title."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for r in rows:
        title = f"{WORDS[r['training']]}, over {over}, {r['anchors']} anchors, lam={r['lam']:g}"
        found.setdefault(title, []).append(r)
    return found


def slopes_of(rows: Rows) -> dict[str, tuple[float, float, float]]:
    """Of every measure of the gap over D, with 95 % intervals, where there are enough dimensions for a line."""
    found = {}
    for mode, most in product(MODES, (512, 2048)):
        part = [r for r in rows if r["compile"] == mode and r["D"] <= most]
        if len({r["D"] for r in part}) > 2:
            for value in ("gap_rms", "gap_max", "gap_everywhere_rms"):
                found[f"{mode}, {value}, D up to {most}"] = slope(part, value)
    return found


class Ablation(Study, ABC):
    """The federation gap over D or m: computed from Q* without training, and measured in trained runs."""

    over: ClassVar[str] = ""
    """D or m."""
    variants: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    """Settings over the common ones, each a figure of its own."""
    key = ("training", "anchors", "lam", "D", "m", "compile", "seed")
    measures = True
    in_results = True
    in_all = True
    unstored = ("curve", "alone")

    @property
    @abstractmethod
    def computed(self) -> Pairs:
        """The pairs of D and m without training."""

    @property
    def trained(self) -> Pairs:
        """The pairs of D and m that are trained."""
        return self.computed

    @property
    def places(self) -> Sequence[str]:
        return ("ablation",)

    def settings(self, plan: Plan) -> list[dict[str, Any]]:
        return [{**ABLATED, **variant, **plan.others} for variant in self.variants]

    def job(self, plan: Plan, own: Mapping[str, Any], D: int, m: int, mode: str, seed: int) -> Job:
        cell = Cell("fedqhd", str(own["env"]), "heterogeneous")
        name = f"D={D} m={m} {mode}, {own['anchor_source']} anchors, seed {seed}"
        return plan.job(f"ablation/{cell.name}", {**own, "dims": [D], "anchors": m, "compile": mode}, seed, name,
                        f"ablation {D} {m}")  # fmt: skip

    def jobs(self, plan: Plan) -> list[Job]:
        every = product(plan.seeds or self.seeds, self.settings(plan), self.trained, MODES)
        return [self.job(plan, own, D, m, mode, seed) for seed, own, (D, m), mode in every]

    def measure(self, run: Run) -> Any:
        """The gap of a run's last weights."""
        c = run.job.config
        own = {"env": c.env, "setting": c.setting, "clients": c.clients, "anchor_source": c.anchor_source, "lam": c.lam}
        found = trained(run.job.folder, world((*own.items(), ("seed", c.seed))), run.summary, run.returns())
        return {k: v for k, v in found.items() if k not in self.unstored}

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for own in self.settings(plan):
            for training, found in (("without", self.analytic_rows), ("after", self.trained_rows)):
                head = {"training": training, "anchors": own["anchor_source"], "lam": own["lam"]}
                rows += [{**head, **row} for row in found(plan, own)]
        return rows

    def all_seeds(self, plan: Plan) -> list[int]:
        return sorted({*(plan.seeds or ()), *self.seeds})

    def analytic_rows(self, plan: Plan, own: Mapping[str, Any]) -> Iterator[Row]:
        """Each pair of D and m is computed once and kept."""
        for seed, (D, m) in product(plan.seeds or self.seeds, self.computed):
            chosen = {**{k: own[k] for k in ANALYTIC}, "seed": seed}
            mark = zlib.crc32(json.dumps(chosen, sort_keys=True).encode())
            kept = plan.out / "ablation" / "analytic" / f"{D}-{m}-{mark:08x}.json"
            if not kept.exists():
                made = [{**row, "commit": commit()} for row in analytic(world(tuple(chosen.items())), D, m)]
                write_bytes(kept, json.dumps(made).encode())
            yield from json.loads(kept.read_text())

    def trained_rows(self, plan: Plan, own: Mapping[str, Any]) -> Iterator[Row]:
        for seed, (D, m), mode in product(self.all_seeds(plan), self.trained, MODES):
            for run in finished([self.job(plan, own, D, m, mode, seed)]):
                if (found := run.measured(self.name)) is not None:
                    yield {**found, "curve": run.curve().tolist(), "commit": run.summary["commit"]}

    def meant(self, row: Mapping[str, Any]) -> int:
        return 1  # a row is of one seed

    def charts(self, rows: Rows, folder: Path) -> list[Path]:
        """Learning curves, gap and policy value of each figure."""
        from fedqhd.studies.ablation_figure import draw

        drawn = []
        for title, own in groups(rows, self.over).items():
            first = own[0]
            if len({r[self.over] for r in own}) > 2:
                suffix = "" if first["lam"] == ABLATED["lam"] else f"-{first['lam']:g}"
                kind = {"without": "analytic", "after": "trained"}[first["training"]]
                path = folder / f"ablation-{self.over}-{kind}-{first['anchors']}{suffix}.png"
                after = first["training"] == "after"
                drawn.append(draw(own, self.over, path, is_trained=after, title=f"{ABLATED['env']}, {title}"))
        return drawn
