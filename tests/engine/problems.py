"""Problems for executors: a table of cases, each with its data and its plan, and ways to solve them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, ForestPlan, ForestResult, Rules
from dtrees.engine.rows import flagged_rows, levels, rows_in_tree, searcher
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.run.boosting_rounds import boost
from dtrees.engine.run.lasting import LastingForest
from dtrees.engine.run.local_executor import grow_forest
from dtrees.engine.shard import passes
from dtrees.ensemble.objective.classification import Exponential, log_loss_for
from dtrees.ensemble.objective.loss import SeveralTargets
from dtrees.ensemble.objective.ranking import LambdaRank
from dtrees.ensemble.objective.registry import CustomObjective
from dtrees.ensemble.objective.regression import AbsoluteError, Gamma, Huber, Poisson, Quantile, SquaredError, Tweedie, quantile_loss
from dtrees.ensemble.objective.survival import Aft, Cox
from dtrees.split import policy
from dtrees.split.table import keyed_columns
from dtrees.split.table.columns import presort
from tests.engine.local_rows import LocalRowsExecutor
from tests.engine.shards import (
    Pickling,
    ShardedExecutor,
    Table,
    all_equal,
    local,
    losing,
    rules,
    wild_table,
    wild_target,
    wild_weight,
)

Plan = ForestPlan | BoostingPlan
Result = ForestResult | BoostingResult
#: The ranges of rows that each shard has.
Cuts = Sequence[Sequence[tuple[int, int]]]


def pulled_together(y: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> tuple[Any, Any]:
    """An objective computed row by row, but with a mean over all rows; for one output or several."""
    error = raw - (np.eye(3)[y] if raw.ndim == 2 else y)
    w = np.ones(len(raw)) if weight is None else weight
    w = w.reshape(-1, *[1] * (raw.ndim - 1))
    return w * (error + 0.1 * (raw - raw.mean(axis=0))), w * (np.ones_like(raw) + np.arange(len(raw)).reshape(w.shape) % 3)


#: For each name of a loss: the loss, the classes of each target (1: a number), and other fields of its plan.
LOSSES: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
    "squared": (SquaredError(), (1,), {}),
    "median": (AbsoluteError(), (1,), {}),
    "quantile": (Quantile(0.8), (1,), {}),
    "quantiles": (quantile_loss((0.1, 0.5, 0.8)), (1,), {}),
    "Huber": (Huber(0.7), (1,), {}),
    "targets": (SeveralTargets((Huber(0.7), Huber(0.7))), (1, 1), {}),
    "steps": (Poisson(), (1,), {"first_order": True, "reg_lambda": 0.0}),
    "steps of two classes": (log_loss_for(2), (2,), {"first_order": True, "reg_lambda": 0.0}),
    "log loss": (log_loss_for(2), (2,), {}),
    "log loss of three": (log_loss_for(3), (3,), {}),
    "exponential": (Exponential(), (2,), {}),
    "Poisson": (Poisson(), (1,), {}),
    "gamma": (Gamma(), (1,), {}),
    "tweedie": (Tweedie(1.2), (1,), {}),
    "objective": (CustomObjective(0, pulled_together), (1,), {}),
    "objective of three": (CustomObjective(3, pulled_together), (3,), {}),
    "Cox": (Cox(), (1,), {}),
    "AFT": (Aft("logistic", 0.5), (1,), {}),
    "LambdaRank": (LambdaRank(5), (1,), {"min_child_weight": 1e-6}),
}


@dataclass(frozen=True)
class Problem:
    """Data and a plan, and its results in one process, on shards of columns and on shards of rows."""

    table: Table
    target: NDArray[Any]
    weight: NDArray[np.float64] | None
    plan: Any

    @property
    def n_rows(self) -> int:
        return self.target.shape[0]

    def with_plan(self, **changes: Any) -> Problem:
        return replace(self, plan=replace(self.plan, **changes))

    def grow(self, n_trees: int = 2, n_threads: int = 1, **more: Any) -> Any:
        """Grow ``n_trees`` trees, or all rounds, in this process."""
        if isinstance(self.plan, BoostingPlan):
            with local(self.table, self.target, self.weight, n_threads) as executor:
                return boost(executor, self.plan, **more)
        return grow_forest(presort(self.table), self.target, self.weight, self.plan, 0, n_trees, n_threads, **more)

    def grow_on(self, executor: Any, n_trees: int = 2, side_by_side: int = 2, **more: Any) -> Any:
        """Grow them on shards, which are closed afterwards."""
        try:
            if isinstance(self.plan, BoostingPlan):
                return boost(executor, self.plan, **more)
            return LastingForest(executor, self.plan, 0, n_trees, side_by_side).run(**more)
        finally:
            executor.close()

    def columns(self, spread: Sequence[Sequence[int]], n_threads: int = 1) -> ShardedExecutor:
        return ShardedExecutor(self.table, self.target, self.weight, spread, n_threads)

    def rows(self, cuts: Cuts, n_threads: int = 1, kind: type[LocalRowsExecutor] | None = None, **more: Any) -> Any:
        return (kind or Pickling).of(self.table, self.target, self.weight, cuts, n_threads, **more)

    def losing(self, cuts: Cuts, place: str, nth: int) -> Pickling:
        """Shards of rows, one of which is lost when it reaches a place for the n-th time."""
        return losing(lambda: self.rows(cuts), place, nth)


def assert_same(one: Result, other: Result) -> None:
    """Compare all results of two fits, bit for bit."""
    pairs = list(zip(_trees(one), _trees(other), strict=True))
    assert all(all_equal(ours, theirs) for ours, theirs in pairs)
    for name in vars(one):
        ours, theirs = getattr(one, name), getattr(other, name)
        if name not in ("rounds", "trees"):
            assert (ours is None) == (theirs is None), name
            assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes(), name


def _trees(result: Any) -> Sequence[Any]:
    return result.rounds if hasattr(result, "rounds") else [result.trees]


def trees_of(result: Any) -> list[Any]:
    return [tree for some in _trees(result) for tree in some]


@dataclass(frozen=True)
class Case:
    """A criterion, or the name of a loss, and the classes of each target (1: a number), with changes of rules and of the plan."""

    of: str
    targets: tuple[int, ...] = ()
    weighted: bool = False
    categories: Sequence[str] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    n_rows: int = 700
    is_boosting: bool = False

    def but(self, **changes: Any) -> Case:
        return replace(self, changes={**self.changes, **changes})

    def problem(self, n_rows: int | None = None, seed: int = 4) -> Problem:
        n_rows = n_rows or self.n_rows
        table = base = wild_table(n_rows, seed)
        changes: dict[str, Any] = {}
        if self.categories:
            table, base[0] = with_categories(self.categories, n_rows, seed)
            changes = {name: value for name, value in category_rules(len(self.categories)).items() if name not in self.changes}
        return self.on(table, base, wild_weight(n_rows, seed) if self.weighted else None, seed, **changes)

    def on(self, table: Table, base: Table, weight: Any, of_target: int = 4, **changes: Any) -> Problem:
        """Return the case on a table, with a target that depends on columns like those of :func:`wild_table`."""
        loss, targets, own = LOSSES[self.of] if self.is_boosting else (None, self.targets or (1,), {})
        changes = {**self.changes, **changes}
        of_rules = {name: value for name, value in (own | changes).items() if name in Rules.__dataclass_fields__}
        of_plan = {name: value for name, value in (own | changes).items() if name not in of_rules}
        y = _target(base, targets, of_target)
        if self.of.lower() in ("poisson", "steps", "tweedie", "gamma"):
            y = np.maximum(np.round(2 * y), float(self.of == "gamma"))
        if self.of in ("Cox", "AFT", "LambdaRank"):
            y = _of_two_columns(y, of_target, self.of)
        if loss is not None:
            some = rules("newton", len(table), **({"max_depth": 4, "reg_lambda": 1.0} | of_rules))
            n_classes = max(targets) if max(targets) > 1 else 0
            return Problem(table, y, weight, BoostingPlan(some, loss=loss, **{"seed": 9, "n_rounds": 3, "n_classes": n_classes} | of_plan))
        n_classes = sum(targets) if max(targets) > 1 else 0
        more = {"targets": targets} if len(targets) > 1 else {}
        some = rules(self.of, len(table), **of_rules)
        return Problem(table, y, weight, ForestPlan(some, **{"seed": 9, "n_classes": n_classes} | more | of_plan))


def forest(
    criterion: str = "squared_error",
    *targets: int,
    weighted: bool = False,
    categories: Sequence[str] = (),
    n_rows: int = 700,
    **changes: Any,
) -> Case:
    return Case(criterion, targets, weighted, categories, changes, n_rows)


def boosting(loss: str = "squared", *, weighted: bool = False, categories: Sequence[str] = (), n_rows: int = 700, **changes: Any) -> Case:
    return Case(loss, (), weighted, categories, changes, n_rows, is_boosting=True)


def _target(base: Table, targets: Sequence[int], seed: int) -> NDArray[Any]:
    """Return targets that are numbers of different widths, or classes; a target's rows lie side by side."""
    if len(targets) == 1:
        return wild_target(base, targets[0] if targets[0] > 1 else 0, seed)
    columns = []
    for t, n_classes in enumerate(targets):
        if max(targets) > 1:
            columns.append(wild_target(base, n_classes, seed + t) if n_classes > 1 else np.zeros(len(base[0]), np.int32))
        else:
            columns.append(wild_target(base, 0, seed + t) * 10.0**t + t * base[5])
    return np.asfortranarray(np.column_stack(columns))


