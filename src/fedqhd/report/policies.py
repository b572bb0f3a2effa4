"""Recordings of learned policies for the results page."""

from __future__ import annotations

from pathlib import Path

from fedqhd.agents.policy import load_policy
from fedqhd.report.play import play
from fedqhd.studies.catalogue.main import main_job
from fedqhd.studies.plan import Plan
from fedqhd.studies.presets import ENVS, Cell

SHOWN = (Cell("fedqhd", "", "heterogeneous"), Cell("fedqhd", "", "homogeneous"))
"""The cells whose policies are recorded, without their environment; the first that has a finished run is used."""


def film(plan: Plan, folder: Path) -> None:
    """Record one episode in each environment of the paper that has no recording yet.

    Args:
        plan: Where the runs are. Environments without a finished tuned run that still has its models are skipped.
        folder: The folder of the recordings, ENV.gif.
    """
    for env in ENVS:
        jobs = [main_job(plan, "tuned", cell._replace(env=env), 0) for cell in SHOWN]
        done = next((job for job in jobs if job.summary() and (job.folder / "models").exists()), None)
        if done and not (folder / f"{env}.gif").exists():
            play(load_policy(done.folder, 0), folder / f"{env}.gif")
