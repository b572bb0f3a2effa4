"""A run of a stranger runs no code: not by its settings, not by its models, not by any command that reads them."""

from __future__ import annotations

import re
import shutil
import sys
import uuid
from pathlib import Path

import pytest
import tomli_w

import fedqhd
from conftest import ROOT, tiny
from fedqhd.agents.policy import Policy, load_policy, model_path
from fedqhd.core import trust
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_arrays, write_arrays
from fedqhd.core.presets import read_toml
from fedqhd.encoders import load_encoder
from fedqhd.export import export
from fedqhd.runs.config import code_names, load_config, resolve
from fedqhd.runs.exchange import path_of
from fedqhd.runs.run import train
from fedqhd.ui.cli import main
from fedqhd.ui.watch import Watched
from worlds import CORRIDOR

CODE = """
from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
import gymnasium
from worlds import Corridor
def Env(**kwargs):
    return gymnasium.wrappers.TimeLimit(Corridor(), 20)
def phi(s):
    import numpy as np
    return np.cos(s @ np.linspace(-2, 2, 40)[None]) / np.sqrt(40)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the present folder, which leaves a file beside it when it is imported."""
    name = f"stranger_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(trust, "_granted", set())
    yield name
    sys.modules.pop(name, None)


def ran(name):
    return Path(f"{name}.ran").exists()


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest") / "run"
    train(tiny(folder, env=CORRIDOR, setting="heterogeneous", episodes=8))
    return folder


def edit_settings(folder, **values):
    file = folder / "config.toml"
    file.write_text(tomli_w.dumps({**read_toml(file), **values}))


def edit_model(path, **values):
    arrays, about = read_arrays(path)
    write_arrays(path, arrays, {**about, **values})


@pytest.fixture
def hostile(honest, tmp_path, module):
    """A finished run whose settings and models name the module of a stranger as its environment."""
    folder = tmp_path / "run"
    shutil.copytree(honest, folder)
    edit_settings(folder, env=f"{module}:Env", out="run")
    for client in range(2):
        edit_model(model_path(folder, client), env=f"{module}:Env")
    return folder


