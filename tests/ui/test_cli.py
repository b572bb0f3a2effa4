"""The real command line, on a small budget."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from PIL import Image

from fedqhd.runs.config import FIELDS
from fedqhd.ui.cli import main
from processes import fedqhd

SMALL = [
    "--clients",
    2,
    "--episodes",
    6,
    "--round-episodes",
    4,
    "--dims",
    64,
    96,
    "--anchors",
    40,
    "--eval-episodes",
    2,
]
NEEDED = {
    "env", "method", "setting", "learner", "seed", "clients", "episodes", "final_return", "greedy_return", "env_steps",
    "wall_seconds", "cpu_seconds", "bytes_up_per_round", "bytes_down_per_round",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "x"
    done = fedqhd("train", "--env", "CartPole-v1", "--setting", "heterogeneous", *SMALL, "--profile", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_train_says_what_it_does_and_where_it_is(run):
    folder, done = run
    lines = done.stdout.splitlines()
    assert any(line.startswith("CartPole-v1: fedqhd, heterogeneous") for line in lines)
    rounds = [line for line in lines if line.startswith("round ")]
    assert len(rounds) == 2
    for word in ("episodes 4/6", "returns", "epsilon", "steps/s", "left"):
        assert word in rounds[0]
    assert "greedy return" in done.stdout
    assert str(folder) in lines[-1]
    assert "\x1b" not in done.stdout  # plain without a terminal
    assert {p.name for p in folder.iterdir()} == {
        "config.toml",
        "metrics.jsonl",
        "rounds.jsonl",
        "summary.json",
        "curves.png",
        "models",
        "checkpoint-000001.npz",
    }
    summary = json.loads((folder / "summary.json").read_text())
    needed = (
        "env method setting learner seed clients episodes final_return greedy_return env_steps wall_seconds cpu_seconds"
    )
    assert set(f"{needed} bytes_up_per_round bytes_down_per_round".split()) <= set(summary)


def test_profile_says_where_the_time_went(run):
    folder, done = run
    split = json.loads((folder / "summary.json").read_text())["split_seconds"]
    assert list(split) == ["environment", "acting", "learning", "federation", "episodes", "logging"]
    spent = {name: seconds for name, seconds in split.items() if seconds}
    assert {"environment", "federation", "episodes", "logging"} <= spent.keys()
    assert "│ acting" not in done.stdout  # it happens in the compiled episodes
    for name, seconds in spent.items():
        (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith(f"│ {name} ")]
        assert float(row[3]) == pytest.approx(seconds, abs=0.006)
        assert float(row[5].rstrip("%")) == pytest.approx(100 * seconds / sum(split.values()), abs=0.06)


def test_a_fleet_is_listed_in_part_and_who_never_trained_has_no_return(tmp_path):
    fleet = ("--clients", 60, "--participation", 0.1, "--episodes", 1, "--eval-episodes", 1, "--dims", 20)
    done = fedqhd("train", "--env", "CartPole-v1", "--learner", "online", *fleet, "--out", tmp_path / "x")
    assert done.returncode == 0, done.stderr
    listed = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert len(listed) == 52
    assert "and 10 more clients" in listed[50]
    assert "mean" in listed[51]
    assert sum("– " in line for line in listed) >= 44
    assert "nan" not in done.stdout
    assert len(list((tmp_path / "x" / "models").iterdir())) == 60


def test_settings_that_do_not_concern_a_method_are_named(tmp_path):
    done = fedqhd("train", "--method", "fedavg-dqn", "--sigma", 2, "--out", tmp_path / "x")
    assert done.returncode == 2
    assert "sigma=2.0 does nothing for method=fedavg-dqn and setting=homogeneous" in done.stderr
    assert not (tmp_path / "x").exists()
    (tmp_path / "own.toml").write_text('method = "fedavg-dqn"\nwidths = [16]\nsigma = 2.0\n[fedqhd]\neta = 0.1\n')
    few = ["--clients", 2, "--episodes", 2, "--round-episodes", 1, "--eval-episodes", 1]
    done = fedqhd("train", "--config", tmp_path / "own.toml", *few, "--out", tmp_path / "x")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("sigma do nothing for method=fedavg-dqn") == 1


BY_STEPS = [
    "train", "--env", "MountainCar-v0", "--learner", "online", "--clients", 2, "--dims", 64, "--eval-episodes", 1
]  # fmt: skip


def test_a_run_by_steps_says_how_far_it_is_and_goes_on(tmp_path):
    out = tmp_path / "x"
    done = fedqhd(*BY_STEPS, "--steps", 500, "--round-steps", 150, "--out", out)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "2 clients, 500 steps in 4 rounds" in lines[0]
    rounds = [line for line in lines if line.startswith("round ")]
    assert [line.split("  returns")[0] for line in rounds] == [
        "round 1/4  steps 150/500  episodes 0", "round 2/4  steps 300/500  episodes 1",
        "round 3/4  steps 450/500  episodes 2", "round 4/4  steps 500/500  episodes 2",
    ]  # fmt: skip
    assert "return, last 2 episodes" in done.stdout
    assert "1,000 steps in" in done.stdout
    done = fedqhd("train", "--extend", 100, "--out", out)
    assert "round 4/4  steps 600/600  episodes 3" in done.stdout, done.stderr
    assert json.loads((out / "summary.json").read_text())["steps"] == 600
    assert fedqhd("compare", out).returncode == 0


def test_a_run_in_which_no_episode_ended_is_shown_and_not_compared(tmp_path):
    done = fedqhd(*BY_STEPS, "--steps", 50, "--round-steps", 30, "--out", tmp_path / "x")
    assert done.returncode == 0, done.stderr
    assert "returns – –  epsilon –" in done.stdout
    assert "nan" not in done.stdout
    done = fedqhd("compare", tmp_path / "x")
    assert done.returncode == 2
    assert "no episode ended, so there are no returns to compare" in done.stderr


def test_studies_count_episodes(tmp_path):
    done = fedqhd("reproduce", "main", "--set", "steps=100", "--out", tmp_path)
    assert done.returncode == 2
    assert "set='steps=100' is not possible: studies count episodes" in done.stderr


def test_mixed_clients_in_worlds_that_differ(tmp_path):
    mixed = ["--agents", "qhd", "dqn:16", "--dynamics", "length=0.3:1", "gravity=8:12", "--learning-starts", 30]
    done = fedqhd(
        "train", "--env", "CartPole-v1", "--setting", "heterogeneous", *SMALL, *mixed, "--out", tmp_path / "x"
    )
    assert done.returncode == 0, done.stderr
    assert "greedy return on the nominal environment" in done.stdout
    assert fedqhd("evaluate", tmp_path / "x", "--episodes", 2).returncode == 0


def test_curves_are_a_picture(run):
    with Image.open(run[0] / "curves.png") as picture:
        assert picture.width >= 800
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 50


def test_a_run_repeats_from_its_config(run, tmp_path):
    done = fedqhd("train", "--config", run[0] / "config.toml", "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "metrics.jsonl").read_text() == (run[0] / "metrics.jsonl").read_text()


def test_evaluate(run):
    done = fedqhd("evaluate", run[0], "--episodes", 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("client 0: greedy return")
    assert "mean of clients" in done.stdout


def test_play_writes_a_gif(run, tmp_path):
    done = fedqhd("play", run[0], "--client", 1, "--gif", tmp_path / "p.gif")
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "p.gif") as gif:
        assert gif.n_frames >= 4
    assert fedqhd("play", run[0]).returncode == 0
    assert (run[0] / "play.gif").exists()
    (run[0] / "play.gif").unlink()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("train --env Pendulum-v1", "env='Pendulum-v1'"),
        ("train --env CarRacing-v3", "env='CarRacing-v3'"),
        ("train --env Nowhere-v0", "env='Nowhere-v0'"),
        ("train --clients 0", "clients=0"),
        ("train --dims 0", "dims=[0]"),
        ("train --clients 2 --weights 0.5 0.6", "weights=(0.5, 0.6)"),
        ("train --weights often", "weights=often"),
        ("train --lam -1", "lam=-1.0"),
        ("train --setting heterogeneous --anchor-source file --anchor-file none.npy", "anchor_file='none.npy'"),
        ("train --clients five", "--clients: invalid int value: 'five'"),
        ("train --sgima 2", "did you mean '--sigma'"),
        ("train --config none.toml", "config='none.toml'"),
        ("evaluate nowhere", "run='nowhere' does not exist"),
        ("evaluate nowhere --episodes 0", "episodes=0"),
        ("play nowhere", "nowhere"),
        ("trian", "trian"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing(args, says, tmp_path):
    done = fedqhd(*args.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.startswith("fedqhd: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "args", "says"),
    [
        ("evaluate", "--seed -3", "seed=-3 is not possible"),
        ("play", "--seed -1", "seed=-1 is not possible"),
        ("play", "--gif x.mp4", "gif='x.mp4' is not possible"),
    ],
)
def test_mistakes_about_a_run_get_one_sentence(run, command, args, says, tmp_path):
    done = fedqhd(command, run[0], *args.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_not_overwritten_unless_told(run):
    again = ["train", "--config", run[0] / "config.toml"]
    done = fedqhd(*again)
    assert done.returncode == 2
    assert "already holds a run" in done.stderr
    before = (run[0] / "metrics.jsonl").read_text()
    assert fedqhd(*again, "--overwrite").returncode == 0
    assert (run[0] / "metrics.jsonl").read_text() == before
    done = fedqhd("train", "--resume", "--out", run[0])
    assert done.returncode == 0
    assert "greedy return" in done.stdout


def test_every_setting_is_a_flag():
    text = fedqhd("train", "--help").stdout
    for name in FIELDS:
        assert f"--{name.replace('_', '-')} " in text
    assert "Settings:" not in text  # every group has a title, none the name of its class
    assert len(text.partition("\n\n")[0].splitlines()) <= 2  # the usage does not repeat every flag


def test_help_is_light():
    """Nothing heavy is imported to print help: no numba, gymnasium, matplotlib or scipy."""
    code = "import sys; from fedqhd.ui.cli import make_parser; make_parser(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "gymnasium", "matplotlib", "scipy", "torch", "rich"} & set(loaded)


def test_the_core_imports_neither_torch_nor_matplotlib():
    """Figures are drawn when a run is over; its first step does not wait for what draws them. Kernels are imported when
    the first one is called."""
    code = "import sys, fedqhd; [getattr(fedqhd, n) for n in fedqhd.__all__]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "gymnasium" in loaded
    assert not {"torch", "matplotlib", "numba"} & set(loaded)


def test_training_does_not_wait_for_what_reads_results():
    """`fedqhd train` imports neither studies nor the gap, nor what draws them, before its first step."""
    code = "import sys, fedqhd.ui.flags, fedqhd.api.training, fedqhd.report.terminal; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "fedqhd.runs.run" in loaded
    assert not {"fedqhd.gap", "fedqhd.studies", "fedqhd.report.gap", "matplotlib", "numba", "torch"} & set(loaded)


def test_drawing_leaves_a_notebooks_backend_alone(run):
    code = """
