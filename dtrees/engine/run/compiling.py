"""What is done about kernels that are to be compiled, which happens once on a machine and takes longer than a first fit should."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, Rules
from dtrees.engine.protocol.exchange import alone
from dtrees.engine.run.local_executor import LocalExecutor
from dtrees.engine.shard.shard import Shard
from dtrees.engine.shard.tree import grow_alone
from dtrees.split.compile.cache import KERNEL_SUFFIX, PATCHES_NUMBA, cache_folder, is_cached
from dtrees.split.compile.helper import allow_helper, compile_elsewhere, helper_runs, owner
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.grow.subtree import grow_sparse
from dtrees.split.table.columns import presort
from dtrees.tree.predict import compile_prediction, stump

_logger = logging.getLogger("dtrees")
_noted: set[bool] = set()
#: Whether the second process is to be told by which plan trees are grown.
_awaits_plan = False
#: What compiling takes.
_SECONDS = 30 if PATCHES_NUMBA else 120


def note_compilation(sparse: bool = False) -> None:
    """Log what is about to be compiled, and how long that takes, unless it is on disk, and have a second process help.

    At most once a process for tables that are sparse, and once for others.
    """
    global _awaits_plan
    kernel = grow_sparse if sparse else grow_together
    if sparse in _noted or kernel.signatures:
        return
    _noted.add(sparse)
    allow_helper()
    if not is_cached(f"{kernel.__module__}.{kernel.__name__}"):
        runs, process = helper_runs(), owner()
        ordered = compile_elsewhere(compile_prediction if sparse else compile_division)
        _awaits_plan = not sparse
        what = f"kernels for {'sparse' if sparse else 'dense'} tables"
        if ordered and runs and not sparse:
            _logger.warning(f"dtrees still compiles {what}{process and f' (process {process})'}; until it is done, trees grow more slowly.")
        else:
            meanwhile = "in the background; meanwhile trees grow more slowly" if ordered and not sparse else "before the first tree"
            _logger.warning(f"dtrees compiles {what}, once on this machine: about {_SECONDS} s of processor time, {meanwhile}.")


def compile_endings(plan: BoostingPlan | ForestPlan | None) -> None:
    """Have the second process compile what is needed last: what ends a tree of a plan, if it is known, and predictions.

    Only if it has work for this process anyway, and once.
    """
    global _awaits_plan
    if _awaits_plan:
        _awaits_plan = False
        if plan is not None:
            compile_elsewhere(grow_leaf, replace(plan, checkpoint=None))
        compile_elsewhere(compile_prediction)


def n_compiled() -> int:
    """Return how many kernels are compiled on this machine, each counted for each combination of types."""
    return sum(1 for _ in cache_folder().glob(f"*{KERNEL_SUFFIX}"))


def compile_division() -> None:
    """Compile what divides rows level by level."""
    with _shard_of(ForestPlan(Rules("squared_error", 1, 1), 0), np.arange(2.0)) as shard:
        alone(shard.replay_tree(stump(), 0))


def grow_leaf(plan: BoostingPlan | ForestPlan) -> None:
    """Grow a tree of few rows by levels, as trees are while others are compiled, and add it, and one of many rows, to the predictions."""
    target = np.arange(1.0, 3.0) if plan.n_classes == 0 else np.arange(plan.n_classes, dtype=np.int32)
    with _shard_of(plan, target) as shard:
        if isinstance(plan, BoostingPlan):
            shard.add_boosted(grow_alone(shard.shards, shard.trees[0], 0, plain=True), 0)
            alone(shard.replay_tree(stump(), 0))
            shard.trees[0].boosting.losses(0, target.shape[0])
        else:
            alone(shard.grow_of_forest(0, 0, plain=True))
            shard.close_tree(0)


@contextmanager
def _shard_of(plan: BoostingPlan | ForestPlan, target: NDArray[Any]) -> Iterator[Shard]:
    columns = presort([np.arange(float(target.shape[0]))] * plan.rules.columns_per_tree)
    with LocalExecutor(columns, target, None, 1) as executor:
        yield executor.begin(plan)
