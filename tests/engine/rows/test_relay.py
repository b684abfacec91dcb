"""Parcels that go by relays: what comes is what was sent, and nobody talks to many."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dtrees.engine.rows.between import relay
from dtrees.engine.rows.between.relay import added, grid_of, relayed
from dtrees.engine.rows.exchange import Mailbox, Parcel, Program, Step
from dtrees.engine.rows.local import LocalRowsExecutor
from dtrees.engine.run.boosting_rounds import boost
from tests.engine.rows.test_rows_fit import assert_same, fit_here, make_plan, spread
from tests.engine.shards import wild_table, wild_target
from tests.slow import thorough_for


class Talking(LocalRowsExecutor):
    """Notes who sends something to whom."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.partners: dict[int, set[int]] = {i: set() for i in range(self.n_shards)}

    def hand_over(self, shard: int, step: Step) -> None:
        for other in step.parcels.keys() - {shard}:
            self.partners[shard].add(other)
            self.partners[other].add(shard)
        super().hand_over(shard, step)

    def assert_few_partners(self) -> None:
        assert max(map(len, self.partners.values())) <= 2 * math.isqrt(self.n_shards) + 4


class Shard:
    """Sends each other one a number of its own, or some numbers to be added up, and returns what comes."""

    def __init__(self, number: int, n_shards: int, adds: bool) -> None:
        self.number, self.n_shards, self.adds, self.mailbox = number, n_shards, adds, Mailbox()

    def program(self, _: Any) -> Program:
        program, grid = self._program(), grid_of(self.n_shards, self.number)
        return program if grid is None else relayed(program, grid)

    def _program(self) -> Program:
        everyone, same = range(self.n_shards), self._parcel("to all", self.number)
        sent = yield Step("fit", 0, 1, "to all", dict.fromkeys(everyone, same), everyone)
        to_each = {other: self._parcel("to each", 1000 * self.number + other) for other in everyone}
        other = yield Step("fit", 0, 1, "to each", to_each, everyone, added if self.adds else None)
        to_one = {0: self._parcel("to one", self.number)} if self.number % 3 else {}
        few = yield Step("fit", 0, 1, "to one", to_one, () if self.number else [i for i in everyone if i % 3])
        return [[int(array[0]) for (array,) in some] for some in (sent, other, few)]

    def _parcel(self, name: str, what: int) -> Parcel:
        return Parcel("fit", 0, 1, name, self.number, (np.array([what]),))


@pytest.mark.parametrize("n", [1, 3, 16, 17, 18, 19, 20, 25, 26, 30, 31, 90, 100])
@pytest.mark.parametrize("adds", [False, True])
def test_what_comes_is_what_was_sent(n: int, adds: bool) -> None:
    executor = Talking([Shard(number, n, adds) for number in range(n)], n, 1)  # type: ignore[misc]
    replies = executor.send(dict.fromkeys(range(n)))  # type: ignore[arg-type]
    for number, (sent, other, few) in replies.items():
        assert sent == list(range(n))
        wanted = [1000 * i + number for i in range(n)]
        assert sum(other) == sum(wanted) if adds else other == wanted
        assert few == ([] if number else [i for i in range(n) if i % 3])
        if adds and n > relay.MOST_DIRECT:
            assert len(other) <= math.isqrt(n) + 1
    if n > relay.MOST_DIRECT:
        executor.assert_few_partners()


def test_partners_are_few_however_many_shards() -> None:
    for n in [*range(17, 401, 13), 400]:
        grids = [grid_of(n, number) for number in range(n)]
        for grid in grids:
            assert grid is not None
            assert len({*grid.column, *grid.relays, *grid.sources} - {grid.number}) <= 2 * math.isqrt(n) + 4


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("n_shards", thorough_for({400}, [100, 400]))
def test_many_shards(n_shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few rows each, some of none: the model of one process."""
    monkeypatch.setattr("dtrees.engine.rows.tree.SENT_ROWS", 30)
    n = n_shards * 5 // 4
    table = [column[:n] for column in wild_table(n, 4)[:3]]
    y, plan = wild_target(table, 0, 4), make_plan("squared", 3, n_rounds=1, rule_changes={"max_depth": 2})
    rng = np.random.default_rng(0)
    cuts = sorted(rng.integers(0, n, n_shards * 19 // 20).tolist())
    executor = Talking.of(table, y, None, spread(n, n_shards, cuts, rng.permutation(n_shards).tolist()))
    assert isinstance(executor, Talking)
    assert_same(fit_here(table, plan, y, None), boost(executor, plan))
    executor.assert_few_partners()
    executor.close()
