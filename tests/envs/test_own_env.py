"""Environments that this project did not write: Gymnasium's others, three packages', and a user's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import fedqhd
from conftest import TESTS, tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.envs.adapt import LIMIT, check_rules
from fedqhd.envs.make import make_env
from fedqhd.envs.rollouts import random_states
from fedqhd.envs.scaling import SPAN, SPREAD, make_scaler
from own_things import Breaks, Rich, short_corridor
from worlds import Corridor


def trained(tmp_path, **settings):
    summary = fedqhd.train(tiny(tmp_path / "run", **{"rollout_steps": 500, **settings}))
    assert np.isfinite(summary["greedy_return"])
    return summary


def scaled(env, seed=0):
    scaler = make_scaler(env, "auto", (), (), np.random.default_rng(seed), 1000)
    return scaler, scaler(random_states(env, 1000, np.random.default_rng(seed + 1)))


@pytest.mark.parametrize(
    ("env", "n", "actions"),
    [
        ("FrozenLake-v1", 16, 4),
        ("CliffWalking-v1", 48, 4),
        ("Taxi-v4", 500, 6),
        ("Blackjack-v1", 45, 2),
        ("MinAtar/Breakout-v0", 400, 6),
        ("own_things:grid", 147, 7),
        ("own_things:Rich", 8, 2),
    ],
)
def test_environments_of_others_are_vectors_and_train(env, n, actions, tmp_path):
    made = make_env(env)
    state, _ = made.reset(seed=0)
    assert state.shape == (n,)
    assert made.action_space.n == actions
    assert made.action_space.start == 0
    setting = {"setting": "heterogeneous", "learner": "online"}
    summary = trained(tmp_path, env=env, episodes=2, round_episodes=1, **setting)
    assert summary["protocol"] == "AnchorCompile"
    assert fedqhd.evaluate(summary["out"], 1).shape == (2, 1)


@pytest.mark.slow
def test_a_road_of_highway_env(tmp_path):
    """Slow, because its steps are."""
    summary = trained(tmp_path, env="own_things:highway", rollout_steps=50, anchors=20, episodes=4)
    assert 0 < summary["greedy_return"] <= 10


def test_symbols_become_one_hot_and_learn(tmp_path):
    """A frozen lake that is not slippery: without symbols apart from each other this is not learned."""
    summary = trained(
        tmp_path, env=lambda: gymnasium.make("FrozenLake-v1", is_slippery=False), learner="least-squares",
        dims=[100], episodes=150, round_episodes=10, epsilon_decay=0.97, epsilon_end=0.05, seed=100, sigma=1.0,
    )  # fmt: skip
    assert summary["greedy_return"] == 1.0


def test_parts_of_all_kinds_are_put_in_a_row():
    env = make_env("own_things:Rich")
    state, _ = env.reset(seed=3)
    x = env.unwrapped.x
    # A Dict's parts in the order of their names: both (three of a symbol, two numbers), side (two), where (one).
    np.testing.assert_allclose(state, [0, 1, 0, 0.5, 0.5, x <= 0, x > 0, x])
    assert env.get_wrapper_attr("symbols").tolist() == [True] * 3 + [False] * 2 + [True] * 2 + [False]
    before = env.unwrapped.x
    env.step(1)
    assert env.unwrapped.x == pytest.approx(before + 0.2)  # 1 is the second action, which it calls 4


def test_an_environment_without_an_end_gets_one():
    env = make_env("CliffWalking-v1")
    env.reset(seed=0)
    steps = 1
    while not env.step(0)[3]:  # up, against the wall, for ever
        steps += 1
    assert steps == LIMIT
    assert make_env("CartPole-v1").spec.max_episode_steps == 500


@pytest.mark.parametrize("env", ["CartPole-v1", "MinAtar/Breakout-v0", "own_things:grid"])
def test_scaling_puts_states_as_far_apart_whatever_their_number(env):
    _, z = scaled(make_env(env))
    other = np.random.default_rng(5).permutation(z)
    assert np.median(np.linalg.norm(z - other, axis=1)) == pytest.approx(SPREAD, rel=0.25)


def test_symbols_are_as_far_apart_as_anything():
    scaler, z = scaled(make_env("Taxi-v4"))
    assert set(np.unique(z)) == {-SPAN, SPAN}
    assert np.all(scaler.scale == 1 / (2 * SPAN))


def test_a_bit_that_is_hardly_ever_set_does_not_outweigh_the_rest():
    """With plain standard deviations it does: the same states, scaled by them, reach further than a hundred."""
    env = make_env("MinAtar/Breakout-v0")
    _, z = scaled(env)
    plain = make_scaler(env, "rollout", (), (), np.random.default_rng(0), 1000)
    assert np.abs(z).max() < 2 * SPAN
    assert np.abs(plain(random_states(env, 1000, np.random.default_rng(1)))).max() > 3 * SPAN


@pytest.mark.parametrize("env", [Corridor, short_corridor, Corridor(), lambda: short_corridor()])
def test_classes_functions_and_objects_from_python(env, tmp_path):
    summary = trained(tmp_path, env=env)
    assert isinstance(fedqhd.load_policy(summary["out"]).make_env().unwrapped, Corridor)
    assert fedqhd.evaluate(summary["out"], 2).shape == (2, 2)
    again = fedqhd.train(tiny(summary["out"], rollout_steps=500, env=env), resume=True)
    assert again["greedy_return"] == summary["greedy_return"]


def test_clients_do_not_share_an_object(tmp_path):
    one = Corridor()
    trained(tmp_path, env=one)
    assert not hasattr(one, "x")  # copies were played


def test_names_from_python_are_those_of_modules_where_there_are(tmp_path):
    assert fedqhd.resolve({"env": Rich}).env == "own_things:Rich"
    first, second = (fedqhd.resolve({"env": Breaks(rule)}).env for rule in ("", "nan"))
    assert first == "python:Breaks"
    assert second == "python:Breaks-2"


def in_a_new_process(*args, cwd):
    command = [str(Path(sys.executable).parent / "fedqhd"), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_module_and_name_on_the_command_line_and_in_a_file(tmp_path):
    """A module of the folder one is in; train, resume, evaluate, gap and play, each in a process of its own."""
    (tmp_path / "mine.py").write_text(
        f"import sys; sys.path.append({str(TESTS)!r})\n"
        "import gymnasium\nfrom gymnasium.wrappers import TimeLimit\n"
        "def car(**kwargs):\n    return TimeLimit(gymnasium.make('MountainCar-v0', **kwargs).unwrapped, 30)\n"
    )
    lines = ['env = "mine:car"', 'setting = "heterogeneous"', "episodes = 4", "round_episodes = 2", "clients = 2"]
    small = ["dims = [40, 60]", "anchors = 30", "eval_episodes = 1", "rollout_steps = 300", 'out = "run"']
    (tmp_path / "run.toml").write_text("\n".join([*lines, *small]) + "\n")
    for args in (
        ("train", "--config", "run.toml"),
        ("train", "--resume", "--out", "run"),
        ("evaluate", "run", "--episodes", 2),
        ("gap", "run", "--states", 200, "--eval-episodes", 1),
        ("play", "run", "--gif", "p.gif"),
    ):
        done = in_a_new_process(*args, cwd=tmp_path)
        assert done.returncode == 0, (args, done.stderr)
    assert (tmp_path / "p.gif").stat().st_size > 1000
    done = in_a_new_process("train", "--env", "mine:cra", cwd=tmp_path)
    assert done.returncode == 2
    assert "env='mine:cra' is not an environment" in done.stderr


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("own_things:no_info", "rule of Gymnasium: .*(tuple|2-tuple)"),
        ("own_things:outside", "rule of Gymnasium: .*not within the observation space"),
        ("own_things:four", r"rule of Gymnasium: .*\(obs, reward, terminated, truncated, info\)|4"),
        ("own_things:nan", "rule of Gymnasium: .*(NaN|not within)"),
        ("own_things:shape", "rule of Gymnasium: .*(shape|not within)"),
        ("own_things:chance", "rule of Gymnasium: .*not equivalent"),
        ("own_things:NoSeed", "does not repeat|non-deterministic"),
        ("own_things:not_an_env", "is a int: give a gymnasium.Env"),
        ("own_things:TwoRewards", r"returned the reward array\(.*: rewards must be single numbers"),
        ("own_things:HERE", "not an environment that Gymnasium knows"),
        ("no_such_module:Env", "'no_such_module' cannot be found"),
        ("minigrid:MiniGrid-Empty-5x5-v0", "which Gymnasium cannot flatten"),
        ("Pendulum-v1", "has continuous actions, but learner=replay learns discrete ones"),
        ("python:Never", "was an object of another Python process"),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_reason(env, says, tmp_path):
    with pytest.raises(FedQHDError, match=says) as error:
        fedqhd.train(tiny(tmp_path / "run", env=env))
    assert f"env={env!r}" in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_state_that_is_not_finite_is_named_when_it_comes_late(tmp_path):
    with pytest.raises(FedQHDError, match=r"returned the state .*nan.* not finite"):
        trained(tmp_path, env=Breaks("late nan"))


def test_harmless_breaches_are_warned_of(caplog):
    check_rules("own_things:SeedsItself")
    assert "breaks a rule of Gymnasium" in caplog.text
    check_rules("CartPole-v1")
    assert len(caplog.records) == 1


def test_an_object_that_cannot_be_copied_says_so(tmp_path):
    env = Corridor()
    env.lock = (x for x in ())
    with pytest.raises(FedQHDError, match="cannot be copied"):
        trained(tmp_path, env=env)
