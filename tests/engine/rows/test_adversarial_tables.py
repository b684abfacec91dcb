"""Tables that are hard on zones, and on who has which rows: the model is that of one process all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingResult
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows import zone_edges
from dtrees.engine.rows.local import LocalRowsExecutor
from dtrees.engine.run.boosting_rounds import boost
from tests.engine.rows.test_rows_fit import assert_same, fit_here, make_plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

N = 900
#: Three shards, of a third of the rows each.
THIRDS = [[(0, 300)], [(300, 600)], [(600, N)]]
IN_FIRST = np.arange(N) < 300


def _normal(rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.normal(size=N)


#: A column of each kind.
COLUMNS: dict[str, Callable[[np.random.Generator], NDArray[np.float64]]] = {
    "all ties": lambda rng: rng.integers(0, 2, N).astype(float),
    "one value": lambda _: np.full(N, -2.5),
    "sorted: each shard has a range of its own": lambda rng: np.sort(_normal(rng)),
    "one shard has all extremes": lambda rng: np.where(IN_FIRST, 1e30 * np.sign(_normal(rng)), _normal(rng)),
    "neighbours on different shards": lambda rng: 1.0 + (np.arange(N) % 300 * 3 + np.arange(N) // 300) * 2.0**-23,
    "heavy values": lambda rng: np.where(rng.random(N) < 0.8, rng.integers(0, 3, N), _normal(rng)),
    "heavy on one shard, absent on others": lambda rng: np.where(IN_FIRST, 0.0, _normal(rng)),
    "all missing on one shard": lambda rng: np.where(IN_FIRST, np.nan, _normal(rng)),
    "all missing but on one shard": lambda rng: np.where(IN_FIRST, _normal(rng), np.nan),
    "all missing": lambda _: np.full(N, np.nan),
    "both zeros": lambda rng: np.where(rng.random(N) < 0.5, 0.0, -0.0) + np.where(rng.random(N) < 0.7, 0.0, 1e-45),
    "lone values far from the others": lambda rng: np.where(np.arange(N) % 301 == 0, 3e38, 2000.0 + rng.integers(0, 40, N) / 8),
}


def table_of(names: Sequence[str], dtype: Any) -> list[NDArray[Any]]:
    return [COLUMNS[name](np.random.default_rng(i)).astype(dtype) for i, name in enumerate(names)]


def fit_on(table: list[NDArray[Any]], y: NDArray[Any], weight: Any, cuts: Any, plan: Any) -> BoostingResult:
    executor = LocalRowsExecutor.of(table, y, weight, cuts)
    try:
        return boost(executor, plan)
    finally:
        executor.close()


def target_of(table: list[NDArray[Any]]) -> NDArray[np.float64]:
    rng = np.random.default_rng(99)
    ranks = [np.unique(column, return_inverse=True)[1] for column in table]
    return rng.normal(size=N) + sum(np.sin(7.0 * rank / (1 + rank.max())) for rank in ranks)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sent_rows", [20, 400])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_alone(name: str, sent_rows: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_tree, "SENT_ROWS", sent_rows)
    monkeypatch.setattr(zone_edges, "SKETCH_ROWS", 64)
    table = table_of([name], dtype)
    if dtype == np.float64:
        table.append(np.random.default_rng(1).normal(size=N))  # which float32 does not hold
    y = target_of(table)
    plan = make_plan("squared", len(table), n_rounds=2)
    assert_same(fit_here(table, plan, y, None), fit_on(table, y, None, THIRDS, plan))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_of_them_together(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 50)
    table = table_of(list(COLUMNS), dtype)
    y, weight = target_of(table), np.random.default_rng(2).integers(0, 3, N).astype(float)
    plan = make_plan("squared", len(table))
    wanted = fit_here(table, plan, y, weight)
    assert all(tree.node_count > 3 for trees in wanted.rounds for tree in trees)
    for cuts in (THIRDS, [[(0, 1)], [(1, 2)], [(2, N)], []], [[(first, first + 1) for first in range(i, N, 7)] for i in range(7)]):
        assert_same(wanted, fit_on(table, y, weight, cuts, plan))


def test_a_row_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 4)
    rng = np.random.default_rng(5)
    table = [rng.normal(size=24).astype(np.float32), rng.integers(0, 3, 24).astype(np.float32), np.full(24, np.nan, np.float32)]
    y = table[0] * 2.0 + table[1]
    plan = make_plan("squared", 3, rule_changes={"max_depth": 3})
    assert_same(fit_here(table, plan, y, None), fit_on(table, y, None, [[(row, row + 1)] for row in range(24)], plan))
