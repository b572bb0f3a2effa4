"""Every block of every page is run in the order of the page, or stands in a list of exceptions with the reason."""

from __future__ import annotations

import pytest

from conftest import ROOT, TESTS
from pages import Block, Reader, blocks_of, program_of

README = "../README"
ALL = [*sorted(path.stem for path in (ROOT / "docs").glob("*.md")), README]
SLOW = {
    README, "choose-anchors", "compare", "extending", "install", "least-squares", "own-encoder", "read-the-gap",
    "reproduce", "speed", "watch",
}  # fmt: skip
"""Pages whose commands take long even with a small budget."""

NETWORK = "needs a package index"
BUILDS = "`make dist` builds and tries the package in new environments"
HOURS = "takes hours; a small copy is run by"
NOT_RUN = {
    (README, "make demo"): "makes an environment in the checkout; " + NETWORK,
    (README, "make test"): "is what runs this",
    ("index", "make demo"): "makes an environment in the checkout; " + NETWORK,
    ("index", "pip install ."): NETWORK,
    ("install", "python -m venv .venv"): "nothing can be installed into it: that " + NETWORK,
    ("install", ".venv/bin/pip install ."): NETWORK,
    ("install", "make dist"): BUILDS,
    ("install", "pip install dist/fedqhd-*.whl"): BUILDS,
    ("install", "uvx --from . fedqhd train"): NETWORK,
    ("install", "pipx run --spec . fedqhd train"): NETWORK,
    ("tutorial", "python3 -m venv .venv"): "nothing can be installed into it: that " + NETWORK,
    ("tutorial", ".venv/bin/pip install ."): NETWORK,
    ("reproduce", "fedqhd reproduce tune"): f"{HOURS} tests/studies/test_reproduce.py",
    ("reproduce", "fedqhd reproduce all"): f"{HOURS} tests/studies/test_reproduce.py, one study at a time",
    (
        "reproduce",
        "fedqhd report",
    ): "needs results of `reproduce all`; tests/report/test_report.py has others",
}
"""Commands that are not run, by page and beginning, and why."""

SMALL = {
    ("choose-anchors", "fedqhd gap"): ("--dims 30 60 --clients 2", "with 2,000 features it takes minutes"),
    ("install", ".venv/bin/fedqhd train"): ("--episodes 6", "150 episodes take a minute"),
    ("least-squares", "fedqhd train"): ("--episodes 4 --eval-episodes 1 --out runs/{}", "400 episodes take long"),
    ("reproduce", "fedqhd reproduce mine:Widths"): (
        "--seeds 0 --workers 1 --set episodes=4 clients=2 eval_episodes=1", "nine runs of 100 episodes take long",
    ),
    ("watch", "fedqhd watch"): ("--port 0", "another program may use the usual port"),
}  # fmt: skip
"""Flags that are added to commands, by page and beginning, and why."""

FEDERATION = {
    "test_the_walk_through_gives_the_bits_of_one_process": [
        "server.toml", "one.toml", "two.toml", "terminal 1", "terminal 2", "terminal 3",
    ],
    "test_flowers_own_commands_do_the_same": ["flower 1", "flower 2", "flower 3", "flower 4"],
    "test_with_keys_the_bits_are_the_same_and_strangers_are_refused": ["keys", "secure 1", "secure 2", "secure 3"],
}  # fmt: skip
"""The tests in tests/deploy/test_federate.py that run the blocks of federation.md in several terminals."""


def exception(table, page, command):
    """The entry of a table for a command, of which the most specific one counts."""
    keys = [key for key in table if key[0] == page and f"{command} ".startswith(f"{key[1]} ")]
    return max(keys, key=lambda key: len(key[1]), default=None)


RUNNABLE = [page for page in ALL if page != "federation" and any(block.is_runnable for block in blocks_of(page))]


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in RUNNABLE]
)
def test_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path)
    try:
        for block in blocks_of(page):
            if block.language in ("python", "c"):
                reader.do(block, page)
            for k, command in enumerate(block.commands):
                if exception(NOT_RUN, page, command):
                    continue
                small = exception(SMALL, page, command)
                reader.type(command, SMALL[small][0].format(k) if small else "")
    finally:
        reader.leave()


def test_no_exception_is_stale():
    commands = [(page, command) for page in ALL for block in blocks_of(page) for command in block.commands]
    for table in (NOT_RUN, SMALL):
        used = {exception(table, page, command) for page, command in commands}
        assert set(table) <= used, "no page has these commands any more"
    assert set(RUNNABLE) >= SLOW


def test_every_block_of_the_federation_is_run_by_a_test():
    assert sorted(block.title for block in blocks_of("federation")) == sorted(
        title for titles in FEDERATION.values() for title in titles
    )
    code = (TESTS / "deploy" / "test_federate.py").read_text()
    for test in FEDERATION:
        assert f"def {test}(" in code, test


def test_every_language_is_known():
    """A block in another language would be passed over in silence."""
    for page in ALL:
        for block in blocks_of(page):
            assert block.language in ("python", "bash", "c", "text", "bibtex", "") or page == "federation", (
                page,
                block,
            )


def test_fences_with_and_without_attributes_are_understood():
    text = Block("text", "", "waiting for it\nfedqhd watch runs/x\n.venv/bin/fedqhd doctor\n")
    assert text.commands == ["fedqhd watch runs/x", ".venv/bin/fedqhd doctor"]
    assert program_of(text.commands[1]) == "fedqhd"
    assert Block("bash", "", "fedqhd train \\\n    --clients 2 &\n# said\n").commands == ["fedqhd train --clients 2 &"]
    assert not Block("text", "", "watching runs/x\n").is_runnable
