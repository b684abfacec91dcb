"""Costs of forests: near what was measured, in relation to one another too, and never less for more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.cluster.data.forest_costs import forest_by_columns, forest_by_rows
from dtrees.cluster.data.memory import Sizes, WorkerCapacity
from dtrees.cluster.data.placement import place

#: Rows, columns, workers of a thread; seconds of a tree by rows and by columns: of the busiest shard, and of the coordinator.
MEASURED = [
    (100_000, 28, 2, 0.132 + 0.045, 0.091 + 0.040),
    (100_000, 28, 4, 0.083 + 0.050, 0.066 + 0.055),
    (200_000, 28, 2, 0.249 + 0.074, 0.195 + 0.071),
    (200_000, 8, 2, 0.141 + 0.087, 0.093 + 0.070),
    (40_000, 100, 2, 0.095 + 0.021, 0.408 + 0.056),
    (40_000, 100, 4, 0.057 + 0.029, 0.065 + 0.021),
]


def threads_of(n_workers: int, each: int = 1) -> dict[str, int]:
    return {f"worker {i}": each for i in range(n_workers)}


def both(n_rows: int, n_columns: int, n_workers: int, each: int = 1) -> tuple[float, float]:
    """Return the seconds by rows, shared evenly, and by columns."""
    threads = threads_of(n_workers, each)
    rows = dict.fromkeys(threads, n_rows // n_workers)
    return forest_by_rows(rows, n_columns, threads), forest_by_columns(n_rows, n_columns, threads)


@pytest.mark.parametrize(("n_rows", "n_columns", "n_workers", "by_rows", "by_columns"), MEASURED)
def test_costs_are_near_what_was_measured(n_rows: int, n_columns: int, n_workers: int, by_rows: float, by_columns: float) -> None:
    """Exchanges come on top of it."""
    rows, columns = both(n_rows, n_columns, n_workers)
    assert 0.75 < rows / by_rows < 1.35
    assert 0.75 < columns / by_columns < 1.9
    assert 0.55 < (rows / columns) / (by_rows / by_columns) < 1.5


@given(n_rows=st.integers(1_000, 10**9), n_columns=st.integers(1, 2_000), n_workers=st.integers(2, 40), each=st.integers(1, 8))
def test_more_rows_and_columns_take_no_less_and_more_threads_no_more(n_rows: int, n_columns: int, n_workers: int, each: int) -> None:
    now, threaded = both(n_rows, n_columns, n_workers, each), both(n_rows, n_columns, n_workers, each + 1)
    for more in (both(2 * n_rows, n_columns, n_workers, each), both(n_rows, n_columns + 1, n_workers, each)):
        assert all(one >= other for one, other in zip(more, now, strict=True))
    assert all(one <= other for one, other in zip(threaded, now, strict=True))


def test_the_worker_with_the_most_rows_decides() -> None:
    threads = threads_of(2)
    even, uneven = ({"worker 0": n, "worker 1": 10**6 - n} for n in (500_000, 900_000))
    assert forest_by_rows(uneven, 20, threads) > 1.3 * forest_by_rows(even, 20, threads)


@pytest.mark.parametrize(
    ("n_columns", "n_workers", "kind"),
    [
        (28, 2, "sharded"),
        (64, 2, "sharded"),
        (28, 8, "rows"),  # by columns, each worker would divide all rows
        (200, 2, "rows"),  # too many columns for small nodes to be grown by one worker each
        (2_000, 4, "rows"),
    ],
)
def test_a_forest_that_fits_no_worker_goes_where_it_is_predicted_to_be_faster(n_columns: int, n_workers: int, kind: str) -> None:
    n_rows = 10**7
    sizes = Sizes(n_rows, (9 * n_rows,) * n_columns, 8 * n_rows, 0, keyed=True)
    room = WorkerCapacity(1, 0.9 * sizes.table)
    plan = place(
        sizes, dict.fromkeys(threads_of(n_workers), room), n_trees=100, rows=dict.fromkeys(threads_of(n_workers), n_rows // n_workers)
    )
    rows, columns = both(n_rows, n_columns, n_workers)
    assert plan.placement.predicted == {"sharded": columns, "rows": rows}
    assert plan.placement.kind == kind
