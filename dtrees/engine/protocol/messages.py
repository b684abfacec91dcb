"""All that the coordinator and the shards say to each other.

Every message names the fit, the epoch (raised when lost workers are replaced) and where in the fit it belongs; a shard refuses one of
another fit or epoch, so a worker that was given up and wakes up later can disturb nothing. Messages and replies are picklable,
immutable, and hold numbers and arrays only; the one exception is the plan in :class:`Begin`.

The only parts that grow with the number of rows are the bits of :class:`~dtrees.engine.protocol.splits.RouteBits`: one a row and level.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.packed_nodes import PackedNodes
from dtrees.engine.protocol.splits import RouteBits, Splits
from dtrees.split.grow.best_first import MergedLeaves
from dtrees.split.node.candidate import Candidates
from dtrees.split.node.records import Nodes
from dtrees.split.table.columns import Columns
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.tree import Tree


class StaleMessage(RuntimeError):
    """A message of another fit or epoch."""


class ReplicasDiffer(RuntimeError):
    """Shards that must agree about the rows of a tree do not."""


class NotCompiled(RuntimeError):
    """The kernels that grow subtrees are being compiled by another process. Meanwhile, trees can be grown level by level."""


class SearchMode(enum.IntEnum):
    """How shards search the nodes of a level.

    ``FIND``: each says the best splits of its columns; those chosen are to be evaluated (:class:`Evaluate`). ``OFFER``: each says at once
    which rows its splits send left, which spares an exchange, and costs as many bits from every shard. ``BARS``: each first says how good
    a split it knows of; then all look for splits at least as good as the best of these, and say which rows they send left
    (:class:`Scan`).
    """

    FIND = 0
    OFFER = 1
    BARS = 2


@dataclass(frozen=True)
class Message:
    """What every message carries."""

    fit: str
    epoch: int


@dataclass(frozen=True)
class Begin(Message):
    """Open a fit. Reply: :class:`Begun`.

    ``initial`` is the raw prediction to start from, shape (K,), or that of each row, shape (K, n_rows); None lets the loss choose
    (boosting). ``n_slots`` are the trees that will
    grow side by side, by messages in :class:`Many`; 0 for one at a time.
    """

    plan: ForestPlan | BoostingPlan
    initial: NDArray[np.float64] | None = None
    n_slots: int = 0


@dataclass(frozen=True)
class Many(Message):
    """Messages about trees that grow side by side: ``messages[i]`` is for the one in slot ``slots[i]``. Reply: list of replies."""

    slots: tuple[int, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Renew(Message):
    """Go on in a new epoch, between two trees: one under way is forgotten. Reply: :class:`Standing`."""


@dataclass(frozen=True)
class Fetch(Message):
    """Ask for what the finished trees left behind, of the rows ``first`` to ``last - 1``. Reply: :class:`RowState`."""

    first: int
    last: int


@dataclass(frozen=True)
class Adopt(Message):
    """Take over the state of rows from ``first`` on, from a shard that has finished ``n_finished`` trees. Reply: None."""

    first: int
    state: RowState
    n_finished: int


@dataclass(frozen=True)
class Start(Message):
    """Open a tree: draw rows, compute gradients. Reply: :class:`Root`.

    ``tree`` is the tree's identity for random draws, ``output`` the raw prediction it is to improve. ``search`` asks for the root's
    best split, ``check`` for a checksum of what the tree is grown on. ``plain``: all nodes of the tree are searched by themselves, with the
    kernels that are compiled soonest.
    """

    tree: int
    output: int
    search: bool
    check: bool
    mode: SearchMode = SearchMode.FIND
    plain: bool = False


@dataclass(frozen=True)
class BoostTree(Message):
    """Grow a tree and add its values to the predictions, all at once; only to a shard that has all columns. Reply: :class:`Boosted`.

    ``tree`` and ``output`` are as of :class:`Start`; ``score`` asks for scores afterwards.
    """

    tree: int
    output: int
    learning_rate: float
    score: bool


@dataclass(frozen=True)
class Route(Message):
    """Open a tree that is known already: all rows, none in sample. Reply: None.

    ``output`` is the raw prediction it improves; 0 begins a round.
    """

    output: int


@dataclass(frozen=True)
class Search(Message):
    """Search nodes, in the columns from the ``skip``-th drawn on, up to the first that varies. Reply: :class:`Found`."""

    nodes: NDArray[np.int64]
    skip: int


@dataclass(frozen=True)
class Scan(Message):
    """Search the nodes of the message before, of which the best splits known score ``bars``, shape (n,). Reply: :class:`Found`."""

    bars: NDArray[np.float64]


@dataclass(frozen=True)
class Evaluate(Message):
    """Say which rows splits of columns that the shard owns send left. Reply: :class:`~dtrees.engine.protocol.splits.RouteBits`.

    ``sets`` are the categories that go left, where the splits are those of a tree that is known already; their nodes are places in
    ``splits``.
    """

    splits: Splits
    sets: CategorySets | None = None


@dataclass(frozen=True)
class FindSets(Message):
    """Ask for the categories that go left in splits of columns that the shard owns, when the tree is grown.

    ``start[i]:stop[i]`` are the places of the rows of the left child of split i, ``number[i]`` is what stands in place of its threshold.
    Reply: :class:`CategorySets`, whose nodes are the places of the splits here.
    """

    column: NDArray[np.int32]
    number: NDArray[np.float64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]


@dataclass(frozen=True)
class Advance(Message):
    """Divide nodes, then search some of their children. Reply: :class:`Divided`."""

    splits: Splits
    marks: RouteBits
    search: NDArray[np.int64]
    mode: SearchMode = SearchMode.FIND


@dataclass(frozen=True)
class Grow(Message):
    """Grow nodes to their ends; only to a shard that has all columns. Reply: list of :class:`~dtrees.split.node.records.Nodes`.

    Where the number of leaves is limited, ``origin``, shape (n,), says whose children the nodes are, and ``first`` which of the tree's
    splits known are the first (:mod:`dtrees.split.grow.best_first`). ``last``: no node is searched after these, of any tree, and the shard
    gives up its columns.
    """

    nodes: NDArray[np.int64]
    origin: NDArray[Any]
    first: NDArray[Any] | None = None
    last: bool = False


@dataclass(frozen=True)
class Merge(Message):
    """Put the rows of leaves in order that were split when the tree was grown, but are leaves of the finished tree. Reply: None."""

    leaves: MergedLeaves


@dataclass(frozen=True)
class ShareRows(Message):
    """Ask for the shard's columns in the rows of some nodes, for each shard that is to grow some. Reply: list of :class:`SharedRows`."""

    nodes: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True)
