"""What is done about kernels that are to be compiled, which happens once on a machine and takes longer than a first fit should."""

from __future__ import annotations

import logging

import numpy as np

from dtrees.engine.coordinator.replay import replay_tree
from dtrees.engine.coordinator.session import Session
from dtrees.engine.plan.plans import ForestPlan, Rules
from dtrees.engine.run.local_executor import LocalExecutor
from dtrees.split.compile.cache import is_cached
from dtrees.split.compile.helper import allow_helper, compile_elsewhere
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.grow.sparse_subtree import grow_sparse
from dtrees.split.table.columns import presort
from dtrees.tree.predict import compile_prediction, stump

_logger = logging.getLogger("dtrees")
_noted: set[bool] = set()


def note_compilation(sparse: bool = False) -> None:
    """Log that kernels are about to be compiled, unless they are on disk, and have a second process help.

    At most once a process for tables that are sparse, and once for others.
    """
    kernel = grow_sparse if sparse else grow_together
    if sparse in _noted or kernel.signatures:
        return
    _noted.add(sparse)
    allow_helper()
    if not is_cached(f"{kernel.__module__}.{kernel.__name__}"):
        _logger.warning("dtrees compiles its kernels for the first fit on this machine; this takes up to a minute, once.")
        compile_elsewhere(compile_prediction)
        if not sparse:
            compile_elsewhere(compile_division)


def compile_division() -> None:
    """Compile what divides rows level by level."""
    with LocalExecutor(presort([np.arange(2.0)]), np.arange(2.0), None, 1) as executor:
        session = Session(executor, ForestPlan(Rules("squared_error", 1, 1), 0), "")
        session.begin()
        replay_tree(session, stump(), 0)
