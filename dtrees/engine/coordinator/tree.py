"""One tree: carries the grower's decisions to the shards and their answers back.

:func:`tree_steps` is the whole protocol of a tree, by methods of :class:`~dtrees.engine.shard.tree_state.TreeState`::

    start -> Root, Found          every shard
    while there are splits:
        advance  -> Divided       every shard; with it the best splits of the next level
    grow     -> subtrees          small nodes, where one shard has all columns
    share_rows, grow_delegated -> subtrees    small nodes of a forest, where none has (:mod:`dtrees.engine.coordinator.delegation`)
    merge                         what best-first growth or pruning leaves out is taken away (:mod:`dtrees.split.grow.best_first`)
    measure_leaves, measure_nodes means (squared error), medians (absolute error)
    measure_steps                 values of a boosted tree's leaves, where they follow from the order of residuals
    finish                        leaf values, and the last splits

While another process compiles the kernels that grow subtrees, which takes far longer than all others, every tree is grown level by level,
by *plain* searches (:class:`~dtrees.engine.protocol.messages.Start`).

A level is one exchange: with the best splits of its columns, every shard says which rows these would send left. That is a bit for each row
and shard more than where the owners of the chosen columns are asked afterwards, and less than a second exchange takes.

The call that starts a boosted tree follows right behind the one that closes the tree before, so that shards need not wait for what is
done between trees.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.delegation import Delegation, grow_delegated, no_delegation, rows_to_delegate
from dtrees.engine.coordinator.grower import Grower
from dtrees.engine.coordinator.session import Session, Steps
from dtrees.engine.outcome.beyond_sums import KnownSets
from dtrees.engine.outcome.ending import draft_tree, finish_tree, measures
from dtrees.engine.outcome.scoring import scores_of, shares_of
from dtrees.engine.outcome.values import CategorySplits, places_of_leaves, pruned, splits_of_categories
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import NO_SCORES, Divided, Finish, Measured, ReplicasDiffer, Root, Scores, Start
from dtrees.engine.protocol.nodes import RouteBits, RouteBitStore, Splits
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.grow.best_first import origins
from dtrees.split.node.partition import count_left
from dtrees.split.node.records import Nodes
from dtrees.tree.category_sets import NO_SETS, CategorySets
from dtrees.tree.tree import Tree


class Grown(NamedTuple):
    """A tree, and the message that is to close it on every shard; None where shards need not know its leaves."""

    tree: Tree
    closing: Finish | None


def grow_tree(
    session: Session,
    start: Start,
    learning_rate: float = 1.0,
    score: bool = False,
    is_started: bool = False,
    following: Start | None = None,
) -> tuple[Tree, Scores]:
    """Grow one tree and add it to the predictions.

    Parameters
    ----------
    session : Session
        After ``begin``.
    start : Start
        How to begin (:func:`starting`).
    learning_rate : float, default=1.0
        Multiplies its values.
    score : bool, default=False
        Whether to compute the mean loss afterwards.
    is_started : bool, default=False
        Whether the call that starts it is on its way already.
    following : Start, optional
        The next tree, to be started right behind the call that closes this.
    """
    ((grown, closing),) = session.run([tree_steps(session, start, learning_rate)], is_started)
    if closing is None:
        return grown, NO_SCORES
    shares = dict(enumerate(shares_of(session.executor.n_rows, session.executor.n_shards) if score else []))
    finish = {i: ("finish", closing._replace(scored=share)) for i, share in shares.items()} or session.to_all("finish", closing)
    losses = session.ask(finish, None if following is None else session.to_all("start", following))
    return grown, scores_of([losses[i] for i in shares]) if shares else NO_SCORES


def starting(session: Session, tree: int, output: int = 0) -> Start:
    """Return how to begin a tree, of an identity for random draws, that improves one of the raw predictions."""
    # A shard that grows the whole tree by itself need not search the root first.
    search, several = _rows_set_aside(session) < session.executor.n_rows, session.executor.n_shards > 1
    return Start(tree, output, search, several)


def tree_steps(session: Session, start: Start, learning_rate: float = 1.0) -> Steps[Grown]:
    """Grow a tree (:func:`starting`), and leave it to the caller to close it; see :func:`grow_tree`."""
    plan = session.plan
    replies = yield session.to_all("start", start)
    roots: list[Root] = list(replies.values())
    root = roots[0]
    if any(r.checksum != root.checksum or r.exponents != root.exponents for r in roots):
        raise ReplicasDiffer(f"shards do not agree about the rows and gradients of tree {start.tree}")
    if not start.search:
        (nodes,) = yield from _grow_here(session, np.zeros(1, np.int64), origins(1))
        nodes = yield from _pruned(session, nodes, root)
        return (yield from _complete(session, start, nodes, root, learning_rate))
    n_classes, targets = (plan.n_classes, plan.targets) if isinstance(plan, ForestPlan) else (0, ())
    n_columns = plan.rules.columns_per_tree
    grower = Grower(plan.rules, n_classes, n_columns, root, _rows_set_aside(session), targets)
    route_bits, last = RouteBitStore(), None
    if grower.to_search.shape[0]:
        yield from session.accept(grower, [r.found for r in roots if r.found is not None], route_bits)
    while (splits := grower.choose()) is not None:
        if grower.is_last and not _needs_rows(plan):
            if _closes(plan):
                last = splits, route_bits.take(splits.node)
                grower.divide(splits, _divided(grower, *last))
            break
        replies = yield session.to_all("advance", splits, route_bits.take(splits.node), grower.to_search)
        grower.divide(splits, replies[0])
        if grower.to_search.shape[0]:
            yield from session.accept(grower, [divided.found for divided in replies.values()], route_bits)
    delegation = None
    if not session.executor.whole_threads:
        delegation = yield from grow_delegated(session, start.tree, grower)
    elif grower.to_grow:
        some = np.array(grower.to_grow, np.int64)
        grower.attach(grower.to_grow, (yield from _grow_here(session, some, grower.origin_of(some), grower.first_splits())))
    nodes = yield from _pruned(session, grower.arrange(), root)
    return (yield from _complete(session, start, nodes, root, learning_rate, last, delegation))


def _grow_here(session: Session, *nodes_and_budget: np.ndarray) -> Steps[list[Nodes]]:
    """Have the one shard that there is grow nodes to their ends."""
    replies = yield {0: ("grow", *nodes_and_budget)}
    if session.last_tree and not session.plan.rules.categorical:  # whose sets are still to be found in the columns
        yield {0: ("give_up_columns",)}
    subtrees: list[Nodes] = replies[0]
    return subtrees


def _needs_rows(plan: ForestPlan | BoostingPlan) -> bool:
    """Tell whether the rows of leaves must lie in their order when a tree is finished."""
    if measures(plan) or plan.rules.categorical:
        return True
    # The rows of a leaf that is made of several must lie in sample and out of sample, not so by turns.
    return plan.rules.max_leaf_nodes is not None and isinstance(plan, ForestPlan) and _closes(plan)


def _pruned(session: Session, nodes: Nodes, root: Root) -> Steps[Nodes]:
    """Return a tree without the nodes that are left out of it after growing."""
    nodes, merged = pruned(nodes, root.exponents, session.plan.rules)
    for leaves in merged if _needs_rows(session.plan) else ():
        yield session.to_all("merge", leaves)
    return nodes


def _rows_set_aside(session: Session) -> int:
    """Return up to how many rows a node is grown to its end by one shard."""
    return session.subtree_rows if session.executor.whole_threads else rows_to_delegate(session)


def _divided(grower: Grower, splits: Splits, marks: RouteBits) -> Divided:
    """Return where children will lie, as their marks tell."""
    start, in_stop, stop = grower.places(splits.node)
    counts = count_left(marks.bits, marks.offsets, start, in_stop, stop)
    return Divided(start + counts[:, 0], start + counts[:, 1], None)


def _closes(plan: ForestPlan | BoostingPlan) -> bool:
    """Tell whether shards need to know the leaves of a tree."""
    return isinstance(plan, BoostingPlan) or plan.out_of_bag


def _complete(
    session: Session,
    started: Start,
    nodes: Nodes,
    root: Root,
    learning_rate: float,
    last: tuple[Splits, RouteBits] | None = None,
    delegation: Delegation | None = None,
) -> Steps[Grown]:
    """Turn sums into values. One shard is asked for what they need: another for each tree, since all know it, but for delegated nodes."""
    plan, records, delegation = session.plan, nodes.records, delegation or no_delegation()
    tree = draft_tree(plan, nodes, root.exponents, learning_rate)
    if plan.rules.categorical:
        tree = tree.with_categories((yield from _find_sets(session, records, delegation.sets)))
    measured = (yield from _measure(session, started, tree, records, delegation)) if measures(plan) else None
    tree, said = finish_tree(plan, nodes, root.exponents, tree, measured, learning_rate)
    if not _closes(plan):
        return Grown(tree, None)
    leaf, start, in_stop, stop = places_of_leaves(records)
    # A forest adds up what leaves say of rows out of sample, boosting what they say of all rows.
    told = np.flatnonzero(stop > in_stop) if isinstance(plan, ForestPlan) else slice(None)
    start, in_stop, stop, value = start[told], in_stop[told], stop[told], said[leaf][told]
    closing = Finish(started.output, start, in_stop, stop, value, last=last)
    if delegation.outside:
        closing = closing._replace(delegated=delegation.shard_of(start, -1) >= 0, outside=np.concatenate(delegation.outside))
    return Grown(tree, closing)


def _measure(
    session: Session, started: Start, tree: Tree, records: NDArray[Any], delegation: Delegation
) -> Steps[NDArray[np.float64] | Measured]:
    """Ask for what is measured of leaves, or nodes."""
    plan, one = session.plan, started.tree % session.executor.n_shards
    if criterion_named(plan.rules.criterion).measured == "nodes":
        places = records["start"].astype(np.int64), records["in_stop"].astype(np.int64)
        replies = yield {one: ("measure_nodes", tree.children_left, tree.children_right, *places)}
        return cast(Measured, replies[one])
    _, start, in_stop, _ = places_of_leaves(records)
    if isinstance(plan, BoostingPlan):
        replies = yield {one: ("measure_steps", started.output, start, in_stop)}
        return cast(NDArray[np.float64], replies[one])
    asked = delegation.ask(start, one)
    replies = yield {i: ("measure_leaves", start[mine], in_stop[mine]) for i, mine in asked.items()}
    mean, spread = np.empty((start.shape[0], plan.n_values)), np.empty(start.shape[0])
    for i, mine in asked.items():
        found = cast(Measured, replies[i])
        mean[mine], spread[mine] = found.center.reshape(-1, plan.n_values), found.spread
    return Measured(mean, spread)


def _find_sets(session: Session, records: NDArray[Any], known: KnownSets) -> Steps[CategorySets]:
    """Ask for the categories that go left in the splits of a tree, each of the shard that has the column; delegated nodes' are known."""
    splits = splits_of_categories(records, session.plan.rules)
    if not splits.node.shape[0]:
        return NO_SETS
    lacking = known.lacking(records[splits.node])
    owner = session.executor.owner(splits.column[lacking])
    asked = {i: lacking[owner == i] for i in np.unique(owner).tolist()}
    replies = (yield {i: ("find_sets", CategorySplits(*(array[mine] for array in splits))) for i, mine in asked.items()}) if asked else {}
    for i, mine in asked.items():
        if mine.shape[0] == splits.node.shape[0]:
            return cast(CategorySets, replies[i])
        known.add(records, replies[i])
    return known.of_tree(records, session.plan.rules)
