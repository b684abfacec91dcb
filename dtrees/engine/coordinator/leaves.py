"""How the leaves of a grown tree are asked about, and the message that tells shards of them."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.delegation import NO_DELEGATION, Delegation, place_of_split
from dtrees.engine.coordinator.session import Session, Steps
from dtrees.engine.outcome.ending import draft_tree, finish_tree, measures
from dtrees.engine.outcome.values import places_of_leaves, splits_of_categories
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.splits import RouteBits, Splits
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.node.records import Nodes
from dtrees.tree.category_sets import NO_SETS, CategorySets
from dtrees.tree.tree import Tree


class Grown(NamedTuple):
    """A tree, and the message that is to close it on every shard; None where shards need not know its leaves."""

    tree: Tree
    closing: m.Finish | None


def closes(plan: ForestPlan | BoostingPlan) -> bool:
    """Tell whether shards need to know the leaves of a tree."""
    return isinstance(plan, BoostingPlan) or plan.out_of_bag


def complete(
    session: Session,
    started: m.Start,
    nodes: Nodes,
    root: m.Root,
    learning_rate: float,
    last: tuple[Splits, RouteBits] | None = None,
    delegation: Delegation = NO_DELEGATION,
) -> Steps[Grown]:
    """Turn sums into values. One shard is asked for what they need: another for each tree, since all know it, but for delegated nodes."""
    plan, records = session.plan, nodes.records
    tree = draft_tree(plan, nodes, root.exponents, learning_rate)
    if plan.rules.categorical:
        tree = tree.with_categories((yield from _find_sets(session, records, delegation)))
    measured = (yield from _measure(session, started, tree, records, delegation)) if measures(plan) else None
    tree, said = finish_tree(plan, nodes, root.exponents, tree, measured, learning_rate)
    if not closes(plan):
        return Grown(tree, None)
    leaf, start, in_stop, stop = places_of_leaves(records)
    # A forest adds up what leaves say of rows out of sample, boosting what they say of all rows.
    told = np.flatnonzero(stop > in_stop) if isinstance(plan, ForestPlan) else slice(None)
    start, in_stop, stop, value = start[told], in_stop[told], stop[told], said[leaf][told]
    closing = m.Finish(started.output, start, in_stop, stop, value, last=last)
    if delegation.outside:
        closing = closing._replace(delegated=delegation.shard_of(start, -1) >= 0, outside=np.concatenate(delegation.outside))
    return Grown(tree, closing)


def _measure(
    session: Session, started: m.Start, tree: Tree, records: NDArray[Any], delegation: Delegation
) -> Steps[NDArray[np.float64] | m.Measured]:
    """Ask for what is measured of leaves, or nodes."""
    plan, one = session.plan, started.tree % session.executor.n_shards
    if criterion_named(plan.rules.criterion).measured == "nodes":
        places = records["start"].astype(np.int64), records["in_stop"].astype(np.int64)
        replies = yield {one: ("measure_nodes", tree.children_left, tree.children_right, *places)}
        return cast(m.Measured, replies[one])
    _, start, in_stop, _ = places_of_leaves(records)
    if isinstance(plan, BoostingPlan):
        replies = yield {one: ("measure_steps", started.output, start, in_stop)}
        return cast(NDArray[np.float64], replies[one])
    asked = delegation.ask(start, one)
    replies = yield {i: ("measure_leaves", start[mine], in_stop[mine]) for i, mine in asked.items()}
    mean, spread = np.empty((start.shape[0], plan.n_values)), np.empty(start.shape[0])
    for i, mine in asked.items():
        found = cast(m.Measured, replies[i])
        mean[mine], spread[mine] = found.center.reshape(-1, plan.n_values), found.spread
    return m.Measured(mean, spread)


def _find_sets(session: Session, records: NDArray[Any], delegation: Delegation) -> Steps[CategorySets]:
    """Ask for the categories that go left in the splits of a tree, each of the shard that has the column; delegated nodes' are known."""
    node, column, number, start, stop = splits_of_categories(records, session.plan.rules)
    if not node.shape[0]:
        return NO_SETS
    split_at = place_of_split(records[node])
    is_known = np.isin(split_at, delegation.split_at)
    owner = np.where(is_known, -1, session.executor.owner(column))
    asked = {i: np.flatnonzero(owner == i) for i in np.unique(owner[~is_known]).tolist()}
    known = np.flatnonzero(is_known)
    which, sets = [known], [delegation.sets.take(np.searchsorted(delegation.split_at, split_at[known]))]
    if asked:
        replies = yield {i: ("find_sets", column[mine], number[mine], start[mine], stop[mine]) for i, mine in asked.items()}
        which.extend(asked.values())
        sets.extend(cast(CategorySets, replies[i]) for i in asked)
    return CategorySets.joined(node, which, sets)
