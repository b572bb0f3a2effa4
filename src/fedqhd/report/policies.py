"""A learned policy of each environment, as a film."""

from __future__ import annotations

from pathlib import Path

from fedqhd.agents.policy import load_policy
from fedqhd.report.play import play
from fedqhd.studies.catalogue.main import main_job
from fedqhd.studies.plan import Plan
from fedqhd.studies.presets import ENVS, Cell

SHOWN = (Cell("fedqhd", "", "heterogeneous"), Cell("fedqhd", "", "homogeneous"))


def film(plan: Plan, folder: Path) -> None:
    """ENV.gif for each environment of which there is a tuned run with its models, and no film yet."""
    for env in ENVS:
        jobs = [main_job(plan, "tuned", cell._replace(env=env), 0) for cell in SHOWN]
        done = next((job for job in jobs if job.summary() and (job.folder / "models").exists()), None)
        if done and not (folder / f"{env}.gif").exists():
            play(load_policy(done.folder, 0), folder / f"{env}.gif")
