"""Distribution of a forest's trees to workers."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.cluster.data.memory import Sizes, WorkerCapacity
from dtrees.cluster.data.placement import needed_for_all
from dtrees.cluster.growing.fits import Batches, ForestWorkers
from dtrees.ensemble.backend import Placement

SIZES = Sizes(1000, (10_000,) * 3, 8_000, 12_000)
WORKERS = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 4), min_size=1)


@given(st.integers(0, 5), st.integers(0, 200), st.sampled_from([None, 1, 2]), st.lists(WORKERS, min_size=1), st.randoms())
def test_each_tree_is_given_once_and_nobody_is_idle(
    first: int, n_trees: int, per_thread: int | None, clusters: list[Any], random: Any
) -> None:
    batches = Batches(first, first + n_trees, per_thread)
    under_way: dict[int, str] = {}
    n_given, following, step = 0, first, 0
    while True:
        threads = clusters[min(step, len(clusters) - 1)]
        for batch in batches.give(threads):
            assert (batch.first, batch.worker in threads) == (following, True)
            assert 1 <= batch.n_threads <= threads[batch.worker]
            following = batch.last
            under_way[n_given] = batch.worker
            n_given += 1
        held = {worker: list(under_way.values()).count(worker) for worker in threads}
        if following < first + n_trees:
            assert all(held[worker] >= 2 * n for worker, n in threads.items())
        if per_thread and step == 0:
            assert following == first + n_trees
            assert all(held[worker] <= per_thread * n for worker, n in threads.items())
        if not under_way:
            break
        i = random.choice(list(under_way))
        del under_way[i]
        batches.done(i)
        step += 1
    assert following == first + n_trees


def test_threads_end_together() -> None:
    """With threads of equal speed and 100 trees, the last one ends at most one tree's time after the first."""
    batches, clock, ends, n = Batches(0, 100), dict.fromkeys("abcd", 0), [], 0
    queues: dict[str, list[tuple[int, int]]] = {worker: [] for worker in clock}
    while True:
        for batch in batches.give(dict.fromkeys(clock, 1)):
            queues[batch.worker].append((n, batch.last - batch.first))
            n += 1
        waiting = [worker for worker in clock if queues[worker]]
        if not waiting:
            break
        worker = min(waiting, key=lambda worker: clock[worker] + queues[worker][0][1])
        i, size = queues[worker].pop(0)
        clock[worker] += size
        batches.done(i)
        ends.append(clock[worker])
    assert sum(clock.values()) == 100
    assert max(clock.values()) - min(clock.values()) <= 1
    assert ends == sorted(ends)


def test_a_tree_has_the_threads_of_its_worker_where_there_are_few() -> None:
    assert [batch.n_threads for batch in Batches(0, 3).give({"a": 4, "b": 4})] == [2, 4, 2]
    assert {batch.n_threads for batch in Batches(0, 8).give({"a": 4, "b": 4})} == {1}


def forest_workers(kind: str, *workers: str) -> ForestWorkers:
    return ForestWorkers(SimpleNamespace(placement=Placement(kind, "", workers), sizes=SIZES), 10)  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_joined_worker_needs_memory_for_the_table(threads: int) -> None:
    needed = needed_for_all(SIZES, threads, 10)
    runner = forest_workers("replicated", "a")
    assert runner.threads({"a": WorkerCapacity(2, 10), "b": WorkerCapacity(threads, needed - 1)}) == {"a": 2}
    assert runner.threads({"a": WorkerCapacity(2, 10), "b": WorkerCapacity(threads, needed)}) == {"a": 2, "b": threads}
    assert runner.threads({"a": WorkerCapacity(2, 10), "b": WorkerCapacity(threads, needed, 0.5 * needed)}) == {
        "a": 2,
        "b": threads,
    }  # it has the table now


def test_a_table_on_one_worker_stays_there_until_that_is_lost() -> None:
    runner = forest_workers("one-worker", "a")
    assert runner.threads({"a": WorkerCapacity(2), "b": WorkerCapacity(4)}) == {"a": 2}
    assert runner.threads({"b": WorkerCapacity(4)}) == {"b": 4}
    assert runner.threads({}) == {"b": 4}
