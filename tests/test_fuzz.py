"""Whatever is fed in, the answer is right or one sentence: settings, model files, replay, ridge."""

from __future__ import annotations

import io
import re
import tracemalloc
import zipfile
from collections import deque

import numpy as np
import pytest
import scipy.linalg
import tomli_w
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fedqhd.agents.encoded import LastEncoded
from fedqhd.agents.memory import Replay, Trajectories
from fedqhd.agents.model import MLP, Readout
from fedqhd.agents.policy import Policy
from fedqhd.core import rng as generators
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import checksum, pack, read_arrays, read_checkpoint, write_arrays
from fedqhd.core.protocols import Transition
from fedqhd.encoders import ENCODERS, RandomFourier
from fedqhd.envs.scaling import StateScaler
from fedqhd.linalg.ridge import Ridge, compile_teacher, objective
from fedqhd.runs.config import FIELDS, load_config, resolve

FREE = 50 << 20
"""Bytes of memory that reading a file may take beyond its size."""
FILES = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])

leaves = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=8)
values = st.recursive(
    leaves, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=4), x, max_size=2)
)
names = st.sampled_from(sorted(FIELDS)) | st.text(min_size=1, max_size=8)


def test_settings_without_an_end_are_a_sentence(tmp_path):
    (tmp_path / "c.toml").write_text("x = " + "[" * 100_000)
    with pytest.raises(FedQHDError, match="cannot be read as TOML"):
        resolve({}, str(tmp_path / "c.toml"))
    (tmp_path / "config.toml").symlink_to("/dev/zero")
    with pytest.raises(FedQHDError, match="is not a regular file"):
        load_config(tmp_path / "config.toml")


def settings_or_sentence(file):
    try:
        config = resolve({}, str(file))
    except FedQHDError as error:
        assert "\n" not in str(error).strip()
        return
    file.write_text(config.to_toml())
    assert resolve({}, str(file)) == config


@given(st.dictionaries(names, values, max_size=4))
@FILES
def test_any_toml_is_settings_or_a_sentence(tmp_path, content):
    file = tmp_path / "c.toml"
    file.write_text(tomli_w.dumps(content))
    settings_or_sentence(file)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@FILES
def test_any_bytes_are_settings_or_a_sentence(tmp_path, data):
    file = tmp_path / "c.toml"
    file.write_bytes(data)
    settings_or_sentence(file)


@given(st.data())
@FILES
def test_a_valid_file_with_a_wrong_character_is_settings_or_a_sentence(tmp_path, data):
    text = resolve({}).to_toml()
    at = data.draw(st.integers(0, len(text) - 1))
    file = tmp_path / "c.toml"
    file.write_text(text[:at] + data.draw(st.characters(codec="utf-8")) + text[at + 1 :])
    settings_or_sentence(file)


@pytest.fixture(scope="module", params=["fourier", "complex", "symbolic", "mlp"])
def saved(request, tmp_path_factory):
    rng = np.random.default_rng(3)
    if request.param == "mlp":
        model = MLP([(rng.normal(size=(5, 2)), rng.normal(size=5)), (rng.normal(size=(2, 5)), rng.normal(size=2))])
    else:
        encoder = ENCODERS[request.param].sample(2, 6, 1.0, rng)
        model = Readout(encoder, rng.normal(size=(6, 2)).astype(encoder.dtype))
    one = np.ones(2)
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    Policy(model, StateScaler(0 * one, one, -9 * one, 9 * one), "CartPole-v1").save(path)
    return path


def test_no_flipped_bit_gives_another_policy(saved):
    """A bit in every byte of the file, one after the other: all of them are noticed."""
    good = saved.read_bytes()
    bits = np.random.default_rng(0).integers(8, size=len(good))
    bad = saved.with_name("bad.npz")
    for at, bit in enumerate(bits):
        data = bytearray(good)
        data[at] ^= 1 << int(bit)
        bad.write_bytes(data)
        with pytest.raises(FedQHDError):
            Policy.load(bad)
    bad.write_bytes(good)
    Policy.load(bad)


@given(st.data())
@settings(max_examples=150)
def test_no_damage_gives_another_policy(saved, data):
    """Cut, filled with zeros, grown, or a piece of it somewhere else."""
    good = saved.read_bytes()
    a, b = sorted(data.draw(st.tuples(*[st.integers(0, len(good))] * 2)))
    change = {
        "cut": good[:a],
        "zeros": good[:a] + bytes(b - a) + good[b:],
        "grown": good[:a] + data.draw(st.binary(max_size=20)) + good[a:],
        "moved": good[a:b] + good[:a] + good[b:],
    }[data.draw(st.sampled_from(["cut", "zeros", "grown", "moved"]))]
    assume(change != good)
    bad = saved.with_name("bad.npz")
    bad.write_bytes(change)
    with pytest.raises(FedQHDError):
        Policy.load(bad)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("os:getcwd"),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=2),
)


