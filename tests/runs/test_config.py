"""Settings: layers, round trips, and one clear sentence for each mistake."""

from __future__ import annotations

import dataclasses
import tomllib
from importlib import resources

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from fedqhd.core.errors import FedQHDError
from fedqhd.federation.method import METHODS
from fedqhd.runs.config import FIELDS, known_classes, load_config, resolve

PRESETS = [p.name for p in (resources.files("fedqhd") / "configs").iterdir() if p.name.endswith(".toml")]


def test_a_run_can_be_repeated_from_its_own_config(tmp_path):
    config = resolve({"env": "LunarLander-v3", "weights": [0.5, 0.25, 0.25], "clients": 3, "seed": 9})
    (tmp_path / "c.toml").write_text(config.to_toml())
    assert resolve({}, str(tmp_path / "c.toml")) == config


def test_layers(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('env = "CartPole-v1"\nlearner = "replay"\neta = 0.3\nsigma = 2\nlr = 0.1\n[dqn]\nlr = 0.2\n')
    config = resolve({"sigma": 3.0}, str(file))
    assert (config.eta, config.sigma, config.gamma) == (0.3, 3.0, 0.99)
    # Over the environment's own file and the preset, where it does not choose another learner.
    assert config.scale_low == (-2.4, -2.5, -0.21, -3.0)
    assert "lr" not in config
    shared = resolve({}, preset="plain", shared={"episodes": 7, "lr": 0.1})
    assert shared.episodes == 7
    assert "lr" not in shared
    assert resolve({"method": "fedavg-dqn"}, str(file)).lr == 0.2


def test_the_best_settings_are_the_default():
    """What the main table calls tuned, also by name; the paper's and the environment's own are a word away."""
    lander = resolve({"env": "LunarLander-v3"})
    assert (lander.learner, lander.trace, lander.round_episodes, lander.action_repeat) == ("least-squares", 0.4, 10, 3)
    assert resolve({"env": "LunarLander-v3"}, preset="tuned") == lander
    paper = resolve({"env": "LunarLander-v3"}, preset="paper")
    assert (paper.learner, paper.dims, paper.eta, paper.batch_size) == ("replay", (10000,), 0.01, 32)
    assert resolve({"env": "LunarLander-v3"}, preset="plain").learner == "online"
    # Tuned settings of one learner say nothing of another.
    assert resolve({"env": "MountainCar-v0", "learner": "replay"}).action_repeat == 1
    assert resolve({"env": "MountainCar-v0", "setting": "heterogeneous"}).action_repeat == 4
    # With one encoder nothing is truncated: the two have the same settings.
    one = resolve({"env": "MountainCar-v0"})
    assert resolve({"env": "MountainCar-v0", "method": "truncated-fedavg-qhd"}).values.items() >= {
        (k, v) for k, v in one.values.items() if k not in ("method", "agents")
    }
    with pytest.raises(FedQHDError, match="preset='tunde' is unknown"):
        resolve({}, preset="tunde")


@pytest.mark.parametrize("file", sorted((resources.files("fedqhd") / "configs").rglob("*.toml")), ids=lambda f: f.name)
@pytest.mark.parametrize("method", METHODS.names)
def test_every_file_of_configs_can_be_given(file, method):
    setting = {} if "heterogeneous" in METHODS.find(method).supported_settings else {"setting": "homogeneous"}
    assert resolve({"method": method, **setting}, str(file)).method == method


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lr": 0.5}, "lr=0.5 does nothing for method=fedqhd with learner=.* it is a setting of 'DQN'"),
        ({"dims": [10, 20, 30]}, r"dims=\[10, 20, 30\].*one for all clients"),
        ({"encoder": ["fourier", "complex"]}, "encoder=.*one for all clients"),
        ({"anchors": 50}, "anchors=50 does nothing.*setting=homogeneous.*'anchors'"),
        ({"lam": 0.1, "method": "independent-qhd", "setting": "heterogeneous"}, "lam=0.1 does nothing"),
        ({"learner": "online", "method": "fedavg-dqn"}, "learner=online does nothing for method=fedavg-dqn"),
        ({"batch_size": 8, "learner": "online"}, "batch_size=8 does nothing.*'minibatches'"),
        ({"sigma_spread": 0.1}, "sigma_spread=0.1 does nothing with setting=homogeneous"),
        ({"bonus": 0.2, "learner": "least-squares"}, "bonus=0.2 does nothing with explore=epsilon"),
        ({"scale_low": [1.0], "scaling": "box"}, "scale_low=.*does nothing with scaling=box"),
        ({"dp_clip": 1.0, "method": "fedavg-dqn"}, "dp_clip=1.0 does nothing.*'differential privacy'"),
        ({"temperature": 2.0}, "temperature=2.0 does nothing"),
    ],
)
def test_a_setting_that_does_nothing_is_refused(given, says):
    with pytest.raises(FedQHDError, match=says):
        resolve(given)


