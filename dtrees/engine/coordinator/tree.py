"""One tree: carries the grower's decisions to the shards and their answers back.

:func:`tree_steps` is the whole protocol of a tree::

    Start -> Root, Found          every shard
    while there are splits:
        Advance  -> Divided       every shard; with it the best splits of the next level
    Grow     -> subtrees          small nodes, where one shard has all columns
    ShareRows, GrowDelegated -> subtrees      small nodes of a forest, where none has (:mod:`dtrees.engine.coordinator.delegation`)
    Merge                         what best-first growth or pruning leaves out is taken away (:mod:`dtrees.split.grow.best_first`)
    MeasureLeaves, MeasureNodes   means (squared error), medians (absolute error)
    MeasureSteps                  values of a boosted tree's leaves, where they follow from the order of residuals
    Finish                        leaf values, and the last splits

A boosted tree that one shard grows all by itself is a single message instead, ``BoostTree``: on small tables the others would take longer
than the tree.

While another process compiles the kernels that grow subtrees, which takes far longer than all others, every tree is grown level by level,
by *plain* searches (:class:`~dtrees.engine.protocol.messages.Start`).

A level is an exchange or two (:class:`~dtrees.engine.protocol.messages.SearchMode`). Where its nodes have few rows, every shard says with
the best splits it finds which rows these send left: some more bits, but one exchange. Where they have many, and zone sums tell early how
good the best split of each column is at least, a shard that does not know what others know looks for splits that cannot be the best of all,
for longer than a message takes: so the first exchange is about that, the second, ``Scan``, about the splits. Otherwise the second is
``Evaluate``: the owners of the columns split on, and nobody else, say which rows go left.

The message that starts a boosted tree follows right behind the one that closes the tree before, so that shards need not wait for what is
done between trees.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from dtrees.engine.coordinator.delegation import NO_DELEGATION, grow_delegated, rows_to_delegate
from dtrees.engine.coordinator.grower import Grower
from dtrees.engine.coordinator.leaves import Grown, closes, complete
from dtrees.engine.coordinator.session import Session, Steps, subtree_rows
from dtrees.engine.outcome.ending import measures
from dtrees.engine.outcome.scoring import scores_of, shares_of
from dtrees.engine.outcome.values import pruned
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.route_bits import RouteBitStore
from dtrees.engine.protocol.splits import RouteBits, Splits
from dtrees.split.grow.best_first import origins
from dtrees.split.node.partition import count_left
from dtrees.split.node.records import Nodes
from dtrees.tree.tree import Tree


def grow_tree(
    session: Session,
    tree: int,
    output: int = 0,
    learning_rate: float = 1.0,
    score: bool = False,
    started: m.Start | None = None,
    following: m.Start | None = None,
) -> tuple[Tree, m.Scores]:
    """Grow one tree and add it to the predictions.

    Parameters
    ----------
    session : Session
        After ``begin``.
    tree : int
        Its identity for random draws.
    output : int, default=0
        The raw prediction it improves (boosting).
    learning_rate : float, default=1.0
        Multiplies its values.
    score : bool, default=False
        Whether to compute the mean loss afterwards.
    started : Start, optional
        The message that starts the tree, if it is on its way already.
    following : Start, optional
        The message that starts the next tree (:func:`starting`), to be sent right behind the one that closes this.
    """
    executor = session.executor
    try:
        if session.boosts_at_once:
            message = m.BoostTree(session.fit, session.epoch, tree, output, learning_rate, score)
            return cast(m.Boosted, executor.broadcast(message)[0])
        start = started or starting(session, tree, output)
        grown, closing = session.run(tree_steps(session, start, learning_rate), is_begun=started is not None)
    except m.NotCompiled:
        start = replace(starting(session, tree, output), search=True, plain=True)
        grown, closing = session.run(tree_steps(session, start, learning_rate))
    if closing is None:
        return grown, m.Scores(math.nan, math.nan)
    shares = dict(enumerate(shares_of(executor.n_rows, executor.n_shards) if score else []))
    executor.post({i: replace(closing, scored=share) for i, share in shares.items()} or session.to_all(closing))
    if following is not None:
        executor.post(session.to_all(following))
    replies = executor.collect()
    return grown, scores_of([cast(m.Losses, replies[i]) for i in shares]) if shares else m.Scores(math.nan, math.nan)


def starting(session: Session, tree: int, output: int = 0) -> m.Start:
    """Return the message that starts a tree."""
    executor = session.executor
    # A shard that grows the whole tree by itself need not search the root first.
    search, several = _rows_set_aside(session) < executor.n_rows, executor.n_shards > 1
    return m.Start(session.fit, session.epoch, tree, output, search, several, session.search_mode(executor.n_rows))


def tree_steps(session: Session, start: m.Start, learning_rate: float = 1.0) -> Steps[Grown]:
    """Grow the tree that a message starts (:func:`starting`), and leave it to the caller to close it; see :func:`grow_tree`."""
    executor, plan = session.executor, session.plan
    replies = yield session.to_all(start)
    roots = [cast(m.Root, replies[i]) for i in range(len(replies))]
    root = roots[0]
    if any(r.checksum != root.checksum or r.exponents != root.exponents for r in roots):
        raise m.ReplicasDiffer(f"shards do not agree about the rows and gradients of tree {start.tree}")
    if not start.search:
        all_rows = m.Grow(session.fit, session.epoch, np.zeros(1, np.int64), origins(1), last=session.gives_up_columns)
        replies = yield {0: all_rows}
        nodes = yield from _pruned(session, cast(m.Subtrees, replies[0])[0], root)
        return (yield from complete(session, start, nodes, root, learning_rate))
    n_classes, targets = (plan.n_classes, plan.targets) if isinstance(plan, ForestPlan) else (0, ())
    n_columns = plan.rules.columns_per_tree
    grower = Grower(plan.rules, n_classes, n_columns, root, 0 if start.plain else _rows_set_aside(session), targets)
    route_bits, last = RouteBitStore(), None
    if grower.to_search.shape[0]:
        yield from _accept(session, grower, [r.found for r in roots], route_bits)
    while (splits := grower.choose()) is not None:
        if grower.is_last and not _needs_rows(plan):
            if closes(plan):
                marks = yield from session.mark(splits, route_bits)
                grower.divide(splits, _divided(grower, splits, marks))
                last = m.Advance(session.fit, session.epoch, splits, marks, grower.to_search)
            break
        marks = yield from session.mark(splits, route_bits)
        divided = yield from session.advance(splits, marks, grower.to_search, session.search_mode(grower.rows_to_search))
        grower.divide(splits, divided[0])
        if grower.to_search.shape[0]:
            yield from _accept(session, grower, [d.found for d in divided], route_bits)
    delegation = NO_DELEGATION
    if not executor.whole_threads:
        delegation = yield from grow_delegated(session, start.tree, grower)
    elif grower.to_grow:
        replies = yield {0: m.Grow(session.fit, session.epoch, *grower.budget(), session.gives_up_columns)}
        grower.attach(grower.to_grow, cast(m.Subtrees, replies[0]))
    nodes = yield from _pruned(session, grower.arrange(), root)
    return (yield from complete(session, start, nodes, root, learning_rate, last, delegation))


def _needs_rows(plan: ForestPlan | BoostingPlan) -> bool:
    """Tell whether the rows of leaves must lie in their order when a tree is finished."""
    if measures(plan) or plan.rules.categorical:
        return True
    # The rows of a leaf that is made of several must lie in sample and out of sample, not so by turns.
    return plan.rules.max_leaf_nodes is not None and isinstance(plan, ForestPlan) and closes(plan)


def _pruned(session: Session, nodes: Nodes, root: m.Root) -> Steps[Nodes]:
    """Return a tree without the nodes that are left out of it after growing."""
    nodes, merged = pruned(nodes, root.exponents, session.plan.rules)
    for leaves in merged if _needs_rows(session.plan) else ():
        yield session.to_all(m.Merge(session.fit, session.epoch, leaves))
    return nodes


def _rows_set_aside(session: Session) -> int:
    """Return up to how many rows a node is grown to its end by one shard."""
    executor, plan = session.executor, session.plan
    if not executor.whole_threads:
        return rows_to_delegate(session)
    return subtree_rows(executor, plan)


def _accept(session: Session, grower: Grower, found: list[m.Found | m.Bars | None], route_bits: RouteBitStore) -> Steps[None]:
    nodes = grower.to_search
    rest = grower.accept(nodes, (yield from session.find(nodes, found, route_bits)))
    if rest.shape[0]:
        grower.accept(rest, (yield from session.search_rest(grower, rest)))


def _divided(grower: Grower, splits: Splits, marks: RouteBits) -> m.Divided:
    """Return where children will lie, as their marks tell."""
    start, in_stop, stop = grower.places(splits.node)
    counts = count_left(marks.bits, marks.offsets, start, in_stop, stop)
    return m.Divided(start + counts[:, 0], start + counts[:, 1], None)
