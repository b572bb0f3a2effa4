"""The result files, results/NAME.json: one for each study, all of the same form, with one row per line.

An incomplete row never replaces one with more seeds.
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
    """Return the path of the result file of a study."""
    return results / f"{name}.json"


def read(results: Path, name: str) -> dict[str, Any]:
    """Read the result file of a study.

    Args:
        results: The folder of the result files.
        name: The name of the study.

    Returns:
        The head of the file and its "rows", which are empty if there is no such file. "altered" is present if the runs
        were altered.

    Raises:
        FedQHDError: If the file has another form.
    """
    file = file_of(results, name)
    if not file.exists():
        return {"study": name, "rows": []}
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        found = None
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise FedQHDError(f"{file} is not a result file of this version: recreate it with fedqhd reproduce {name}")
    for row in rows:
        if ":" in str(row.get("method", "")):
            raise FedQHDError(f"{file} names code, method={row['method']!r}: results have methods of the package only")
    return dict(found)


def read_rows(results: Path, name: str) -> list[Row]:
    """Return the rows of the result file of a study, empty if there is no such file."""
    return read(results, name)["rows"]


def write(results: Path, study: Study, rows: Sequence[Row], alteration: str = "") -> None:
    """Write the result file of a study: a head that says what made it, and one row per line."""
    head = {"study": study.name, "about": study.about, "command": f"fedqhd reproduce {study.name}"}
    if alteration:
        head["altered"] = alteration
    lines = [f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()]
    body = ",\n".join(json.dumps(row) for row in rows)
    write_bytes(file_of(results, study.name), ("{\n" + "".join(lines) + f'"rows": [\n{body}\n]\n' + "}\n").encode())


def merge(results: Path, study: Study, new: Sequence[Row], alteration: str = "") -> list[str]:
    """Add rows to the result file of a study, replacing rows with the same key.

    Args:
        results: The folder of the result files.
        study: The study.
        new: The new rows.
        alteration: How the runs were altered, if they were.

    Returns:
        A description of each row that was refused, because it is incomplete and has fewer seeds than the stored one.
    """
    rows = {name_of(study, r): r for r in read_rows(results, study.name)}
    refused = []
    for full in new:
        row = {k: v for k, v in full.items() if k not in study.unstored}
        name = name_of(study, row)
        stored = seeds_in(rows[name]) if name in rows else 0
        if study.incomplete(row) and seeds_in(row) < stored:
            refused.append(f"{', '.join(map(str, name))}: {study.incomplete(row)}, but {stored} are stored")
        else:
            rows[name] = row
    write(results, study, sorted(rows.values(), key=study.order), alteration)
    return refused


def name_of(study: Study, row: Row) -> tuple[Any, ...]:
    """Return the values that identify a row."""
    return tuple(row[k] for k in study.key)


def write_table(results: Path, study: Study) -> Path | None:
    """Write the table of a study to NAME.md, made from its result file.

    Returns:
        The path, or None if there is no table or if the table is part of RESULTS.md.
    """
    found = read(results, study.name)
    lines = study.table(found["rows"]) if found["rows"] and not study.in_results else []
    if not lines:
        return None
    mark = [f"**{found['altered']}**", ""] if "altered" in found else []
    file = file_of(results, study.name).with_suffix(".md")
    write_bytes(file, ("\n".join([*mark, *lines]).rstrip("\n") + "\n").encode())
    return file
