"""Settings: layers, round trips, and one clear sentence for each mistake."""

from __future__ import annotations

import dataclasses
import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedqhd.core.errors import FedQHDError
from fedqhd.runs.config import FIELDS, Config, known_keys, resolve

PRESETS = [p.name for p in (resources.files("fedqhd") / "configs").iterdir() if p.name.endswith(".toml")]


def test_a_run_can_be_repeated_from_its_own_config(tmp_path):
    config = resolve({"env": "LunarLander-v3", "weights": [0.5, 0.25, 0.25], "clients": 3, "seed": 9})
    (tmp_path / "c.toml").write_text(config.to_toml())
    assert resolve({}, str(tmp_path / "c.toml")) == config


def test_layers(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('env = "CartPole-v1"\neta = 0.3\nsigma = 2\n')
    config = resolve({"sigma": 3.0}, str(file))
    assert (config.eta, config.sigma, config.gamma) == (0.3, 3.0, 0.99)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("setting", ["homogeneous", "heterogeneous"])
@pytest.mark.parametrize("learner", ["replay", "online", "least-squares"])
def test_every_shipped_file_is_valid(name, setting, learner):
    env = tomllib.loads((resources.files("fedqhd") / "configs" / name).read_text())["env"]
    config = resolve({"env": env, "setting": setting, "learner": learner})
    assert (config.setting, config.learner) == (setting, learner)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"clients": 0}, "clients=0 is not possible"),
        ({"clients": -3}, "clients=-3"),
        ({"dims": [100, 0]}, r"dims=\(100, 0\)"),
        ({"dims": []}, r"dims=\(\)"),
        ({"weights": [0.5, 0.6], "clients": 2}, r"weights=.*sum to 1, not 1.1"),
        ({"weights": [1.0], "clients": 2}, "weights=.*one number a client, 2 in all"),
        ({"weights": [1.5, -0.5], "clients": 2}, "weights="),
        ({"weights": "equal"}, "weights=equal"),
        ({"lam": -1e-3}, "lam=-0.001"),
        ({"lam": float("nan")}, "lam=nan"),
        ({"sigma": 0.0}, "sigma=0.0"),
        ({"sigma_spread": 1.0}, "sigma_spread=1.0"),
        ({"gamma": 1.1}, "gamma=1.1"),
        ({"eta": -0.1}, "eta=-0.1"),
        ({"epsilon_start": 0.1, "epsilon_end": 0.2}, "epsilon_start=0.1"),
        ({"batch_size": 99, "replay_size": 50}, "batch_size=99.*replay_size=50"),
        ({"setting": "heterogenous"}, "setting='heterogenous' is unknown .did you mean 'heterogeneous'"),
        ({"learner": "onlin"}, "did you mean 'online'"),
        ({"fit_lam": -1.0}, "fit_lam=-1.0"),
        ({"damping": 0.0}, "damping=0.0"),
        ({"trace": 1.5}, "trace=1.5"),
        ({"huber": 0.0}, "huber=0.0"),
        ({"target_tau": 1.5}, "target_tau=1.5"),
        ({"weights": "precision"}, "weights=precision.*learner=least-squares"),
        ({"explore": "bonus", "learner": "online"}, "explore=bonus.*learner=least-squares"),
        ({"exchange": "statistics", "learner": "least-squares", "setting": "heterogeneous"}, "exchange=.*one encoder"),
        ({"anchor_source": "file"}, "anchor_source=file.*anchor_file"),
        ({"clients": "five"}, "clients='five' has the wrong type: int"),
        ({"clients": True}, "clients=True has the wrong type"),
        ({"dims": 500}, "dims=500 has the wrong type"),
        ({"seed": -1}, "seed=-1"),
        ({"aggregate": "medain"}, "did you mean 'median'"),
        ({"attack": "sign"}, "attack='sign'"),
        ({"attack": "noise", "method": "independent-qhd"}, "attack=noise.*sends nothing"),
        ({"liars": 1.5}, "liars=1.5"),
        ({"liars": 0.05, "attack": "lazy"}, "liars=0.05.*clients=5 that is nobody"),
        ({"max_magnitude": 0.0}, "max_magnitude=0.0"),
        ({"min_clients": 6}, "min_clients=6.*clients=5"),
        ({"participation": 0.0}, "participation=0.0"),
        ({"participation": 0.5, "method": "oracle-qhd"}, "participation=0.5.*one learner"),
        ({"present": ["7=0:"]}, "present=.*clients 0 to 4"),
        ({"present": ["1=0:", "1=5:"]}, "present=.*once"),
        ({"present": ["1=5:3"]}, "present='1=5:3' is no span"),
        ({"present": ["1"]}, "present='1' is no span"),
        ({"present": ["0=0:1", "1=3:"], "clients": 2}, "present=.*no client is there in round 2"),
        ({"late": -0.1}, "late=-0.1"),
        (
            {"late": 0.1, "learner": "least-squares", "setting": "heterogeneous"},
            "late_weight=0.5.*anchors have moved on",
        ),
        ({"aggregate": "median", "exchange": "statistics", "learner": "least-squares"}, "aggregate=median.*added up"),
        ({"aggregate": "median", "weights": "precision", "learner": "least-squares"}, "aggregate=median.*added up"),
        ({"keep": 0}, "keep=0"),
        ({"sgima": 1.0}, "unknown setting 'sgima' .did you mean 'sigma'"),
    ],
)
def test_mistakes_are_named(given, says):
    with pytest.raises(FedQHDError, match=says):
        resolve(given)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epizodes = 5", "unknown setting 'epizodes' .did you mean 'episodes'"),
        ("a = [", "cannot be read as TOML"),
        ("[x]\ny=1", "'x'"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, text, says):
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(FedQHDError, match=says):
        resolve({}, str(file))
    with pytest.raises(FedQHDError, match="does not exist"):
        resolve({}, str(tmp_path / "none.toml"))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@given(
    st.dictionaries(
        st.sampled_from(sorted(FIELDS)) | st.text(max_size=8), scalars | st.lists(scalars, max_size=3), max_size=4
    )
)
def test_no_settings_crash(values):
    """Whatever is given, the answer is a config or one of our sentences."""
    try:
        config = Config(**known_keys("test", values))
    except FedQHDError as error:
        assert "\n" not in str(error)
    else:
        for name, value in values.items():
            given = (value,) if name == "encoder" and isinstance(value, str) else value
            assert getattr(config, name) == pytest.approx(tuple(given) if isinstance(given, list) else given)


def test_every_setting_has_help():
    assert all(f.metadata["help"] for f in dataclasses.fields(Config))
