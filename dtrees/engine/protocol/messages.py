"""What the coordinator and the shards say to each other, and who carries it.

A message has methods of a shard, or of trees under way there, called by name. It names the fit and the epoch (raised when lost workers are
replaced); a shard refuses one of another fit or epoch, so a worker that was given up and wakes up later can disturb nothing. Messages and
replies are picklable, immutable, and hold numbers and arrays only; the one exception is the plan that a fit begins with.

The only arguments that grow with the number of rows are :class:`~dtrees.engine.protocol.nodes.RouteBits`: a bit for each row and level.

Terms
-----
exchange
    messages to some shards, and their replies. One may begin while others are under way: each shard carries out its messages in the order
    in which exchanges began, and replies are taken in that order too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.nodes import PackedNodes, RouteBits, Splits
from dtrees.split.node.records import Candidates
from dtrees.split.table.columns import Columns
from dtrees.tree.category_sets import CategorySets


class ShardsLost(RuntimeError):
    """Shards are gone, and so is the tree under way; :meth:`Executor.repair` replaces them."""


class StaleMessage(RuntimeError):
    """A message of another fit or epoch."""


class ReplicasDiffer(RuntimeError):
    """Shards that must agree about the rows of a tree do not."""


class NotCompiled(RuntimeError):
    """The kernels that grow subtrees are being compiled by another process. Meanwhile, trees can be grown level by level."""


@dataclass(frozen=True)
class Message:
    """What every message carries."""

    fit: str
    epoch: int

    @property
    def kind(self) -> str:
        """What it is about, as events tell."""
        return type(self).__name__


#: The name of a method, and its arguments.
Call = tuple[Any, ...]


@dataclass(frozen=True)
class Calls(Message):
    """Methods to be called of the trees in some slots of a shard, or one of the shard itself. The reply has theirs, by slot."""

    slots: tuple[int, ...]
    calls: tuple[Call, ...]

    @property
    def kind(self) -> str:
        """The method called, ``Many`` where there are several."""
        return str(self.calls[0][0]).title().replace("_", "") if len(self.calls) == 1 else "Many"


class Start(NamedTuple):
    """A tree to be begun: rows are drawn, gradients computed. The reply is a :class:`Root`.

    ``tree`` is the tree's identity for random draws, ``output`` the raw prediction it is to improve. ``search`` asks for the root's
    best split, ``check`` for a checksum of what the tree is grown on. ``plain``: all nodes of the tree are searched by themselves, with the
    kernels that are compiled soonest.
    """

    tree: int
    output: int
    search: bool
    check: bool
    plain: bool = False


class Finish(NamedTuple):
    """The leaves of a tree, to be added to the predictions. The reply are the :class:`Losses` of ``scored[0]`` to ``scored[1] - 1``.

    Leaf i owns the places ``start[i]:stop[i]`` of the row partition, those up to ``in_stop[i]`` in sample; ``value`` has shape
    (n_leaves, n_values). ``last`` are splits still to be applied, the children of which are leaves, and which rows go left. Where some
    shards do not know the rows out of sample of all leaves, ``outside`` holds those of the leaves that ``delegated`` marks.
    """

    output: int
    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]
    stop: NDArray[np.int64]
    value: NDArray[np.float64]
    scored: tuple[int, int] | None = None
    last: tuple[Splits, RouteBits] | None = None
    delegated: NDArray[np.bool_] | None = None
    outside: NDArray[np.uint32] | None = None


class Begun(NamedTuple):
    """The raw prediction that boosting starts from, shape (K,); and the power of two that a forest's out-of-bag sums are multiplied by."""

    initial: NDArray[np.float64]
    exponent: int = 0


class Found(NamedTuple):
    """The best candidate for each node searched, its place among the columns drawn for the node, and which rows it would send left."""

    candidates: Candidates
    place: NDArray[np.int64]
    marks: RouteBits


class Root(NamedTuple):
    """A tree's root, the same from every shard but for ``found``.

    ``exponents`` are the powers of two that the two sums were multiplied by.
    """

    n_in: int
    n_rows: int
    sums: NDArray[np.int64]
    exponents: tuple[int, int]
    checksum: int
    found: Found | None


class Divided(NamedTuple):
    """Where the left children end in the row partition, in sample and in all; and the best splits of the nodes to search."""

    left_in_stop: NDArray[np.int64]
    left_stop: NDArray[np.int64]
    found: Found | None


class SharedRows(NamedTuple):
    """A shard's columns of the tree in some rows; ``ids`` are their numbers in the whole table."""

    ids: NDArray[np.int32]
    columns: Columns


class GrownDelegated(NamedTuple):
    """Nodes grown to their ends, and for each its rows out of sample, leaf by leaf (only where they count), and its sets of categories."""

    subtrees: list[PackedNodes]
    outside: list[NDArray[np.uint32]]
    sets: list[CategorySets]


class Measured(NamedTuple):
    """Mean target and weighted sum of squares about it, or median and sum of absolute deviations; in units of the weights.

    Shape (n,); centres of several targets are of shape (n, n_targets), and spreads means over these.
    """

    center: NDArray[np.float64]
    spread: NDArray[np.float64]


class Scores(NamedTuple):
    """Mean loss on the rows trained on, on those held out (NaN for none; or their score), on those not drawn, and theirs before round 0."""

    train: float
    validation: float
    out_of_bag: float = 0.0
    before: float = 0.0


NO_SCORES = Scores(np.nan, np.nan)


class Losses(NamedTuple):
    """Sums of weighted losses over blocks of rows, shape (n_blocks, n_parts), and the weight of all such rows, for each part of the scores.

    ``score`` is that of the rows held out, where it is asked for, from the shard that adds up the last block.
    """

    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    score: float | None = None


class ShardsExecutor(Protocol):
    """What carries messages to shards, and knows nothing of what they say.

    Attributes
    ----------
    n_shards : int
    n_rows, n_columns : int
        Of the whole table.
    """

    n_shards: int
    n_rows: int
    n_columns: int

    def wants_repair(self) -> bool:
        """Tell whether shards are to be replaced before the next tree."""

    def repair(self) -> None:
        """Replace shards that are gone by new ones with the same part of the table, which know nothing of the fit yet.

        Raises
        ------
        ShardsLost
            If further ones went meanwhile.
        """

    def close(self) -> None:
        """Release what the executor holds."""


class Executor(ShardsExecutor, Protocol):
    """An executor of shards of columns.

    Attributes
    ----------
    whole_threads : int
        Threads of the one shard that has all columns; 0 where columns are spread.
    places_rows : bool
        False: shards have columns of the table, not rows of it (:class:`dtrees.engine.protocol.exchange.RowsExecutor`).
    """

    places_rows: Literal[False] = False

    whole_threads: int

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the shard that has each of some columns."""

    def post(self, messages: Mapping[int, Message]) -> None:
        """Begin an exchange: send messages to some shards.

        Raises
        ------
        ShardsLost
            If some cannot be reached any more. Then no exchange is under way.
        """

    def collect(self) -> dict[int, Any]:
        """Wait for all replies of the exchange that began first of those under way; raises as :meth:`post` does."""
