"""One tree of a forest over shards of rows.

It is grown as a boosted one is (:mod:`dtrees.engine.rows.tree`). What comes before and after differs::

    CountClasses  count the draws of each class, where a tree weighs the classes of its own rows
    Draw          draw the rows of the tree
    ...
    MeasureMeans  find the means of leaves, of numbers as targets
    AddVotes      add what leaves say of rows that were not drawn to the sums of these, if those are wanted
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.leaves import values_by_leaves
from dtrees.engine.coordinator.session import Steps
from dtrees.engine.outcome.monotonic import put_in_order
from dtrees.engine.outcome.values import class_values, pruned, take_apart
from dtrees.engine.plan.node_limits import scaled
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.rows import messages as m
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.forests import messages as f
from dtrees.engine.rows.forests.leaf_rows import share_leaves
from dtrees.engine.rows.session import RowsSession
from dtrees.engine.rows.tree import grow_nodes, leaves_known
from dtrees.engine.rows.whole_sums import exponent_of
from dtrees.engine.shard.targets.forest_target import factors_of_classes
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.policy import DELEGATED_PARTS, SHARED_CELLS
from dtrees.tree.pruning import cost, kept_nodes
from dtrees.tree.pruning import pruned as without_links
from dtrees.tree.tree import Tree


def rows_to_send(plan: ForestPlan, n_rows: int, n_shards: int) -> int:
    """Return up to how many rows a node of a forest is grown by one shard.

    Each row drawn is sent once for a tree that is grown to its end, whatever this number is; the larger it is, the fewer levels take an
    exchange.
    """
    at_once = SHARED_CELLS // max(1, plan.rules.columns_per_tree)
    return max(rows_tree.SENT_ROWS, min(n_rows // (DELEGATED_PARTS * n_shards), at_once))


def forest_tree_steps(session: RowsSession, plan: ForestPlan, scales: f.ForestScales, number: int) -> Steps[Tree]:
    """Grow the tree of a number."""
    rules, criterion = plan.rules, criterion_named(plan.rules.criterion)
    drawn, exponents = yield from _drawn(session, plan, scales, number)
    derived = [m.Derived(one.sums, one.largest, one.n_in) for one in drawn]
    rounded = scales.n_draws * max(1, scales.points.shape[0])
    nodes, known, sets = yield from grow_nodes(session, number, derived, exponents, rounded)
    nodes, _ = pruned(nodes, exponents, rules)
    records = nodes.records
    left, right, feature, threshold, missing_left, n_samples, leaf, *_ = take_apart(records)
    gain = scaled(records["gain"], -criterion.gain_exponent(exponents))
    sets_of_tree, none = sets.of_tree(records, rules), np.zeros(n_samples.shape[0])

    def tree_of(value: NDArray[np.float64], weight: NDArray[np.float64], impurity: NDArray[np.float64]) -> Tree:
        tree = Tree(left, right, feature, threshold, missing_left, impurity, gain, n_samples, weight, value)
        if rules.monotonic:
            put_in_order(tree, rules.monotonic, measured=False)
        return tree.with_categories(sets_of_tree) if rules.categorical else tree

    if criterion.measured:
        shape = tree_of(none[:, None], none, none)
        mean, spread = yield from _measured(session, shape, leaves_known(records, known), n_samples[leaf])
        grown = tree_of(*values_by_leaves(plan, nodes, left, right, n_samples, exponents[1], gain, mean[:, None], spread))
    else:
        grown = tree_of(*class_values(nodes, criterion, exponents[1], plan.n_classes))
    if rules.ccp_alpha > 0:
        grown = without_links(grown, kept_nodes(left, right, cost(grown), rules.ccp_alpha))
    if plan.out_of_bag:
        yield from session.ask(f.AddVotes, number, grown)
    return grown


def _drawn(session: RowsSession, plan: ForestPlan, scales: f.ForestScales, number: int) -> Steps[tuple[list[f.Drawn], tuple[int, int]]]:
    """Have shards draw the rows of a tree; return what they say, and the powers of two that targets and weights are multiplied by."""
    if not plan.balanced_subsample:
        return cast(list[f.Drawn], (yield from session.ask(f.Draw, number))), scales.exponents
    counts = np.sum(cast(list[NDArray[np.int64]], (yield from session.ask(f.CountClasses, number))), axis=0)
    drawn = cast(list[f.Drawn], (yield from session.ask(f.Draw, number, factors_of_classes(counts))))
    exponent = yield from exponent_of(session, [m.Derived(one.sums, one.largest, one.n_in) for one in drawn], 1)
    if all(one.integral for one in drawn):
        exponent = min(exponent, 0)
    return drawn, (exponent, exponent)


def _measured(
    session: RowsSession, tree: Tree, known: tuple[NDArray[np.int64], NDArray[np.int64]], n_samples: NDArray[np.int64]
) -> Steps[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the means of the leaves of a tree, and their spreads, given how many rows they have."""
    begins = share_leaves(n_samples, session.executor.n_shards)
    found = cast(list[f.LeafMeans], (yield from session.ask(f.MeasureMeans, session.next_serial(), tree, *known, begins)))
    return np.concatenate([one.mean for one in found]), np.concatenate([one.spread for one in found])
