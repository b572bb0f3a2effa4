"""The two ablations on a small budget."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedqhd.gap import reference as references
from fedqhd.runs.config import resolve
from fedqhd.studies import ablation
from fedqhd.studies.ablation import MODES, Setting, analytic, slope
from fedqhd.studies.ablation_figure import draw


@pytest.fixture(scope="module")
def setting():
    """MountainCar, whose coarse reference takes seconds; uniform anchors, so that only their number matters."""
    coarse = dataclasses.replace(references.GRIDS["MountainCar-v0"], points=(61, 61))
    policy = references.reference("MountainCar-v0", coarse)[0]
    given = {"env": "MountainCar-v0", "setting": "heterogeneous", "clients": 2, "anchor_source": "uniform", "seed": 100}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ablation, "FIT_STATES", 900)
        return Setting.make(resolve({**given, "lam": 1e-6}), policy)


@pytest.fixture(scope="module")
def rows(setting):
    return [r for D, m in ((16, 64), (32, 128), (64, 256), (64, 32)) for r in analytic(setting, D, m, episodes=1)]


def of(rows, **wanted):
    return [r for r in rows if all(r[k] == v for k, v in wanted.items())]


def test_a_slope_by_hand():
    """y = 8 D^-1/2 exactly: the interval has no width; y with noise has one around it."""
    exact = [{"D": D, "y": 8 * D**-0.5} for D in (16, 64, 256, 1024)]
    assert slope(exact, "y") == pytest.approx((-0.5, -0.5, -0.5))
    noisy = [{"D": r["D"], "y": r["y"] * f} for r, f in zip(exact, (1.1, 0.9, 1.2, 0.95), strict=True)]
    middle, low, high = slope(noisy, "y")
    assert low < -0.5 < high
    assert low < middle < high


def test_warm_start_spares_what_few_anchors_lose(rows):
    """m < D: overwriting loses what no anchor sees; with m = 4D and hardly a ridge the two are the same."""
    for m, worse in ((32, True), (256, False)):
        over, warm = (of(rows, D=64, m=m, compile=mode)[0]["gap_rms"] for mode in MODES)
        assert (over > 1.2 * warm) == worse


def test_the_gap_falls_with_the_dimension(rows):
    gaps = [of(rows, D=D, m=4 * D, compile="overwrite")[0]["gap_rms"] for D in (16, 64)]
    assert gaps[1] < gaps[0]


def test_clients_alone_know_nothing_of_anchors(rows):
    """A control: the curve without exchange is the same whatever m is, and those with one are not."""
    few, many = (of(rows, D=64, m=m, compile="warm-start")[0] for m in (32, 256))
    assert few["alone"] == many["alone"]
    assert few["curve"] != many["curve"]
    assert np.isfinite([*few["curve"], *many["curve"]]).all()


def test_it_repeats(setting, rows):
    again = analytic(setting, 16, 64, episodes=1)
    assert [r["gap_rms"] for r in again] == [r["gap_rms"] for r in rows[:2]]
    assert again[0]["curve"] == rows[0]["curve"]


def test_the_figures_are_drawn(rows, tmp_path):
    for over, some in (("D", [r for r in rows if r["m"] == 4 * r["D"]]), ("m", of(rows, D=64))):
        path = draw(some, over, tmp_path / f"{over}.png", is_trained=False, title="test")
        assert path.stat().st_size > 10_000
