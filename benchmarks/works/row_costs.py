"""What a tree of boosting takes over rows that stay where they are, part by part, in seconds of a processor.

Own work is measured with all shards in this process, where they take their steps by turns: however many they are, none waits for a
processor. A step is over when its slowest shard is done, so it is the slowest of each step that count. What shards take to send and receive
is measured between processes, with messages of no content.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, get_worker
from scipy.optimize import nnls

from benchmarks.data import synthetic
from benchmarks.local_rows import LocalRowsExecutor
from benchmarks.model import Shape
from benchmarks.results import Measure, Row
from benchmarks.rows_model import RowCosts
from dtrees.cluster.data.memory import sums_received
from dtrees.cluster.growing.actors import Actors
from dtrees.cluster.reliability.fit import Fit, Settings, coordinating, new_name
from dtrees.cluster.transport.direct_channel import ActorBase, pack_named
from dtrees.cluster.transport.peers import Peers
from dtrees.engine.plan.plans import BoostingPlan, Progress, Rules
from dtrees.engine.protocol.exchange import Program, Step
from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows.row_shard import RowShard
from dtrees.engine.run.boosting_rounds import boost
from dtrees.ensemble.objective.regression import SquaredError

_DEPTH = 6
#: Exchanges with empty messages that are timed.
_STEPS = 200


class OwnWork(NamedTuple):
    """What a tree takes where all shards are in one process.

    Attributes
    ----------
    shards, slowest, coordinator : float
        Seconds of the slowest shards of each step together, of the shard that takes most in all, and of what decides on splits.
    parcels, exchanges : float
        What a shard sends to each other one that it talks to, and messages of the coordinator to each shard.
    """

    shards: float
    slowest: float
    coordinator: float
    parcels: float
    exchanges: float


class Messages(NamedTuple):
    """Seconds of a processor for messages.

    Attributes
    ----------
    step, parcel : float
        Of a shard, for a step in any case, and for each parcel to another one and from there.
    exchange, call : float
        Of the coordinator, for an exchange in any case, and for each message and its reply.
    """

    step: float
    parcel: float
    exchange: float
    call: float


class TimedExecutor(LocalRowsExecutor):
    """Notes the seconds of its shards, and counts what they send one another.

    Attributes
    ----------
    slowest, within : float
        Seconds of the slowest shards of each step, and of all exchanges.
    of_shard : dict of int to float
        Seconds of each shard.
    n_parcels, n_exchanges : int
        Of all shards, to others; and messages to all shards.
    """

    slowest = within = 0.0
    n_parcels = n_exchanges = 0

    def __init__(self, shards: Sequence[RowShard], n_rows: int, n_columns: int) -> None:
        super().__init__(shards, n_rows, n_columns)
        self.of_shard = dict.fromkeys(range(self.n_shards), 0.0)

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Have shards carry out messages."""
        began = time.process_time()
        self._step: Counter[int] = Counter()
        self._most: defaultdict[int, float] = defaultdict(float)
        replies = super().send(messages)
        self.slowest += sum(self._most.values())
        self.n_exchanges += 1
        self.within += time.process_time() - began
        return replies

    def _go_on(self, shard: int, program: Program, sent: Any, replies: dict[int, Any]) -> Step | None:
        began = time.process_time()
        step = super()._go_on(shard, program, sent, replies)
        number, taken = self._step[shard], time.process_time() - began
        self._step[shard] += 1
        self.of_shard[shard] += taken
        self._most[number] = max(self._most[number], taken)
        return step

    def hand_over(self, shard: int, step: Step) -> None:
        """Hand over the parcels that a shard has."""
        self.n_parcels += len(step.parcels.keys() - {shard})
        super().hand_over(shard, step)