def policy_or_sentence(path):
    """A policy that can be used, or FedQHDError, within little more memory than the file has bytes."""
    tracemalloc.start()
    try:
        policy = Policy.load(path)
        assert np.isfinite(policy.q(np.zeros((2, policy.model.n)))).all()
        assert policy.predict(np.zeros(policy.model.n))[0] in range(policy.model.actions)
    except FedQHDError as error:
        assert "\n" not in str(error)
    finally:
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size + FREE
        tracemalloc.stop()


@given(st.data())
@settings(max_examples=60)
def test_whatever_the_note_of_a_model_says_the_answer_is_a_policy_or_a_sentence(saved, data):
    """The checksum is right: somebody wrote this on purpose."""
    arrays, about = read_arrays(saved)
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(about)) | st.text(max_size=5))
        about[key] = data.draw(json_values)
        if data.draw(st.booleans()):
            del about[key]
    bad = saved.with_name("bad.npz")
    write_arrays(bad, arrays, about)
    policy_or_sentence(bad)


numbers = st.sampled_from([0.0, -1.0, 1e300, -1e38, np.nan, np.inf, 1e-320])
types = st.sampled_from(["f4", "f8", "c8", "c16", "i1", "i8", "u1", "?", "f2"])


@given(st.data())
@settings(max_examples=60)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_whatever_the_arrays_of_a_model_are_the_answer_is_a_policy_or_a_sentence(saved, data):
    arrays, about = read_arrays(saved)
    name = data.draw(st.sampled_from(sorted(arrays)))
    x = arrays[name].copy()
    change = data.draw(st.sampled_from(["value", "type", "shape", "missing", "swapped"]))
    if change == "value":
        x.reshape(-1)[data.draw(st.integers(0, x.size - 1))] = data.draw(numbers if x.dtype.kind != "i" else st.just(7))
    elif change == "type":
        x = x.astype(data.draw(types))
    elif change == "shape":
        x = np.resize(x, data.draw(st.lists(st.integers(0, 4), max_size=3)))
    elif change == "swapped":
        x = arrays[data.draw(st.sampled_from(sorted(arrays)))]
    arrays[name] = x
    if change == "missing":
        del arrays[name]
    bad = saved.with_name("bad.npz")
    if about["kind"] == "readout" and about["encoder"] in ENCODERS:  # the fingerprint is right, too
        inside = {k.removeprefix("encoder."): v for k, v in arrays.items() if k.startswith("encoder.")}
        about["fingerprint"] = ENCODERS[about["encoder"]](**inside).fingerprint()
    write_arrays(bad, arrays, about)
    policy_or_sentence(bad)


