"""Several shards in one process, and tables to try them on."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan, Rules
from dtrees.engine.protocol.exchange import Step
from dtrees.engine.protocol.messages import Message, ShardsLost
from dtrees.engine.run.lasting import LastingBoosting, LastingForest
from dtrees.engine.run.local_executor import LocalExecutor, grow_forest
from dtrees.engine.shard.shard import Shard
from dtrees.split.table.columns import presort
from dtrees.tree.tree import Tree
from tests.engine.local_rows import LocalRowsExecutor

Table = Sequence[NDArray[Any]]


class Pickling(LocalRowsExecutor):
    """Pickles messages on the way; the shard that reaches a kind of message or step for the n-th time is lost with all its state.

    Steps are named after their payloads; the shard has sent these, or, with "before" the name, has not.
    """

    lose: str | None = None
    nth = 1
    n_lost = 0
    make: Callable[[], LocalRowsExecutor]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.largest: dict[str, int] = {}

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        for _ in range(_kinds_of(next(iter(messages.values()))).count(str(self.lose))):
            self._count(max(messages))
        replies = super().send({shard: pickle.loads(pickle.dumps(one)) for shard, one in messages.items()})
        for shard, one in messages.items():
            size = len(pickle.dumps(replies[shard]))
            for kind in _kinds_of(one):
                self.largest[kind] = max(self.largest.get(kind, 0), size)
        return replies

    def hand_over(self, shard: int, step: Step) -> None:
        names = names_of(step)
        if self.lose in [f"before {name}" for name in names]:
            self._count(shard)
        super().hand_over(shard, pickle.loads(pickle.dumps(step)))
        if self.lose in names:
            self._count(shard)

    def _count(self, shard: int) -> None:
        self.nth -= 1
        if not self.nth:
            self.n_lost += 1
            self.shards[shard].close()
            self.shards[shard] = self.make().shards[shard]
            raise ShardsLost("lost")


def _kinds_of(message: Message) -> list[str]:
    """The name of a message's type, or of the types of those that travel in it."""
    return [type(one).__name__ for one in getattr(message, "messages", (message,))]


def losing(make: Callable[[], Pickling], place: str, nth: int) -> Pickling:
    """An executor that loses the shard that reaches a place for the n-th time, and replaces it."""
    executor = make()
    executor.lose, executor.nth, executor.make = place, nth, make
    return executor


class ShardedExecutor(Pickling):
    """Columns spread over shards: ``spread[i]`` are those of shard i. ``log`` stores messages and steps, ``meddle`` changes steps."""

    places_rows = False

    def __init__(
        self,
        table: Table,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        spread: Sequence[Sequence[int]],
        n_threads: int = 1,
        meddle: Callable[[int, Step], Step] = lambda shard, step: step,
    ) -> None:
        n_columns = len(table)
        columns = [presort([table[j] for j in mine]) for mine in spread]
        ids = [np.array(mine, np.int32) for mine in spread]
        shards = [Shard(own, which, n_columns, target, weight, n_threads) for own, which in zip(columns, ids, strict=True)]
        super().__init__(shards, target.shape[0], n_columns)
        self.log: list[tuple[int, str, Any]] = []
        self._meddle = meddle

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        self.log += [(shard, type(message).__name__, message) for shard, message in messages.items()]
        return super().send(messages)

    def hand_over(self, shard: int, step: Step) -> None:
        step = self._meddle(shard, step)
        self.log += [(shard, name, step) for name in names_of(step)]
        super().hand_over(shard, step)


def called(executor: ShardedExecutor, name: str) -> list[tuple[int, Any]]:
    """The shards that received messages of a type, or took steps of a name, with the content."""
    return [(shard, one) for shard, which, one in executor.log if which == name]


def names_of(step: Step) -> list[str]:
    """The names of a step, or of the steps combined in it."""
    return step.name.rpartition(": ")[2].split(", ")


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
    trees = LastingForest(executor, plan, 0, n_trees, 2).run().trees
    executor.close()
    return trees, executor


def grow_here(
    table: Table, target: NDArray[Any], weight: NDArray[np.float64] | None, plan: ForestPlan, n_trees: int = 1, n_threads: int = 1
) -> list[Tree]:
    return grow_forest(presort(table), target, weight, plan, 0, n_trees, n_threads).trees


def local(table: Table, target: NDArray[Any], weight: NDArray[np.float64] | None = None, n_threads: int = 1) -> LocalExecutor:
    return LocalExecutor(presort(table), target, weight, n_threads)


def opened(executor: Any, plan: Any, initial: Any = None) -> LocalExecutor | LastingBoosting:
    """An open fit."""
    return executor.begin(plan, initial) if isinstance(executor, LocalExecutor) else LastingBoosting(executor, plan, initial)


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
