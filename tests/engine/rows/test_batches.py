"""Rows in flagged parts sent in batches: which parts are of each, that splits are the same, and what memory is held at a time."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.engine.rows import flagged_rows, rows_in_tree
from dtrees.engine.rows.exchange import Step
from dtrees.engine.rows.local import LocalRowsExecutor
from dtrees.engine.rows.searcher import Searcher, in_batches
from dtrees.split.policy import flagged_bytes
from dtrees.split.zones.over_shards.records import ALL_PARTS
from tests.engine.problems import Case, Problem, assert_same, boosting, forest, send_rows, spread

_FLAGGED = np.dtype([("part", np.int64), ("n", np.int64)])


def cut_slowly(requests: Any, flagged: Any, most: int) -> list[list[tuple[int, int, int]]]:
    """Return of each batch the requests that it has parts of, with the first and last of these."""
    batches: list[list[tuple[int, int, int]]] = []
    before, last_batch = 0, -1
    for place, (first, last) in enumerate(requests.tolist()):
        if first == last and batches:
            batches[-1].append((place, first, last))
        for at in range(first, last):
            if before // most != last_batch:
                batches.append([])
                last_batch = before // most
            if batches[-1] and batches[-1][-1][0] == place:
                batches[-1][-1] = place, batches[-1][-1][1], at + 1
            else:
                batches[-1].append((place, at, at + 1))
            before += int(flagged["n"][at])
    return batches


@given(data=st.data())
def test_parts_are_cut_where_their_rows_are_too_many(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    counts[0] += 1
    n, gap = sum(counts), data.draw(st.integers(0, 2))
    sizes = np.array(data.draw(st.lists(st.integers(1, 30), min_size=n, max_size=n)))
    first = np.cumsum(np.array(counts) + gap) - np.array(counts)  # not all parts are of a request
    requests = np.zeros(len(counts), [("first", np.int64), ("last", np.int64)])
    requests["first"], requests["last"] = first, first + counts
    flagged = np.zeros(n + gap * len(counts), _FLAGGED)
    for begin, count in zip(first.tolist(), counts, strict=True):
        flagged["part"][begin : begin + count] = np.arange(count) * 3 + 2
        flagged["n"][begin : begin + count] = sizes[:count]
        sizes = sizes[count:]
    most = data.draw(st.integers(1, 60))
    place, pieces, batches = in_batches(requests, flagged, most)
    found = list(zip(place.tolist(), pieces["first"].tolist(), pieces["last"].tolist(), strict=True))
    wanted = cut_slowly(requests, flagged, most)
    # A request without parts is of the batch before it, or of the one after it.
    some = [[one for one in found[i:j] if one[1] < one[2]] for i, j in pairwise(batches)]
    assert some == [[one for one in batch if one[1] < one[2]] for batch in wanted]
    assert sorted(set(place.tolist())) == list(range(len(counts)))
    assert len([one for one in found if one[1] == one[2]]) == counts.count(0)
    largest = int(flagged["n"].max())
    for i, j in pairwise(batches):
        assert int(pieces["n_rows"][i:j].sum()) < most + largest
    for (request, begin, end), piece in zip(found, pieces, strict=True):
        assert piece["n_rows"] == flagged["n"][begin:end].sum()
        assert piece["first_part"] == (0 if begin == requests["first"][request] else flagged["part"][begin])
        assert piece["stop_part"] == (ALL_PARTS if end == requests["last"][request] else flagged["part"][end])


class Weighing(LocalRowsExecutor):
    """Notes the bytes of the parcels of rows that a shard is sent at a time, and how many batches there are of a level."""

    most = n_batches = 0

    def hand_over(self, shard: int, step: Step) -> None:
        super().hand_over(shard, step)
        if step.name.startswith("picked"):
            # Arrays of views of many rows hold these all.
            held = sum(array.nbytes for parcel in step.parcels.values() for array in parcel.arrays)
            self.most, self.n_batches = max(self.most, held), self.n_batches + 1


def noise(case: Case, n: int, n_columns: int) -> Problem:
    """Columns and targets that have nothing to say of one another."""
    rng = np.random.default_rng(0)
    table = [np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n)).astype(np.float32) for _ in range(n_columns)]
    return case.on(table, [rng.normal(size=n) for _ in range(7)], None)


def few_bytes(patch: pytest.MonkeyPatch, n_bytes: int) -> None:
    patch.setattr(rows_in_tree, "flagged_bytes", lambda n_rows, n_columns: n_bytes)


def test_boosted_trees_are_the_same_however_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 12_000
    problem = noise(boosting(max_depth=3), n, 4)
    problem.table[1] = np.round(problem.table[1], 1)  # type: ignore[index]
    one, steps = problem.grow(), []
    for n_bytes in (2**23, 50_000, 5_000):
        few_bytes(monkeypatch, n_bytes)
        executor = problem.rows(spread(n, 2, [n // 3]), kind=Weighing)
        assert_same(one, problem.grow_on(executor))
        steps.append(executor.n_batches)
        assert executor.most < n_bytes + 12_000 * 20 / 100  # a part more
    assert steps == sorted(set(steps))


def test_a_small_table_takes_one_batch() -> None:
    """Steps of three exchanges each would take longer than all its rows."""
    n_rows, n_columns, row_bytes = 20_000, 28, 20
    assert flagged_bytes(n_rows // 2, n_columns) >= row_bytes * n_rows * n_columns // 4


@pytest.mark.parametrize("case", [boosting(max_depth=3), forest(max_depth=3, n_draws=9000)])
def test_rows_that_are_looked_up_in_lists(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their places are noted anew once they have moved, or those of another tree were noted in between."""
    monkeypatch.setattr(flagged_rows, "CODES_FOR_LISTS", 0)
    monkeypatch.setattr(flagged_rows, "LARGE_NODE_SHARE", 2**20)
    noted, looked_up = [], []
    note_places, lists = flagged_rows.note_places, flagged_rows._Listed.lists
    monkeypatch.setattr(flagged_rows, "note_places", lambda *given: (noted.append(1), note_places(*given)))

    def look_up(*given: Any, **options: Any) -> Any:
        found = lists(*given, **options)
        looked_up.append(found is not flagged_rows.NO_LISTS)
        return found

    monkeypatch.setattr(flagged_rows._Listed, "lists", look_up)
    if not case.is_boosting:
        send_rows(monkeypatch, 1000)
    problem = noise(case, 12_000, 4)
    assert_same(problem.grow(4), problem.grow_on(problem.rows(spread(12_000, 2, [4_000])), 4))
    assert noted
    assert any(looked_up)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classes", "targets"])