def with_checksum(members):
    """A file of ours with these members, as bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
        archive.comment = b"fedqhd:" + bytes(8)
    sealed = content.getvalue()[:-8]
    return sealed + checksum(sealed)


@given(st.data())
@settings(max_examples=60)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_whatever_the_header_of_an_array_says_the_answer_is_a_policy_or_a_sentence(saved, data):
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    bad = saved.with_name("bad.npz")
    bad.write_bytes(with_checksum(members))
    Policy.load(bad)
    name = data.draw(st.sampled_from(sorted(members)))
    member = bytearray(members[name])
    for _ in range(data.draw(st.integers(1, 4))):
        member[data.draw(st.integers(0, 127))] = data.draw(st.sampled_from(b"0123456789(),'{}<>|fiucOSUVb :-eE\n\x00"))
    if data.draw(st.booleans()):
        shape = b"'shape': (%d,)" % 10 ** data.draw(st.integers(0, 25))
        member[:128] = re.sub(rb"'shape': \([^)]*\)", shape, member[:128])
    members[name] = bytes(member)
    bad.write_bytes(with_checksum(members))
    policy_or_sentence(bad)


@given(st.data())
@FILES
def test_whatever_a_checkpoint_says_the_answer_is_a_checkpoint_or_none(tmp_path, data):
    packed, index = pack({"a": np.arange(6.0), "b": np.ones((2, 2), np.float32)})
    for _ in range(data.draw(st.integers(1, 2))):
        entry = data.draw(st.sampled_from([0, 1]))
        index[entry] = list(index[entry])
        index[entry][data.draw(st.sampled_from([0, 1, 2]))] = data.draw(json_values | types)
    write_arrays(tmp_path / "checkpoint-000001.npz", {"data": packed}, {"index": index})
    found = read_checkpoint(tmp_path)
    assert found is None or sum(x.nbytes for x in found.arrays.values()) == packed.nbytes


@given(st.dictionaries(st.text(alphabet="abc./", min_size=1, max_size=6), st.lists(st.floats(width=32), max_size=5)))
@FILES
def test_arrays_come_back_from_a_file_to_the_bit(tmp_path, content):
    arrays = {name: np.array(v, np.float32) for name, v in content.items() if name.strip("./")}
    write_arrays(tmp_path / "f.npz", arrays, {"x": 1})
    again, about = read_arrays(tmp_path / "f.npz")
    assert about["x"] == 1
    assert {k: v.tobytes() for k, v in again.items()} == {k: v.tobytes() for k, v in arrays.items()}


@given(st.integers(1, 12), st.lists(st.booleans(), max_size=40), st.lists(st.booleans(), max_size=40))
def test_replay_is_a_queue_of_the_last_and_goes_on_from_its_state(capacity, before, after):
    """Transitions of which some go on from the one before, and some begin anew."""
    lasts = np.cumsum([1 if joined else 5 for joined in before + after])
    memory, again, model = Replay(capacity, 1), Replay(capacity, 1), deque(maxlen=capacity)

    def add(memory, k):
        x = int(lasts[k])
        memory.add(Transition(np.array([x]), x, float(x), 0.5, np.array([x + 1])))

    for k in range(len(before)):
        add(memory, k)
    again.restore(memory.state())
    for k in range(len(before), len(lasts)):
        add(memory, k)
        add(again, k)
    model.extend(lasts.tolist())
    for m in (memory, again):
        assert sorted(m.a[: m.size].tolist()) == list(model)
        np.testing.assert_array_equal(m.s[: m.size, 0], m.a[: m.size])
        np.testing.assert_array_equal(m.s_next[: m.size, 0], m.a[: m.size] + 1)
    for name in ("s", "a", "r", "discount", "s_next", "joined"):  # in the same places: draws hit the same transitions
        np.testing.assert_array_equal(getattr(again, name), getattr(memory, name))
    if memory.size:
        drawn = memory.sample(50, generators.generator(0, 0, "x"))
        assert 0 <= drawn.min() <= drawn.max() < memory.size


@given(st.integers(2, 30), st.lists(st.integers(1, 9), max_size=20))
def test_trajectories_keep_whole_episodes_in_order_newest_first(capacity, lengths):
    encoder = RandomFourier.sample(1, 8, 1.0, np.random.default_rng(0))
    memory = Trajectories(capacity, 1, LastEncoded(encoder), "float32")
    k = 0
    for episode, length in enumerate(lengths):
        for step in range(length):
            memory.add(np.float32([k]), 0, float(episode), 1.0, first=step == 0)
            k += 1
    kept = memory.s[: memory.size, 0]
    assert memory.size <= capacity
    assert (np.diff(kept) > 0).all()
    # The features move with their states. Kernels and batches may differ in the last bits of float32.
    np.testing.assert_allclose(memory.X[: memory.size], encoder.features(kept[:, None]), atol=1e-5)
    if lengths:
        assert kept[-1] == k - 1
        assert memory.first[0]
        # A row begins an episode exactly where the episode changes, but where the oldest was cut.
        changes = np.flatnonzero(np.diff(memory.r[: memory.size])) + 1
        assert set(changes) <= set(np.flatnonzero(memory.first[: memory.size]))


@st.composite
def ridge_problems(draw):
    """X of any size, rank and scale, real or complex, and a Q."""
    m, D, A = draw(st.integers(1, 24)), draw(st.integers(1, 24)), draw(st.integers(1, 3))
    rank = draw(st.integers(0, min(m, D)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = rng.normal(size=(m, rank)) @ rng.normal(size=(rank, D))
    if draw(st.booleans()):
        X = X + 1j * rng.normal(size=(m, rank)) @ rng.normal(size=(rank, D))
    scale, lam = 10.0 ** draw(st.floats(-8, 8)), draw(st.just(0.0) | st.floats(-8, 8).map(lambda e: 10.0**e))
    return scale * X, 10.0 ** draw(st.floats(-8, 8)) * rng.normal(size=(m, A)), lam


@given(ridge_problems())
@settings(max_examples=400)
def test_ridge_is_the_best_fit_whatever_the_size_rank_and_scale(problem):
    """Never worse than nothing, nor than least squares on the system with sqrt(lam) I below it.

    Both in the directions that X has: below the rounding of its largest one, what looks like a direction of X is its
    rounding, and least squares with a tiny lam would fit Q by it, with a huge W.
    """
    X, Q, lam = problem
    W = compile_teacher(X, Q, lam)
    assert np.isfinite(W).all()
    assert W.shape == (X.shape[1], Q.shape[1])
    reached = objective(X, W, Q, lam)
    size = np.sum(Q**2)
    # Rounding of the residual: what is left of Q is small beside Q itself.
    slack = 1e-11 * size
    assert reached <= size + slack
    real = np.hstack([X.real, -X.imag]) if np.iscomplexobj(X) else X
    basis = scipy.linalg.orth(real.T)
    rank = basis.shape[1]
    system = np.vstack([real @ basis, np.sqrt(lam) * np.eye(rank)])
    best = basis @ scipy.linalg.lstsq(system, np.vstack([Q, np.zeros((rank, Q.shape[1]))]))[0]
    assert reached <= np.sum((real @ best - Q) ** 2) + lam * np.sum(best**2) + slack
    np.testing.assert_array_equal(Ridge(X, lam).solve(Q), W)  # the same again
