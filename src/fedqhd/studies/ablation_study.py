"""The base class of the two ablations: their runs, and rows without training and after it."""

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
"""The settings of the trained ablations."""
ANALYTIC = ("env", "setting", "clients", "anchor_source", "lam")
"""Those settings that the analytic ablations use, too."""
WORDS = {"without": "without training", "after": "after training"}
Pairs = Sequence[tuple[int, int]]
"""Pairs of D and m."""


@lru_cache(maxsize=2)
def world(settings: tuple[tuple[str, Any], ...]) -> Setting:
    """Return the states and Q* of one seed; `settings` are pairs of names and values, so that they can be cached."""
    values = dict(settings)
    return Setting.make(plain(values), reference(str(values["env"]))[0])


def groups(rows: Rows, over: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of each figure by its title; `over` is "D" or "m"."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for r in rows:
        title = f"{WORDS[r['training']]}, over {over}, {r['anchors']} anchors, lam={r['lam']:g}"
        found.setdefault(title, []).append(r)
    return found


def slopes_of(rows: Rows) -> dict[str, tuple[float, float, float]]:
    """Return slopes over D with their 95 % intervals for each mode and measure of the gap that has three dimensions."""
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
    """The quantity that varies: "D" or "m"."""
    variants: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    """Settings that replace common ones; each variant has its own figure."""
    key = ("training", "anchors", "lam", "D", "m", "compile", "seed")
    measures = True
    in_results = True
    in_all = True
    unstored = ("curve", "alone")

    @property
    @abstractmethod
    def computed(self) -> Pairs:
        """The pairs of D and m that are measured without training."""

    @property
    def trained(self) -> Pairs:
        """The pairs of D and m that are trained."""
        return self.computed

    @property
    def run_folders(self) -> Sequence[str]:
        return ("ablation",)

    def settings(self, plan: Plan) -> list[dict[str, Any]]:
        """Return the settings of each variant."""
        return [{**ABLATED, **variant, **plan.overrides} for variant in self.variants]

    def job(self, plan: Plan, variant: Mapping[str, Any], D: int, m: int, mode: str, seed: int) -> Job:
        """Return one trained run of a variant."""
        cell = Cell("fedqhd", str(variant["env"]), "heterogeneous")
        name = f"D={D} m={m} {mode}, {variant['anchor_source']} anchors, seed {seed}"
        return plan.job(f"ablation/{cell.name}", {**variant, "dims": [D], "anchors": m, "compile": mode}, seed, name,
                        f"ablation {D} {m}")  # fmt: skip

    def jobs(self, plan: Plan) -> list[Job]:
        every = product(plan.seeds or self.seeds, self.settings(plan), self.trained, MODES)
        return [self.job(plan, variant, D, m, mode, seed) for seed, variant, (D, m), mode in every]

    def measure(self, run: Run) -> Any:
        """Return the row of a finished run, without values that are not stored."""
        c = run.job.config
        used = {
            "env": c.env,
            "setting": c.setting,
            "clients": c.clients,
            "anchor_source": c.anchor_source,
            "lam": c.lam,
        }
        found = trained(run.job.folder, world((*used.items(), ("seed", c.seed))), run.summary, run.returns())
        return {k: v for k, v in found.items() if k not in self.unstored}

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for variant in self.settings(plan):
            for training, found in (("without", self.analytic_rows), ("after", self.trained_rows)):
                head = {"training": training, "anchors": variant["anchor_source"], "lam": variant["lam"]}
                rows += [{**head, **row} for row in found(plan, variant)]
        return rows

    def all_seeds(self, plan: Plan) -> list[int]:
        """Return the seeds of the plan and those of the study."""
        return sorted({*(plan.seeds or ()), *self.seeds})

    def analytic_rows(self, plan: Plan, variant: Mapping[str, Any]) -> Iterator[Row]:
        """Yield the rows without training. Those of each pair of D and m are computed once and cached in a file."""
        for seed, (D, m) in product(plan.seeds or self.seeds, self.computed):
            chosen = {**{k: variant[k] for k in ANALYTIC}, "seed": seed}
            mark = zlib.crc32(json.dumps(chosen, sort_keys=True).encode())
            cache = plan.out / "ablation" / "analytic" / f"{D}-{m}-{mark:08x}.json"
            if not cache.exists():
                computed = [{**row, "commit": commit()} for row in analytic(world(tuple(chosen.items())), D, m)]
                write_bytes(cache, json.dumps(computed).encode())
            yield from json.loads(cache.read_text())

    def trained_rows(self, plan: Plan, variant: Mapping[str, Any]) -> Iterator[Row]:
        """Yield the rows of finished runs that have been measured."""
        for seed, (D, m), mode in product(self.all_seeds(plan), self.trained, MODES):
            for run in finished([self.job(plan, variant, D, m, mode, seed)]):
                if (found := run.measured(self.name)) is not None:
                    yield {**found, "curve": run.curve().tolist(), "commit": run.summary["commit"]}

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return 1  # each seed has its own row

    def charts(self, rows: Rows, folder: Path) -> list[Path]:
        """Draw learning curves, gap and policy value of each figure that has at least three points."""
        from fedqhd.studies.ablation_figure import draw

        drawn = []
        for title, shown in groups(rows, self.over).items():
            first = shown[0]
            if len({r[self.over] for r in shown}) > 2:
                suffix = "" if first["lam"] == ABLATED["lam"] else f"-{first['lam']:g}"
                kind = {"without": "analytic", "after": "trained"}[first["training"]]
                path = folder / f"ablation-{self.over}-{kind}-{first['anchors']}{suffix}.png"
                after = first["training"] == "after"
                drawn.append(draw(shown, self.over, path, is_trained=after, title=f"{ABLATED['env']}, {title}"))
        return drawn
