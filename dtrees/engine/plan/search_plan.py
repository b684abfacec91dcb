"""How the nodes of a tree are to be searched: by zone sums or not, and from which size on in a block."""

from __future__ import annotations

import math

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, Rules
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.policy import BLOCK_ROWS, BOUNDED_ROWS, MAX_ZONES, SLOTS_BYTES_PER_ROW, SLOTS_MIN_BYTES, WHOLE_BLOCK_CELLS


def inherits_sums(plan: ForestPlan | BoostingPlan) -> bool:
    """Tell whether every node is searched exactly in all columns of the tree, by two sums."""
    rules = plan.rules
    two = isinstance(plan, BoostingPlan) or (plan.n_classes <= 2 and not plan.targets)
    return two and criterion_named(rules.criterion).by_sums and not rules.random_splits and rules.max_features >= rules.columns_per_tree


def subtree_rows(plan: ForestPlan | BoostingPlan, n_rows: int, n_columns: int, n_threads: int) -> int:
    """Return up to how many rows a node is grown to its end by one call of the shard that has all columns."""
    if n_threads == 1:
        return n_rows
    if not inherits_sums(plan):
        return max(1024, n_rows // (8 * n_threads))
    slot = n_columns * MAX_ZONES * 24
    room = max(SLOTS_MIN_BYTES, SLOTS_BYTES_PER_ROW * n_rows)
    if 4 * n_threads * slot <= room:
        return n_rows
    # Very wide: by levels, the nodes of which must be few enough to have slots.
    return min(n_rows, 2 * slot * n_rows // room)


def rows_in_block(rules: Rules, n_rows: int, n_columns: int) -> int:
    """Return up to how many rows a node is finished in a block, not searched by zone sums, of a subtree of ``n_rows`` rows."""
    if n_rows <= BLOCK_ROWS and n_rows * n_columns <= WHOLE_BLOCK_CELLS:
        return n_rows
    # Copying and sorting a block pays where a few levels are to follow.
    levels_above = math.log2(max(1.0, n_rows / BLOCK_ROWS))
    depth = math.inf if rules.max_depth is None else rules.max_depth
    if rules.max_leaf_nodes is not None:
        depth = min(depth, rules.max_leaf_nodes.bit_length() + 1)
    return BLOCK_ROWS if depth >= levels_above + 6 else BOUNDED_ROWS
