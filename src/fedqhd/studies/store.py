"""The result files, results/NAME.json: one for each study, all of one form, a row a line.

A row is never replaced by one with fewer seeds, unless the new one has all that it should have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.studies.study import Row, Study, seeds_in


def file_of(results: Path, name: str) -> Path:
    return results / f"{name}.json"


def read(results: Path, name: str) -> dict[str, Any]:
    """A result file: what made it, how it was altered, and its rows; without rows where there is none."""
    file = file_of(results, name)
    if not file.exists():
        return {"study": name, "rows": []}
    found = json.loads(file.read_text())
    if not isinstance(found, dict) or "rows" not in found:
        raise FedQHDError(f"{file} is no result file of this version: make it again with fedqhd reproduce {name}")
    return found


def read_rows(results: Path, name: str) -> list[Row]:
    return read(results, name)["rows"]


def write(results: Path, study: Study, rows: Sequence[Row], alteration: str = "") -> None:
    """The rows of a study, a line each, below what made them."""
    head = {"study": study.name, "about": study.about, "command": f"fedqhd reproduce {study.name}"}
    if alteration:
        head["altered"] = alteration
    lines = [f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()]
    body = ",\n".join(json.dumps(row) for row in rows)
    write_bytes(file_of(results, study.name), ("{\n" + "".join(lines) + f'"rows": [\n{body}\n]\n' + "}\n").encode())


def merge(results: Path, study: Study, new: Sequence[Row], alteration: str = "") -> list[str]:
    """Put new rows in place of old ones of the same key; which were not, having fewer seeds than the old one."""
    rows = {name_of(study, r): r for r in read_rows(results, study.name)}
    refused = []
    for full in new:
        row = {k: v for k, v in full.items() if k not in study.unstored}
        name = name_of(study, row)
        stored = seeds_in(rows[name]) if name in rows else 0
        if study.incomplete(row) and seeds_in(row) < stored:
            refused.append(f"{', '.join(map(str, name))}: {study.incomplete(row)}, and {stored} are stored")
        else:
            rows[name] = row
    write(results, study, sorted(rows.values(), key=study.order), alteration)
    return refused


def name_of(study: Study, row: Row) -> tuple[Any, ...]:
    return tuple(row[k] for k in study.key)


def write_table(results: Path, study: Study) -> Path | None:
    """NAME.md, made of the result file, for a study whose table is no part of RESULTS.md."""
    found = read(results, study.name)
    lines = study.table(found["rows"]) if found["rows"] and not study.in_results else []
    if not lines:
        return None
    mark = [f"**{found['altered']}**", ""] if "altered" in found else []
    file = file_of(results, study.name).with_suffix(".md")
    write_bytes(file, ("\n".join([*mark, *lines]).rstrip("\n") + "\n").encode())
    return file
