"""Tables and figures, from result files that were made up to know what must come out."""

from __future__ import annotations

from itertools import product

import pytest

from fedqhd.core.presets import SETTINGS
from fedqhd.report.tables import results_markdown
from fedqhd.studies import main_table, paper, registry, store
from fedqhd.studies.presets import ENVS, METHODS
from invented import write_results
from processes import fedqhd


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return write_results(tmp_path_factory.mktemp("report") / "results")


@pytest.fixture(scope="module")
def text(results):
    return results_markdown(results)


def test_ours_stands_beside_the_papers_and_the_best_is_bold(text):
    line = next(x for x in text.splitlines() if x.startswith("| `fedqhd` |"))
    assert line.split(" | ")[1].startswith("**432.0** [")
    assert line.split(" | ")[1].endswith("(466.3), 5 of 10 seeds")  # said where there are fewer than meant
    whole = next(x for x in text.splitlines() if x.startswith("| `oracle-qhd`† |"))
    assert "of 5 seeds" not in whole
    oracle = next(x for x in text.splitlines() if x.startswith("| `oracle-dqn`† |"))
    assert "**" not in oracle  # better, but an oracle
    dqn = next(x for x in text.splitlines() if x.startswith("| `fedavg-dqn` |"))
    assert dqn.split(" | ")[2] == "–"


def test_it_counts_where_fedqhd_is_best(results, text):
    assert "best of the non-oracle methods, or level with the best, in 8 of 8 cells" in text
    rows = store.read_rows(results, "main")
    worse = [{**r, "final_return": {**r["final_return"], "iqm": -1e3}} if r["method"] == "fedqhd"
             and r["env"] == "Acrobot-v1" else r for r in rows]  # fmt: skip
    assert main_table.wins([r for r in worse if r["preset"] == "tuned"]) == (6, 8)
    part = [r for r in worse if r["preset"] == "tuned" and r["method"] != "independent-qhd"]
    first, second, *_ = main_table.standing(part, "tuned")
    assert "best of the non-oracle methods run so far" in first  # and not of all
    assert second.startswith("Of their 36 cells 8 have not been run")


def test_it_says_where_it_falls_short(text):
    part = text[text.index("What FedQHD was meant to reach") :]
    verdicts = {line.split(" | ")[0]: line.split(" | ")[-1] for line in part.splitlines()[4:12]}
    assert verdicts["| CartPole-v1, homogeneous"] == "**short of it** |"  # 432 of 490
    assert verdicts["| Acrobot-v1, homogeneous"] == "goal |"  # -68 of -82
    assert verdicts["| LunarLander-v3, heterogeneous"] == "at least |"  # 182 of 175, not of 235


def test_it_says_how_far_from_the_paper_the_papers_settings_lead(results):
    rows = [r for r in store.read_rows(results, "main") if r["preset"] == "paper"]
    rows = [{**r, "final_return": {"iqm": 400.0, "lo": 350.0, "hi": 450.0}} for r in rows]
    line = next(x for x in main_table.distance_table(rows) if x.startswith("| `fedqhd` |"))
    assert line.split(" | ")[1:3] == ["-66.3", "within"]  # the paper has 466.3 and 351.1
    text = results_markdown(results)
    assert text.index("Ours less the paper's") > text.index("## Preset `paper`")  # and not of the tuned ones


def test_failures_are_told(text):
    assert "seed 7: no space left" in text


def test_what_is_missing_is_told(results, tmp_path):
    rows = [r for r in store.read_rows(results, "main") if r["preset"] == "tuned"]
    store.write(tmp_path, registry.study("main"), rows[:10])
    text = results_markdown(tmp_path)
    assert "preset `tuned`: 42 of 52 cells" in text
    assert "preset `paper`: 52 of 52 cells" in text


def test_improvement_is_certain_over_those_always_below(text):
    lines = [x for x in text.splitlines() if x.startswith("| `distilled-feddqn` | 8 |")]
    assert lines[0].split(" | ")[3] == "1.00 [1.00, 1.00]"


def test_the_papers_figures():
    assert paper.final_return("fedqhd", "CartPole-v1", "homogeneous") == {"mean": 466.3, "std": 22.3}
    assert paper.final_return("fedavg-dqn", "CartPole-v1", "heterogeneous") is None
    assert paper.minutes("oracle-dqn", "LunarLander-v3", "heterogeneous") == {"mean": 130.4, "std": 7.9}
    won = 0
    for env, setting in product(ENVS, SETTINGS):
        means = {m: v["mean"] for m in METHODS if m not in paper.ORACLES and (v := paper.final_return(m, env, setting))}
        won += max(means, key=means.__getitem__) == "fedqhd"
    assert won == 5  # as the paper counts


@pytest.mark.slow
def test_report_through_the_command_line(results, tmp_path, text):
    done = fedqhd("report", "--results", results, "--markdown", "R.md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "R.md").read_text() == text


def test_without_results_it_says_how_to_make_them(tmp_path):
    done = fedqhd("report", cwd=tmp_path)
    assert done.returncode == 2
    assert "results='results' holds no main.json: make it with fedqhd reproduce main" in done.stderr
    assert list(tmp_path.iterdir()) == []