COMMANDS = {
    "evaluate": ["evaluate", "run"],
    "play": ["play", "run", "--gif", "x.gif"],
    "export numpy": ["export", "run", "--format", "numpy", "--out", "x.py"],
    "export c": ["export", "run", "--format", "c", "--out", "x.h"],
    "compare": ["compare", "run"],
    "gap": ["gap", "run"],
    "gap advise": ["gap", "--advise", "run"],
    "resume": ["train", "--resume", "--out", "run"],
    "extend": ["train", "--extend", "4", "--out", "run"],
    "watch": ["watch", "run", "--port", "0"],
    "federate": ["federate", "server", "--resume", "--out", "run"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_command_imports_code_that_the_run_of_a_stranger_names(hostile, module, command, capsys):
    assert main(command) == 2
    said = capsys.readouterr().err
    where = hostile.parent / f"{module}.py"
    assert f"names code: {module}:Env would be imported from {where}: give --trust" in said
    assert said.count("\n") == 1
    assert not ran(module)


def test_no_function_imports_code_that_the_run_of_a_stranger_names(hostile, module):
    for read in (
        lambda: load_policy(hostile),
        lambda: Policy.load(model_path(hostile, 1)),
        lambda: fedqhd.evaluate(hostile, 1),
        lambda: fedqhd.Run(hostile).config,
        lambda: fedqhd.Run(hostile).policy(),
        lambda: fedqhd.compare(hostile),
        lambda: fedqhd.measure_gap(hostile),
        lambda: fedqhd.train(out=hostile, extend=2),
        lambda: fedqhd.train(tiny(hostile, env=CORRIDOR, setting="heterogeneous", episodes=8), resume=True),
        lambda: export(hostile, 0, "numpy", hostile / "x.py"),
        lambda: Watched(hostile),
    ):
        with pytest.raises(FedQHDError, match=r"names code: .* give --trust"):
            read()
    assert not ran(module)


@pytest.mark.parametrize(
    "settings",
    [
        {"env": "X:Env-v0"}, {"env": "X:a:b"}, {"method": "X:M"}, {"learner": "X:L"}, {"encoder": ["fourier", "X:phi"]},
        {"aggregate": "X:rule"}, {"callbacks": ["evaluate:every=2", "X:Hook:every=2"]}, {"agents": ["dqn:64", "X:L"]},
        {"fedqhd": {"learner": "X:L"}}, {"unheard": "X:thing"}, {"method": "X:not-a-name"},
    ],
)  # fmt: skip
def test_no_setting_of_the_run_of_a_stranger_imports_code(hostile, module, settings):
    def named(value):
        if isinstance(value, dict):
            return {k: named(v) for k, v in value.items()}
        return [named(v) for v in value] if isinstance(value, list) else value.replace("X", module)

    edit_settings(hostile, env="CartPole-v1", **named({k: v for k, v in settings.items() if k != "env"}))
    edit_settings(hostile, **named({k: v for k, v in settings.items() if k == "env"}))
    assert len(code_names(read_toml(hostile / "config.toml"))) == 1
    with pytest.raises(FedQHDError, match=f"names code: {module}:"):
        load_config(hostile / "config.toml")
    assert main(["train", "--resume", "--out", "run"]) == 2
    assert not ran(module)


@pytest.mark.parametrize("key", ["kind", "encoder"])
def test_no_note_of_a_model_of_a_stranger_imports_code(hostile, module, key):
    path = model_path(hostile, 0)
    edit_model(path, env="CartPole-v1", **{key: f"{module}:phi"})
    with pytest.raises(FedQHDError, match="names code"):
        load_policy(hostile)
    edit_settings(hostile, env=CORRIDOR)
    arrays, about = read_arrays(path_of(hostile))
    about["before"][1][key] = f"{module}:phi"
    write_arrays(path_of(hostile), arrays, about)
    with pytest.raises(FedQHDError, match="names code"):
        fedqhd.measure_gap(hostile)
    write_arrays(hostile / "encoder.npz", {}, {"encoder": f"{module}:phi", "fingerprint": ""})
    with pytest.raises(FedQHDError, match="names code"):
        load_encoder(hostile / "encoder.npz")
    assert not ran(module)


def test_results_of_a_stranger_import_no_code(tmp_path, module):
    from fedqhd.studies.store import read_rows

    (tmp_path / "main.json").write_text(f'{{"rows": [{{"method": "{module}:M"}}]}}')
    with pytest.raises(FedQHDError, match="names code"):
        read_rows(tmp_path, "main")
    assert not ran(module)


def test_trust_lets_the_code_of_a_run_in(hostile, module, capsys):
    assert main(["evaluate", "run", "--episodes", "1", "--trust"]) == 0, capsys.readouterr().err
    assert ran(module)


def test_trust_holds_for_the_folder_it_was_given_for(hostile, module):
    shutil.copytree(hostile, hostile.parent / "other")
    assert fedqhd.load_policy(hostile, trust=True).env == f"{module}:Env"
    assert fedqhd.load_policy(hostile).make_env()
    with pytest.raises(FedQHDError, match="names code"):
        fedqhd.load_policy("other")


def test_a_name_that_the_user_gives_in_the_same_call_needs_no_trust(hostile, module, capsys):
    (hostile / "summary.json").unlink()
    config = resolve({"env": f"{module}:Env"}, str(hostile / "config.toml"))
    assert config.env == f"{module}:Env"
    shutil.rmtree(hostile / "models")
    for path in hostile.glob("checkpoint-*"):
        path.unlink()
    assert main(["train", "--resume", "--out", "run", "--env", f"{module}:Env"]) == 0, capsys.readouterr().err
    assert ran(module)


def new_process(monkeypatch):
    """Forget what this process knows; what is on the disk of the user stays."""
    monkeypatch.setattr(trust, "_remembered", {})
    monkeypatch.setattr(trust, "_granted", set())


@pytest.fixture
def own_run(tmp_path, module):
    folder = tmp_path / "run"
    settings = {"setting": "heterogeneous", "encoder": ["fourier", f"{module}:phi"]}
    train(tiny(folder, env=f"{module}:Env", rollout_steps=200, **settings))
    return folder


def test_an_own_run_is_remembered_wherever_it_is_moved(own_run, module, monkeypatch):
    new_process(monkeypatch)
    moved = own_run.parent / "deeper" / "moved"
    moved.parent.mkdir()
    own_run.rename(moved)
    assert load_policy(moved, 1).make_env()
    assert load_config(moved / "config.toml").env == f"{module}:Env"
    assert fedqhd.evaluate(moved, 1).shape == (2, 1)
    fedqhd.train(out=moved, extend=2)


def test_a_run_in_the_folder_of_another_is_remembered_by_itself(own_run, module, monkeypatch, tmp_path):
    train(tiny(own_run / "inner", env=f"{module}:Env", rollout_steps=200))
    new_process(monkeypatch)
    (own_run / "inner").rename(tmp_path / "outside")
    assert load_policy(tmp_path / "outside").make_env()


def test_nobody_else_has_the_memory_of_a_run(own_run, module, monkeypatch, tmp_path):
    new_process(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of-somebody-else"))
    with pytest.raises(FedQHDError, match="names code"):
        load_policy(own_run, 1)
    assert not (tmp_path / "of-somebody-else").exists()


def test_an_own_run_that_names_other_code_than_it_was_made_with_is_refused(own_run, module, monkeypatch):
    """Somebody may send back a run that was shared with him, with its token."""
    new_process(monkeypatch)
    edit_model(model_path(own_run, 0), env="os:system")
    with pytest.raises(FedQHDError, match="names code: os:system would be imported from"):
        load_policy(own_run)


def test_an_own_run_does_not_import_another_module_of_the_same_name(own_run, module, monkeypatch, tmp_path):
    new_process(monkeypatch)
    other = tmp_path / "download"
    other.mkdir()
    (other / f"{module}.py").write_text(CODE)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path)] + [str(other)])
    sys.modules.pop(module)
    with pytest.raises(FedQHDError, match=f"would be imported from {other / module}.py"):
        load_policy(own_run, 1)
    assert not (other / f"{module}.ran").exists()


