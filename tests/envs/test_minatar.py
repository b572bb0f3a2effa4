"""MinAtar's games: the rules of the package step by step, and what differs from its own environments."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.wrappers import TransformObservation

import fedqhd
from conftest import tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.envs.adapt import broken_rule, check_rules, full_id, grid_of, make
from fedqhd.envs.make import make_env, spaces_of, step_limit
from fedqhd.envs.minatar import GAMES, LIMIT, SPECS
from fedqhd.envs.public import make_public
from fedqhd.runs.config import resolve
from fedqhd.studies.catalogue.tune import write_choice
from fedqhd.studies.presets import Cell
from worlds import Corridor

CHANNELS = {"Asterix": 4, "Breakout": 4, "Freeway": 7, "Seaquest": 10, "SpaceInvaders": 6}
MINIMAL = {"Asterix": 5, "Breakout": 3, "Freeway": 3, "Seaquest": 6, "SpaceInvaders": 4}
"""The number of actions that have an effect."""


def episode(env, seed, steps=300):
    """States, rewards and ends of random play, which depends on nothing but the environment."""
    actions = np.random.default_rng(3)
    record = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        state, *rest, _ = env.step(int(actions.integers(env.action_space.n)))
        record += [state, *rest]
        if rest[1] or rest[2]:
            break
    return record


def same(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("minimal", [False, True])
@pytest.mark.parametrize("game", GAMES)
def test_states_rewards_and_ends_are_those_of_the_package(game, minimal):
    """Its own environment remembers the last action of an episode in the next one, so each has a new environment."""
    from minatar.gym import BaseEnv

    played = np.random.default_rng(5)
    for seed in range(8):
        ours = make(f"MinAtar/{game}-v{int(minimal)}").unwrapped
        theirs = BaseEnv(GAMES[game], use_minimal_action_set=minimal)
        assert ours.action_space == theirs.action_space
        assert ours.observation_space == theirs.observation_space
        assert np.array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
        ended, steps = False, 0
        while not ended and steps < 2600:
            a = int(played.integers(ours.action_space.n))
            state, reward, terminated, truncated, _ = ours.step(a)
            expected, due, ended, _, _ = theirs.step(a)
            assert np.array_equal(state, expected)
            assert (reward, terminated or truncated) == (due, ended)
            steps += 1
        if game == "Freeway":
            assert (steps, terminated, truncated) == (2501, False, True)
            break
        assert (terminated, truncated) == (True, False)


@pytest.mark.parametrize("game", GAMES)
def test_an_episode_depends_on_its_seed_and_its_actions_alone(game):
    env = make_env(f"MinAtar/{game}-v1")
    first = episode(env, 1)
    env.reset(seed=2)
    for _ in range(20):  # the last action of another episode must not leak into the next one
        if env.step(env.action_space.n - 1)[2]:
            break
    assert same(first, episode(env, 1))
    assert not same(first, episode(env, 2))


def test_without_the_reset_of_sticky_actions_an_episode_does_not_repeat():
    """The environment of the package, as a negative control."""
    from minatar.gym import BaseEnv

    env = BaseEnv("breakout", use_minimal_action_set=True, sticky_action_prob=1.0)
    positions = []
    for last in (0, 1):
        env.game.last_action = last
        env.reset(seed=1)
        positions.append(env.step(0)[0][9, :, 0].argmax())
    assert positions == [4, 3]


def test_sticky_actions_repeat_the_last_action():
    """With certainty: the paddle never moves, since a new episode begins with the action that does nothing."""
    env = make_env("MinAtar/Breakout-v1", sticky_action_prob=1.0)
    assert {int(s.reshape(10, 10, 4)[9, :, 0].argmax()) for s in episode(env, 1)[1::4]} == {4}
    env = make_env("MinAtar/Breakout-v1", sticky_action_prob=0.0)
    env.reset(seed=1)
    assert [int(env.step(a)[0].reshape(10, 10, 4)[9, :, 0].argmax()) for a in (1, 1, 0, 2)] == [3, 2, 2, 3]


@pytest.mark.parametrize("game", GAMES)
def test_actions_grid_and_time_limit(game):
    for version, actions in ((0, 6), (1, MINIMAL[game])):
        env_id = f"MinAtar/{game}-v{version}"
        assert spaces_of(env_id) == (100 * CHANNELS[game], actions, None, (10, 10, CHANNELS[game]))
        assert step_limit(env_id) == LIMIT
        assert broken_rule(make(env_id)) == ""
        check_rules(env_id)


def test_an_episode_that_does_not_end_is_cut_at_the_limit():
    """The ball of Breakout always comes down at the paddle if the paddle is put there."""
    env = make_env("MinAtar/Breakout-v1")
    env.reset(seed=0)
    steps, game = 1, env.unwrapped.game
    while not env.step(0)[3]:
        game.pos = int(np.clip(game.ball_x + (1 if game.ball_dir in (1, 2) else -1), 0, 9))
        steps += 1
    assert steps == LIMIT == 5000


def test_difficulty_can_stay_as_it_is():
    ramping, level = (
        make("MinAtar/Asterix-v1").unwrapped,
        make("MinAtar/Asterix-v1", difficulty_ramping=False).unwrapped,
    )
    for env in (ramping, level):
        env.reset(seed=0)
        for _ in range(500):
            env.game.terminal = False
            env.step(0)
    assert ramping.game.ramp_index > 0
    assert level.game.ramp_index == 0


def steady(**kwargs):
    """A variant, as the page on environments has it."""
    return make_env("MinAtar/Asterix-v1", sticky_action_prob=0.0, difficulty_ramping=False, **kwargs)


def test_a_variant_of_ones_own_keeps_grid_limit_and_picture():
    env_id = fedqhd.resolve({"env": steady}).env
    assert spaces_of(env_id) == (400, 5, None, (10, 10, 4))
    assert step_limit(env_id) == LIMIT
    env = make_env(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.unwrapped.stickiness == 0
    assert env.render().shape == (320, 320, 3)


def test_a_wrapper_that_changes_a_flattened_grid_makes_it_no_grid():
    env = make_env("MinAtar/Asterix-v1")
    assert grid_of(TransformObservation(env, lambda s: s, env.observation_space)) is None


def test_a_state_is_its_grid_in_a_row():
    env = make_env("MinAtar/SpaceInvaders-v1")
    state, _ = env.reset(seed=0)
    np.testing.assert_array_equal(state.reshape(grid_of(env)), env.unwrapped.game.state())
    assert state.dtype == bool


class Grids(Corridor):
    """A Corridor with observations of some space, and an attribute of its own that is called grid."""

    grid = "none of ours"

    def __init__(self, space):
        self.observation_space = space


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box(0, 1, (5, 4, 3), bool), (5, 4, 3)),
        (Box(0, 9, (5, 4, 3), np.uint8), (5, 4, 3)),
        (Box(-5, 5, (5, 4, 3), np.int16), (5, 4, 3)),
        (Box(0, 1, (5, 4, 3), np.float32), None),
        (Box(0, 10**9, (5, 4, 3), np.int64), None),
        (Box(0, 1, (5, 4), bool), None),
        (Box(0, 1, (60,), bool), None),
    ],
)
def test_grids_are_boxes_of_three_dimensions_with_small_numbers(space, expected):
    assert grid_of(make_env(fedqhd.resolve({"env": lambda: Grids(space)}).env)) == expected


def test_the_grid_is_public_and_not_part_of_the_fingerprint(tmp_path):
    public = make_public(tiny(tmp_path, env="MinAtar/Breakout-v1", rollout_steps=200))
    assert public.grid == (10, 10, 4)
    assert public._replace(grid=None).fingerprint() == public.fingerprint()
    assert make_public(tiny(tmp_path, env="CartPole-v1", rollout_steps=200)).grid is None


def test_sticky_actions_may_differ_between_clients(tmp_path):
    settings = {"env": "MinAtar/Breakout-v1", "episodes": 2, "rollout_steps": 200, "eval_episodes": 1}
    summary = fedqhd.train(tiny(tmp_path / "run", **settings, dynamics=["sticky_action_prob=0:0.2"]))
    drawn = [d["sticky_action_prob"] for d in summary["dynamics"]]
    assert len({*drawn}) == 2
    assert all(0 <= p <= 0.2 for p in drawn)
    with pytest.raises(FedQHDError, match=r"refused by MinAtar/Breakout-v1: sticky_action_prob=1\.5 is not a prob"):
        make_env("MinAtar/Breakout-v1", dynamics={"sticky_action_prob": 1.5})


def test_a_resumed_run_has_the_same_bits(tmp_path):
    """Which it would not if an episode depended on the one before it."""
    settings = {"env": "MinAtar/Asterix-v1", "round_episodes": 2, "rollout_steps": 200, "eval_episodes": 2}
    whole = fedqhd.train(tiny(tmp_path / "whole", **settings, episodes=4))
    fedqhd.train(tiny(tmp_path / "half", **settings, episodes=2))
    longer = fedqhd.train(out=str(tmp_path / "half"), extend=2)
    assert longer["greedy_return"] == whole["greedy_return"]
    for client in range(2):
        a, b = (np.load(tmp_path / run / f"models/client-{client}.npz") for run in ("whole", "half"))
        assert a.files == b.files
        assert all(np.array_equal(a[name], b[name]) for name in a.files)


@pytest.mark.parametrize("learner", ["replay", "dqn"])
def test_without_scaling_cells_are_0_and_1_in_training_and_afterwards(learner, tmp_path):
    settings = {"env": "MinAtar/Breakout-v1", "scaling": "none", "rollout_steps": 200, "eval_episodes": 1}
    method = {"method": "fedavg-dqn"} if learner == "dqn" else {"learner": learner}
    c = tiny(tmp_path / "run", **settings, **method, episodes=2)
    public = make_public(c)
    assert set(np.unique(public.measure_states)) == {0, 1}
    summary = fedqhd.train(c)
    policy = fedqhd.load_policy(summary["out"])
    assert not policy.scaler.shift.any()
    assert (policy.scaler.scale == 1).all()
    state, _ = policy.make_env().reset(seed=0)
    assert np.array_equal(policy.scaler(state), state)
    assert 'scaling = "none"' in (tmp_path / "run" / "config.toml").read_text()
    assert fedqhd.evaluate(summary["out"], 1).shape == (2, 1)


def test_ids_without_a_version_and_misspelt_ones():
    assert full_id("MinAtar/Breakout") == "MinAtar/Breakout-v1"
    assert set(SPECS) == {f"MinAtar/{game}-v{v}" for game in GAMES for v in (0, 1)}
    for wrong in ("MinAtar/Brekout-v1", "minatar/breakout", "MinAtar/Breakout-v7"):
        with pytest.raises(FedQHDError, match=r"did you mean 'MinAtar/Breakout-v1'\?"):
            make_env(wrong)


def test_the_slash_of_an_id_makes_no_folder(tmp_path):
    """Neither of a run, nor of a study's runs, nor of settings, which are found again."""
    assert fedqhd.resolve({"env": "MinAtar/Breakout-v1"}).folder.name.startswith("MinAtar-Breakout-v1-fedqhd-")
    cell = Cell("fedqhd", "MinAtar/Breakout-v1", "heterogeneous")
    assert "/" not in cell.name
    write_choice(tmp_path, cell, {"sigma": 7.5})
    assert [file.name for file in tmp_path.iterdir()] == ["MinAtar-Breakout-v1.toml"]
    assert resolve({"env": cell.env, "setting": cell.setting}, tuned=tmp_path).sigma == 7.5
    assert resolve({"env": "MinAtar/Breakout-v0", "setting": cell.setting}, tuned=tmp_path).sigma != 7.5


BLOCKED = """
import sys
sys.modules["minatar"] = None
import fedqhd
from fedqhd.ui.cli import main
sys.exit(main(["train", "--env", "MinAtar/Breakout-v1", "--out", sys.argv[1]]))
"""


def test_without_the_package_one_sentence_says_what_to_install(tmp_path):
    done = subprocess.run([sys.executable, "-c", BLOCKED, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "env='MinAtar/Breakout-v1' needs a package that is not installed: install MinAtar with pip install "
        "'fedqhd[minatar]'"
    )
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_games_load_without_what_draws_them():
    """The package imports seaborn and pandas, which takes seconds; the rules of its games need numpy alone."""
    code = "import sys; from fedqhd.envs.make import make_env; make_env('MinAtar/Seaquest-v1'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"seaborn", "pandas", "matplotlib", "scipy", "minatar"} & set(loaded)
