"""The steps of a tree on one page, taken by every shard.

Shards have some of the columns or some of the rows of a table. These two layouts differ in a few methods (:class:`Layout`): those of
columns are in :mod:`dtrees.engine.shard.tree`, those of rows in :mod:`dtrees.engine.rows.levels`. All shards make the same decisions
(:mod:`dtrees.engine.tree.grower`), so that these are not exchanged.

A split takes several exchanges however small its node is, and a fully grown tree has dozens of levels, most of them with small nodes only.
So when no node of a tree exceeds a number of rows, the nodes are dealt to the shards, which grow them to their ends. The payloads of these
steps are::

    delegated   the rows of small nodes, to the shards that grow these
    subtrees    the grown subtrees, to all
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import TreeOfNodes, measures
from dtrees.engine.outcome.values import pruned
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps, Turn
from dtrees.engine.protocol.messages import Measured, Root
from dtrees.engine.protocol.nodes import NO_SUBTREES, DelegatedNodes, Splits
from dtrees.engine.tree.grower import Grower
from dtrees.split.grow.best_first import MergedLeaves
from dtrees.split.node.records import Candidates, Nodes
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.tree import Tree


class GrownTree(NamedTuple):
    """A tree, the records of its nodes before pruning by cost, and its value at each of these."""

    tree: Tree
    records: NDArray[np.void]
    said: NDArray[np.float64]


class Layout(ABC):
    """A shard's part in the growth of a tree, whose root is known: what depends on whether shards have columns or rows.

    Attributes
    ----------
    shards : Shards
    number : int
        The identity of the tree in random draws.
    root : Root
    grower : Grower
    cells_of_row : int
        The number of cells that are sent for a row of a small node, if trees that grow side by side take turns in that; otherwise 0.
    when_found : callable or None
        Called when all splits of the tree are found.
    """

    shards: Shards
    number: int
    root: Root
    grower: Grower
    cells_of_row = 0
    when_found: Callable[[], None] | None = None

    @abstractmethod
    def search(self, nodes: NDArray[np.int64]) -> Steps[Candidates]:
        """Find the best splits of nodes: of the root, or of children of the splits just applied."""

    @abstractmethod
    def search_further(self, nodes: NDArray[np.int64]) -> Steps[Candidates]:
        """Find the best splits of some of these nodes in further columns, each until a column varies in it."""

    @abstractmethod
    def apply(self, splits: Splits) -> Steps[None]:
        """Divide the rows of nodes."""

    @abstractmethod
    def deal(self) -> list[list[NDArray[np.int64]]]:
        """Deal the small nodes to shards (:meth:`.Grower.deal`)."""

    @abstractmethod
    def send_rows(self, nodes: Sequence[NDArray[np.int64]]) -> dict[int, Arrays]:
        """Return this shard's part of the rows of nodes, given the nodes of each shard that is to grow some of them."""

    @abstractmethod
    def grow_delegated(self, nodes: NDArray[np.int64], sent: Sequence[Arrays]) -> DelegatedNodes:
        """Grow nodes to their ends, given what each shard has sent of their rows."""

    @abstractmethod
    def merge(self, merged: Sequence[MergedLeaves]) -> None:
        """Note that leaves take the places of pruned subtrees."""

    @abstractmethod
    def sets_of(self, nodes: Nodes) -> Steps[CategorySets]:
        """Return the categories that go left in the splits of the finished tree."""

    @abstractmethod
    def measure(self, nodes: Nodes, tree: Tree) -> Steps[NDArray[np.float64] | Measured]:
        """Measure the values of leaves or nodes on their rows; see :meth:`.TreeOfNodes.finish`."""


def grow_steps(layout: Layout) -> Steps[Nodes]:
    """Grow all nodes of a tree; return them in preorder."""
    shards, grower = layout.shards, layout.grower
    while True:
        if (nodes := grower.to_search).shape[0]:
            rest = grower.accept(nodes, (yield from layout.search(nodes)))
            if rest.shape[0]:
                grower.accept(rest, (yield from layout.search_further(rest)))
        if (splits := grower.choose()) is None:
            break
        yield from layout.apply(splits)
    for groups in layout.deal():
        mine = groups[shards.shard]
        if layout.cells_of_row:
            yield Turn(layout.cells_of_row * sum(int(grower.about(nodes)[0].sum()) for nodes in groups))
        sent = yield shards.step("delegated", layout.send_rows(groups), shards.everyone if mine.shape[0] else ())
        own = layout.grow_delegated(mine, sent) if mine.shape[0] else NO_SUBTREES
        del sent
        for nodes, grown in zip(groups, (yield from shards.gather("subtrees", own)), strict=True):
            grower.attach_delegated(nodes, grown)
    return grower.arrange()


def finish_steps(layout: Layout, nodes: Nodes, learning_rate: float) -> Steps[GrownTree]:
    """Return the finished tree: without nodes that are pruned after growth, with sets, and with values from sums and measurements.

    ``learning_rate`` multiplies the values of a boosted tree.
    """
    plan, root = layout.shards.plan, layout.root
    if layout.when_found is not None:
        layout.when_found()
    nodes, merged = pruned(nodes, root.exponents, plan.rules)
    if merged:
        layout.merge(merged)
    of_nodes = TreeOfNodes(plan, nodes, root.exponents, learning_rate, root.noise)
    tree = of_nodes.draft()
    if plan.rules.categorical:
        tree = tree.with_categories((yield from layout.sets_of(nodes)))
    measured = (yield from layout.measure(nodes, tree)) if measures(plan) else None
    tree, said = of_nodes.finish(tree, measured)
    return GrownTree(tree, nodes.records, said)
