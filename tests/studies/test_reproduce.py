"""`fedqhd reproduce` through the real command line, on tiny budgets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from rich.console import Console

from conftest import ROOT
from fedqhd.report.board import Board
from fedqhd.report.policies import film
from fedqhd.runs.config import FIELDS, resolve
from fedqhd.studies import registry
from fedqhd.studies import reproduce as making
from fedqhd.studies.catalogue import tune
from fedqhd.studies.catalogue.curves import Curves
from fedqhd.studies.catalogue.main import main_jobs
from fedqhd.studies.plan import Plan, separate_altered
from fedqhd.studies.pool import send
from fedqhd.studies.presets import METHODS, Cell, cells, parse_set, seeds, settings, start, tuned
from fedqhd.ui import reproduce as command
from fedqhd.ui.cli import make_parser
from processes import fedqhd

DQN_METHODS = ("fedavg-dqn", "distilled-feddqn", "oracle-dqn")
TINY = [
    "episodes=4", "clients=2", "round_episodes=2", "dims=30,40", "anchors=20", "eval_episodes=1", "widths=8",
    "learning_starts=10",
]  # fmt: skip
ROW = {
    "preset", "method", "env", "setting", "learner", "seeds", "episodes", "final_return", "greedy_return",
    "cpu_seconds", "wall_seconds", "env_steps", "commit", "command", "runs", "failed",
}  # fmt: skip


def tiny_plan(folder, **parts):
    """The plan that the command makes of TINY, with the folders that it keeps such altered runs in."""
    plan = Plan(out=folder / "runs/reproduce", tuned=Path("tuned"), overrides=parse_set(TINY), **parts)
    return separate_altered(plan, folder / "results")


def reproduce(what, folder, *args, others=(), **env):
    return fedqhd("reproduce", what, *args, "--tuned", "tuned", "--set", *TINY, *others, cwd=folder, **env)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Two methods on two seeds, of which one run cannot go on, since its folder holds another one."""
    folder = tmp_path_factory.mktemp("reproduce")
    part = ["--preset", "tuned", "--envs", "CartPole-v1", "--settings", "homogeneous", "--seeds", 0, 1]
    methods = ["--methods", "fedqhd", "truncated-fedavg-qhd", "fedavg-dqn"]
    plan, _ = tiny_plan(
        folder, presets=["tuned"], methods=["fedavg-dqn"], envs=["CartPole-v1"], settings=["homogeneous"], seeds=[0, 1]
    )
    broken = main_jobs(plan)[0].folder
    broken.mkdir(parents=True)
    (broken / "config.toml").write_text(resolve({"episodes": 5}).to_toml())
    return folder, broken, [*part, *methods], reproduce("main", folder, *part, *methods)


def read(folder, name):
    return json.loads((tiny_plan(folder)[1] / name).read_text())["rows"]


def test_main_writes_a_row_a_cell(table):
    folder, _, _, done = table
    rows = read(folder, "main.json")
    assert [r["method"] for r in rows] == ["truncated-fedavg-qhd", "fedavg-dqn", "fedqhd"]
    for row in rows:
        assert set(row) == ROW
        assert set(row["final_return"]) == set(row["greedy_return"]) == {"iqm", "lo", "hi", "mean", "std"}
        assert row["episodes"] == 4
        assert row["commit"]
    truncated, dqn, ours = rows
    assert (truncated["seeds"], dqn["seeds"], ours["seeds"]) == (2, 1, 2)
    assert (dqn["learner"], ours["learner"]) == ("dqn", "least-squares")
    assert truncated["final_return"] == ours["final_return"]
    assert "3 cells are not tuned yet" in done.stdout
    assert "4 to go" in done.stdout  # the truncated ones are fedqhd's


def test_rows_come_from_the_folders_of_ordinary_runs(table):
    folder, _, _, _ = table
    record = next(r for r in read(folder, "main.json") if r["method"] == "fedqhd")
    for run in record["runs"]:
        (home,) = (tiny_plan(folder)[0].out / "tuned/CartPole-v1-fedqhd-homogeneous").glob(f"{run['seed']}-*")
        summary = json.loads((home / "summary.json").read_text())
        assert {k: run[k] for k in ("final_return", "commit")} == {k: summary[k] for k in ("final_return", "commit")}
        assert {"config.toml", "metrics.jsonl", "models"} <= {p.name for p in home.iterdir()}
        assert not {"lock", "wanted.toml"} & {p.name for p in home.iterdir()}


def test_a_run_that_fails_is_recorded_and_the_others_go_on(table):
    folder, broken, _, done = table
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    (record,) = [r for r in read(folder, "main.json") if r["failed"]]
    (failed,) = record["failed"]
    assert record["method"] == "fedavg-dqn"
    assert "differs from the run to resume" in failed["error"]
    assert str(failed["seed"]) == broken.name.partition("-")[0]


