"""A finished tree put through the shards again, so that predictions stand as they did after it was grown.

This is how a fit goes on from trees it did not grow itself (a warm start), and how shards that lost everything catch up: the splits are
known, so only the messages that divide rows are sent.
"""

from __future__ import annotations

import numpy as np

from dtrees.engine.coordinator.session import Session
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.route_bits import RouteBitStore
from dtrees.engine.protocol.splits import Splits
from dtrees.tree.tree import Tree


def replay_tree(session: Session, tree: Tree, output: int) -> None:
    """Add the values of a tree to the predictions of every row.

    Parameters
    ----------
    session : Session
    tree : Tree
        Values as they are to be added (shrunk already).
    output : int
        The raw prediction it improves.
    """
    n_rows = session.executor.n_rows
    session.executor.broadcast(m.Route(session.fit, session.epoch, output))
    start = np.zeros(tree.node_count, np.int64)
    stop = np.full(tree.node_count, n_rows, np.int64)
    number = np.zeros(tree.node_count, np.int64)  # of the tree's nodes, as the shards know them
    n_known = 1
    level = np.zeros(1, np.int64)
    nothing = np.empty(0, np.int64)
    while level.size:
        inner = level[tree.children_left[level] >= 0]
        level = np.concatenate([tree.children_left[inner], tree.children_right[inner]])
        start[level], stop[level] = np.tile(start[inner], 2), np.tile(stop[inner], 2)
        inner = inner[start[inner] < stop[inner]]  # nodes without rows have nothing to divide
        n = inner.shape[0]
        if n == 0:
            continue
        left, right = tree.children_left[inner], tree.children_right[inner]
        number[left] = n_known + 2 * np.arange(n)
        number[right] = number[left] + 1
        n_known += 2 * n
        splits = Splits(
            node=number[inner],
            left=number[left],
            column=tree.feature[inner],
            threshold=tree.threshold[inner],
            missing_left=tree.missing_go_to_left[inner],
            n_left=np.zeros(n, np.int64),  # no row is in sample
            left_sums=np.zeros((n, 2), np.int64),
        )
        marks = session.run(session.mark(splits, RouteBitStore(), tree.categories.take(inner)))
        divided = session.run(session.advance(splits, marks, nothing))[0]
        start[left], stop[left] = start[inner], divided.left_stop
        start[right], stop[right] = divided.left_stop, stop[inner]
    leaf = tree.children_left < 0
    value = tree.value[leaf]
    session.executor.broadcast(m.Finish(session.fit, session.epoch, output, start[leaf], start[leaf], stop[leaf], value))
