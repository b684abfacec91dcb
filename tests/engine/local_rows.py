"""Shards of rows in this process: a reference for other executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.exchange import Program, Step
from dtrees.engine.protocol.messages import Executor, Message
from dtrees.engine.rows.all_rows import rows_of
from dtrees.engine.rows.row_shard import RowShard
from dtrees.split.table.keyed_columns import arrange_rows
from dtrees.split.table.mmap_arrays import Allocate, mapped


class PayloadsMissing(RuntimeError):
    """Shards wait for payloads that no shard will send."""


class LocalRowsExecutor(Executor):
    """An executor for shards of rows in this process, which carry out their steps in turns.

    Parameters
    ----------
    shards : sequence of RowShard
    n_rows, n_columns : int
        Shape of the whole table.
    """

    places_rows = True

    def __init__(self, shards: Sequence[RowShard], n_rows: int, n_columns: int) -> None:
        self.shards = list(shards)
        self.n_shards, self.n_rows, self.n_columns = len(shards), n_rows, n_columns

    @classmethod
    def of(
        cls,
        table: Sequence[NDArray[Any]],
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        cuts: Sequence[Sequence[tuple[int, int]]],
        n_threads: int = 1,
        allocate: Allocate = mapped,
    ) -> LocalRowsExecutor:
        """Return an executor of shards with given ranges of rows: the first row, and the one after the last.

        ``allocate`` creates the arrays of their cells, in memory or on disk.
        """
        shards = []
        for ranges in cuts:
            rows = rows_of(ranges)
            mine = [column[rows] for column in table]
            columns = arrange_rows([mine].__getitem__, [rows.shape[0]], len(table), allocate=allocate)
            shards.append(RowShard(columns, ranges, target.shape[0], target[rows], None if weight is None else weight[rows], n_threads))
        return cls(shards, target.shape[0], len(table))

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Make shards carry out messages, step by step.

        Raises
        ------
        PayloadsMissing
        """
        replies: dict[int, Any] = {}
        programs = {shard: self.shards[shard].program(message) for shard, message in messages.items()}
        steps = {shard: self._go_on(shard, program, None, replies) for shard, program in programs.items()}
        while waiting := {shard: step for shard, step in steps.items() if step is not None}:
            moved = False
            for shard, step in waiting.items():
                sent = self.shards[shard].mailbox.take(step)
                if sent is not None:
                    moved, steps[shard] = True, self._go_on(shard, programs[shard], sent, replies)
            if not moved:
                missing = {shard: self.shards[shard].mailbox.missing(step) for shard, step in waiting.items()}
                waits = [f"shard {shard} awaits {waiting[shard].name} of the shards {some}" for shard, some in missing.items()]
                raise PayloadsMissing("; ".join(waits))
        return replies

    def _go_on(self, shard: int, program: Program, sent: Any, replies: dict[int, Any]) -> Step | None:
        """Advance a shard to its next step, or to its reply."""
        try:
            step = program.send(sent)
        except StopIteration as end:
            replies[shard] = end.value
            return None
        self.hand_over(shard, step)
        return step

    def hand_over(self, shard: int, step: Step) -> None:
        """Deliver the payloads of a shard."""
        for other, payload in step.payloads.items():
            self.shards[other].mailbox.put(payload)

    def wants_repair(self) -> bool:
        """Return False: the shards live as long as this process."""
        return False

    def repair(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End the threads of all shards."""
        for shard in self.shards:
            shard.close()
