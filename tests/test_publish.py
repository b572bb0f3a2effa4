"""What a release is made of: one version, types, a citation, completion, a doctor; and what dist/ holds works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import fedqhd
from conftest import ROOT
from processes import fedqhd as command


def test_the_version_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert command("--version").stdout.split()[1] == fedqhd.__version__
    written = [
        p for p in [*ROOT.glob("src/**/*.py"), ROOT / "pyproject.toml", ROOT / "CITATION.cff"]
        if re.search(rf"version.*{re.escape(fedqhd.__version__)}['\"]", p.read_text())
    ]  # fmt: skip
    assert [p.name for p in written] == ["_version.py"]


def test_the_citation_can_be_read():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors", "license"} <= set(citation)
    assert len(citation["preferred-citation"]["authors"]) == 7


def test_the_core_is_light():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    extras = {"torch", "onnx", "onnxruntime", "shtab", "mkdocs-material", "playwright", "scikit-learn", "tensorboard"}
    assert not core & extras
    assert (ROOT / "src" / "fedqhd" / "py.typed").exists()


def test_the_doctor_names_what_is_there_and_what_is_not(monkeypatch):
    done = command("doctor", COLUMNS="100")
    assert done.returncode == 0, done.stderr
    assert f"fedqhd {fedqhd.__version__}, Python {sys.version.split()[0]}" in done.stdout
    for word in ("numba", "gymnasium", "export", "completion", "microseconds", "10,000"):
        assert word in done.stdout
    assert "missing" not in done.stdout
    from rich.console import Console

    from fedqhd.ui import doctor

    real = doctor.version
    monkeypatch.setattr(doctor, "version", lambda package: "" if package in ("onnx", "numba") else real(package))
    monkeypatch.setattr(doctor, "SECONDS", 0.001)
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    assert doctor.examine(console) == 1
    text = console.export_text()
    assert "lacks onnx: pip install 'fedqhd[export]'" in text
    assert re.search(r"numba\s+│ missing", text)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_completion_completes(tmp_path):
    script = command("completion", "bash")
    assert script.returncode == 0, script.stderr
    (tmp_path / "c.sh").write_text(script.stdout)
    ask = (
        'source c.sh; COMP_WORDS=(fedqhd train --sigma-s); COMP_CWORD=2; COMP_LINE="fedqhd train --sigma-s"; '
        'COMP_POINT=${#COMP_LINE}; $(complete -p fedqhd | grep -o "_shtab[a-z_]*"); printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, cwd=tmp_path)
    assert "--sigma-spread" in done.stdout, done.stderr
    assert "#compdef fedqhd" in command("completion", "zsh").stdout
    wrong = command("completion", "cmd")
    assert wrong.returncode == 2
    assert "shell='cmd' is unknown" in wrong.stderr


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_what_dist_holds_installs_and_works(python, tmp_path):
    """In a clean environment of each Python that is to be had."""
    found = python_of(python)
    if found is None:
        pytest.skip(f"no Python {python} here")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)], check=True, capture_output=True
    )
    done = subprocess.run([found, str(ROOT / "benchmarks" / "smoke.py"), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("installs and works") == 2


def python_of(version):
    """A Python of that version: on the path, or one of pyenv's."""
    homes = Path.home().glob(f".pyenv/versions/{version}*/bin/python")
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, homes))]
    for path in filter(None, candidates):
        done = subprocess.run([path, "-c", "import sys, venv; print(sys.version)"], capture_output=True, text=True)
        if done.stdout.startswith(version):
            return path
    return None
