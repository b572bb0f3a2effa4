"""No text in a model becomes a part of the program that is exported from it."""

from __future__ import annotations

import ast
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_export import STRICT, fixed_policy

from fedqhd.agents.policy import model_path
from fedqhd.core.errors import FedQHDError
from fedqhd.core.source import Code, c_comment, finalize, identifier, number, python_docstring
from fedqhd.export import FORMATS, export

NASTY = [
    '"""\nimport os\nos.system("true")\n"""', "\\", 'x\\"""', "*/ int evil; /*", "*??/\n/ int evil; /*",
    "*\\\n/ int evil;",
    "/*", "??/", "a\u2028b\u2029c\x85d", "\r\n#include <stdio.h>\n", "\\N{DASH}", "\\x4", "\\u12", "\ud800", "\x00",
    "'''",
    "{{ 7 * 7 }}", "{% raw %}", "%:include <stdio.h>", "é" * 300, '"', "a" * 117 + "\\n" * 100, "\u202e/*", "//\\",
]  # fmt: skip
texts = st.sampled_from(NASTY) | st.text(alphabet="\"\\*/?\n\r nux4{}%#'", max_size=30) | st.text(max_size=30)
PIECES = st.lists(texts, min_size=1, max_size=4).map("".join)


def without_docstring(source):
    tree = ast.parse(source)
    assert isinstance(tree.body[0].value.value, str)
    return ast.dump(ast.Module(tree.body[1:], []))


def preprocessed(source):
    """The header without comments, with its macros, as C with trigraphs sees it."""
    command = ["gcc", "-E", "-P", "-dD", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-"]
    return subprocess.run(command, input=source, capture_output=True, check=True).stdout


gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
POLICIES = {kind: fixed_policy(kind) for kind in ("fourier", "mlp")}
PYTHON = {kind: without_docstring(FORMATS["numpy"](policy, "Harmless.", "p")) for kind, policy in POLICIES.items()}


@given(PIECES)
@settings(max_examples=200)
def test_no_text_changes_the_syntax_tree_of_the_python_file(text):
    for kind, policy in POLICIES.items():
        source = FORMATS["numpy"](policy, f"The policy for {text}, exported.", text)
        assert without_docstring(source) == PYTHON[kind]


@given(PIECES)
def test_a_docstring_says_what_the_text_says(text):
    assert ast.literal_eval(f'"""{python_docstring(text)}"""') == text
    assert python_docstring("CartPole-v1, héllo (it's)") == "CartPole-v1, héllo (it's)"


@gcc
@given(PIECES)
@settings(max_examples=60)
def test_no_text_changes_the_c_header_but_its_comment(text):
    source = FORMATS["c"](POLICIES["fourier"], f"The policy for {text}, exported.", "p")
    assert source.isascii()
    assert preprocessed(source) == preprocessed(FORMATS["c"](POLICIES["fourier"], "Harmless.", "p"))


@gcc
def test_a_header_of_any_name_compiles(tmp_path):
    for text in NASTY:
        (tmp_path / "p.h").write_bytes(FORMATS["c"](POLICIES["fourier"], text, text))
        name = identifier(text)
        (tmp_path / "p.c").write_text(f'#include "p.h"\nint a(const float *o) {{ return {name}_action(o); }}\n')
        subprocess.run(["gcc", *STRICT, "-fsyntax-only", str(tmp_path / "p.c")], check=True)


@given(text=PIECES)
@example(text="Nowhere-v1")
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_model_file_with_any_name_is_refused_or_exported_as_data(text, tmp_path):
    policy = fixed_policy("mlp")
    policy.env = text
    policy.save(model_path(tmp_path, 0))
    try:
        source = export(tmp_path, 0, "numpy", tmp_path / "x.py").read_bytes()
    except FedQHDError as error:
        assert "\n" not in str(error)
        assert text != "Nowhere-v1"
    else:
        assert without_docstring(source) == PYTHON["mlp"]


@pytest.mark.parametrize("value", ["1; evil()", 1.5, True, None, "text"])
def test_a_template_of_source_takes_integers_and_escaped_text_alone(value):
    with pytest.raises(FedQHDError, match="cannot be exported"):
        finalize(value)
    policy = fixed_policy("fourier")
    policy.action_repeat = value
    with pytest.raises(FedQHDError, match="cannot be exported"):
        FORMATS["c"](policy, "A policy.", "p")
    assert finalize(Code("x")) == "x"
    assert finalize(7) == 7


def test_numbers_in_source_are_finite():
    assert number(0.1) == "0.1"
    for value in (float("nan"), float("inf")):
        with pytest.raises(FedQHDError, match="finite"):
            number(value)


def test_a_comment_of_an_ordinary_name_is_that_name():
    assert c_comment("ALE/Pong-v5, client 3 (FedQHD 0.1.0).") == "ALE/Pong-v5, client 3 (FedQHD 0.1.0)."
    assert c_comment("*/\\?\né") == "%2A/%5C%3F%0A%C3%A9"
