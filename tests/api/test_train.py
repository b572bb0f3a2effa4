"""`fedqhd.train` as Python callers use it: what it takes, what it returns, and what type checkers know of it."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import subprocess
import sys

import numpy as np
import pytest

import fedqhd
from conftest import TINY, tiny
from fedqhd.api import typed
from fedqhd.core.errors import FedQHDError
from worlds import CORRIDOR

SMALL = {**TINY, "env": CORRIDOR, "preset": "plain", "dims": 64}
del SMALL["anchors"]  # they do nothing for clients with one encoder


def test_a_run_can_be_read_like_its_summary_and_used(tmp_path):
    run = fedqhd.train(**SMALL | {"out": tmp_path / "run", "dims": 64})
    saved = json.loads((tmp_path / "run/summary.json").read_text())
    assert dict(run) == run.summary == {**saved, "out": str(tmp_path / "run")}
    assert run["greedy_return"] == saved["greedy_return"]
    assert run.config.dims == (64,)
    assert run.returns.shape == (2, 6)
    assert run.evaluate(3).shape == (2, 3)
    assert np.array_equal(run.evaluate(3), fedqhd.evaluate(tmp_path / "run", 3))
    assert run.policy(1).predict([0.5])[0] in (0, 1)
    table = run.metrics()
    assert list(table.columns) == ["round", "client", "episode", "return", "length", "epsilon"]
    assert table.groupby("client")["return"].mean()[0] == pytest.approx(run.returns[0].mean())
    assert run.plot().axes[0].get_xlabel() == "episode"
    assert f"final return {run['final_return']:.1f}" in repr(run)
    assert "<td>fedqhd</td>" in run._repr_html_()
    assert fedqhd.Run(str(tmp_path / "run")).summary == run.summary


def test_without_pandas_metrics_are_columns(tmp_path, monkeypatch):
    run = fedqhd.train(tiny(tmp_path, env=CORRIDOR))
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert run.metrics()["return"].shape == (12,)
    assert run.evaluations() == {}


def test_settings_override_a_config(tmp_path):
    config = tiny(tmp_path, env=CORRIDOR)
    run = fedqhd.train(config, episodes=8, seed=3)
    assert (run["episodes"], run["seed"], run.config.dims) == (8, 3, config.dims)
    with pytest.raises(FedQHDError, match=r"unknown setting 'epsiodes' \(did you mean 'episodes'"):
        fedqhd.train(config, epsiodes=3)


def test_numbers_of_numpy_paths_and_single_values_are_taken(tmp_path):
    given = {
        "seed": np.int64(1), "clients": np.int32(2), "gamma": np.float32(0.5), "dims": np.array([64, 96]),
        "out": tmp_path / "a", "setting": "heterogeneous", "encoder": "fourier",
    }  # fmt: skip
    c = fedqhd.train(**SMALL | given).config
    assert (c.seed, c.clients, c.gamma, c.dims, c.encoder) == (1, 2, 0.5, (64, 96), ("fourier",))
    assert c.out == str(tmp_path / "a")
    for wrong in ({"clients": np.float64(2.5)}, {"seed": "1"}, {"dims": [1.5]}, {"dims": "wide"}, {"gamma": np.True_}):
        with pytest.raises(FedQHDError, match=f"{next(iter(wrong))}=.*wrong type"):
            fedqhd.train(**SMALL | {"out": tmp_path / "b"} | wrong)


def run_in_a_pool(out):
    return fedqhd.train(**{k: v for k, v in SMALL.items() if k != "engine"}, out=out)["final_return"]


def test_a_worker_of_a_pool_can_train(tmp_path):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        one, other = pool.map(run_in_a_pool, [str(tmp_path / "a"), str(tmp_path / "b")])
        assert one == other
        with pytest.raises(FedQHDError, match="engine='process' is not possible in a daemonic process"):
            pool.apply(fedqhd.train, kwds=SMALL | {"engine": "process", "out": str(tmp_path / "c")})


def test_a_finished_run_goes_on_from_python_and_the_command_line(tmp_path):
    from processes import fedqhd as command

    cart = {**SMALL, "env": "CartPole-v1"}
    fedqhd.train(**cart | {"out": tmp_path / "long", "episodes": 12})
    fedqhd.train(**cart | {"out": tmp_path / "run", "episodes": 4})
    assert fedqhd.train(out=tmp_path / "run", extend=4)["episodes"] == 8
    done = command("train", "--extend", "4", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "resumed after round 2" in done.stdout
    one, other = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("long", "run"))
    assert one == other
    for settings, message in (
        ({"extend": 4}, "extend=4 needs out="),
        ({"extend": 4, "out": tmp_path / "run", "gamma": 0.5}, "gamma=0.5 cannot change when a run is extended"),
        ({"extend": 4, "out": tmp_path / "nowhere"}, "holds no run to extend"),
    ):
        with pytest.raises(FedQHDError, match=message):
            fedqhd.train(**settings)


def test_a_folder_without_a_finished_run_is_no_run(tmp_path):
    with pytest.raises(FedQHDError, match="holds no run"):
        fedqhd.Run(tmp_path / "nowhere")


def test_the_types_of_settings_are_those_of_their_classes():
    assert typed.FILE.read_text() == typed.source(), "run python -m fedqhd.api.typed"
    named = set(inspect.signature(fedqhd.train).parameters)
    given = {*typed.NAMED, *typed.OWN}
    assert given <= named
    assert named - given == {"config", "preset", "overwrite", "resume", "extend", "trust", "settings"}


def test_every_public_name_is_there_and_no_package_hides_it():
    import fedqhd.gap.measure  # once shadowed a function of the same name

    assert len(fedqhd.__all__) > 30
    for name in fedqhd.__all__:
        assert getattr(fedqhd, name) is not None
    assert callable(fedqhd.measure_gap)
    with pytest.raises(AttributeError):
        _ = fedqhd.trian


CHECKED = [
    ("run: fedqhd.Run = fedqhd.train(env='CartPole-v1', dims=100, lam=1e-3, out=Path('x'))", ""),
    ("fedqhd.train(epsiodes=3)", 'Unexpected keyword argument "epsiodes"'),
    ("fedqhd.train(episodes='3')", 'incompatible type "str"'),
    ("fedqhd.train(setting='heterogenous')", "incompatible type"),
    ("fedqhd.trian()", 'has no attribute "trian"'),
    ("fedqhd.load_policy('x', client=0).predict(3, 4, 5, 6, 7)", "Too many arguments"),
    ("fedqhd.train(callbacks=[fedqhd.callbacks.Evaluate(every=2), 'keep-best'])", ""),
]


@pytest.mark.slow
def test_a_type_checker_knows_the_api(tmp_path):
    for k, (code, _) in enumerate(CHECKED):
        (tmp_path / f"user{k}.py").write_text(f"from pathlib import Path\nimport fedqhd\n{code}\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file=",
            f"--cache-dir={tmp_path / 'mypy'}",
            *tmp_path.glob("user*.py"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    for k, (code, error) in enumerate(CHECKED):
        said = "\n".join(line for line in done.stdout.splitlines() if line.startswith(f"user{k}.py"))
        assert error in said, (code, done.stdout)
        assert bool(said) == bool(error), (code, said)
