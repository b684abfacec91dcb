"""What the processes of clusters have in memory from their start, in tests: imported and loaded once, by the process they are forked from.

Workers are started by the hundred, and would take a second each to import all this and to load kernels from Numba's cache.
"""

from __future__ import annotations

import importlib
import sys

from numba.core.dispatcher import Dispatcher

_MODULES = [
    "dask.array",
    "dask.dataframe",
    "distributed.cli.dask_scheduler",
    "distributed.cli.dask_worker",
    "dtrees.cluster.actors",
    "dtrees.cluster.executor",
    "dtrees.cluster.forest",
]


def _load_kernels() -> None:
    """Load the kernels that have been compiled; it compiles none."""
    for name in [name for name in sys.modules if name.startswith("dtrees.")]:
        for kernel in list(vars(sys.modules[name]).values()):
            if isinstance(kernel, Dispatcher) and kernel.__module__ == name and kernel.stats.cache_path:
                for signature, *_ in kernel._cache._cache_file._load_index():
                    kernel.compile(signature)


for module in _MODULES:
    importlib.import_module(module)
_load_kernels()