def _of_two_columns(y: NDArray[Any], seed: int, name: str) -> NDArray[Any]:
    """Return bounds of times with ties, or relevances and queries whose rows are scattered, in the form of a loss."""
    rng = np.random.default_rng(seed)
    if name == "LambdaRank":
        found = [np.clip(np.round(y), 0.0, 4.0), rng.integers(0, max(2, y.shape[0] // 20), y.shape[0])]
    else:
        times = np.round(np.exp(y / 3.0), 1) + 0.1
        found = [times, times * np.choose(rng.integers(0, 3, y.shape[0]), [1.0, np.inf, 1.0 if name == "Cox" else 1.5])]
    return np.asfortranarray(np.column_stack(found))


#: Columns by what makes them hard for zones, or for shards with a third of the rows each, as functions of the number of rows.
COLUMNS: dict[str, Callable[[np.random.Generator, int], NDArray[Any]]] = {
    "continuous": lambda rng, n: rng.normal(size=n),
    "ties": lambda rng, n: np.round(rng.normal(size=n)),
    "all ties": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "one value": lambda _, n: np.full(n, -2.5),
    "sorted: each shard has a range of its own": lambda rng, n: np.sort(rng.normal(size=n)),
    "one shard has all extremes": lambda rng, n: np.where(_in_first(n), 1e30 * np.sign(rng.normal(size=n)), rng.normal(size=n)),
    "neighbours": lambda rng, n: 1.0 + rng.permutation(n) * 2.0**-52,
    "neighbours on different shards": lambda _, n: 1.0 + (np.arange(n) % max(1, n // 3) * 3 + np.arange(n) // max(1, n // 3)) * 2.0**-23,
    "heavy values": lambda rng, n: np.where(rng.random(n) < 0.8, rng.integers(0, 3, n), rng.normal(size=n)),
    "heavy on one shard, absent on others": lambda rng, n: np.where(_in_first(n), 0.0, rng.normal(size=n)),
    "missing": lambda rng, n: np.where(rng.random(n) < 0.4, np.nan, rng.normal(size=n)),
    "all missing on one shard": lambda rng, n: np.where(_in_first(n), np.nan, rng.normal(size=n)),
    "all missing but on one shard": lambda rng, n: np.where(_in_first(n), rng.normal(size=n), np.nan),
    "all missing": lambda _, n: np.full(n, np.nan),
    "both zeros": lambda rng, n: np.where(rng.random(n) < 0.5, 0.0, -0.0) + np.where(rng.random(n) < 0.7, 0.0, 1e-45),
    "lone values far from the others": lambda rng, n: np.where(np.arange(n) % 301 == 0, 3e38, 2000.0 + rng.integers(0, 40, n) / 8),
    "float32": lambda rng, n: rng.normal(size=n).astype(np.float32),
    "integers": lambda rng, n: rng.integers(-5, 300, n),
}


def _in_first(n: int) -> NDArray[np.bool_]:
    return np.arange(n) < n // 3


KINDS = ("few", "some", "nearly all distinct", "with gaps", "one shard each", "one")


def _categories(kind: str, n: int, missing: float, rng: np.random.Generator) -> NDArray[Any]:
    match kind:
        case "few":
            x = rng.integers(0, 3, n)
        case "some":
            x = rng.zipf(1.3, n) % 200
        case "nearly all distinct":
            x = rng.permutation(n)
        case "with gaps":
            x = rng.choice([0, 31, 32, 63, 1000, 4097], n)
        case "one shard each":
            x = np.arange(n) * 7 // max(n, 1)
        case _:
            x = np.zeros(n, np.int64)
    return np.where(rng.random(n) < missing, np.nan, x)


def with_categories(kinds: Sequence[str], n: int, seed: int) -> tuple[Table, NDArray[np.float64]]:
    """Return columns of categories and of numbers, and a target that depends on both."""
    rng = np.random.default_rng(seed)
    table = [_categories(kind, n, 0.1 * (i % 3), rng) for i, kind in enumerate(kinds)]
    table += [rng.normal(size=n), np.round(rng.normal(size=n))]
    effects = rng.normal(size=5000)
    return table, effects[np.nan_to_num(table[0], nan=4999).astype(int)] + table[-1]


def category_rules(k: int) -> dict[str, Any]:
    return {
        "categorical": tuple(range(k)),
        "cat_smooth": 2.0,
        "min_samples_category": (3,) * k,
        "max_cat_threshold": (32,) * k,
    }


def spread(n: int, n_shards: int, bounds: Sequence[int], owners: Sequence[int] = range(9)) -> Cuts:
    """Divide rows into ranges, and assign each to a shard; some shards may be empty."""
    ends = [0, *sorted(bounds), n]
    ranges = [(first, last) for first, last in pairwise(ends) if first < last]
    return [[one for i, one in enumerate(ranges) if owners[i % len(owners)] % n_shards == shard] for shard in range(n_shards)]


def send_rows(patch: pytest.MonkeyPatch, n_rows: int) -> None:
    """Send nodes of up to ``n_rows`` rows to one shard, which grows their subtrees."""
    patch.setattr(rows_tree, "SENT_ROWS", n_rows)
    patch.setattr(rows_tree, "rows_to_send", lambda plan, n, n_shards: n_rows)


def cut_finely(patch: pytest.MonkeyPatch, rows: int = 1, fewest: int = 2, listed: bool = True, batch_bytes: int = 1000) -> None:
    """Sum nodes of few rows by parts of zones, divide flagged parts into finer ones, and look rows up in lists.

    Rows are sent in batches of ``batch_bytes``.
    """
    patch.setattr(rows_in_tree, "flagged_bytes", lambda n_rows, n_columns: batch_bytes)
    patch.setattr(flagged_rows, "CODES_FOR_LISTS", 0 if listed else 2**40)
    patch.setattr(levels, "_ROWS_PER_PART", 8)
    patch.setattr(searcher, "ROWS_PER_FINER_PART", rows)
    patch.setattr(searcher, "FEWEST_FINER_PARTS", fewest)


def read_little_at_a_time(patch: pytest.MonkeyPatch, n_bytes: int = 4096) -> None:
    """Read data on disk in chunks of a few bytes."""
    for module in (passes, keyed_columns, policy):
        patch.setattr(module, "DISK_BYTES", n_bytes)
