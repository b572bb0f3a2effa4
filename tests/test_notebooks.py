"""The notebooks run from top to bottom in an empty folder, and what is stored in them is of the kind they show."""

from __future__ import annotations

import pytest

from conftest import ROOT

nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install 'fedqhd[dev]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install 'fedqhd[dev]'")

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """What a cell shows, in order. Messages on stderr depend on the machine."""
    return [
        (output.output_type, *sorted(output.get("data", {})))
        for output in cell.outputs
        if output.get("name") != "stderr"
    ]


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(path, tmp_path, monkeypatch):
    """A failed assertion in a cell raises here. The outputs must be of the stored kind, not the same to the bit."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    stored, notebook = read(path), read(path)
    for cell in code_cells(notebook):
        cell.outputs = []
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    for before, after in zip(code_cells(stored), code_cells(notebook), strict=True):
        assert kinds(before) == kinds(after), before.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_as_it_was_executed(path):
    notebook = read(path)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any("assert " in cell.source for cell in cells)
    assert not any(o.output_type == "error" or o.get("name") == "stderr" for cell in cells for o in cell.outputs)
    for cell in cells:
        last = cell.source.strip().splitlines()[-1]
        shows = "print(" in cell.source or "plt.show()" in cell.source or last.isidentifier()
        assert cell.outputs or not shows or "def " in cell.source, cell.source