def test_what_is_finished_is_not_run_again_and_what_failed_is(table):
    folder, broken, args, _ = table
    marks = {p: p.stat().st_mtime_ns for p in folder.glob("runs/**/summary.json")}
    (broken / "config.toml").unlink()
    done = reproduce("main", folder, *args)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 runs are done, 1 to go" in done.stdout
    assert all(p.stat().st_mtime_ns == mark for p, mark in marks.items())
    rows = read(folder, "main.json")
    assert [r["seeds"] for r in rows] == [2, 2, 2]
    assert not any(r["failed"] for r in rows)


def test_results_can_be_collected_while_runs_go_on(table, tmp_path):
    folder, _, args, _ = table
    done = reproduce("main", folder, *args, "--seeds", 0, 1, 2, 3, "--collect", "--results", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert {r["seeds"] for r in read(tmp_path, "main.json")} <= {1, 2}
    assert not list(folder.glob("runs/**/3-*"))


def test_a_policy_of_the_table_is_filmed_once(table, tmp_path):
    folder, _, _, _ = table
    plan, _ = tiny_plan(folder)
    film(plan, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["CartPole-v1.gif"]
    with Image.open(tmp_path / "CartPole-v1.gif") as gif:
        assert gif.n_frames >= 4
    (tmp_path / "CartPole-v1.gif").write_bytes(b"kept")
    film(plan, tmp_path)
    assert (tmp_path / "CartPole-v1.gif").read_bytes() == b"kept"


def test_ctrl_c_leaves_runs_that_go_on(tmp_path):
    args = ["--preset", "tuned", "--methods", "independent-qhd", "--envs", "MountainCar-v0",
            "--settings", "homogeneous", "--seeds", "0", "--tuned", "tuned", "--set", *TINY, "episodes=200",
            "epsilon_decay=1"]  # fmt: skip
    words = [sys.executable, "-m", "fedqhd", "reproduce", "main", *args]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120

    def written():
        """Not one that is being written: who is cut off then has nothing to go on from."""
        return [p for p in tmp_path.glob("runs/**/checkpoint*") if p.suffix != ".part"]

    while not (found := written()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert "continues every run from its last round" in said
    (home,) = tmp_path.glob("runs/reproduce/altered/*/tuned/*/*")
    assert not (home / "summary.json").exists()
    assert not (home / "lock").exists()
    again = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "resumed after round" in (home / "log.txt").read_text()


def test_a_run_in_somebody_elses_hands_is_left_to_them(tmp_path):
    import fcntl

    part = ["--preset", "paper", "--methods", "fedqhd", "--envs", "CartPole-v1", "--settings", "homogeneous"]
    parts = {"presets": ["paper"], "methods": ["fedqhd"], "envs": ["CartPole-v1"], "settings": ["homogeneous"]}
    (job,) = main_jobs(tiny_plan(tmp_path, **parts, seeds=[0])[0])
    job.folder.mkdir(parents=True)
    with (job.folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = reproduce("main", tmp_path, *part, "--seeds", 0)
    assert "another process is running it" in done.stdout
    assert not (job.folder / "config.toml").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("maim", "study='maim' is unknown (did you mean 'main'?)"),
        ("", "STUDY is missing"),
        ("nowhere:Study", "the module 'nowhere' cannot be found from here"),
        ("fedqhd.studies.study:Row", "a class that inherits from fedqhd.studies.study.Study is needed"),
        ("fedqhd.studies.cells:CellStudy", "name=''"),
        ("tune --collect", "collect=True is not possible with tune"),
        ("main --envs CartPole-v2", "envs='CartPole-v2' is unknown"),
        ("main --preset papr", "preset='papr' is unknown"),
        ("main --seeds 100", "seeds=100"),
        ("main --workers -1", "workers=-1"),
        ("main --set episodes", "set='episodes'"),
        ("main --set episodes=many", "set='episodes=many' has the wrong type"),
        ("main --set anchor_source=teacher", "anchor_source=teacher"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing(args, says, tmp_path):
    done = fedqhd("reproduce", *args.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_table_has_the_papers_cells():
    every = cells()
    assert len(every) == 7 * 4 * 2 - 4
    assert not any(c.method == "fedavg-dqn" and c.setting == "heterogeneous" for c in every)
    for setting, counts in (("homogeneous", [10, 10, 5, 5, 10, 5, 5]), ("heterogeneous", [10, 5, 5, 5, 10, 5, 5])):
        assert [len(seeds("tuned", Cell(m, "CartPole-v1", setting))) for m in METHODS] == counts
    assert all(len(seeds("paper", c)) == 3 for c in every)


@pytest.mark.parametrize("cell", cells(), ids=lambda c: c.name)
def test_the_paper_preset_is_what_the_paper_states(cell):
    c = resolve(settings("paper", cell), preset="plain")
    assert c == resolve({"method": c.method, "env": c.env, "setting": c.setting}, preset="paper")
    assert (c.clients, c.episodes, c.round_episodes, c.gamma, c.replay_size) == (5, 600, 50, 0.99, 10_000)
    assert (c.epsilon_start, c.epsilon_end) == (1, 0.001)
    assert c.get("weights", "uniform") == "uniform"
    if "anchors" in c:  # where values at anchors are exchanged
        assert (c.anchors, c.anchor_source) == (200, "rollout")
    assert c.epsilon_decay**600 == pytest.approx(0.001, rel=0.01)
    if cell.method in DQN_METHODS:
        assert (max(c.widths), c.update_every, c.gradient_steps) == (128, 4, 1)
    else:
        assert (c.learner, c.get("compile", "overwrite"), c.step, c.eta) == ("replay", "overwrite", "plain", 0.01)
        assert ("compile" in c) == (c.method == "fedqhd" and c.setting == "heterogeneous")
        assert c.dims == ((10_000,) if cell.setting == "homogeneous" else (500, 1000, 2000, 5000, 10_000))


@pytest.mark.parametrize("cell", cells(), ids=lambda c: c.name)
def test_tuned_settings_can_be_run_and_dqn_updates_every_four_steps(cell):
    c = resolve(settings("tuned", cell))
    assert (c.clients, c.episodes) == (5, 600)
    if cell.method in DQN_METHODS:
        assert (c.update_every, c.gradient_steps) == (4, 1)


def test_other_settings_have_other_folders_and_defaults_by_another_name_have_not(tmp_path):
    plan, own = Plan(out=tmp_path), settings("tuned", Cell("fedqhd", "CartPole-v1", "homogeneous"))
    a, b = (plan.job("cell", {**own, **more}, 0).folder for more in ({}, {"sigma": 9.0}))
    assert a != b
    assert plan.job("cell", {**own, "gamma": FIELDS["gamma"].default}, 0).folder == a
    assert plan.job("cell", own, 1).folder.name.partition("-")[2] == a.name.partition("-")[2]


def test_the_estimate_counts_what_is_left_by_kind():
    def job(kind, share=0.0):
        return SimpleNamespace(kind=kind, folder=Path(kind), progress=lambda: share, name=kind)

    board = Board(Console(quiet=True), total=10, workers=2)
    assert board.left([], [job("new")]) is None
    for kind, seconds in (("slow", 100.0), ("slow", 140.0), ("fast", 10.0)):
        board.finished(job(kind), {"wall_seconds": seconds}, before=True)
    board.begun[Path("slow")] = time.monotonic(), 0.5
    # Half of a slow one, a slow, a fast, and four that are not known yet: 60 + 120 + 10 + 4 * 250 / 3, by two workers.
    assert board.left([job("slow", 0.5)], [job("slow"), job("fast")]) == pytest.approx((190 + 1000 / 3) / 2)


@pytest.mark.parametrize(("what", "parts"), [
    ("all", ["main", "curves", "cost", "ablation-dim", "ablation-anchors", "scalability", "robustness"]),
    ("cost", ["cost"]),
])  # fmt: skip
def test_what_each_word_runs(what, parts, monkeypatch):
    ran = []
    monkeypatch.setattr(making, "reproduce", lambda study, *_: ran.append(study.name) or study.name == "cost")
    assert (
        command.run_reproduce(make_parser().parse_args(["reproduce", what])) == 1
    )  # one that fails is told at the end
    assert ran == parts


def test_curves_are_drawn_of_two_environments_as_tuned():
    jobs = Curves().jobs(Plan(seeds=[0]))
    assert {job.config.env for job in jobs} == {"CartPole-v1", "LunarLander-v3"}
    assert {job.kind.partition(" ")[0] for job in jobs} == {"tuned"}


def test_the_list_names_every_study_with_its_cost(tmp_path):
    done = fedqhd("reproduce", "--list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    for study in registry.every():
        assert study.about
        assert f"runs of {study.runs_from}" in lines[study.name] if study.runs_from else "about" in lines[study.name]
        assert study.runs_from or study.hours > 0
    root = ROOT
    measured = fedqhd("reproduce", "--list", "--results", root / "results", cwd=tmp_path).stdout
    assert "about" not in next(line for line in measured.splitlines() if line.startswith("scalability"))


# --- the tuner, with made-up outcomes ---


def drive(monkeypatch, tmp_path, cell, worth):
    """The search of a cell where settings are worth what `worth` says; the jobs it asked for."""
    monkeypatch.setattr(tune, "score", lambda job, summary: worth(job.config))
    jobs = []
    series = tune.search(Plan(out=tmp_path, tuned=tmp_path / "tuned"), cell, tmp_path)
    job = next(series)
    while job is not None:
        jobs.append(job)
        job = send(series, {"cpu_seconds": 1.0, "commit": "x"})
    return jobs


@pytest.mark.parametrize("method", [m for m in METHODS if m != "truncated-fedavg-qhd"])
def test_every_method_gets_eight_short_trials_on_tuning_seeds(monkeypatch, tmp_path, method):
    cell = Cell(method, "LunarLander-v3", "homogeneous")
    jobs = drive(monkeypatch, tmp_path, cell, lambda c: c.action_repeat)
    assert len(jobs) <= tune.TRIALS
    assert {job.config.episodes for job in jobs} == {150}
    assert {job.config.seed for job in jobs} <= set(tune.SEEDS)
    assert min(tune.SEEDS) >= 100
    assert len({job.folder for job in jobs}) == len(jobs)
    repeats = {job.config.action_repeat for job in jobs}
    assert {3} < repeats | {1, 2}  # kept actions are tried by all


def test_what_helps_is_kept_and_combined(monkeypatch, tmp_path):
    cell = Cell("fedavg-dqn", "CartPole-v1", "homogeneous")
    drive(monkeypatch, tmp_path, cell, lambda c: c.action_repeat + 10 * (c.round_episodes == 10) - c.lr)
    chosen = tuned(cell, tmp_path / "tuned")
    first = resolve(start(cell))
    assert chosen["action_repeat"] == 2
    assert chosen["round_episodes"] == 10
    assert chosen["lr"] == first.lr / 2
    assert "epsilon_decay" not in chosen  # made no difference
    (row,) = json.loads((tmp_path / "tune.json").read_text())["rows"]
    assert row["chosen"] == {k: v for k, v in chosen.items() if k not in ("method", "env", "setting")}
    assert len(row["trials"]) == 8


def test_a_find_that_does_not_hold_on_a_second_seed_is_dropped(monkeypatch, tmp_path):
    cell = Cell("independent-qhd", "MountainCar-v0", "heterogeneous")
    drive(monkeypatch, tmp_path, cell, lambda c: c.action_repeat * (1 if c.seed == 100 else -2))
    assert tuned(cell, tmp_path / "tuned") == {"learner": "least-squares", **cell._asdict()}


def test_a_trial_that_fails_is_not_chosen(monkeypatch, tmp_path):
    cell = Cell("fedqhd", "CartPole-v1", "homogeneous")
    monkeypatch.setattr(tune, "score", lambda job, summary: job.config.action_repeat)
    series = tune.search(Plan(out=tmp_path, tuned=tmp_path / "tuned"), cell, tmp_path)
    job = next(series)
    while job is not None:
        fails = job.config.action_repeat == 2
        job = send(series, None if fails else {"cpu_seconds": 1.0, "commit": "x"})
    assert tuned(cell, tmp_path / "tuned") == {"learner": "least-squares", **cell._asdict()}


def test_truncated_shares_what_was_tuned_for_fedqhd(monkeypatch, tmp_path):
    ours = Cell("fedqhd", "CartPole-v1", "homogeneous")
    drive(monkeypatch, tmp_path, ours, lambda c: c.action_repeat)
    same = ours._replace(method="truncated-fedavg-qhd")
    assert settings("tuned", same, tmp_path / "tuned") == settings("tuned", ours, tmp_path / "tuned")
    apart = same._replace(setting="heterogeneous")
    assert tuned(apart, tmp_path / "tuned") is None


@pytest.mark.slow
def test_tune_through_the_command_line(tmp_path):
    part = ["--methods", "fedqhd", "truncated-fedavg-qhd", "--envs", "CartPole-v1", "--settings", "homogeneous"]
    done = reproduce("tune", tmp_path, *part, others=["episodes=12"])
    assert done.returncode == 0, done.stdout + done.stderr
    results = next((tmp_path / "results/altered").iterdir())
    (row,) = json.loads((results / "tune.json").read_text())["rows"]
    assert 6 <= len(row["trials"]) <= 8
    assert len(list((results / "runs/tune").iterdir())) == 1
    assert all(t["score"] is not None and t["commit"] for t in row["trials"])
    again = reproduce("tune", tmp_path, *part, others=["episodes=12"])
    assert "0 to go" in again.stdout
    assert (tmp_path / "tuned" / "CartPole-v1.toml").exists()
    assert os.listdir(tmp_path / "tuned") == ["CartPole-v1.toml"]
