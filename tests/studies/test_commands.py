"""The commands beside the numbers in results/ repeat the runs that made them."""

from __future__ import annotations

import json
import shlex

from conftest import ROOT
from fedqhd.runs.config import resolve
from fedqhd.studies import store
from fedqhd.studies.plan import Plan
from fedqhd.studies.presets import Cell, cell_settings, plain
from fedqhd.ui.cli import make_parser
from fedqhd.ui.flags import given_settings

RESULTS = ROOT / "results"


def commands():
    for file in sorted(RESULTS.glob("*.json")):
        found = json.loads(file.read_text())
        rows = found.get("rows", []) if isinstance(found, dict) else []
        yield from (row["command"] for row in rows if "command" in row)


def test_the_command_beside_every_number_is_one_that_this_version_takes(monkeypatch):
    """None of them has a setting that does nothing, which would be refused."""
    monkeypatch.syspath_prepend(str(RESULTS.parent))
    found = sorted(set(commands()))
    assert len(found) > 100
    for command in found:
        words = shlex.split(command)[1:]
        args = make_parser(words).parse_args(words)
        assert resolve(given_settings(words, args), preset=args.preset)


def test_a_preset_by_its_name_is_what_the_runs_of_the_main_table_had(tmp_path):
    plan = Plan(out=tmp_path)
    rows = store.read_rows(RESULTS, "main")
    assert len(rows) > 100
    for row in rows:
        cell = Cell(row["method"], row["env"], row["setting"])
        assert resolve(cell_settings(cell.source), preset=row["preset"]) == plain(
            plan.run_settings(row["preset"], cell)
        )
