"""What the nodes of a grown tree say: sums turned into values, and the message that tells shards of its leaves."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.delegation import NO_DELEGATION, Delegation, place_of_split
from dtrees.engine.coordinator.session import Session, Steps
from dtrees.engine.outcome.monotonic import put_in_order
from dtrees.engine.outcome.values import class_values, newton_values, penalties_of, places_of_leaves, splits_of_categories, take_apart
from dtrees.engine.plan.node_limits import n_sums_of, scaled
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.splits import RouteBits, Splits
from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.node.records import Nodes
from dtrees.tree.category_sets import NO_SETS, CategorySets
from dtrees.tree.pruning import cost, kept_nodes, nodes_above, pruned
from dtrees.tree.tree import Tree


class Grown(NamedTuple):
    """A tree, and the message that is to close it on every shard; None where shards need not know its leaves."""

    tree: Tree
    closing: m.Finish | None


def measures(plan: ForestPlan | BoostingPlan) -> bool:
    """Tell whether the values of leaves are measured on their rows, after the last splits."""
    return plan.measures_leaves if isinstance(plan, BoostingPlan) else bool(criterion_named(plan.rules.criterion).measured)


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
    plan = session.plan
    rules, criterion = plan.rules, criterion_named(plan.rules.criterion)
    one = started.tree % session.executor.n_shards
    records = nodes.records
    left, right, feature, threshold, missing_left, n_samples = take_apart(records)
    leaf, start, in_stop, stop = places_of_leaves(records if closes(plan) or measures(plan) else records[:0])
    g_exponent, h_exponent = root.exponents
    if criterion.measured == "leaves":
        asked = delegation.ask(start, one)
        replies = yield {i: ("measure_leaves", start[mine], in_stop[mine]) for i, mine in asked.items()}
        mean, spread = np.empty((start.shape[0], _n_means(plan))), np.empty(start.shape[0])
        for i, mine in asked.items():
            found = cast(m.Measured, replies[i])
            mean[mine], spread[mine] = found.center.reshape(-1, mean.shape[1]), found.spread
        gain = scaled(records["gain"], -criterion.gain_exponent(root.exponents))
        value, weight, impurity = values_by_leaves(plan, nodes, left, right, n_samples, h_exponent, gain, mean, spread)
    elif criterion.measured == "nodes":
        places = records["start"].astype(np.int64), records["in_stop"].astype(np.int64)
        replies = yield {one: ("measure_nodes", left, right, *places)}
        quantile, spread = cast(m.Measured, replies[one])
        weight = _weights(nodes, n_samples)
        value, impurity = quantile.reshape(-1, _n_means(plan)), spread / weight
        weight = scaled(weight, -h_exponent)
        gain = scaled(records["gain"], -criterion.gain_exponent(root.exponents))
    elif criterion.task == "boosting":
        value, weight, impurity, gain = newton_values(
            records, nodes.sums, g_exponent, h_exponent, criterion.gain_exponent(root.exponents), penalties_of(rules), learning_rate
        )
        if measures(plan):
            replies = yield {one: ("measure_steps", started.output, start, in_stop)}
            value[leaf, 0] = learning_rate * cast(NDArray[np.float64], replies[one])
        if isinstance(plan, BoostingPlan):
            plan.loss.limit_steps(value, learning_rate)
    else:
        value, weight, impurity = class_values(
            nodes, criterion, h_exponent, plan.n_classes, () if isinstance(plan, BoostingPlan) else plan.targets
        )
        gain = scaled(records["gain"], -criterion.gain_exponent(root.exponents))
    tree = Tree(left, right, feature, threshold, missing_left, impurity, gain, n_samples, weight, value)
    if rules.monotonic:
        put_in_order(tree, rules.monotonic, measured=criterion.task == "boosting" and measures(plan))
    if rules.categorical:
        tree = tree.with_categories((yield from _find_sets(session, records, delegation)))
    said_by = np.flatnonzero(leaf)
    if rules.ccp_alpha > 0 and isinstance(plan, ForestPlan):
        kept = kept_nodes(left, right, cost(tree), rules.ccp_alpha)
        tree, said_by = pruned(tree, kept), nodes_above(kept, said_by)
    closing = None
    if closes(plan):
        # A forest adds up what leaves say of rows out of sample, boosting what they say of all rows.
        told = np.flatnonzero(stop > in_stop) if isinstance(plan, ForestPlan) else slice(None)
        start, in_stop, stop, value_of_leaf = start[told], in_stop[told], stop[told], value[said_by[told]]
        closing = m.Finish(started.output, start, in_stop, stop, value_of_leaf, last=last)
        if delegation.outside:
            closing = closing._replace(delegated=delegation.shard_of(start, -1) >= 0, outside=np.concatenate(delegation.outside))
    return Grown(tree, closing)


def values_by_leaves(
    plan: ForestPlan | BoostingPlan,
    nodes: Nodes,
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    n_samples: NDArray[np.int64],
    h_exponent: int,
    gain: NDArray[np.float64],
    mean: NDArray[np.float64],
    spread: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return means, weights and impurities of nodes, given the means, shape (n, n_targets), and spreads of leaves, and gains."""
    decreases, weight_at = criterion_named(plan.rules.criterion).gain_is_decrease, n_sums_of(plan) - 1
    found: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] = _from_leaves(
        left, right, nodes.sums, weight_at, n_samples, h_exponent, gain, mean, spread, decreases
    )
    return found


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


