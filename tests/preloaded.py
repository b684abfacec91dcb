"""Modules and kernels that processes of test clusters have from their start: loaded once, by the process they are forked from.

Workers are started by the hundred, and would take a second each to import all this and to load kernels from disk.
"""

import gc
import importlib
import pickle
import sys
from contextlib import suppress

from dtrees.split.compile.cache import KERNEL_SUFFIX, cache_folder, checked

_MODULES = [
    "dask.array",
    "dask.dataframe",
    "distributed.cli.dask_scheduler",
    "distributed.cli.dask_worker",
    "dtrees.cluster.growing.actors",
    "dtrees.cluster.growing.shards",
    "dtrees.cluster.growing.fits",
]


def load_compiled() -> None:
    """Load all compiled kernels of imported modules, without compiling any."""
    for path in sorted(cache_folder().glob(f"*{KERNEL_SUFFIX}")):
        module, _, name = path.name.rpartition("-")[0].rpartition(".")
        with suppress(AttributeError, ImportError, OSError, ValueError):
            found = getattr(sys.modules.get(module), name)
            getattr(found, "kernel", found).compile(tuple(pickle.loads(checked(path.read_bytes()))[3].args))


gc.set_threshold(50_000)
for module in _MODULES:
    importlib.import_module(module)
load_compiled()
# Tests collect garbage on workers to check that nothing is left there: the present objects are excluded.
gc.collect()
gc.freeze()
