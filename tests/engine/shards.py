"""Several shards in one process, and losses and tables to try them on."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dtrees.engine.coordinator.session import Session
from dtrees.engine.plan.plans import ForestPlan, Rules
from dtrees.engine.protocol.messages import Calls, Executor, ShardsLost
from dtrees.engine.run.lasting import grow_forest_on_shards
from dtrees.engine.run.local_executor import LocalExecutor, LocalSession, grow_forest
from dtrees.engine.shard.shard import Shard
from dtrees.ensemble.objective.loss import BaseLoss
from dtrees.split.table.columns import presort
from dtrees.tree.tree import Tree

Table = Sequence[NDArray[Any]]


class ShardedExecutor(Executor):
    """Columns spread over shards; what is sent is pickled on the way, as it would be between processes.

    ``spread[i]`` are the columns of shard i. ``log`` keeps the messages sent, ``meddle`` may change a reply.
    """

    whole_threads = 0

    def __init__(
        self,
        table: Table,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        spread: Sequence[Sequence[int]],
        n_threads: int = 1,
        meddle: Callable[[int, Any], Any] = lambda shard, reply: reply,
    ) -> None:
        self.n_shards, self.n_rows, self.n_columns = len(spread), target.shape[0], len(table)
        self._make = [self._maker(table, mine, target, weight, n_threads) for mine in spread]
        self.shards = [make() for make in self._make]
        self._owner = np.empty(len(table), np.int64)
        for shard, mine in enumerate(spread):
            self._owner[list(mine)] = shard
        self._posted: deque[Mapping[int, Any]] = deque()
        self.log: list[tuple[int, Calls]] = []
        self._meddle = meddle

    @staticmethod
    def _maker(
        table: Table, mine: Sequence[int], target: NDArray[Any], weight: NDArray[np.float64] | None, n_threads: int
    ) -> Callable[[], Shard]:
        columns, ids = presort([table[j] for j in mine]), np.array(mine, np.int32)
        return lambda: Shard(columns, ids, len(table), target, weight, n_threads)

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        return self._owner[columns]

    def wants_repair(self) -> bool:
        return False

    def repair(self) -> None:
        pass

    def _call(self, shard: int, message: Calls) -> dict[int, Any]:
        self.log.append((shard, message))
        reply = self.shards[shard].handle(pickle.loads(pickle.dumps(message)))
        return {slot: self._meddle(shard, one) for slot, one in pickle.loads(pickle.dumps(reply)).items()}

    def post(self, messages: Mapping[int, Any]) -> None:
        self._posted.append(messages)

    def collect(self) -> dict[int, Any]:
        try:
            return {shard: self._call(shard, message) for shard, message in self._posted.popleft().items()}
        except ShardsLost:
            self._posted.clear()
            raise

    def close(self) -> None:
        for shard in self.shards:
            shard.close()


def called(executor: ShardedExecutor, method: str) -> list[tuple[int, list[Any]]]:
    """With which arguments a method was called of which shards."""
    return [(shard, arguments) for shard, message in executor.log for name, *arguments in message.calls if name == method]


def rules(criterion: str, n_columns: int, **changes: Any) -> Rules:
    alpha = 0.9 if criterion == "quantile" else 0.0
    return Rules(**{"criterion": criterion, "max_features": n_columns, "columns_per_tree": n_columns, "alpha": alpha} | changes)


def grow_sharded(
    table: Table,
    target: NDArray[Any],
    weight: NDArray[np.float64] | None,
    plan: ForestPlan,
    n_trees: int,
    spread: Sequence[Sequence[int]],
    n_threads: int = 1,
) -> tuple[list[Tree], ShardedExecutor]:
    """Grow trees level by level on several shards, two side by side."""
    executor = ShardedExecutor(table, target, weight, spread, n_threads)
    trees = grow_forest_on_shards(executor, plan, 0, n_trees, 2).trees
    executor.close()
    return trees, executor


def grow_here(
    table: Table, target: NDArray[Any], weight: NDArray[np.float64] | None, plan: ForestPlan, n_trees: int = 1, n_threads: int = 1
) -> list[Tree]:
    return grow_forest(presort(table), target, weight, plan, 0, n_trees, n_threads).trees


def local(table: Table, target: NDArray[Any], weight: NDArray[np.float64] | None = None, n_threads: int = 1) -> LocalExecutor:
    return LocalExecutor(presort(table), target, weight, n_threads)


def opened(executor: Any, plan: Any, initial: Any = None) -> Session:
    """An open fit."""
    session = (LocalSession if isinstance(executor, LocalExecutor) else Session)(executor, plan, "fit")
    session.begin(initial)
    return session


def all_equal(one: Sequence[Tree], other: Sequence[Tree]) -> bool:
    return len(one) == len(other) and all(a.equals(b) for a, b in zip(one, other, strict=True))


def wild_table(n: int, seed: int) -> list[NDArray[Any]]:
    """Seven columns: continuous, few values, missing values, hardly ever varying, skewed, float32, all the same."""
    rng = np.random.default_rng(seed)
    gaps = rng.normal(size=n)
    gaps[rng.random(n) < 0.3] = np.nan
    return [
        rng.normal(size=n),
        rng.integers(0, 5, n),
        gaps,
        (rng.random(n) < 0.01) * 1.0,
        np.exp(rng.normal(0, 30, n)),
        rng.random(n).astype(np.float32),
        np.zeros(n),
    ]


def wild_target(table: Table, n_classes: int, seed: int) -> NDArray[Any]:
    """A target that depends on the columns, with noise."""
    rng = np.random.default_rng(seed + 1)
    n = table[0].shape[0]
    signal = table[0] + (table[1] > 2) + np.nan_to_num(table[2], nan=1.0) + rng.normal(size=n) / 2
    if n_classes == 0:
        return np.asarray(signal, np.float64)
    return np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes)).astype(np.int32)


def wild_weight(n: int, seed: int) -> NDArray[np.float64]:
    """Weights over six orders of magnitude, a tenth of them zero."""
    rng = np.random.default_rng(seed + 2)
    return np.where(rng.random(n) < 0.1, 0.0, 10.0 ** rng.uniform(-3, 3, n))


class OpensRaw(BaseLoss):
    """Gradients follow from raw predictions as they are."""

    def open_round(self, raw: Any, opened: Any) -> None:
        opened[:] = raw


@dataclass(frozen=True)
class Squared(OpensRaw):
    """Half the squared error."""

    n_outputs: int = 1
    constant_hessian: bool = True

    def initial(self, target: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        return np.array([np.average(target, weights=weight)])

    def gradients(self, target: Any, raw: Any, output: int, g: Any, h: Any) -> None:
        g[:] = raw[output] - target
        h[:] = 1.0

    def pointwise(self, target: Any, raw: Any, out: Any) -> None:
        out[:] = (target - raw[0]) ** 2


@dataclass(frozen=True)
class Logistic(OpensRaw):
    """Log loss of two classes."""

    n_outputs: int = 1
    constant_hessian: bool = False

    def initial(self, target: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        p = np.average(target == 1, weights=weight)
        return np.array([np.log(p / (1 - p))])

    def gradients(self, target: Any, raw: Any, output: int, g: Any, h: Any) -> None:
        p = expit(raw[output])
        g[:] = p - (target == 1)
        h[:] = p * expit(-raw[output])

    def pointwise(self, target: Any, raw: Any, out: Any) -> None:
        out[:] = np.logaddexp(0.0, np.where(target == 1, -raw[0], raw[0]))


@dataclass(frozen=True)
class Softmax(OpensRaw):
    """Log loss of K classes; its gradients need all raw predictions of a row at once."""

    n_outputs: int = 3
    constant_hessian: bool = False

    def initial(self, target: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        return np.log(np.bincount(target, weights=weight, minlength=self.n_outputs) / target.shape[0])

    def _probability(self, raw: Any, output: int) -> Any:
        others = np.array([raw[k] - raw[output] for k in range(self.n_outputs) if k != output])
        ratios = expit(others) / expit(-others)  # exp, one row like another
        return 1.0 / (1.0 + sum(ratios))

    def gradients(self, target: Any, raw: Any, output: int, g: Any, h: Any) -> None:
        p = self._probability(raw, output)
        g[:] = p - (target == output)
        h[:] = p * (1 - p)

    def pointwise(self, target: Any, raw: Any, out: Any) -> None:
        p = np.array([self._probability(raw, k) for k in range(self.n_outputs)])
        out[:] = -np.log(p[target, np.arange(target.shape[0])])