def test_what_does_nothing_in_a_file_is_ignored_with_one_note(tmp_path, caplog):
    file = tmp_path / "c.toml"
    file.write_text('learner = "online"\nlr = 0.5\nsweeps = 3\n[dqn]\nhuber = 2.0\n')
    config = resolve({}, str(file))
    assert "lr" not in config
    assert [r.getMessage() for r in caplog.records] == [
        f"{file}: lr, sweeps do nothing for method=fedqhd with learner=online and setting=homogeneous and are ignored"
    ]


def test_an_environment_without_its_version_is_the_newest(tmp_path):
    """It has the settings of its own file, and says which it is; a config file of older versions still loads."""
    assert resolve({"env": "CartPole"}) == resolve({"env": "CartPole-v1"})
    assert resolve({"env": "CartPole-v0"}).env == "CartPole-v0"
    file = tmp_path / "config.toml"
    file.write_text(resolve({}).to_toml().replace("CartPole-v1", "CartPole"))
    assert load_config(file) == resolve({}, str(file)) == resolve({"env": "CartPole-v1"})


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("setting", ["homogeneous", "heterogeneous"])
@pytest.mark.parametrize("learner", ["replay", "online", "least-squares"])
def test_every_shipped_file_is_valid(name, setting, learner):
    env = tomllib.loads((resources.files("fedqhd") / "configs" / name).read_text())["env"]
    config = resolve({"env": env, "setting": setting, "learner": learner}, preset="plain")
    assert (config.setting, config.learner) == (setting, learner)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"clients": 0}, "clients=0 is not possible"),
        ({"clients": -3}, "clients=-3"),
        ({"dims": [100, 0], "setting": "heterogeneous"}, r"dims=\[100, 0\]"),
        ({"dims": []}, r"dims=\(\)"),
        ({"weights": [0.5, 0.6], "clients": 2}, r"weights=.*sum to 1, not 1.1"),
        ({"weights": [1.0], "clients": 2}, "weights=.*one number per client, 2 in all"),
        ({"weights": [1.5, -0.5], "clients": 2}, "weights="),
        ({"weights": "equal"}, "weights=equal"),
        ({"lam": -1e-3, "setting": "heterogeneous"}, "lam=-0.001"),
        ({"lam": float("nan"), "setting": "heterogeneous"}, "lam=nan"),
        ({"sigma": 0.0}, "sigma=0.0"),
        ({"sigma_spread": 1.0}, "sigma_spread=1.0"),
        ({"gamma": 1.1}, "gamma=1.1"),
        ({"eta": -0.1, "learner": "online"}, "eta=-0.1"),
        ({"epsilon_start": 0.1, "epsilon_end": 0.2}, "epsilon_start=0.1"),
        ({"batch_size": 99, "replay_size": 50, "learner": "replay"}, "batch_size=99.*replay_size=50"),
        ({"setting": "heterogenous"}, "setting='heterogenous' is unknown .did you mean 'heterogeneous'"),
        ({"learner": "onlin"}, "did you mean 'online'"),
        ({"learner": "dqn"}, "learner='dqn' is unknown.*least-squares, online, replay, traces or module:name"),
        ({"fit_lam": -1.0}, "fit_lam=-1.0"),
        ({"damping": 0.0}, "damping=0.0"),
        ({"trace": 1.5}, "trace=1.5"),
        ({"huber": 0.0}, "huber=0.0"),
        ({"target_tau": 1.5}, "target_tau=1.5"),
        ({"weights": "precision", "learner": "replay"}, "weights=precision.*least-squares"),
        ({"explore": "bonus", "learner": "online"}, "explore=bonus.*least squares"),
        ({"exchange": "statistics", "learner": "least-squares", "setting": "heterogeneous"}, "exchange=.*one encoder"),
        ({"anchor_source": "file", "setting": "heterogeneous"}, "anchor_source=file.*anchor_file"),
        ({"clients": "five"}, "clients='five' has the wrong type: int"),
        ({"clients": True}, "clients=True has the wrong type"),
        ({"dims": "500"}, "dims='500' has the wrong type"),
        ({"dims": [500, "wide"]}, "dims=.500, 'wide'. has the wrong type"),
        ({"seed": -1}, "seed=-1"),
        ({"aggregate": "medain"}, "did you mean 'median'"),
        ({"attack": "sign"}, "attack='sign'"),
        ({"aggregate": "played"}, "aggregate=played is not possible: the server plays.*anchor_source=teacher"),
        (
            {"aggregate": "played", "setting": "heterogeneous", "anchor_source": "rollout"},
            "own copy of the environment",
        ),
        ({"aggregate": "played", "method": "fedavg-dqn"}, "aggregate=played is not possible"),
        ({"attack": "noise", "method": "independent-qhd"}, "attack=noise does nothing for method=independent-qhd"),
        ({"liars": 1.5}, "liars=1.5"),
        ({"liars": 0.05, "attack": "lazy"}, "liars=0.05.*at least one of clients=5"),
        ({"max_magnitude": 0.0}, "max_magnitude=0.0"),
        ({"min_clients": 6}, "min_clients=6.*clients=5"),
        ({"participation": 0.0}, "participation=0.0"),
        ({"participation": 0.5, "method": "oracle-qhd"}, "participation=0.5 does nothing for method=oracle-qhd"),
        ({"present": ["7=0:"]}, "present=.*clients 0 to 4"),
        ({"present": ["1=0:", "1=5:"]}, "present=.*once"),
        ({"present": ["1=5:3"]}, "present='1=5:3' is not a span"),
        ({"present": ["1"]}, "present='1' is not a span"),
        ({"present": ["0=0:1", "1=3:"], "clients": 2}, "present=.*no client is present in round 2"),
        ({"late": -0.1}, "late=-0.1"),
        (
            {"late": 0.1, "learner": "least-squares", "setting": "heterogeneous"},
            "late_weight=0.5.*anchors have moved on",
        ),
        (
            {"aggregate": "median", "exchange": "statistics", "learner": "least-squares"},
            "aggregate=median.*replies up",
        ),
        (
            {"aggregate": "median", "weights": "precision", "learner": "least-squares"},
            "aggregate=median.*replies up",
        ),
        (
            {
                "aggregate": "played",
                "weights": "precision",
                "learner": "least-squares",
                "setting": "heterogeneous",
                "anchor_source": "teacher",
            },
            "aggregate=played.*replies up",
        ),
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
@example({"scale_high": 0})
def test_no_settings_crash(values):
    """Whatever is given, the answer is a config or one of our sentences."""
    try:
        config = resolve(values, preset="plain")
    except FedQHDError as error:
        assert "\n" not in str(error)
    else:
        for name, value in values.items():
            found = getattr(config, name)
            given = value if isinstance(value, list) or not isinstance(found, tuple) else [value]
            assert found == pytest.approx(tuple(given) if isinstance(given, list) else given)


