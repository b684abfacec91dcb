"""Peak memory of one fit: the resident memory of this process at its peak minus that before the fit, in bytes.

Run by :mod:`benchmarks.works.memory` as ``python -m benchmarks.resident '["boosting", "dtrees", 1000000, 28, 4]'``: kind of fit,
library, rows, columns and threads. The last word printed is the result.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.data import synthetic
from benchmarks.libraries import boosting, forests, trees
from benchmarks.timing import tidy_up

#: Rows of a first fit that compiles kernels and starts threads: enough for every kernel, and few enough to leave no memory behind.
_WARM_UP_ROWS = 6_000
#: Trees of a fit.
_N_TREES = 5


def peak_of_fit(kind: str, library: str, n_rows: int, n_columns: int, threads: int) -> int:
    """Fit, and return the largest increase of memory."""
    kinds = {"boosting": boosting(_N_TREES, threads), "tree": trees(None), "forest": forests(_N_TREES, threads, False, 1 / 3)}
    make = kinds[kind][library]
    make().fit(*synthetic(_WARM_UP_ROWS, n_columns=n_columns))
    X = np.empty((n_rows, n_columns), np.float32)
    y = np.empty(n_rows)
    for first in range(0, n_rows, _WARM_UP_ROWS):  # in chunks, so that generating the table has no peak
        last = min(first + _WARM_UP_ROWS, n_rows)
        X[first:last], y[first:last] = synthetic(last - first, n_columns=n_columns, seed=first)
    give_back()
    before = resident_bytes("VmRSS")
    model = make().fit(X, y)
    peak = resident_bytes("VmHWM")
    del model
    return peak - before


def give_back() -> None:
    """Return freed memory to the system, which could hide memory of the fit, and reset the peak, if possible."""
    tidy_up()
    forget = Path("/proc/self/clear_refs")
    with suppress(OSError):
        forget.write_text("5")


def resident_bytes(name: str = "VmRSS") -> int:
    """Return a size of Linux's /proc/self/status in bytes (``VmRSS`` now, ``VmHWM`` at its peak); elsewhere the peak so far."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    print(peak_of_fit(*json.loads(sys.argv[1])))
