"""Trees that grow side by side on a shard.

Each is in a *slot*, over the same columns and the same target, with a row partition and nodes of its own. What a message is carried out
with (threads, scratch space) they take turns to use. The messages of an exchange, one a slot at most, are shared out
over the shard's threads; where there are fewer slots than threads, each message gets several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtrees.engine.protocol.messages import Many, Message, Reply
from dtrees.engine.shard.subtrees.sparse_runner import make_runner
from dtrees.engine.shard.tree_state import TreeState
from dtrees.engine.shard.workspace import Workspace
from dtrees.engine.threads import Threads
from dtrees.split.table.sparse_columns import AnyColumns


class Slots:
    """Trees that grow side by side on a shard, and the workspaces that they take turns to use.

    Parameters
    ----------
    trees : sequence of TreeState
        One for each slot.
    threads : Threads
        To be used by all together.
    columns : Columns or SparseColumns
    """

    def __init__(self, trees: Sequence[TreeState], threads: Threads, columns: AnyColumns) -> None:
        self._trees = trees
        self._threads = threads
        self._side_by_side = min(len(trees), threads.n_threads)
        n_threads = [threads.n_threads // self._side_by_side for _ in range(self._side_by_side)]
        self._free = [Workspace(Threads(n), make_runner(columns), by_turns=True) for n in n_threads]

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self._trees)

    def handle(self, message: Many) -> list[Any]:
        """Carry out the messages; return their replies."""

        def carry_out(one: tuple[int, Message]) -> Reply:
            workspace = self._free.pop()  # list.pop and append are atomic
            try:
                workspace.runner.forget_nodes()  # of another tree, perhaps
                return self._trees[one[0]].carry_out(one[1], workspace)
            finally:
                self._free.append(workspace)

        return self._threads.map(carry_out, zip(message.slots, message.messages, strict=True), most=self._side_by_side)

    def close(self) -> None:
        """End the threads that messages have for themselves."""
        for workspace in self._free:
            workspace.threads.close()
