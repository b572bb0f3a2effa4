"""Shared small things: a seeded generator, one encoder of each kind, a run that takes a second."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from fedqhd.agents import LEARNERS
from fedqhd.core.config import Config
from fedqhd.core.protocols import Transition
from fedqhd.core.settings import fields_of
from fedqhd.encoders import ENCODERS
from fedqhd.runs import run as runs
from fedqhd.runs.config import resolve

TESTS = Path(__file__).parent
ROOT = TESTS.parent
TINY = {
    "clients": 2, "episodes": 6, "round_episodes": 4, "dims": [64, 96], "anchors": 40, "eval_episodes": 2,
    "engine": "local",
}  # fmt: skip
"""A run of a second; the last round is shorter than the first."""
# A property holds however busy the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def files_of_the_checkout() -> dict[Path, int]:
    """When each file was last written, but for hidden ones and Python's caches."""
    found = {}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            f for f in folders if not f.startswith(".") and f != "__pycache__" and not f.endswith(".egg-info")
        ]
        found |= {Path(folder, name): Path(folder, name).stat().st_mtime_ns for name in names}
    return found


def pytest_sessionstart(session):
    if not hasattr(session.config, "workerinput"):  # the process that the workers report to
        session.config.files_before = files_of_the_checkout()


def pytest_sessionfinish(session):
    """No test writes outside its temporary folder. Files that exist may change, since you may edit them meanwhile,
    but results may not."""
    before = getattr(session.config, "files_before", None)
    if before is None:
        return
    published = (ROOT / "results", ROOT / "RESULTS.md")
    after = files_of_the_checkout()
    written = [f for f, when in after.items() if f not in before or (when != before[f] and _within(f, published))]
    if written:
        print("\nThe tests wrote into the checkout:", *sorted(written), sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _within(file: Path, places: tuple[Path, ...]) -> bool:
    return any(file.is_relative_to(place) for place in places)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """No test reads or writes the user's cache of reference values, or what is remembered of the user's runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDQHD_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(params=sorted(ENCODERS))
def encoder(request, rng):
    return ENCODERS[request.param].sample(4, 200, 1.3, rng)


@pytest.fixture(scope="module")
def browser():
    """A real one, which asks for nothing of its own accord."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'fedqhd[dev]'")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"needs a browser, one of {', '.join(BROWSERS)}")
    quiet = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with api.sync_playwright() as p:
        found = p.chromium.launch(executable_path=path, args=quiet)
        yield found
        found.close()


def tiny(out, **settings) -> Config:
    """Settings of a small run: TINY and the given ones, as far as they matter to it."""
    return resolve({"out": str(out)}, preset="plain", shared={**TINY, **settings})


DENSE = sorted(name for name, kind in ENCODERS.items() if not kind.is_sparse)
"""The encoders of vectors."""

HAND = {"eta": 0.1, "features": "recompute", "trace": 0.0}
"""Settings of agents that are made by hand, which tests do their sums with."""


def by_hand(learner, **settings):
    """The settings of a learner: HAND and the given ones, as far as it has them."""
    cls = LEARNERS.find(learner).Settings
    return cls(**{k: v for k, v in {**HAND, **settings}.items() if k in fields_of(cls)})


def live(agent, steps, seed) -> list[int]:
    """Let an agent of two state variables learn from a made-up world; what it did, to compare."""
    world, actions = np.random.default_rng(seed), []
    for k in range(steps):
        s, s_next = world.normal(size=(2, 2)).astype(np.float32)
        actions.append(agent.act(s))
        agent.observe(Transition(s, actions[-1], float(world.normal()), 0.9, s_next))
        if k % 5 == 4:
            agent.end_episode()
    return actions


def same(a, b):
    """Whether two lists of arrays are equal, bit for bit."""
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def interrupt_after(monkeypatch, rounds):
    """Interrupt every run, as Ctrl-C does, when so many rounds are done."""
    append_round = runs.rounds_log.append_round

    def stop(folder, k, *others):
        append_round(folder, k, *others)
        if k == rounds - 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs.rounds_log, "append_round", stop)