def test_a_run_that_is_extended_with_trust_counts_as_ones_own(own_run, module, monkeypatch, tmp_path):
    new_process(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of-somebody-else"))
    with pytest.raises(FedQHDError, match="names code"):
        fedqhd.train(out=own_run, extend=2)
    fedqhd.train(out=own_run, extend=2, trust=True)
    new_process(monkeypatch)
    assert load_policy(own_run, 1).make_env()


def test_a_run_without_code_of_its_own_is_read_by_everybody_and_has_no_token(honest, monkeypatch, tmp_path):
    new_process(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of-somebody-else"))
    assert not (honest / trust.TOKEN).exists()
    assert load_policy(honest).make_env()
    assert load_config(honest / "config.toml").env == CORRIDOR


def test_a_run_that_cannot_be_remembered_is_trained_and_says_so(tmp_path, module, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    train(tiny(tmp_path / "run", env=f"{module}:Env", rollout_steps=200))
    assert "later commands need --trust" in caplog.text
    assert load_policy(tmp_path / "run").make_env()  # within the same process


DOORS = {
    r"\bimport_module\(|\b__import__\(": {
        "core/named.py", "core/registry.py", "deploy/flower.py", "kernels/__init__.py", "runs/scalars.py",
    },
    r"\bgymnasium\.make\(": {"envs/adapt.py"},
    r"\bload_model\(": {"agents/model.py", "agents/policy.py", "runs/exchange.py"},
    r"\bfrom_arrays\(": {"agents/model.py", "encoders/__init__.py"},
    r"\bload_config\(": {
        "api/run.py", "gap/measure.py", "runs/config.py", "runs/folder.py", "studies/grouping.py",
    },
    r"\btomllib\.loads?\(": {"core/presets.py", "deploy/settings.py"},
    r"\bread_toml\(": {
        "core/presets.py", "deploy/settings.py", "runs/config.py", "studies/catalogue/tune.py", "ui/flags.py",
    },
    r"\bread_arrays\(": {
        "agents/policy.py", "core/files.py", "encoders/__init__.py", "engines/flower/account.py", "gap/reference.py",
        "runs/exchange.py",
    },
    r"(?<![.\w])(?:exec|eval|pickle\.loads?|np\.load)\((?!\))": set(),
}  # fmt: skip
"""The files of the package that import modules by name, and those that read files in which there may be names."""


@pytest.mark.parametrize("pattern", DOORS)
def test_names_are_read_and_imported_only_where_they_are_checked(pattern):
    """Whoever adds a file to this list has made sure that `fedqhd.core.trust` checks the names in what it reads."""
    package = ROOT / "src" / "fedqhd"
    found = {
        file.relative_to(package).as_posix() for file in package.rglob("*.py") if re.search(pattern, file.read_text())
    }
    assert found == DOORS[pattern]
