"""Evaluation sets on a cluster: encoded where their partitions are, and scored by actors.

Only sums are sent to the coordinator, or predictions for metrics that need all of them. A lost scorer is created again from its blocks,
which Dask computes again. Scorers then start over: the rounds so far are added again, which takes a moment and does not change the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from dtrees.cluster.data.memory import block_bytes
from dtrees.cluster.data.partitions import align, compute_partitions, is_lazy, joined
from dtrees.cluster.data.placement import nthreads, place_blocks
from dtrees.cluster.errors import exits_as_errors
from dtrees.cluster.growing.actors import ActorsLost, LastingActors
from dtrees.cluster.reliability.waiting import Tasks, however_large, release, same
from dtrees.cluster.transport.direct_channel import ActorBase
from dtrees.engine.threads import available_cores
from dtrees.ensemble.backend import Table
from dtrees.ensemble.evaluation_sets import EvalSet, Evaluation, LocalSets, Rounds, Rows, Scorer, check_set, has_weight, make_block
from dtrees.ensemble.metrics import Block, Metric


@dataclass(frozen=True)
class ClusterSets:
    """Evaluation sets on a cluster.

    Attributes
    ----------
    client : distributed.Client
    about : LocalSets
        All data except the blocks.
    blocks : list of Future
    workers : list of str
        The worker on which each block was made.
    """

    client: Client
    about: LocalSets
    blocks: list[Future]
    workers: list[str]


def load_evaluation(table: Table, sets: Sequence[EvalSet], metrics: Sequence[Metric]) -> ClusterSets:
    """Check and encode evaluation sets, each block on its future worker; a set in memory becomes one block."""
    blocks: list[Future] = []
    sizes: list[int] = []
    set_of_block: list[int] = []
    columns, client = table.columns, table.columns.client
    n_classes = 0 if table.classes is None else len(table.classes)
    cells = getattr(columns, "cells", None)  # the evaluation sets of a sparse table are assumed to be as sparse
    about: Any = {"n_classes": n_classes, "n_targets": table.n_targets, "cells": cells and cells / columns.n_rows}
    with Tasks(client) as tasks:
        for position, given in enumerate(sets):
            made = _encode(tasks, table, given)
            rows, weighted = zip(*tasks.waiter.gather(tasks.map("count", _count, made)), strict=True)
            check_set(given.name, sum(rows), any(weighted))
            blocks += made
            options = about | {"weighted": given.weight is not None, "started": given.start is not None}
            sizes += [block_bytes(table.schema, n_rows, **options) for n_rows in rows]
            set_of_block += [position] * len(made)
        workers = place_blocks(sizes, columns.plan.placement, nthreads(client), columns.plan.spare)
        made = blocks
        blocks = [tasks.submit("encode", same, one, on=worker) for one, worker in zip(made, workers, strict=True)]
        release(made)
        tasks.waiter.wait(blocks)
        tasks.keep(*blocks)
    local = LocalSets(tuple(given.name for given in sets), tuple(set_of_block), (), tuple(metrics))
    return ClusterSets(client, local, blocks, workers)


def _encode(tasks: Tasks, table: Table, given: EvalSet) -> list[Future]:
    bare = replace(given, X=None, y=None, weight=None, base_margin=None)
    about: Any = {"of": bare, "schema": table.schema, "classes": table.classes, "n_targets": table.n_targets}
    if not is_lazy(given.X):
        with however_large():
            return [tasks.submit("encode", make_block, given.X, *fetch_rows(tasks, given.y, given.weight, given.base_margin), **about)]
    one_margin = not is_lazy(given.base_margin) and np.ndim(given.base_margin) == 0  # a number, or none
    try:
        parts = align(tasks, given.X, given.y, given.weight, None if one_margin else given.base_margin)
    except ValueError as error:
        raise ValueError(f"eval_set {given.name!r}: {error}") from error
    if not parts.lengths:
        raise ValueError(f"eval_set {given.name!r} has no rows; wants at least one")
    n_parts = len(parts.lengths)
    weights, margins = parts.weight or [None] * n_parts, parts.margin or [given.base_margin] * n_parts
    made = tasks.map("encode", make_block, parts.X, parts.y, weights, margins, **about)
    release(parts.futures)  # each is released when the tasks that need it are done
    return made


def fetch_rows(tasks: Tasks, *values: Any) -> list[Any]:
    """Return values of rows, such as the target and weights of a set in memory, from wherever they are stored."""
    lazy = {str(i): one for i, one in enumerate(values) if is_lazy(one)}
    parts = compute_partitions(tasks, lazy)
    return [joined(tasks.waiter.gather(parts[str(i)])) if str(i) in parts else one for i, one in enumerate(values)]


def _count(block: Block) -> tuple[int, bool]:
    return len(block.y), has_weight(block)


def _targets(block: Block) -> Rows:
    return block.y, block.weight


class ScorerActor(ActorBase):
    """A :class:`~dtrees.ensemble.evaluation_sets.Scorer` on a worker, with all threads of the worker."""

    def __init__(self, blocks: list[Block], metrics: Sequence[Metric]) -> None:
        super().__init__()
        self._scorer = Scorer(blocks, metrics, available_cores())

    def score(self, rounds: Rounds, initial: NDArray[np.float64], quiet: int, afresh: bool) -> list[list[list[Any]]]:
        """Add rounds; see :meth:`dtrees.ensemble.evaluation_sets.Scorer.score`."""
        with exits_as_errors():
            return self._scorer.score(rounds, initial, quiet, afresh)


class ClusterEvaluation(Evaluation, LastingActors):
    """Evaluation sets scored by actors, each with some of the blocks.

    Parameters
    ----------
    sets : ClusterSets
    """

    def __init__(self, sets: ClusterSets) -> None:
        Evaluation.__init__(self, sets.about)
        LastingActors.__init__(self, sets.client, "evaluate", ScorerActor)
        self._blocks, self._metrics = sets.blocks, sets.about.metrics
        by_worker: dict[str, list[int]] = {}
        for block, worker in enumerate(sets.workers):
            by_worker.setdefault(worker, []).append(block)
        self._blocks_of = list(by_worker.values())
        self._make_all(list(by_worker))

    def _arguments(self, i: int) -> tuple[Any, ...]:
        return [self._blocks[block] for block in self._blocks_of[i]], self._metrics

    def _describe(self, i: int) -> str:
        return "rows of evaluation sets"

    def _ask(self, rounds: Rounds, initial: NDArray[np.float64], first: int) -> list[list[list[Any]]]:
        message: tuple[Any, ...] = rounds[first:], initial, 0, first == 0
        while True:
            try:
                replies = self.call("score", dict.fromkeys(range(len(self._blocks_of)), message))
                break
            except ActorsLost:
                self._note_loss()
                self._replace_lost()
                self._await_made()
                # It is unknown which of the others have added the round.
                message = rounds, initial, first, True
        said: list[list[list[Any]]] = [[[] for _ in self._blocks] for _ in range(len(rounds) - first)]
        for actor, blocks in enumerate(self._blocks_of):
            for by_block, found in zip(said, replies[actor], strict=True):
                for block, partials in zip(blocks, found, strict=True):
                    by_block[block] = partials
        return said

    def _targets(self) -> list[Rows]:
        with Tasks(self._client) as tasks:
            return tasks.waiter.gather(tasks.map("target", _targets, self._blocks))