import sys, pathlib, matplotlib
matplotlib.use("svg")
from fedqhd.report import figures, gap, page
from fedqhd.studies import ablation_figure
figures.curves(pathlib.Path(sys.argv[1]))
print(matplotlib.get_backend(), "matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, str(run[0])], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["svg", "False"]


def test_five_lines_of_python(tmp_path):
    import gymnasium

    import fedqhd

    summary = fedqhd.train(
        env="CartPole-v1", episodes=4, clients=2, dims=[50], eval_episodes=1, out=str(tmp_path / "api")
    )
    policy = fedqhd.load_policy(summary["out"], client=0)
    action, _ = policy.predict(gymnasium.make("CartPole-v1").reset(seed=0)[0])
    assert action in (0, 1)
    assert (tmp_path / "api" / "curves.png").exists()


LONG = 300 * "a"


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--out", LONG],
        ["train", "--resume", "--out", LONG],
        ["train", "--extend", "3", "--out", LONG],
        ["train", "--config", LONG],
        ["evaluate", LONG],
        ["play", LONG],
        ["export", LONG, "--format", "c", "--out", "policy.h"],
        ["watch", LONG, "--port", "0", "--wait", "0"],
        ["compare", LONG],
        ["gap", LONG],
        ["report", "--results", LONG],
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)
def test_a_name_that_the_file_system_refuses_is_a_mistake_and_no_crash(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("fedqhd: ")


def test_a_policy_is_not_written_where_that_is_not_possible(run, tmp_path, capsys):
    for words in (["export", str(run[0]), "--format", "c", "--out"], ["play", str(run[0]), "--gif"]):
        for name in (f"{LONG}.gif", "file/policy.gif"):
            (tmp_path / "file").write_text("")
            assert main([*words, str(tmp_path / name)]) == 2
            assert capsys.readouterr().err.startswith("fedqhd: ")
