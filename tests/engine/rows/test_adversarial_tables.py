"""Tables that are hard on zones, and on who has which rows: the model is that of one process all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.rows import zone_edges
from tests.engine.problems import Case, Problem, assert_same, boosting, forest, send_rows, trees_of
from tests.engine.shards import wild_table

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


def target_of(table: list[NDArray[Any]]) -> NDArray[np.float64]:
    rng = np.random.default_rng(99)
    ranks = [np.unique(column, return_inverse=True)[1] for column in table]
    return rng.normal(size=N) + sum(np.sin(7.0 * rank / (1 + rank.max())) for rank in ranks)


def problem_of(case: Case, table: list[NDArray[Any]], y: NDArray[Any], weight: Any = None, **changes: Any) -> Problem:
    return Problem(table, y, weight, case.on(table, wild_table(len(y), 0), None, **changes).plan)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sent_rows", [20, 400])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_alone(name: str, sent_rows: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    send_rows(monkeypatch, sent_rows)
    monkeypatch.setattr(zone_edges, "SKETCH_ROWS", 64)
    table = table_of([name], dtype)
    if dtype == np.float64:
        table.append(np.random.default_rng(1).normal(size=N))  # which float32 does not hold
    problem = problem_of(boosting(n_rounds=2), table, target_of(table))
    assert_same(problem.grow(), problem.grow_on(problem.rows(THIRDS)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("max_features", "case"), [(13, boosting()), (13, forest(random_splits=True)), (1, forest(random_splits=True))])
def test_all_of_them_together(case: Case, max_features: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one of infinite values, which are the largest numbers in tables that estimators hand on."""
    send_rows(monkeypatch, 50 if case.is_boosting else 10)
    table = table_of(list(COLUMNS), dtype)
    y, weight = target_of(table), np.random.default_rng(2).integers(0, 3, N).astype(float)
    infinite = table[3].copy()
    infinite[::7], infinite[1::9] = np.inf, -np.inf
    problem = problem_of(case, [*table, np.nan_to_num(infinite, nan=np.nan)], y, weight, max_features=max_features)
    wanted = problem.grow()
    assert all(tree.node_count > 3 for tree in trees_of(wanted))
    for cuts in (THIRDS, [[(0, 1)], [(1, 2)], [(2, N)], []], [[(first, first + 1) for first in range(i, N, 7)] for i in range(7)]):
        assert_same(wanted, problem.grow_on(problem.rows(cuts)))


@pytest.mark.parametrize("case", [boosting(max_depth=3), forest(random_splits=True)])
def test_a_row_a_shard(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    send_rows(monkeypatch, 4)
    rng = np.random.default_rng(5)
    table = [rng.normal(size=24).astype(np.float32), rng.integers(0, 3, 24).astype(np.float32), np.full(24, np.nan, np.float32)]
    problem = problem_of(case, table, table[0].astype(float) * 2.0 + table[1])
    assert_same(problem.grow(), problem.grow_on(problem.rows([[(row, row + 1)] for row in range(24)])))
