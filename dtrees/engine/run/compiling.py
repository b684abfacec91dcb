"""What is said of kernels that are to be compiled, which happens once on a machine."""

from __future__ import annotations

import logging

from dtrees.split.compile.cache import KERNEL_SUFFIX, PATCHES_NUMBA, cache_folder, is_cached
from dtrees.split.compile.helper import allow_helper, compile_elsewhere
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.grow.subtree import grow_sparse

_logger = logging.getLogger("dtrees")
_noted: set[bool] = set()
#: Seconds of processor time that compiling takes.
_SECONDS = 15 if PATCHES_NUMBA else 60


def note_compilation(sparse: bool = False) -> None:
    """Allow a second process to help to compile; log what is about to be compiled, and how long that takes, unless it is on disk.

    At most once a process for tables that are sparse, and once for others.
    """
    kernel = grow_sparse if sparse else grow_together
    if sparse in _noted or kernel.signatures:
        return
    _noted.add(sparse)
    allow_helper()
    if not is_cached(f"{kernel.__module__}.{kernel.__name__}"):
        compile_elsewhere(allow_helper)  # nothing: it will have started when there is something to do
        what = f"kernels for {'sparse' if sparse else 'dense'} tables"
        _logger.warning(f"dtrees compiles {what}, once on this machine: about {_SECONDS} s of processor time, before the first tree.")


def n_compiled() -> int:
    """Return how many kernels are compiled on this machine, each counted for each combination of types."""
    return sum(1 for _ in cache_folder().glob(f"*{KERNEL_SUFFIX}"))
