"""Faults at random, the short form of the benchmark: workers are killed, stopped, restarted and retired while models are fitted."""

from __future__ import annotations

import pytest

from benchmarks.works.chaos import KINDS, Chaos, Outcome, cluster_to_break, script, works


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_models_are_the_same_whatever_happens_to_workers() -> None:
    quick = {kind: weight for kind, weight in KINDS.items() if kind != "stop for long"}  # that takes the patience to notice
    faults = script(seed=5, seconds_between=0.5, kinds=quick)
    outcome = Outcome()
    with cluster_to_break(3) as (cluster, client):
        broken = Chaos(cluster, client, 3, n_rows=300)
        for work in works(size=1)[:2]:
            broken.fit(work, faults, outcome, most=2)
            assert outcome.different == 0, work.name
        assert broken.left_over() == []
    assert outcome.n_fits == 2
    assert outcome.faults.total() > 0


def test_scripts_are_the_same_for_the_same_seed() -> None:
    one, again, other = (script(seed, 1.0) for seed in (0, 0, 1))
    faults = [next(one) for _ in range(100)]
    assert faults == [next(again) for _ in range(100)]
    assert faults != [next(other) for _ in range(100)]
    assert {fault.kind for fault in faults} == set(KINDS)
