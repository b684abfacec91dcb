"""Placement of columns on workers: the decision, with numbers computed by hand, and its effect on fits."""

import contextlib
import ctypes
import functools
import gc
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import dtrees
from dtrees.cluster.data.memory import Sizes, WorkerCapacity, block_bytes, seconds_alone, seconds_by_columns, seconds_by_rows
from dtrees.cluster.data.placement import place, spread
from dtrees.cluster.errors import NotEnoughMemory
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.shard.targets.forest_target import OutOfBag
from dtrees.ensemble.backend import LoadOptions
from dtrees.ensemble.evaluation_sets import EvalSet, make_block
from dtrees.ensemble.in_process import LOCAL
from dtrees.ensemble.input.schema import Schema
from dtrees.split.policy import DISK_BYTES, FEWEST_ZONES, MAX_ZONES
from tests.cluster.samples import FRAME, REGRESSION, assert_clean, assert_same_model, events, training_set, wait_until
from tests.engine.shards import rules
from tests.slow import one_quick

pytestmark = pytest.mark.timeout(180)

MODELS: dict[str, Any] = {
    "boosting": lambda: dtrees.GradientBoostingRegressor(n_estimators=4, subsample=0.8, random_state=1),
    "forest": lambda: dtrees.RandomForestRegressor(5, oob_score=True, max_features=0.5, random_state=2),
    "tree": lambda: dtrees.DecisionTreeRegressor(max_depth=5, random_state=3),
}


@functools.cache
def fitted_here(name: str) -> Any:
    return MODELS[name]().fit(FRAME, REGRESSION)


def columns_of(frame: pd.DataFrame) -> list[int]:
    return list(Sizes.of(Schema.infer(frame), 1000, weighted=False, partition=0).columns)


def test_bytes_of_columns() -> None:
    """6 bytes a cell for code and zone, one more for categories, and each distinct value once."""
    single = pd.DataFrame({"a": np.zeros(1, np.float32), "b": np.zeros(1, bool), "c": np.zeros(1, np.int8), "d": ["elm"]})
    assert columns_of(single) == [6000 + 4 * 1000, 6000 + 4 * 2, 6000 + 4 * 256, 7000 + 4 * 1]
    # One column that float32 does not hold makes all values float64.
    double = single.assign(e=np.zeros(1), f=np.array([None], object))
    assert columns_of(double) == [6000 + 8 * 1000, 6000 + 8 * 2, 6000 + 8 * 256, 7000 + 8 * 1, 6000 + 8 * 1000, 6000]


def test_bytes_of_a_worker() -> None:
    sizes = Sizes(n_rows=1000, columns=(9000, 13000), vectors=8000, partition=700)
    assert sizes.table == 22000
    assert sizes.needed([1]) == 13000 + 64 * 1000 + 8000 + 700
    assert sizes.needed([0, 1], trees=3) == 22000 + 3 * 64 * 1000 + 8000 + 700
    assert sizes.needed([0, 1], threads=8) == sizes.needed([0, 1])  # two columns are sorted by two threads: 2 * 24 bytes a row
    assert Sizes(10, (90,) * 4, 80, 0).needed(range(4), threads=8) == 360 + 4 * 24 * 10 + 80


def test_bytes_of_categories_where_rows_stay() -> None:
    """Their numbers are written once more, 4 bytes each, in memory or on disk."""
    numbers = Sizes.of(Schema.infer(np.zeros((1, 2), np.float32)), 1000, weighted=False, partition=0)
    frame = pd.DataFrame({"a": np.zeros(1, np.float32), "b": pd.Series(["elm"], dtype="category")})
    mixed = Sizes.of(Schema.infer(frame), 1000, weighted=False, partition=0)
    assert mixed.needed_for_rows(600) - numbers.needed_for_rows(600) == 600 * 4
    assert mixed.needed_for_rows(600, on_disk=True) == numbers.needed_for_rows(600, on_disk=True)


def test_bytes_of_evaluation_sets() -> None:
    """The memory that blocks of both widths, and a scorer's predictions for them, really take."""
    rng = np.random.default_rng(0)
    for dtype, n_classes, weight in ((np.float32, 0, None), (np.float64, 0, np.ones(1000)), (np.float32, 3, None)):
        X = rng.random((1000, 6)).astype(dtype)
        y = rng.integers(0, n_classes, 1000) if n_classes else rng.random(1000)
        classes = np.arange(n_classes) if n_classes else None
        schema = Schema.infer(X)
        block = make_block(X, y, weight, of=EvalSet("later", None, None), schema=schema, classes=classes)
        n_outputs = n_classes if n_classes > 2 else 1
        held = block.X.nbytes + block.y.nbytes + (0 if weight is None else weight.nbytes) + n_outputs * 8000  # and the sums of trees
        planned = block_bytes(schema, 1000, weighted=weight is not None, n_classes=n_classes)
        measuring = 2 * n_outputs * 8000  # predictions, and a term of each row
        assert held + measuring <= planned <= held + measuring + 4000  # class numbers take 4 bytes instead of 8


