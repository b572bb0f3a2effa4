"""Whatever is moved, renamed or rewritten: the same settings give the same bits as before.

`bits/hashes.json` was made by the code as it was before the package was taken apart into methods, settings and
studies, and `bits/*.toml` are the settings as that code wrote them: every method, learner, encoder and engine, privacy,
attacks, partial participation, moving anchors and a mixed federation. A change of bits is a decision: whoever makes one
runs `python tests/test_bits.py`, which writes the hashes anew, in a commit of its own.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from bits.run import HERE, PLAIN, needs_flower

HASHES = HERE / "hashes.json"
RUNS = sorted(HERE.glob("*.toml"))
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the hashes are of x86-64 arithmetic")


def run(out: Path, *names: str) -> dict[str, dict[str, str]]:
    command = [sys.executable, str(HERE / "run.py"), str(out), *names]
    done = subprocess.run(command, env={**os.environ, **PLAIN}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line.pop("run"): line for line in lines}


@pytest.fixture(scope="module")
def expected():
    return json.loads(HASHES.read_text())


@pytest.mark.slow
def test_the_same_settings_give_the_same_bits(expected, tmp_path):
    """All in one process, since kernels are compiled once; those on Flower are below."""
    found = run(tmp_path)
    here = {f.stem for f in RUNS if not needs_flower(f)}
    assert found.keys() == here
    assert found == {name: expected[name] for name in here}


@pytest.mark.federation
@pytest.mark.parametrize("name", [f.stem for f in RUNS if needs_flower(f)])
def test_the_same_settings_give_the_same_bits_on_flower(name, expected, tmp_path):
    assert run(tmp_path, name) == {name: expected[name]}


def test_every_run_has_a_hash_and_runs_differ(expected):
    assert expected.keys() == {f.stem for f in RUNS}
    assert len({h["episodes"] for h in expected.values()}) == len(RUNS) - 1  # two engines share their numbers


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        plain, flower = run(Path(folder)), [f.stem for f in RUNS if needs_flower(f)]
        HASHES.write_text(json.dumps({**plain, **run(Path(folder), *flower)}, indent=1, sort_keys=True) + "\n")
