"""Replies in 16 and 8 bits: how far off they may be, and that nothing else is lost on the way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conftest import tiny
from fedqhd.core.protocols import Expected
from fedqhd.federation.wrappers.uplink import CODES, decode, encode, rounded, sent_bytes, shortened
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train
from worlds import CORRIDOR

DTYPES = st.sampled_from([np.float32, np.float64, np.complex64])
FINITE = {"allow_nan": False, "allow_infinity": False}


@st.composite
def arrays(draw):
    dtype = np.dtype(draw(DTYPES))
    width = 32 if dtype != np.float64 else 64
    real = st.floats(-1e6, 1e6, width=width, allow_subnormal=False)
    values = draw(hnp.arrays(np.float64, draw(hnp.array_shapes(max_dims=2, max_side=6)), elements=real))
    return (values * (1 + 1j) if dtype.kind == "c" else values).astype(dtype)


def test_int8_by_hand():
    """The largest, 3, needs a unit of 2^-5: 3 / 2^-6 = 192 is beyond 127. 0.7 / 2^-5 = 22.4."""
    coded = encode(np.array([[3.0, -0.7], [0.01, 0.0]]), CODES["int8"])
    assert coded.unit == 2.0**-5
    assert coded.codes.dtype == np.int8
    assert coded.codes.tolist() == [[96, -22], [0, 0]]
    assert decode(coded, np.dtype(np.float64)).tolist() == [[3.0, -0.6875], [0.0, 0.0]]


@given(arrays(), st.sampled_from(sorted(CODES)))
def test_no_number_is_off_by_more_than_the_code_allows(v, code):
    back = decode(encode(v, CODES[code]), v.dtype)
    assert back.shape == v.shape
    assert back.dtype == v.dtype
    parts = [(back.real, v.real), (back.imag, v.imag)] if v.dtype.kind == "c" else [(back, v)]
    top = max(np.abs(part).max() for _, part in parts)
    for is_now, was in parts:
        # Half a unit, which is at most the largest number / 63.5; a float16 has 11 bits of each number.
        bound = top / 63.5 / 2 if code == "int8" else np.abs(was) * 2.0**-11 + top * 2.0**-38
        assert (np.abs(is_now.astype(np.float64) - was) <= bound * (1 + 1e-12)).all()


@given(arrays(), st.sampled_from(sorted(CODES)))
def test_what_was_rounded_travels_without_any_further_loss(v, code):
    sent = rounded({"Q": v}, None, code)["Q"]
    short = shortened(sent, code)
    assert short.codes.dtype == CODES[code].dtype
    assert decode(short, v.dtype).tobytes() == sent.tobytes()
    assert rounded({"Q": sent}, None, code)["Q"].tobytes() == sent.tobytes()


def test_what_was_not_rounded_is_not_shortened(rng):
    v = rng.normal(size=(4, 3))
    assert shortened(v, "int8") is None
    assert shortened(v, "float16") is None
    assert shortened(rounded({"Q": v}, None, "int8")["Q"], "full") is None
    assert shortened(np.array([1.0, -0.0]), "int8") is None  # the sign of zero would be lost
    assert sent_bytes(v, "int8") == v.nbytes


def test_sums_and_certainties_stay_as_they_are(rng):
    payload = {"Q": rng.normal(size=(5, 2)), "precision": 1 + rng.random((5, 2))}
    likes = {"Q": Expected((5, 2), "f"), "precision": Expected((5, 2), "f", votes=False)}
    sent = rounded(payload, likes, "int8")
    assert sent["precision"] is payload["precision"]
    assert not np.array_equal(sent["Q"], payload["Q"])
    assert rounded(payload, likes, "full") is payload


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_sent_as_it_is_for_the_server_to_refuse(bad):
    sent = rounded({"Q": np.array([1.0, bad])}, None, "int8")["Q"]
    assert not np.isfinite(sent).all()
    assert shortened(sent, "int8") is None


def test_a_run_counts_what_travels(tmp_path):
    up = {}
    for uplink in ("full", "float16", "int8"):
        config = tiny(tmp_path / uplink, env=CORRIDOR, setting="heterogeneous", uplink=uplink)
        up[uplink] = train(config)["bytes_up_per_round"]
    assert up == {"full": 2 * 40 * 2 * 8, "float16": 2 * 40 * 2 * 2, "int8": 2 * 40 * 2}


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["heterogeneous", "homogeneous"])
def test_the_return_on_cartpole_does_not_drop(tmp_path, setting):
    """Six runs: two seeds, and each uplink. Between seeds of one uplink the final return varies by 30.

    Runs of 100 episodes need the many fits that these settings make; the preset saves them for longer runs.
    """
    small = {"clients": 3, "episodes": 100, "round_episodes": 10, "learner": "least-squares", "engine": "local",
             "refit": 0.1, "sweeps": 10, "sweep_tol": 0.0}  # fmt: skip
    final = {}
    for uplink in ("full", "float16", "int8"):
        runs = [
            train(resolve({
                "env": "CartPole-v1", "setting": setting, "uplink": uplink, "seed": seed,
                "out": str(tmp_path / f"{uplink}-{seed}"), **small,
            }, preset="plain", shared={"dims": [300, 500]}))
            for seed in (0, 1)
        ]  # fmt: skip
        assert min(run["greedy_return"] for run in runs) >= 475, (uplink, runs)
        final[uplink] = np.mean([run["final_return"] for run in runs])
    assert min(final["float16"], final["int8"]) >= final["full"] - 45, final