def test_bytes_of_several_targets() -> None:
    schema = Schema.infer(np.zeros((1, 1), np.float32))
    assert Sizes.of(schema, 1000, weighted=True, partition=0, n_targets=1).vectors == 16_000
    assert Sizes.of(schema, 1000, weighted=True, partition=0, n_targets=4).vectors == 8_000 * (1 + 3 * 4)
    assert block_bytes(schema, 1000, weighted=False, n_classes=0, n_targets=4) == 4_000 + 8_000 * (4 + 3 * 4)
    for outputs in ({"n_outputs": 3}, {"n_classes": 3}):
        assert Sizes.of(schema, 1000, weighted=False, partition=0, boosting=True, **outputs).vectors == 8_000 * (1 + 2 * 2)
        assert Sizes.of(schema, 1000, weighted=False, partition=0, **outputs).vectors == 8_000
    assert block_bytes(schema, 1000, weighted=False, n_classes=0, n_outputs=3) == 4_000 + 8_000 * (1 + 3 * 3)
    forest, boosting = (Sizes.of(schema, 1000, weighted=True, partition=0, n_targets=4, boosting=boosting) for boosting in (False, True))
    assert forest.besides(trees=2) - boosting.besides(trees=2) == 2 * 4 * 8_000


@pytest.mark.parametrize(("weighted", "each"), [(False, 2), (True, 64)])
def test_bytes_of_draws_for_all_rows(weighted: bool, each: int) -> None:
    """By rows, each worker draws for all rows of the table, whatever its share."""
    schema = Schema.infer(np.zeros((1, 1), np.float32))
    isolation, forest = (Sizes.of(schema, 1000, weighted=weighted, partition=0, distinct_draws=distinct) for distinct in (True, False))
    assert {isolation.forest_by_rows(n) - forest.forest_by_rows(n) for n in (10, 900)} == {each * 1000}


def test_bytes_of_sums_by_zones_of_classes() -> None:
    """By rows: a number for each class, and that of rows; moments are three numbers."""
    schema = Schema.infer(np.zeros((1, 2), np.float32))

    def needed(n_classes: int) -> int:
        return Sizes.of(schema, 1000, weighted=False, partition=0, n_classes=n_classes).needed_for_rows(500)

    assert needed(0) == needed(2)
    assert Sizes.of(schema, 1000, weighted=False, partition=0, n_classes=8, boosting=True).n_sums == 3
    one = needed(3) - needed(2)
    assert one > 0
    assert needed(8) - needed(2) == pytest.approx(6 * one, rel=1e-3)


@pytest.mark.parametrize("n_classes", [0, 2, 5])
def test_bytes_of_out_of_bag_sums(n_classes: int) -> None:
    schema = Schema.infer(np.zeros((1, 1), np.float32))
    plan = ForestPlan(rules("gini" if n_classes else "squared_error", 1), seed=0, n_classes=n_classes, out_of_bag=True)
    sums = OutOfBag(1000, plan.n_values, 0)
    sizes = Sizes.of(schema, 1000, weighted=False, partition=0, n_classes=n_classes, out_of_bag=True)
    assert sizes.oob_sums == sums.sum.nbytes + sums.count.nbytes
    assert sizes.oob_sums_in_all(0) == 4 * sizes.oob_sums  # the shard's, and three more where the forest is collected
    assert sizes.oob_sums_in_all(2) == 9 * sizes.oob_sums
    assert Sizes.of(schema, 1000, weighted=False, partition=0).oob_sums_in_all(2) == 0


def test_room_of_a_worker() -> None:
    facts = {"nthreads": 2, "memory_limit": 1000, "metrics": {"memory": 300}}
    assert WorkerCapacity.of(facts) == WorkerCapacity(2, 800.0, 300)  # Dask pauses workers at 80%
    assert WorkerCapacity.of(facts).free == 500
    with dask.config.set({"distributed.worker.memory.pause": False}):
        assert WorkerCapacity.of(facts).limit == 950
        with dask.config.set({"distributed.worker.memory.terminate": False}):
            assert WorkerCapacity.of(facts).limit == 1000
    assert WorkerCapacity.of(facts | {"memory_limit": 0}).free == float("inf")
    assert WorkerCapacity(1, 100, 200).free == 0