def own_work(n_rows: int, n_columns: int, n_workers: int, n_trees: int) -> OwnWork:
    """Return what a tree takes of shards that have as many rows each: medians, the first tree left out."""
    X, y = synthetic(n_rows, n_columns=n_columns)
    bounds = [n_rows * i // n_workers for i in range(n_workers + 1)]
    executor = TimedExecutor.of(list(np.ascontiguousarray(X.T)), y, None, [[one] for one in pairwise(bounds)])
    assert isinstance(executor, TimedExecutor)
    rules = Rules("newton", n_columns, n_columns, max_depth=_DEPTH, reg_lambda=1.0, min_child_weight=1.0)
    told: list[tuple[float, ...]] = []

    def note(progress: Progress) -> bool:
        parts = executor.slowest, time.process_time() - executor.within, executor.n_parcels, executor.n_exchanges
        told.append((*map(float, parts), *executor.of_shard.values()))
        return False

    try:
        boost(executor, BoostingPlan(rules, 0, SquaredError(), n_trees), callback=note)
    finally:
        executor.close()
    of_steps, coordinator, parcels, exchanges, *of_shards = np.median(np.diff(np.array(told), axis=0), axis=0).tolist()
    return OwnWork(of_steps, max(of_shards), coordinator, parcels / (n_workers * max(1, n_workers - 1)), exchanges)


class _Talker(ActorBase):
    """Sends messages of no content to the others, and waits for theirs."""

    def __init__(self, number: int, n: int) -> None:
        super().__init__()
        self._number, self._others = number, [i for i in range(n) if i != number]
        self._came = came = Counter[int]()
        self._steps = count()
        self.peers = Peers(get_worker(), number, lambda sent: came.update([sent[0][2]]))

    def meet(self, where: Sequence[tuple[str, str]]) -> None:
        self.peers.meet(where)

    def talk(self, n_steps: int) -> float:
        """Return the seconds of a processor that so many steps took."""
        began = time.thread_time()
        for step in islice(self._steps, n_steps):
            self.peers.send(dict.fromkeys(self._others, pack_named(("", 0, step, "", self._number), ())))
            self.peers.wait(partial(self._look, step), 600.0, "messages")
        return time.thread_time() - began

    def _look(self, step: int) -> bool | None:
        return True if self._came[step] == len(self._others) else None


def talk(client: Client) -> tuple[float, float]:
    """Return what a step among actors on all workers takes of each, and what an exchange with them all takes here."""
    with coordinating(Fit(new_name(), Settings.read())):
        actors, workers = Actors(client, "talk", _Talker), list(client.nthreads())
        try:
            for number, worker in enumerate(workers):
                actors.add(worker, (number, len(workers)))
            actors.wait_until_made()
            actors.call("meet", dict.fromkeys(range(len(workers)), (actors.where,)))
            actors.call("talk", dict.fromkeys(range(len(workers)), (1,)))  # connects
            spent = actors.call("talk", dict.fromkeys(range(len(workers)), (_STEPS,)))
            began = time.thread_time()
            for _ in range(_STEPS):
                actors.call("talk", dict.fromkeys(range(len(workers)), (0,)))
            return statistics.mean(spent.values()) / _STEPS, (time.thread_time() - began) / _STEPS
        finally:
            actors.close()


def messages_of(talks: Mapping[int, tuple[float, float]]) -> Messages:
    """Return what steps and exchanges with different numbers of workers say (:func:`talk`)."""
    peers = np.array([[1.0, n - 1] for n in talks])
    workers = np.array([[1.0, n] for n in talks])
    steps, exchanges = (np.array([one[i] for one in talks.values()]) for i in range(2))
    return Messages(*map(float, (*nnls(peers, steps)[0], *nnls(workers, exchanges)[0])))


def calibrate_rows(own: Mapping[Shape, OwnWork], messages: Messages) -> RowCosts:
    """Return what trees of different rows, columns and workers say, and messages."""
    parts = []
    for n_rows, n_columns, n_workers in own:
        share, received = n_rows / n_workers, sums_received(n_workers, n_columns)
        parts.append([share, share * n_columns, (n_columns + received) / 2, 1.0, (n_workers - 1)])
    work = np.array([one.shards for one in own.values()])
    (row, cell, column, shard, peer), _ = nnls(np.array(parts) / work[:, None], np.ones_like(work))  # for relative errors to be small
    coordinator, parcels, exchanges = np.median([(one.coordinator, one.parcels, one.exchanges) for one in own.values()], axis=0).tolist()
    tree = shard + coordinator + parcels * messages.step + exchanges * messages.exchange
    return RowCosts(*map(float, (row, cell, column, tree, exchanges * messages.call, peer + parcels * messages.parcel)))


def row_costs(costs: RowCosts) -> Iterator[Row]:
    """Yield the constants of :mod:`dtrees.cluster.data.memory`."""
    for name in ("row", "cell", "column", "tree", "worker", "peer"):
        yield Row(f"model, by rows: ROWS_{name.upper()}", "", None, Measure(1e9 * getattr(costs, name), unit="ns"))
