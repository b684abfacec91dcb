"""Kinds of trees that tests compile kernels for that grow whole subtrees, ten seconds each; trees of other kinds are grown level by level.

That is what a fit does while another process compiles these kernels, and gives the same trees; here without sums of zones, too, which have
kernels of their own. Quick tests compile for few kinds, slow ones for each criterion, and thorough ones for whatever they grow. So a test
that is to show a kind of subtree or of zones is a slow one if the kind is among those of slow tests alone, and else a thorough one.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dtrees.engine.plan import node_limits
from dtrees.engine.plan.node_limits import LimitsOfFit, SumsKept
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.exchange import Shards
from dtrees.engine.rows.fit import RowsFit
from dtrees.engine.shard import dense_runner, tree_state
from dtrees.engine.shard import tree as over_shards
from dtrees.split.criteria.parts import kinds_of
from dtrees.split.node.limits import RandomThreshold, SplitLimits

#: The environment variable that says for which kinds they are compiled: those of "quick" or of "slow" tests. Without it, for all.
VARIABLE = "DTREES_SUBTREE_KERNELS"

_QUICK = {
    "Squares",
    "Squares by zones",
    "Squares at random",
    "Clipped Squares",
    "GiniOfClasses",
}
_SLOW = _QUICK | {
    "InOrder Squares",
    "Clipped Squares by zones",
    "Thresholded",
    "Thresholded by zones",
    "Poisson",
    "Poisson by zones",
    "EntropyOfTwo",
    "EntropyOfTwo by zones",
    "EntropyOfClasses",
    "GiniOfClasses at random",
    "Deviations",
    "Deviations at random",
    "SeveralAmounts GiniOfClasses",
    "SeveralClasses GiniOfClasses",
    "SeveralDeviations Deviations",
}
_KINDS = {"quick": _QUICK, "slow": _SLOW}
#: Those that this process compiles for; None: for all.
_chosen: set[str] | None = None


def choose_subtree_kernels() -> None:
    """From now on, in this process, have trees of all kinds but those that the environment variable chooses grown level by level.

    A criterion that is defined in the tests is compiled in any of them.
    """
    global _chosen
    if VARIABLE not in os.environ:
        return
    _chosen = _KINDS[os.environ[VARIABLE]]
    compiled_elsewhere, of_tree = dense_runner.compiled_elsewhere, LimitsOfFit.of_tree
    rows_to_delegate, inherits_sums = over_shards.rows_to_delegate, node_limits.inherits_sums
    sent_rows = RowsFit.sent_rows.__get__

    def left_out_or_compiled_elsewhere(kernel: Any, *arguments: Any) -> bool:
        task = arguments[-1]
        return not _is_chosen(task.limits, task.sum_slots is not None) or compiled_elsewhere(kernel, *arguments)

    def of_tree_by_usual_kernels(
        self: LimitsOfFit, sums: Any, exponents: Any, slope: float = 0.0, plain: bool = False, targets: Any = None
    ) -> Any:
        """Limits for the kernels that levels of trees over shards are searched by, which other tests need, too."""
        usual = of_tree(self, sums, exponents, slope, False, targets)
        return usual if not plain or not _is_chosen(usual[0]) else of_tree(self, sums, exponents, slope, plain, targets)

    def rows_to_delegate_of_chosen(shards: Shards) -> int:
        return rows_to_delegate(shards) if _is_chosen_for(shards.plan) else 0

    def inherits_sums_of_chosen(plan: BoostingPlan | ForestPlan) -> bool:
        return inherits_sums(plan) and _is_chosen_for(plan, zones=True)

    def sent_rows_of_chosen(fit: RowsFit) -> int:
        """No rows are sent for nodes of kinds without kernels, whatever their tests ask for."""
        return sent_rows(fit) if _is_chosen_for(fit._plan) else 0

    dense_runner.compiled_elsewhere = left_out_or_compiled_elsewhere
    LimitsOfFit.of_tree = of_tree_by_usual_kernels  # type: ignore[method-assign]
    over_shards.rows_to_delegate = rows_to_delegate_of_chosen
    node_limits.inherits_sums = tree_state.inherits_sums = inherits_sums_of_chosen
    RowsFit.sent_rows = property(sent_rows_of_chosen)  # type: ignore[assignment]


def _is_chosen_for(plan: BoostingPlan | ForestPlan, zones: bool = False) -> bool:
    kept = SumsKept.of(plan)
    ids = np.zeros(1, np.int32) if plan.rules.categorical else None
    limits, _ = kept.limits(plan.rules, np.ones(kept.n_sums, np.int64), (0, 0), ids=ids)
    return _is_chosen(limits, zones)


def _is_chosen(limits: SplitLimits, zones: bool = False) -> bool:
    types = kinds_of(limits.criterion)
    if _chosen is None or not all(one.__module__.startswith("dtrees.") for one in types):
        return True
    words = [one.__name__ for one in types]
    words += ["at random"] * isinstance(limits.thresholds, RandomThreshold)
    words += ["by zones"] * zones
    return " ".join(words) in _chosen