#: 100,000 rows of four columns of a megabyte each. Besides, a worker needs 6.4 MB for rows, 0.8 MB for the target, 0.4 MB a partition.
SMALL = Sizes(100_000, (1_000_000,) * 4, 800_000, 400_000)
BESIDES = 6_400_000 + 800_000 + 400_000
WIDE = Sizes(100_000, (10_000_000,) * 4, 800_000, 400_000)
#: Columns sent for delegated nodes take 20 bytes for each of 400,000 cells.
LENDING = BESIDES + 8_000_000
LONG = Sizes(10_000_000, (1_000_000,) * 4, 0, 0)
LARGE = Sizes(10_000_000, (1_000_000,) * 400, 0, 0)


def worker_capacities(*free: float, threads: int = 1) -> dict[str, WorkerCapacity]:
    return {worker: WorkerCapacity(threads, limit) for worker, limit in zip("abcd", free, strict=False)}


@pytest.mark.parametrize(
    ("sizes", "free", "n_trees", "kind", "reason"),
    [
        (SMALL, [1e9], None, "one-worker", "one worker"),
        (SMALL, [1e9], 10, "one-worker", "one worker"),
        (SMALL, [1e9, 1e9], None, "one-worker", "100,000 rows and 4 columns, what each worker does"),
        (LONG, [1e9, 1e9], None, "one-worker", "messages"),
        (LARGE, [4e9, 4e9], None, "sharded", "10,000,000 rows and 400 columns, all workers together"),
        (SMALL, [BESIDES + 4e6, 0], None, "one-worker", "messages"),
        (SMALL, [BESIDES + 3e6, BESIDES + 3e6], None, "sharded", "fits no single worker"),
        (SMALL, [1e9, 1e9, 1e9], 10, "replicated", "every worker can hold"),
        (SMALL, [1e9, 1e9, 1e9], 1, "one-worker", "one tree"),
        (SMALL, [1e9, BESIDES + 1e6], 10, "one-worker", "half of all threads"),
        (WIDE, [1e9, LENDING + 1e7, LENDING + 1e7], 10, "sharded", "1 of 3 workers"),
        (WIDE, [LENDING + 1e7] * 4, 10, "sharded", "(38.15 MiB presorted) fits no single worker"),
        (WIDE, [LENDING + 1e7] * 4, 1, "sharded", "fits no single worker"),
        (SMALL, [float("inf"), float("inf")], 10, "replicated", "every worker can hold"),
    ],
)
def test_auto(sizes: Sizes, free: list[float], n_trees: int | None, kind: str, reason: str) -> None:
    plan = place(sizes, worker_capacities(*free), "auto", n_trees)
    assert plan.placement.kind == kind
    assert reason in plan.placement.reason
    assert sorted(j for columns in plan.columns.values() for j in columns) == list(range(len(sizes.columns)))
    assert list(plan.needs) == list(plan.placement.workers)
    if kind == "sharded":
        delegated = 0 if n_trees is None else 20 * 400_000
        assert plan.needs == {worker: sizes.needed(columns) + delegated for worker, columns in plan.columns.items()}
    else:
        assert plan.needs == dict.fromkeys(plan.needs, sizes.needed(range(len(sizes.columns))))


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "threads", "rows", "kind"),
    [
        (10**9, 1000, [1], True, "one-worker"),
        (10**4, 10, [1, 4, 2], True, "one-worker"),
        (10**6, 1000, [4, 4, 4], False, "sharded"),
        # Spreading few columns does not pay, however many rows there are: each worker would divide all rows. Rows are spread instead.
        (10**4, 4, [1, 1], True, "one-worker"),
        (10**8, 4, [1, 1], False, "one-worker"),
        (10**8, 4, [1, 1], True, "rows"),
        (10**8, 100, [1, 1], False, "sharded"),
        (10**8, 30, [4] * 4, True, "rows"),
        (10**6, 5000, [1, 1], True, "sharded"),
        # Messages between each pair of workers take a few milliseconds: less than one more worker saves, except for small tables on many
        # workers.
        (10**6, 28, [1, 1], True, "sharded"),
        (10**6, 28, [1] * 4, True, "rows"),
        (10**6, 28, [1] * 16, True, "rows"),
        (10**6, 28, [1] * 40, True, "one-worker"),
        (10**5, 28, [1] * 40, True, "one-worker"),
        (10**7, 28, [4] * 40, True, "rows"),
        (10**9, 100, [4] * 400, True, "rows"),
        (10**6, 1000, [1] * 4, True, "sharded"),
    ],
)
def test_auto_takes_what_is_predicted_to_be_fastest(n_rows: int, n_columns: int, threads: list[int], rows: bool, kind: str) -> None:
    sizes = Sizes(n_rows, (6 * n_rows,) * n_columns, 8 * n_rows, 0, keyed=True)
    there = {f"worker {i}": WorkerCapacity(n) for i, n in enumerate(threads)}
    plan = place(sizes, there, rows=dict.fromkeys(there, n_rows // len(there)) if rows else None)
    assert plan.placement.kind == kind
    predicted = plan.placement.predicted
    if len(there) > 1:
        assert min(predicted, key=lambda kind: predicted[kind]) == kind
        assert set(predicted) == {"one-worker", "sharded", *(["rows"] if rows else [])}
        assert f"predicted seconds a tree: one-worker {predicted['one-worker']:.3g}, " in plan.placement.reason


def test_rows_are_chosen_only_where_they_fit() -> None:
    sizes = Sizes(10**8, (6 * 10**8,) * 10, 8 * 10**8, 10**8, keyed=True)
    rows = {"a": 5 * 10**7, "b": 5 * 10**7}
    # Own data: 60 bytes in cells, 8 for the target, 80 for growing trees (or 3 times all targets, for the first); a partition; sums by
    # zones; and five times the batch of flagged rows.
    needed = 5 * 10**7 * (60 + 8 + 80) + 10**8 + 5_000 * (MAX_ZONES - 1) * 10 + 5 * (5 * 10**7 * 60 // 64)
    assert place(sizes, worker_capacities(needed, needed), rows=rows).needs == {"a": needed, "b": needed}
    assert place(sizes, worker_capacities(needed, needed), "rows", rows=rows).placement.predicted == {}
    more = {"a": 4 * 10**7, "b": 6 * 10**7}
    with pytest.raises(NotEnoughMemory, match=r"with placement 'rows': worker b would need 8.64 GiB, and has 7.22 GiB free"):
        place(sizes, worker_capacities(needed, needed), "rows", rows=more)
    assert place(sizes, worker_capacities(1e12, needed), rows=more).placement.kind != "rows"
    few = Sizes(1000, (6000,) * 2, 800_000, 0, keyed=True)
    assert (
        place(few, worker_capacities(1e12, 1e12), "rows", rows={"a": 10, "b": 990}).needs["a"]
        == 120 + 8000 + 3 * 800_000 + 5_000 * FEWEST_ZONES * 2 + 5 * 10 * 2 * 32
    )


def test_cells_are_on_disk_where_memory_holds_them_nowhere() -> None:
    n, k = 10**7, 100
    sizes, rows = Sizes(n, (6 * n,) * k, 8 * n, 10**8, keyed=True), {"a": n // 2, "b": n // 2}
    # Own data: a range of rows, the target, 80 bytes for growing trees; two partitions; sums by zones; flagged rows.
    needed = DISK_BYTES + n // 2 * (8 + 80) + 2 * 10**8 + 5_000 * (MAX_ZONES - 1) * k + 5 * (n // 2 * k * 6 // 64)
    small = worker_capacities(needed, needed)
    plan = place(sizes, small, rows=rows, storage="auto")
    assert (plan.placement.kind, plan.placement.storage, plan.needs) == ("rows", "disk", {"a": needed, "b": needed})
    assert str(plan.placement) == "rows on 2 workers, with cells on disk: in memory, cells would fit nowhere"
    assert place(sizes, small, "rows", rows=rows, storage="auto").placement.storage == "disk"
    large = worker_capacities(10 * needed, 10 * needed)
    assert place(sizes, large, "rows", rows=rows, storage="auto").placement.storage == "memory"
    assert place(sizes, large, "rows", rows=rows, storage="disk").needs == plan.needs
    assert place(sizes, large, rows=rows, storage="auto").placement.storage == "memory"
    alone = place(sizes, {"a": WorkerCapacity(1, 2 * needed)}, rows={"a": n}, storage="auto").placement
    assert (alone.kind, alone.storage) == ("rows", "disk")
    with pytest.raises(NotEnoughMemory, match=r"placement 'rows': .* Add workers, have cells on the workers' disks \(dtrees.storage in"):
        place(sizes, small, "rows", rows=rows, storage="memory")
    for placement in ("auto", "rows"):
        with pytest.raises(NotEnoughMemory, match="placement 'rows' and cells on disk: worker b would need"):
            place(sizes, worker_capacities(needed, needed - 1), placement, rows=rows, storage="auto")
    # In memory if rows may not stay on their workers, or another placement is requested.
    for placement, some in (("auto", None), ("sharded", rows)):
        with pytest.raises(NotEnoughMemory, match="placement 'sharded': worker"):
            place(sizes, small, placement, rows=some, storage="auto")
    # Columns that have to be sorted are concatenated in memory, one in each thread.
    wide = Sizes(n, (14 * n,) * k, 8 * n, 10**8)
    assert wide.needed_for_rows(n, 4, on_disk=True) - sizes.needed_for_rows(n, 4, on_disk=True) == n * (4 * 32 - 64)


def test_a_tree_for_each_thread_takes_room() -> None:
    """Each thread that grows a tree of a forest has its own state of the rows: 6.4 MB here."""
    assert place(SMALL, worker_capacities(BESIDES + 4e6 + 6.4e6, 1e9, threads=2), "replicated", 10).needs == dict.fromkeys(
        "ab", BESIDES + 10_400_000
    )
    assert place(SMALL, worker_capacities(BESIDES + 4e6, 1e9, threads=2), "replicated", 1).needs == dict.fromkeys("ab", BESIDES + 4_000_000)
    with pytest.raises(NotEnoughMemory):
        place(SMALL, worker_capacities(BESIDES + 4e6, 1e9, threads=2), "replicated", 10)


def test_columns_go_where_there_is_room() -> None:
    assert place(SMALL, worker_capacities(BESIDES + 1e6, 1e9), "sharded").columns == {"a": [0], "b": [1, 2, 3]}
    assert place(SMALL, worker_capacities(0, 1e9), "sharded").columns == {"b": [0, 1, 2, 3]}
    assert spread([4, 4, 4], {"a": 1, "b": 1}, {"a": 3, "b": 3}).keys() == {"a", "b"}  # refused later


def test_the_one_worker_has_most_threads_of_those_with_room() -> None:
    there = {"a": WorkerCapacity(1, 1e9), "b": WorkerCapacity(4, 1e9), "c": WorkerCapacity(8, 1e6)}
    assert place(SMALL, there, "one-worker").placement.workers == ("b",)


def test_a_forest_that_fits_no_worker_goes_by_rows_where_that_is_faster_or_columns_do_not_fit() -> None:
    n = 10**7
    rows = {"a": n // 2, "b": n // 2}
    many, few = (Sizes(n, (6 * n,) * n_columns, 8 * n, 0, keyed=True) for n_columns in (100, 10))
    by_rows = place(many, worker_capacities(1e12, 1e12), "rows", 5, rows=rows).needs
    # Memory of boosting, and for a forest 88 more bytes a row, and some cells of small nodes.
    boosting = place(many, worker_capacities(1e12, 1e12), "rows", rows=rows).needs
    assert {worker: by_rows[worker] - boosting[worker] for worker in rows} == dict.fromkeys(rows, 88 * n // 2 + 20 * 2**20)
    room = max(by_rows.values())
    plan = place(many, worker_capacities(room, room), n_trees=5, rows=rows)
    assert plan.placement.kind == "rows"
    assert plan.needs == by_rows
    assert place(many, worker_capacities(room, room), n_trees=5).placement.kind == "sharded"  # rows are refused
    assert place(many, worker_capacities(1e12, 1e12), n_trees=5, rows=rows).placement.kind == "replicated"
    # With few columns for each of two workers, small nodes are grown by one worker each: columns are faster.
    room = max(place(few, worker_capacities(1e12, 1e12), "rows", 5, rows=rows).needs.values())
    plan = place(few, worker_capacities(room, room), n_trees=5, rows=rows)
    assert plan.placement.kind == "sharded"
    # Few rows, many columns: there is no memory for the sums of all columns.
    wide = Sizes(10_000, (60_000,) * 3_000, 80_000, 0, keyed=True)
    plan = place(wide, worker_capacities(1.3e8, 1.3e8), n_trees=5, rows={"a": 5_000, "b": 5_000})
    assert plan.placement.kind == "sharded"
    # Out-of-bag sums of all rows on each worker, by columns.
    scored = Sizes(n, (6 * n,) * 10, 8 * n, 0, oob_sums=10 * n * 8, keyed=True)
    needed = max(place(scored, worker_capacities(1e12, 1e12), "rows", 5, rows=rows).needs.values())
    plan = place(scored, worker_capacities(needed, needed), n_trees=5, rows=rows)
    assert plan.placement.kind == "rows"


@pytest.mark.parametrize(
    ("free", "placement", "message"),
    [
        ([1e6, 2e6], "auto", "placement 'sharded': worker a would need 9.16 MiB, and has 0.95 MiB free (0.95 MiB usable, 0 B in use)"),
        ([BESIDES + 3e6] * 2, "one-worker", "'one-worker': worker b would need 11.06 MiB, and has 10.11 MiB free"),
        ([1e9, BESIDES + 3e6], "replicated", "'replicated': worker b would need 11.06 MiB"),
        ([1e6, 2e6], "sharded", "(and 1 more workers are short of memory). Presorted, the columns take 3.81 MiB in all"),
    ],
)
def test_the_impossible_is_refused(free: list[float], placement: str, message: str) -> None:
    n_trees = 10 if placement == "replicated" else None
    with pytest.raises(NotEnoughMemory, match=r"X with 100,000 rows and 4 columns does not fit .* Add workers") as caught:
        place(SMALL, worker_capacities(*free), placement, n_trees)
    assert message in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    assert ("placement='sharded'" in str(caught.value)) == (placement in ("one-worker", "replicated"))


def test_evaluation_sets_are_planned_for() -> None:
    """Those of sharded boosting are placed where there is memory; those of boosting on one worker, on that worker."""
    sizes = Sizes(100_000, (1_000_000,) * 4, 800_000, 400_000, evaluation=(3_000_000, 2_000_000))
    plan = place(sizes, worker_capacities(BESIDES + 2e6, BESIDES + 7e6), "sharded")
    assert plan.needs == {"a": BESIDES + 2_000_000, "b": BESIDES + 7_000_000}
    assert plan.spare == {"a": 0, "b": 5_000_000}
    plan = place(sizes, worker_capacities(1e9, BESIDES + 4e6), "one-worker")
    assert plan.needs == {"a": BESIDES + 9_000_000}
    # Workers without columns may have rows of evaluation sets.
    plan = place(sizes, worker_capacities(BESIDES + 4e6, BESIDES, 5e6), "sharded")
    assert plan.needs == {"a": BESIDES + 4_000_000, "b": 3_000_000, "c": 2_000_000}
    assert plan.placement.workers == ("a",)
    assert place(sizes, worker_capacities(BESIDES + 8e6, BESIDES + 8e6), "auto").placement.kind == "sharded"
    for placement, free in (("sharded", [BESIDES + 2e6, BESIDES + 6e6]), ("one-worker", [BESIDES + 8e6, 1e6])):
        with pytest.raises(NotEnoughMemory, match=r"take 3.81 MiB in all, evaluation sets and their predictions 4.77 MiB\. Add"):
            place(sizes, worker_capacities(*free), placement)


@pytest.mark.parametrize(
    ("placement", "copies", "said"),
    [("sharded", 4, "several times"), ("one-worker", 9, "for each batch of trees"), ("replicated", 9, "for each batch of trees")],
)
def test_out_of_bag_sums_are_planned_for(placement: str, copies: int, said: str) -> None:
    plain = Sizes(100_000, (1_000_000,) * 4, 800_000, 400_000)
    sizes = Sizes(100_000, (1_000_000,) * 4, 800_000, 400_000, oob_sums=1_600_000)
    needs = {name: place(one, worker_capacities(1e9, 1e9), placement, 10).needs for name, one in (("plain", plain), ("summed", sizes))}
    assert {w: needs["summed"][w] - needs["plain"][w] for w in needs["plain"]} == dict.fromkeys(needs["plain"], copies * 1_600_000)
    short = max(needs["summed"].values()) - 1
    with pytest.raises(NotEnoughMemory, match=r"and the sums for oob_score=True 1.53 MiB on each worker, several times") as caught:
        place(sizes, worker_capacities(short, short), placement, 10)
    assert said in str(caught.value)
    # A single tree is one batch, whatever the number of batches otherwise.
    assert place(sizes, worker_capacities(1e9), "one-worker", 1).needs["a"] == BESIDES + 4_000_000 + 8 * 1_600_000


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
def test_a_forest_that_fits_no_worker_goes_by_columns_where_workers_and_columns_are_few(n_columns: int, n_workers: int, kind: str) -> None:
    n_rows = 10**7
    sizes = Sizes(n_rows, (9 * n_rows,) * n_columns, 8 * n_rows, 0, keyed=True)
    there = {f"worker {i}": WorkerCapacity(1, 0.9 * sizes.table) for i in range(n_workers)}
    plan = place(sizes, there, n_trees=100, rows=dict.fromkeys(there, n_rows // n_workers))
    assert plan.placement.kind == kind
    assert plan.placement.reason.endswith("presorted) fits no single worker")


def test_columns_are_spread_by_size_and_threads() -> None:
    placed = spread([1.0] * 12, {"a": 1, "b": 2, "c": 1})
    assert {worker: len(items) for worker, items in placed.items()} == {"a": 3, "b": 6, "c": 3}
    assert sorted(item for items in placed.values() for item in items) == list(range(12))
    assert spread([3.0, 1.0, 1.0, 1.0], {"a": 1, "b": 1}) == {"a": [0], "b": [1, 2, 3]}


# --- fits ---


@pytest.mark.parametrize(
    ("name", "placement"),
    [
        ("boosting", "sharded"),
        ("forest", "replicated"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("boosting", "auto"), ("forest", "auto"))),
    ],
)
def test_models_do_not_depend_on_placement(client: Client, tmp_path: Path, name: str, placement: str) -> None:
    fitted = dtrees.submit(MODELS[name](), *training_set(n_partitions=7), placement=placement).result(timeout=150)
    here = fitted_here(name)
    assert_same_model(fitted, here)
    chosen = {"auto": "one-worker" if name == "boosting" else "replicated"}.get(placement, placement)
    assert fitted.placement_.kind == chosen
    assert ("as asked for" in fitted.placement_.reason) == (placement != "auto")
    assert len(fitted.placement_.workers) == (1 if chosen == "one-worker" else 3)
    (event,) = events(client, "placed")
    assert (event["placement"], event["reason"]) == (chosen, fitted.placement_.reason)
    assert set(event["workers"]) == set(event["bytes"]) == set(fitted.placement_.workers) <= set(client.nthreads())
    assert here.placement_.kind == "local"
    for model, file in ((fitted, "there"), (here, "here")):
        dtrees.save(model, tmp_path / file)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    assert not hasattr(dtrees.load(tmp_path / "there"), "placement_")
    assert_clean(client)


@pytest.mark.parametrize(
    ("name", "placement", "columns"),
    [
        ("forest", "sharded", ["wide"]),
        pytest.param("boosting", "sharded", ["wide", "word"], marks=pytest.mark.slow),
        pytest.param("boosting", "one-worker", ["wide"], marks=pytest.mark.slow),
    ],
)
def test_fewer_columns_than_workers(client: Client, name: str, placement: str, columns: list[str]) -> None:
    X, y = training_set(n_partitions=7)
    fitted = dtrees.submit(MODELS[name](), X[columns], y, placement=placement).result(timeout=150)
    assert_same_model(fitted, MODELS[name]().fit(FRAME[columns], REGRESSION))
    assert len(fitted.placement_.workers) == (len(columns) if placement == "sharded" else 1)


def test_what_is_planned_is_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """The fit is coordinated in this process."""
    from dtrees.cluster.data.loading import load

    X, y = training_set()
    with caplog.at_level(logging.INFO, logger="dtrees.cluster"):
        loaded = load(client, X, y, None, LoadOptions(False, "the test", n_trees=3))
    lines = [record.getMessage() for record in caplog.records]
    assert "placement replicated: trees do not depend on each other, and every worker can hold the whole table" in lines
    assert sum(bool(re.fullmatch(r"tcp://\S+ will hold 6 of 6 columns: \S+ kiB of .* in use\)", line)) for line in lines) == 3
    for future in [*loaded.columns.blocks, loaded.columns.target]:
        future.release()
    assert_clean(client)


@pytest.mark.parametrize("placement", one_quick(["sharded", "replicated", "one-worker"]))
def test_nothing_is_left_but_blocks_where_they_were_planned(client: Client, placement: str) -> None:
    from dtrees.cluster.data.loading import load

    X, y = training_set(n_partitions=7)
    with dask.config.set({"dtrees.placement": placement}):
        loaded = load(client, X, y, None, LoadOptions(False, "the test", n_trees=3))
    columns = loaded.columns
    made = {future.key for future in [*columns.blocks, columns.target]}
    wait_until(lambda: {key for keys in client.has_what().values() for key in keys} == made)
    assert sorted(j for ids in columns.ids for j in ids) == list(range(FRAME.shape[1]))
    assert len(columns.blocks) == (3 if placement == "sharded" else 1)
    wanted = LOCAL.load(FRAME, REGRESSION, None, LoadOptions(False, "the test")).columns
    holders = client.who_has(columns.blocks)
    for block, ids, worker in zip(columns.blocks, columns.ids, columns.workers, strict=True):
        assert list(holders[block.key]) == [worker]
        found = block.result(timeout=60)
        for i, j in enumerate(ids):
            np.testing.assert_array_equal(found.codes[i], wanted.codes[j])
            np.testing.assert_array_equal(found.distinct(i), wanted.distinct(j))
    # A block that moves is soon in one place again.
    elsewhere = next(worker for worker in client.nthreads() if worker != columns.workers[0])
    moved = columns.bring(0, elsewhere)
    assert columns.workers[0] == elsewhere
    wait_until(lambda: list(client.who_has([moved])[moved.key]) == [elsewhere])
    wait_until(lambda: len({key for keys in client.has_what().values() for key in keys}) == len(made))
    for future in [*columns.blocks, columns.target]:
        future.release()
    assert_clean(client)


def test_placements_that_cannot_be(client: Client) -> None:
    for placement in ("nowhere", 3):
        with pytest.raises(ValueError, match=f"placement is {placement!r}; wants one of auto, one-worker, replicated, sharded"):
            dtrees.submit(MODELS["forest"](), *training_set(), placement=placement)
    with pytest.raises(ValueError, match="'replicated', but in boosting each tree .*; wants one of auto, one-worker, sharded, rows$"):
        dtrees.submit(MODELS["boosting"](), *training_set(), placement="replicated")
    with dask.config.set({"dtrees.placement": "replicated"}), pytest.raises(ValueError, match="but in boosting each tree"):
        MODELS["boosting"]().fit(*training_set())
    with pytest.raises(ValueError, match="placement is 'sharded', but X is a DataFrame in memory"):
        dtrees.submit(MODELS["forest"](), FRAME, REGRESSION, placement="sharded")
    assert_clean(client)


def _limit(free: float | None, dask_scheduler: Any) -> None:
    """Make the scheduler report this number of free bytes for each worker, beyond its current memory; None ends that.

    The limit always leaves space for the code, 300 MB.
    """
    true_limits = dask_scheduler.extensions.setdefault("dtrees-true-limits", {})
    for address, worker in dask_scheduler.workers.items():
        true_limits.setdefault(address, worker.memory_limit)
        worker.memory_limit = true_limits[address] if free is None else int(max(worker.metrics["memory"] + free, 301e6) / 0.8)


@pytest.fixture
def limited(client: Client) -> Iterator[Any]:
    """Return a function that limits the free bytes of all workers, beyond their current memory."""

    def limit(free: float) -> None:
        client.run(_give_back)
        reported = client.run_on_scheduler(_last_reported)
        wait_until(lambda: all(when > reported[worker] for worker, when in client.run_on_scheduler(_last_reported).items()))
        client.run_on_scheduler(_limit, free)

    yield limit
    client.run_on_scheduler(_limit, None)


def _give_back() -> None:
    """Make a worker return unused memory to the system, so that it does not do so after its limit is set."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _last_reported(dask_scheduler: Any) -> dict[str, float]:
    """Return when each worker last reported its memory to the scheduler."""
    return {address: worker.metrics["time"] for address, worker in dask_scheduler.workers.items()}


@pytest.mark.slow
def test_a_table_that_no_memory_holds(client: Client, limited: Any) -> None:
    """By rows, a worker needs 200,000 * (60 * 6 + 88) + 77 + 22 MB = 188 MB and a partition in memory, but 149 MB with disks.

    By columns, 600,000 * (20 * 10 + 72) bytes = 163 MB.
    """
    n = 600_000
    X = da.random.default_rng(0).integers(0, 2**20, (n, 60), chunks=(20_000, 60)).astype(np.float32)
    y = X[:, 0] + X[:, 1] // 1000
    model = MODELS["boosting"]().set_params(n_estimators=2, max_depth=3)
    limited(160e6)
    fitted = dtrees.submit(model, X, y).result(timeout=150)
    assert (fitted.placement_.kind, fitted.placement_.storage) == ("rows", "disk")
    assert_same_model(fitted, model.fit(*dask.compute(X, y)))
    with dask.config.set({"dtrees.storage": "memory"}), pytest.raises(NotEnoughMemory, match="does not fit the memory"):
        model.fit(X, y)
    assert_clean(client)


@pytest.mark.parametrize("name", ["boosting", "forest"])
@pytest.mark.slow
def test_a_table_for_the_cluster_but_no_single_worker(client: Client, limited: Any, name: str) -> None:
    """A worker needs 300,000 * (24 * 10 + 64 + 8) bytes = 94 MB and a partition for all, 300,000 * (8 * 10 + 64 + 8) = 46 MB for a third.

    The forest, besides, 4.8 MB for sums out of bag, nine times for all, four times for a third, which needs 21 MB more for delegated nodes.
    """
    n = 300_000
    X = da.random.default_rng(0).integers(0, 2**20, (n, 24), chunks=(50_000, 24)).astype(np.float32)
    y = X[:, 0] + X[:, 1] // 1000
    model = MODELS[name]().set_params(n_estimators=2, max_depth=3)
    limited({"boosting": 80e6, "forest": 108e6}[name])
    fitted = dtrees.submit(model, X, y).result(timeout=150)
    assert fitted.placement_.kind == {"boosting": "rows", "forest": "sharded"}[name]
    assert "(68.66 MiB presorted) fits no single worker" in fitted.placement_.reason
    assert_same_model(fitted, model.fit(*dask.compute(X, y)))
    limited(-100e6)  # memory of the first fit may be freed meanwhile
    refusal = r"300,000 rows and 24 columns does not fit .* 'sharded': worker tcp://\S+ would need \d+\.\d+ MiB"
    with dask.config.set({"dtrees.storage": "memory"}), pytest.raises(NotEnoughMemory, match=refusal):
        model.fit(X, y)
    assert_clean(client)


def test_whole_fits_took_about_what_is_predicted() -> None:
    """Seconds of 100 trees, 1M x 28, squared error, on a quiet machine, loading included."""
    two = {"a": 1, "b": 1}
    assert 100 * seconds_by_rows(dict.fromkeys(two, 500_000), 28, two) == pytest.approx(14.8, rel=0.25)
    assert 100 * seconds_by_columns(10**6, 28, two) == pytest.approx(11.9, rel=0.25)
    assert 100 * seconds_alone(10**6, 28, threads=2) == pytest.approx(8.5, rel=0.25)
