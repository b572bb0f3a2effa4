"""A federation of real processes that is hurt at random moments ends with numbers that one process can compute."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

pytest.importorskip("flwr")

from chaos import KINDS, SERVER, plan
from soak import Chaos, Soak


def test_a_plan_follows_from_its_seed_and_has_every_kind_equally_often():
    faults = plan(3, 3600, 10, 30, ["0", "1"])
    assert faults == plan(3, 3600, 10, 30, ["0", "1"])
    assert faults != plan(4, 3600, 10, 30, ["0", "1"])
    assert 300 < len(faults) < 420
    counts = Counter(fault.kind for fault in faults)
    assert counts.keys() == set(KINDS)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert {fault.party for fault in faults} == {SERVER, "0", "1"}
    assert all(a.at <= b.at and 1 <= b.seconds <= 30 for a, b in pairwise(faults))


@pytest.mark.federation
def test_a_federation_that_is_hurt_at_random_ends_with_numbers_that_one_process_computes(tmp_path):
    soak = Soak(tmp_path, Chaos(seconds=25, every=4, longest=6, seed=0, clients=3, pace=0.1, patience=15))
    soak.run()
    found = soak.check()
    assert sum(found["faults"].values()) == 3
    assert found["rounds"] >= 2
    assert found["replies"] >= found["rounds"]


def test_the_comparison_notices_another_number(tmp_path):
    """Negative control, of what the soak compares with."""
    from in_one_process import in_one_process
    from soak import CLIENT, SETTINGS, Replayed

    (tmp_path / "server.toml").write_text(SETTINGS.format(clients=2).replace('["soak:StopWhenAsked"]', "[]"))
    for i in range(2):
        (tmp_path / f"c{i}.toml").write_text(
            CLIENT.format(learner="online", dim=32).replace("saboteur:Slow-v0", "CartPole-v1")
        )
    homes = {f"c{i}.toml": None for i in range(2)}

    def played(counted, trained):
        return in_one_process(tmp_path, homes, lambda clients, f: Replayed(clients, f, counted, trained), 3)

    everyone = [{0, 1, 2}] * 2
    whole = played(everyone, everyone)
    assert whole == played(everyone, everyone)._replace(server=whole.server)
    late, away = played([{0, 1, 2}, {0, 2}], everyone), played([{0, 1, 2}, {0, 2}], [{0, 1, 2}, {0, 2}])
    assert len({whole.metrics, late.metrics, away.metrics}) == 3
    assert len({one.models[1] for one in (whole, late, away)}) == 3
