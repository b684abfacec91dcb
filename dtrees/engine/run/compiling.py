"""What is done about kernels that are to be compiled, which happens once on a machine and takes longer than a first fit should."""

from __future__ import annotations

import logging

import numpy as np

from dtrees.engine.coordinator.session import replay_tree
from dtrees.engine.plan.plans import ForestPlan, Rules
from dtrees.engine.run.local_executor import LocalExecutor, LocalSession
from dtrees.split.compile.cache import KERNEL_SUFFIX, PATCHES_NUMBA, cache_folder, is_cached
from dtrees.split.compile.helper import allow_helper, compile_elsewhere, helper_runs, owner
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.grow.subtree import grow_sparse
from dtrees.split.table.columns import presort
from dtrees.tree.predict import compile_prediction, stump

_logger = logging.getLogger("dtrees")
_noted: set[bool] = set()
#: What compiling takes.
_SECONDS = 30 if PATCHES_NUMBA else 120


def note_compilation(sparse: bool = False) -> None:
    """Log what is about to be compiled, and how long that takes, unless it is on disk, and have a second process help.

    At most once a process for tables that are sparse, and once for others.
    """
    kernel = grow_sparse if sparse else grow_together
    if sparse in _noted or kernel.signatures:
        return
    _noted.add(sparse)
    allow_helper()
    if not is_cached(f"{kernel.__module__}.{kernel.__name__}"):
        runs, process = helper_runs(), owner()
        ordered = compile_elsewhere(compile_prediction)
        if ordered and not sparse:
            compile_elsewhere(compile_division)
        what = f"kernels for {'sparse' if sparse else 'dense'} tables"
        if ordered and runs and not sparse:
            _logger.warning(f"dtrees still compiles {what}{process and f' (process {process})'}; until it is done, trees grow more slowly.")
        else:
            meanwhile = "in the background; meanwhile trees grow more slowly" if ordered and not sparse else "before the first tree"
            _logger.warning(f"dtrees compiles {what}, once on this machine: about {_SECONDS} s of processor time, {meanwhile}.")


def n_compiled() -> int:
    """Return how many kernels are compiled on this machine, each counted for each combination of types."""
    return sum(1 for _ in cache_folder().glob(f"*{KERNEL_SUFFIX}"))


def compile_division() -> None:
    """Compile what divides rows level by level."""
    with LocalExecutor(presort([np.arange(2.0)]), np.arange(2.0), None, 1) as executor:
        session = LocalSession(executor, ForestPlan(Rules("squared_error", 1, 1), 0), "")
        session.begin()
        replay_tree(session, stump(), 0)
