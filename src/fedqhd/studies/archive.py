"""Finished runs in a form to commit: what their folders say, without models. Who has it need not run them again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedqhd.core.files import write_bytes
from fedqhd.runs.rounds_log import NAME as ROUNDS
from fedqhd.studies.pool import Job, Strand

METRICS = "metrics.jsonl"
EXTRA = "robustness.json"
"""What a study found out with a run's models, while it had them."""


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_bytes(file, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode())


def short(x: float) -> float:
    """To a tenth, and without it where it is none: there are millions of them."""
    return int(x) if x == int(x) else round(x, 1)


def packed(folder: Path) -> dict[str, Any]:
    """A run in a line: its summary, each client's returns by round, what each round took."""
    returns: dict[str, list[list[float]]] = {}
    for row in read_lines(folder / METRICS):
        rounds = returns.setdefault(str(row["client"]), [])
        rounds += [[] for _ in range(len(rounds), row["round"] + 1)]
        rounds[row["round"]].append(short(row["return"]))
    extra = folder / EXTRA
    return {
        "run": folder.name,
        "summary": json.loads((folder / "summary.json").read_text()),
        "returns": returns,
        "cpu_seconds": [row["cpu_seconds"] for row in read_lines(folder / ROUNDS)],
        **({"extra": json.loads(extra.read_text())} if extra.exists() else {}),
    }


def metrics(returns: Mapping[str, list[list[float]]]) -> Iterator[dict[str, Any]]:
    for client, rounds in returns.items():
        played = ((k, value) for k, values in enumerate(rounds) for value in values)
        for episode, (k, value) in enumerate(played):
            yield {"round": k, "client": int(client), "episode": episode, "return": value}


def unpack(line: Mapping[str, Any], folder: Path) -> None:
    """The folder of a run, as far as the archive has it. The summary comes last: with it a run counts as finished."""
    write_lines(folder / METRICS, metrics(line["returns"]))
    write_lines(folder / ROUNDS, ({"round": k, "cpu_seconds": x} for k, x in enumerate(line["cpu_seconds"])))
    if "extra" in line:
        write_bytes(folder / EXTRA, json.dumps(line["extra"]).encode())
    write_bytes(folder / "summary.json", (json.dumps(line["summary"], indent=2) + "\n").encode())


def by_file(archive: Path, out: Path, folders: Iterable[Path]) -> dict[Path, set[Path]]:
    """One file for all runs of a cell, of whatever settings, and those of the folders that belong there."""
    found: dict[Path, set[Path]] = {}
    for folder in folders:
        cell = folder.parent.relative_to(out)
        found.setdefault(archive / cell.with_name(f"{cell.name}.jsonl"), set()).add(folder)
    return found


def forget_without_models(jobs: Iterable[Job]) -> None:
    """Runs from an archive have no models: where those are needed, and nobody has measured them, it is run again."""
    for folder in {job.folder for job in jobs}:
        if not (folder / "models").exists() and not (folder / EXTRA).exists():
            shutil.rmtree(folder, ignore_errors=True)


def restore(archive: Path, out: Path, jobs: Iterable[Job]) -> int:
    """Make the folders of those runs that are archived and not here; how many."""
    found = 0
    missing = (job.folder for job in jobs if job.summary() is None)
    for file, folders in by_file(archive, out, missing).items():
        lines = {line["run"]: line for line in read_lines(file)}
        for folder in folders:
            if folder.name in lines:
                unpack(lines[folder.name], folder)
                found += 1
    return found


def store(archive: Path, out: Path, jobs: Iterable[Job]) -> None:
    """Add those runs that are finished and new."""
    finished = (job.folder for job in jobs if job.summary() is not None)
    for file, folders in by_file(archive, out, finished).items():
        before = {line["run"]: line for line in read_lines(file)}
        lines = {**before, **{f.name: packed(f) for f in folders if worth(f, before.get(f.name))}}
        if lines != before:
            write_lines(file, [lines[name] for name in sorted(lines, key=lambda n: (int(n.partition("-")[0]), n))])


def kept(archive: Path, out: Path, job: Job) -> Strand:
    """A run that is archived as soon as it is finished: whatever ends those after it, it is there."""
    yield job
    store(archive, out, [job])


def worth(folder: Path, before: Mapping[str, Any] | None) -> bool:
    """Whether it has anything that the archive has not."""
    return before is None or ("extra" not in before and (folder / EXTRA).exists())