def _n_means(plan: ForestPlan | BoostingPlan) -> int:
    """Return how many targets are measured on leaves or nodes."""
    return plan.n_values if isinstance(plan, ForestPlan) else 1


def _weights(nodes: Nodes, n_samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights of nodes, which are their numbers of rows where no sums were kept."""
    return (nodes.sums[:, 1] if nodes.sums.shape[1] else n_samples).astype(np.float64)


@kernel
def _from_leaves(left, right, sums, weight_at, n_samples, h_exponent, gain, mean, spread, gain_is_decrease):  # type: ignore[no-untyped-def]
    """Return means, weights and impurities of nodes, by the means and sums of squares of the leaves, in the order of these.

    ``mean`` has a column for each target, and ``sums`` the weights of nodes in column ``weight_at``.

    The children of a node have higher numbers. Its sum of squares is theirs plus the gain of its split, or, where the criterion's gain is
    something else, plus that of their means about its own.
    """
    n, n_targets = left.shape[0], mean.shape[1]
    value, weight, impurity = np.empty((n, n_targets)), np.empty(n), np.empty(n)
    leaf = mean.shape[0]
    for node in range(n - 1, -1, -1):
        weight[node] = _scaled(float(sums[node, weight_at] if sums.shape[1] > 0 else n_samples[node]), h_exponent)
        i, j = left[node], right[node]
        if i >= 0:
            between = gain[node] if gain_is_decrease else 0.0
            for t in range(n_targets):
                apart = value[j, t] - value[i, t]
                value[node, t] = value[i, t] + apart * (weight[j] / weight[node])
                if not gain_is_decrease:
                    between += apart * apart * weight[i] * (weight[j] / weight[node]) / n_targets
            impurity[node] = impurity[i] + impurity[j] + between
        else:
            leaf -= 1
            impurity[node] = _scaled(spread[leaf], h_exponent)
            for t in range(n_targets):
                value[node, t] = mean[leaf, t]
    for node in range(n):
        impurity[node] = impurity[node] / weight[node] if weight[node] > 0.0 else 0.0
    return value, weight, impurity


@inner_kernel
def _scaled(x, exponent):  # type: ignore[no-untyped-def]
    """Return ``x / 2**exponent``."""
    return math.ldexp(x, -exponent) if exponent != 0 else x
