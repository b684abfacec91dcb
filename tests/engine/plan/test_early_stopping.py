from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dtrees.engine.plan.plans import Stopping

scores = st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, math.nan]), min_size=1, max_size=12)


@given(scores, st.integers(1, 4), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
def test_the_best_round_and_the_end(values: list[float], rounds: int, tol: float, greater_is_better: bool) -> None:
    """By a running best, as one would write it down; what is no number never is better than what is."""
    rule = Stopping(rounds, tol=tol, greater_is_better=greater_is_better)
    best, value = 0, values[0]
    for i, score in enumerate(values):
        better = score > value + tol if greater_is_better else score < value - tol
        if better or (math.isnan(value) and not math.isnan(score)):
            best, value = i, score
    assert rule.best(values) == best
    assert rule.ends(values) == (len(values) > best + rounds)


def test_a_score_that_is_infinite_at_first() -> None:
    assert Stopping(1).best([math.inf, 3.0, 4.0]) == 1
    assert Stopping(1).best([math.inf, math.inf]) == 0
    assert Stopping(1, greater_is_better=True).best([-math.inf, 3.0]) == 1