def test_every_setting_has_help_and_one_default():
    """Where two classes have a setting, it is one and the same field."""
    assert all(f.metadata["help"] for f in FIELDS.values())
    fields = [f for cls in known_classes() for f in dataclasses.fields(cls)]
    assert len({(f.name, f.default, f.metadata["help"]) for f in fields}) == len(FIELDS)


@pytest.mark.parametrize(("name", "value"), [("env", "Acrobot-v1"), ("method", "fedqhd"), ("agents", ["qhd"])])
def test_what_decides_which_tables_count_stands_in_none_of_them(tmp_path, name, value):
    file = tmp_path / "c.toml"
    file.write_text(tomli_w.dumps({"fedqhd": {name: value}}))
    with pytest.raises(FedQHDError, match=f"{name}=.* in table 'fedqhd'"):
        resolve({}, str(file))


@pytest.mark.parametrize("name", ["env", "method", "setting", "agents", "learner"])
@pytest.mark.parametrize("value", [True, 3, [True], [["a"]]])
def test_choices_of_the_wrong_type_are_refused_before_they_choose(tmp_path, name, value):
    file = tmp_path / "c.toml"
    file.write_text(tomli_w.dumps({name: value}))
    with pytest.raises(FedQHDError, match=f"{name}=.* has the wrong type"):
        resolve({}, str(file))