def test_memory_of_rows_sent_of_noise_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells are flagged where no bar is known."""
    find_bars = Searcher.find_bars
    monkeypatch.setattr(Searcher, "find_bars", lambda *given: np.full_like(find_bars(*given), -1.0))
    n, n_columns, n_bytes = 60_000, 8, 2**18
    case = forest("gini", 3, max_depth=1) if kind == "classes" else forest("squared_error", 1, 1, 1, max_depth=1)
    problem, cuts = noise(case, n, n_columns), spread(n, 2, [n // 2])
    one = problem.grow(1)
    few_bytes(monkeypatch, n_bytes)
    # The first time compiles: it would take many times as long where each piece of memory is noted.
    assert_same(one, problem.grow_on(problem.rows(cuts, kind=LocalRowsExecutor), 1, 1))
    executor = problem.rows(cuts, kind=Weighing)
    tracemalloc.start()
    try:
        assert_same(one, problem.grow_on(executor, 1, 1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    row_bytes = 8 * (4 if kind == "classes" else 6)
    assert executor.n_batches * n_bytes > 0.9 * row_bytes * n * n_columns  # those that are not missing
    assert executor.most < 2 * n_bytes + row_bytes * n / 100
    # What trees keep, and batches as they are picked, sent and merged; all cells at once would take 50 and 65 MB.
    assert peak < {"classes": 150, "targets": 280}[kind] * n + 7 * n_bytes
