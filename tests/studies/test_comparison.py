"""Groups of runs and the statistics over them, by hand, from made-up runs."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import fedqhd
from fedqhd.studies.comparison import improvements, mean_of, rows_of
from fedqhd.studies.grouping import curve_of, differing, find_runs, groups_of, in_numeric_order, read_runs
from invented import write_group, write_run


def read(folder):
    return read_runs(find_runs(folder)[0])


def grouped(folder, by=None):
    runs = read(folder)
    return groups_of(runs, differing(runs) if by is None else by)


def test_runs_are_grouped_by_the_fewest_settings_that_tell_them_apart(tmp_path):
    write_group(tmp_path / "a", [1, 2], method="fedqhd", dims=[60])
    write_group(tmp_path / "b", [3, 4], method="fedqhd", dims=[120])
    write_group(tmp_path / "c", [5, 6], method="fedavg-dqn", widths=[8])  # has no dims, and widths of its own
    runs = read(tmp_path)
    assert differing(runs) == ["method", "dims"]
    groups, notes = groups_of(runs, ["method", "dims"])
    assert [g.label for g in groups] == ["fedqhd, dims=60", "fedqhd, dims=120", "fedavg-dqn, no dims"]
    assert [g.final_return.tolist() for g in groups] == [[1, 2], [3, 4], [5, 6]]
    assert [g.seeds for g in groups] == [[0, 1]] * 3
    assert notes == []


def test_seeds_folders_and_engines_make_no_groups(tmp_path):
    write_run(tmp_path / "a", [[1, 1]], 1, seed=0, engine="local")
    write_run(tmp_path / "b", [[2, 2]], 2, seed=1, engine="process")
    assert differing(read(tmp_path)) == []
    assert [g.label for g in grouped(tmp_path)[0]] == ["all runs"]


def test_environments_are_kept_apart_whatever_their_own_settings_are(tmp_path):
    for env, gamma in (("CartPole-v1", 0.9), ("MountainCar-v0", 0.99)):
        for method in ("fedqhd", "independent-qhd"):
            write_group(tmp_path / env / method, [1, 2], env=env, method=method, gamma=gamma)
    runs = read(tmp_path)
    assert differing(runs) == ["method"]
    assert [(g.env, g.label) for g in groups_of(runs, ["method"])[0]] == [
        (env, method) for env in ("CartPole-v1", "MountainCar-v0") for method in ("fedqhd", "independent-qhd")
    ]


def test_what_else_differs_within_a_group_is_said(tmp_path):
    write_group(tmp_path / "a", [1, 2], dims=[60])
    write_group(tmp_path / "b", [3, 4], dims=[120])
    (group,), notes = grouped(tmp_path, ["method"])
    assert group.final_return.tolist() == [1, 2, 3, 4]
    assert notes == ["Runs of the same group also differ in dims."]


def test_folders_with_numbers_are_in_the_order_of_the_numbers(tmp_path):
    names = ["dims=60", "dims=100", "dims=1000"]
    assert sorted([tmp_path / n for n in reversed(names)], key=in_numeric_order) == [tmp_path / n for n in names]


def test_a_run_that_is_named_twice_counts_once(tmp_path):
    write_group(tmp_path / "a", [1, 2, 3])
    twice = fedqhd.compare([tmp_path, tmp_path / "a" / "seed-1", fedqhd.Run(tmp_path / "a" / "seed-2")])
    assert len(twice.runs) == 3


def test_returns_by_hand(tmp_path):
    write_group(tmp_path / "a", [1, 2, 3, 100], [7, 7, 7, 7])
    (row,) = rows_of(grouped(tmp_path)[0])
    assert (row["seeds"], row["final_return"], row["greedy_return"]) == (4, 2.5, 7)  # the middle two of four
    assert 1 <= row["final_return_low"] < 2.5 < row["final_return_high"] <= 100
    assert (row["greedy_return_low"], row["greedy_return_high"]) == (7, 7)


def test_one_run_has_no_interval_and_it_is_said(tmp_path):
    write_group(tmp_path / "a", [1], method="fedqhd")
    write_group(tmp_path / "b", [2, 3], method="independent-qhd")
    groups, notes = grouped(tmp_path)
    assert [math.isnan(mean_of(g.final_return).low) for g in groups] == [True, False]
    assert notes == ["There is only one run, and therefore no interval, of fedqhd."]
    (pair,) = improvements(groups)
    assert pair.final_return.value == 0
    assert math.isnan(pair.final_return.low)
    found = fedqhd.compare(tmp_path / "a")
    assert found.notes == ["No group has more than one run, so there are no intervals."]
    assert np.isnan(found.curves()["low"]).all()


def test_the_probability_of_improvement_by_hand(tmp_path):
    write_group(tmp_path / "a", [3, 5], [1, 1], method="fedqhd")
    write_group(tmp_path / "b", [3, 4], [2, 2], method="independent-qhd")
    (pair,) = improvements(grouped(tmp_path)[0])
    assert (pair.label, pair.other) == ("fedqhd", "independent-qhd")
    assert pair.final_return.value == (0.5 + 0 + 1 + 1) / 4
    assert pair.greedy_return.value == 0
    assert pair.final_return.low < 0.625 < pair.final_return.high


def test_the_probability_of_improvement_is_averaged_over_common_environments(tmp_path):
    for env, ours, theirs in (("CartPole-v1", [2, 3], [1, 1]), ("MountainCar-v0", [1, 3], [2, 2])):
        write_group(tmp_path / env / "a", ours, env=env, method="fedqhd")
        write_group(tmp_path / env / "b", theirs, env=env, method="independent-qhd")
    write_group(tmp_path / "Acrobot-v1", [9, 9], env="Acrobot-v1", method="fedqhd")
    (pair,) = improvements(grouped(tmp_path)[0])
    assert pair.envs == ("CartPole-v1", "MountainCar-v0")
    assert pair.final_return.value == (1 + 0.5) / 2


def test_runs_of_different_lengths_are_compared_over_the_common_episodes(tmp_path):
    write_run(tmp_path / "short", [[1, 3]], 5, method="fedqhd")
    write_run(tmp_path / "long", [[2, 4, 90, 90]], 6, method="independent-qhd")
    found = fedqhd.compare(tmp_path, by="method")
    assert found.notes[0].startswith("Runs on CartPole-v1 have from 2 to 4 episodes")
    assert dict(zip(found.table()["group"], found.table()["final_return"], strict=True)) == {
        "fedqhd": 2, "independent-qhd": 3,
    }  # fmt: skip
    assert set(found.curves()["episode"]) == {1, 2}


def test_a_curve_is_the_mean_of_the_clients_that_played():
    nan = math.nan
    assert curve_of(np.array([[1.0, nan, nan, 4], [3, 5, nan, nan]])).tolist() == [2, 5, 4.5, 4]


def test_a_band_is_around_its_curve_and_everything_repeats(tmp_path):
    rng = np.random.default_rng(0)
    for seed in range(5):
        write_run(tmp_path / str(seed), rng.normal(size=(2, 40)), 1.0, seed=seed)
    a, b = fedqhd.compare(tmp_path), fedqhd.compare(tmp_path)
    curves = a.curves()
    assert (curves["low"] <= curves["return"]).all()
    assert (curves["return"] <= curves["high"]).all()
    assert (curves["low"] < curves["high"]).all()
    for x, y in ((a.table(), b.table()), (curves, b.curves())):
        assert x.equals(y)
    assert a.page() == b.page()


def test_runs_that_did_not_finish_are_left_out_of_a_folder_and_refused_alone(tmp_path):
    write_group(tmp_path / "a", [1, 2, 3])
    (tmp_path / "a" / "seed-1" / "summary.json").unlink()
    found = fedqhd.compare(tmp_path)
    assert len(found.runs) == 2
    assert found.notes == [f"One run in {tmp_path} did not finish and is left out."]
    with pytest.raises(fedqhd.FedQHDError, match=r"seed-1' is not finished: fedqhd train --resume --out"):
        fedqhd.compare(tmp_path / "a" / "seed-1")


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("methd", "by='methd' is not a setting of these runs \\(did you mean 'method'\\?\\)"),
        ("widths", "by='widths' is not a setting of these runs"),  # a setting, but of networks
        ("env", "by='env' is not possible: returns of different environments are on different scales"),
    ],
)
def test_groups_by_what_makes_no_groups_are_refused(tmp_path, by, says):
    write_group(tmp_path / "a", [1, 2])
    with pytest.raises(fedqhd.FedQHDError, match=says):
        fedqhd.compare(tmp_path, by=by)
    with pytest.raises(fedqhd.FedQHDError, match="nothing to compare"):
        fedqhd.compare([])


def test_without_pandas_tables_are_columns(tmp_path, monkeypatch):
    write_group(tmp_path / "a", [1, 2])
    found = fedqhd.compare(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert found.table()["final_return"].tolist() == [1.5]
    assert found.curves()["episode"].tolist() == [1, 2, 3, 4]
    assert found.improvement() == {}


def test_a_picture_has_axes_for_each_environment_and_one_legend(tmp_path):
    for env in ("CartPole-v1", "MountainCar-v0", "Acrobot-v1"):
        for method in ("fedqhd", "independent-qhd"):
            write_group(tmp_path / env / method, [1, 2], env=env, method=method)
    found = fedqhd.compare(tmp_path)
    figure = found.plot()
    envs = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0")
    assert [axes.get_title("left") for axes in figure.axes] == [f"Learning curves on {env}" for env in envs]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["fedqhd (2 seeds)", "independent-qhd (2 seeds)"]
    assert "<table>" in found._repr_html_()
    assert repr(found) == "<Comparison of 12 runs by method: fedqhd; independent-qhd>"
    assert "Probability of improvement" in str(found)