class GrowDelegated(Message):
    """Grow nodes to their ends with columns that all other shards have sent. Reply: :class:`GrownDelegated`."""

    nodes: NDArray[np.int64]
    shared: tuple[SharedRows, ...]


@dataclass(frozen=True)
class MeasureLeaves(Message):
    """Ask for the mean target of leaves and the spread about it. Reply: :class:`Measured`."""

    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]


@dataclass(frozen=True)
class MeasureNodes(Message):
    """Ask for the median target of all nodes of a tree in preorder, and the spread about it. Reply: :class:`Measured`.

    ``left`` and ``right`` are the numbers of the children, -1 for leaves; only leaves need ``start`` and ``in_stop``.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]


@dataclass(frozen=True)
class MeasureSteps(Message):
    """Ask for the best steps of the leaves of a boosted tree, whose rows in sample are at the places ``start[i]:in_stop[i]``.

    Reply: ndarray of float64, shape (n_leaves,), before shrinkage.
    """

    output: int
    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]


@dataclass(frozen=True)
class Finish(Message):
    """Close a tree: add the leaf values to the predictions. Reply: :class:`Losses` of the rows from ``scored[0]`` to ``scored[1] - 1``.

    Leaf i owns the places ``start[i]:stop[i]`` of the row partition, those up to ``in_stop[i]`` in sample; ``value`` has shape
    (n_leaves, n_values). ``last`` are splits still to be applied, the children of which are leaves. Where some shards do not know the rows
    out of sample of all leaves, ``outside`` holds those of the leaves that ``delegated`` marks, one leaf after the other.
    """

    output: int
    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]
    stop: NDArray[np.int64]
    value: NDArray[np.float64]
    scored: tuple[int, int] | None = None
    last: Advance | None = None
    delegated: NDArray[np.bool_] | None = None
    outside: NDArray[np.uint32] | None = None


class Begun(NamedTuple):
    """The raw prediction that boosting starts from, shape (K,); and the power of two that a forest's out-of-bag sums are multiplied by."""

    initial: NDArray[np.float64]
    exponent: int = 0


class Standing(NamedTuple):
    """How many trees of the fit a shard has finished; -1 if it knows nothing of the fit."""

    n_finished: int


class RowState(NamedTuple):
    """What the finished trees left behind for some rows: arrays with the rows as their last axis."""

    arrays: list[NDArray[Any]]


class Found(NamedTuple):
    """The best candidate for each node searched, its place among the columns drawn for the node, and its marks, if they were asked for."""

    candidates: Candidates
    place: NDArray[np.int64]
    marks: RouteBits | None = None


class Bars(NamedTuple):
    """The scores of real splits of the nodes to be searched, -1.0 where none is known; shape (n,)."""

    bars: NDArray[np.float64]


class Root(NamedTuple):
    """A tree's root, the same from every shard but for ``found``.

    ``exponents`` are the powers of two that the two sums were multiplied by.
    """

    n_in: int
    n_rows: int
    sums: NDArray[np.int64]
    exponents: tuple[int, int]
    checksum: int
    found: Found | Bars | None


class Divided(NamedTuple):
    """Where the left children end in the row partition, in sample and in all; and the best splits of the nodes to search."""

    left_in_stop: NDArray[np.int64]
    left_stop: NDArray[np.int64]
    found: Found | Bars | None


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


class Losses(NamedTuple):
    """Sums of weighted losses over blocks of rows, shape (n_blocks, n_parts), and the weight of all such rows, for each part of the scores.

    ``score`` is that of the rows held out, where it is asked for, from the shard that adds up the last block.
    """

    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    score: float | None = None


class Boosted(NamedTuple):
    """A tree whose values have been added to the predictions, and the scores then; these are NaN if they were not asked for."""

    tree: Tree
    scores: Scores


Subtrees = list[Nodes]
#: That of :class:`Many` is a list of replies, which the type cannot say of itself.
Reply = (
    None
    | Begun
    | Standing
    | RowState
    | Root
    | Found
    | Bars
    | RouteBits
    | CategorySets
    | Divided
    | GrownDelegated
    | Measured
    | Losses
    | Boosted
    | Subtrees
    | NDArray[np.float64]
    | list[Any]
)
