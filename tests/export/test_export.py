"""Exported policies beside the policy itself: ONNX in onnxruntime, a file of plain Python, C compiled by gcc."""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import re
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from jinja2 import UndefinedError

from conftest import tiny
from fedqhd.agents.model import MLP, Readout
from fedqhd.agents.policy import Policy, load_policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.source import Code
from fedqhd.core.templates import render
from fedqhd.encoders import ENCODERS
from fedqhd.envs.make import make_env
from fedqhd.envs.rollouts import random_states
from fedqhd.envs.scaling import StateScaler
from fedqhd.export import FORMATS, export
from fedqhd.runs.run import train
from worlds import CORRIDOR

KINDS = ("fourier", "complex", "symbolic")
DQN = {"learning_starts": 20, "widths": [16]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One client of each of our encoders, one whose encoder is its user's, and one DQN."""
    folder = tmp_path_factory.mktemp("export")
    kinds = [*KINDS, "own_things:waves"]
    train(tiny(folder / "qhd", env="CartPole-v1", setting="heterogeneous", encoder=kinds, clients=4, episodes=30))
    train(tiny(folder / "one", env=CORRIDOR, encoder="symbolic", episodes=30))
    train(tiny(folder / "dqn", env="CartPole-v1", method="fedavg-dqn", **DQN))
    return folder


@pytest.fixture(scope="module")
def states():
    """Where random play leads, and ten times as far."""
    met = random_states(make_env("CartPole-v1"), 400, np.random.default_rng(0)).astype(np.float32)
    return np.vstack([met, 10 * met[:100]])


ALL = [("qhd", 0), ("qhd", 1), ("qhd", 2), ("one", 0), ("dqn", 0)]


def of(runs, run, client, states):
    policy = load_policy(runs / run, client)
    S = states[:, : policy.model.n]
    return policy, S, policy.q(S)


@pytest.mark.parametrize(("run", "client"), ALL)
def test_onnx_gives_the_same_values(runs, states, run, client, tmp_path):
    _, S, Q = of(runs, run, client, states)
    file = export(runs / run, client, "onnx", tmp_path / "p.onnx")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (given,), (made,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("obs", "tensor(float)", ["B", S.shape[1]])
    assert (made.name, made.shape) == ("Q", ["B", Q.shape[1]])
    (out,) = session.run(None, {"obs": S})
    # float32 sums in another order; far away the angle itself is known to 1e-5 only
    np.testing.assert_allclose(out, Q, atol=2e-4 * np.abs(Q).max())
    assert np.mean(out.argmax(axis=1) == Q.argmax(axis=1)) > 0.99
    (single,) = session.run(None, {"obs": S[:1]})
    assert single.shape == (1, Q.shape[1])


def run_script(file, without=()):
    real, space = builtins.__import__, {}

    def refuse(name, *args, **kwargs):
        if name in without:
            raise ImportError
        return real(name, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "__import__", refuse)
        exec(compile(file.read_text(), str(file), "exec"), space)
    return space


@pytest.mark.parametrize(("run", "client"), ALL)
def test_the_python_file_gives_the_same_values_with_and_without_numpy(runs, states, run, client, tmp_path):
    _, S, Q = of(runs, run, client, states)
    file = export(runs / run, client, "numpy", tmp_path / "p.py")
    fast = run_script(file)
    np.testing.assert_allclose(fast["q"](S), Q, atol=2e-4 * np.abs(Q).max())
    assert fast["action"](S[3]) == fast["action"](S)[3] == Q[3].argmax()
    plain = run_script(file, without=["numpy"])
    few = [plain["q"](s.tolist()) for s in S[:20]]
    np.testing.assert_allclose(few, Q[:20], atol=2e-4 * np.abs(Q).max())
    assert plain["action"](S[3].tolist()) == Q[3].argmax()


def test_the_python_file_needs_nothing_but_python(runs, tmp_path):
    """-S -I: no site-packages, no folder of ours."""
    file = export(runs / "qhd", 0, "numpy", tmp_path / "p.py")
    imports = set(re.findall(r"^\s*import (\w+)", file.read_text(), re.M))
    assert imports == {"array", "base64", "math", "sys", "numpy"}
    code = f"exec(open({str(file)!r}).read()); print(numpy, action([0.0, 0.1, 0.0, 0.1]))"
    command = [sys.executable, "-S", "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() in (["None", "0"], ["None", "1"])


gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]


def pointer(s):
    return np.ascontiguousarray(s, np.float32).ctypes.data_as(ctypes.POINTER(ctypes.c_float))


@gcc
@pytest.mark.parametrize(("run", "client"), ALL[:4])
def test_c_chooses_the_same_actions(runs, states, run, client, tmp_path):
    policy, S, Q = of(runs, run, client, states)
    near = (np.abs(policy.scaler(S)) < 32).all(axis=1)  # beyond, it clips
    S, Q = S[near], Q[near]
    assert len(S) > 400
    file = export(runs / run, client, "c", tmp_path / "p.h")
    (tmp_path / "p.c").write_text(
        '#include "p.h"\nint action(const float *o) { return p_action(o); }\n'
        "void scores(const float *o, int32_t *s) { p_scores(o, s); }\n"
    )
    sanitised = [*STRICT, "-fsanitize=undefined", "-fno-sanitize-recover"]
    library = tmp_path / "p.so"
    subprocess.run(
        ["gcc", *sanitised, "-O2", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "p.c")], check=True
    )
    c = ctypes.CDLL(str(library))
    as_floats = [pointer(s) for s in S]
    actions = np.array([c.action(o) for o in as_floats])
    unit = float(re.search(r"P_UNIT (\S+)f", file.read_text())[1])
    scores = (ctypes.c_int32 * Q.shape[1])()
    A = np.empty_like(Q)
    for i, o in enumerate(as_floats):
        c.scores(o, scores)
        A[i] = np.array(scores) * unit
    assert np.array_equal(actions, A.argmax(axis=1))
    expected = Q - Q.mean(axis=1, keepdims=True)
    # Eight bits of cosine and of weight, summed over a hundred features; whole numbers alone where features are bits.
    error = np.abs(A - expected).max() / np.abs(expected).max()
    assert error < (0.02 if run == "one" or client == 2 else 0.1)
    # Action by action: where they differ, the two best are closer than that error.
    best, chosen = expected.max(axis=1), np.take_along_axis(expected, actions[:, None], axis=1)[:, 0]
    assert np.all(best - chosen <= 2 * np.abs(A - expected).max())
    assert np.mean(actions == Q.argmax(axis=1)) > 0.95


TWO = """#include <stdio.h>
#include "first.h"
#include "my-2nd.h"

int main(void) {
    float obs[FIRST_N];
    while (fread(obs, sizeof obs, 1, stdin) == 1)
        printf("%d %d\\n", first_action(obs), my_2nd_action(obs));
    return FIRST_N == MY_2ND_N && FIRST_ACTION_REPEAT == 1 ? 0 : 1;
}
"""


@gcc
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_two_policies_share_a_c_program_without_any_library(runs, states, level, tmp_path):
    for client, name in ((0, "first"), (2, "my-2nd")):
        export(runs / "qhd", client, "c", tmp_path / f"{name}.h")
    (tmp_path / "main.c").write_text(TWO)
    subprocess.run(["gcc", *STRICT, level, "main.c", "-o", "two"], check=True, cwd=tmp_path)
    S = np.ascontiguousarray(states[:400], np.float32)
    done = subprocess.run([tmp_path / "two"], input=S.tobytes(), capture_output=True, check=True)
    actions = np.array(done.stdout.split(), int).reshape(-1, 2)
    for column, client in ((0, 0), (1, 2)):
        assert np.mean(actions[:, column] == load_policy(runs / "qhd", client).predict(S)[0]) > 0.95
    assert (actions[:, 0] != actions[:, 1]).any()


FLOOR = """#include <math.h>
#include "p.h"
int before(float x, int low, int high) { x = floorf(x); return x < low ? low : x > high ? high : (int)x; }
int after(float x, int low, int high) { return p_floor(x, low, high); }
"""


@gcc
def test_the_floor_of_the_header_is_that_of_the_library(tmp_path):
    (tmp_path / "p.h").write_bytes(FORMATS["c"](fixed_policy("fourier"), "A policy.", "p"))
    (tmp_path / "floor.c").write_text(FLOOR)
    library = tmp_path / "floor.so"
    subprocess.run(["gcc", *STRICT, "-O0", "-shared", "-fPIC", "-o", library, tmp_path / "floor.c", "-lm"], check=True)
    c = ctypes.CDLL(str(library))
    whole = np.array([-40000, -32768, -32767, -1, 0, 1, 127, 128, 129, 32766, 32767, 32768, 1e30, -1e30], np.float32)
    drawn = np.random.default_rng(0).uniform(-40000, 40000, 500).astype(np.float32)
    just = [np.nextafter(whole, np.float32(side) * np.inf) for side in (-1, 1)]
    for x in map(ctypes.c_float, [*whole, *just[0], *just[1], *drawn, *(drawn / 200), -0.0, np.inf, -np.inf]):
        for bounds in ((-32767, 32767), (0, 128)):
            assert c.after(x, *bounds) == c.before(x, *bounds), (x, bounds)
    assert c.after(ctypes.c_float(np.nan), 0, 128) == 0


@pytest.mark.parametrize(
    ("file", "prefix"), [("lander.h", "lander"), ("a-b.c.h", "a_b_c"), ("2nd.h", "policy_2nd"), ("_é.h", "policy___")]
)
def test_names_in_c_begin_with_the_name_of_the_file(runs, file, prefix, tmp_path):
    text = export(runs / "one", 0, "c", tmp_path / file).read_text()
    assert f"static inline int {prefix}_action(const float obs[{prefix.upper()}_N])" in text
    assert f"#ifndef {prefix.upper()}_H\n#define {prefix.upper()}_H\n" in text
    assert set(re.findall(r"#define (\w+?)_(?:H|N|D|UNIT)\b", text)) == {prefix.upper()}


def test_what_a_format_cannot_express_is_said(runs, tmp_path):
    for format in ("onnx", "numpy", "c"):
        with pytest.raises(FedQHDError, match=f"format={format} cannot express encoder='own_things:waves'"):
            export(runs / "qhd", 3, format, tmp_path / "x")
    with pytest.raises(FedQHDError, match="format=c cannot express a network"):
        export(runs / "dqn", 0, "c", tmp_path / "x")
    with pytest.raises(FedQHDError, match="format='tflite' is unknown"):
        export(runs / "dqn", 0, "tflite", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_without_onnx_it_says_how_to_get_it(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(FedQHDError, match=r"fedqhd\[export\]"):
        export(runs / "qhd", 0, "onnx", tmp_path / "x")


def fixed_policy(kind):
    """A small policy whose numbers are exact, for an environment that cannot be played."""
    own = np.random.default_rng(3)
    if kind == "mlp":
        model = MLP([(own.integers(-8, 8, shape) / 4, own.integers(-8, 8, shape[0]) / 4) for shape in ((5, 2), (3, 5))])
    else:
        encoder = ENCODERS[kind].sample(2, 16, 1.5, own)
        W = own.integers(-64, 64, (16, 3)) / 8
        if kind == "complex":
            W = W + 1j * own.integers(-64, 64, (16, 3)) / 8
        model = Readout(encoder, W.astype(encoder.dtype))
    box = np.array([1.0, 2.0])
    return Policy(model, StateScaler(box / 4, box / 2, -box, box), "Nowhere-v0")


# sha256 of the files. Scores in C are those of the first version, bit for bit; only names and the floor have changed.
PINNED = {
    ("c", "fourier"): "8cd3a54a11668fc074ebfa6d5d3dcc33",
    ("c", "complex"): "87d13ce498d099bf1b7b4ae279a6ed4c",
    ("c", "symbolic"): "ec633c53d979ee2f08330d72372d728b",
    ("numpy", "fourier"): "238d432acaf13e5375f8b4b7d5655c74",
    ("numpy", "complex"): "993742c63960ec7a6f7f4bcf118e7aa5",
    ("numpy", "symbolic"): "910080ea12d064467b4e93b1c531fe2a",
    ("numpy", "mlp"): "559e1a7e09d88278c35af198290e583a",
}


@pytest.mark.parametrize(("format", "kind"), PINNED)
def test_the_text_of_a_fixed_policy_is_pinned(format, kind):
    about = "The greedy policy of client 0 for Nowhere-v0, exported by FedQHD."
    text = FORMATS[format](fixed_policy(kind), about, "policy")
    assert hashlib.sha256(text).hexdigest()[:32] == PINNED[format, kind], text.decode()


def test_a_template_without_a_value_is_an_error():
    with pytest.raises(UndefinedError):
        render("export/templates/policy.py.jinja", about=Code("a"), kind="mlp")
    with pytest.raises(UndefinedError):
        render("export/templates/policy.py.jinja", kind="mlp", constants={})
