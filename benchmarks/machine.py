"""Description of the machine of a measurement, without anything that identifies it or its owner."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

import dtrees
from benchmarks.libraries import PACKAGES
from dtrees.version import installed

_BENEATH = ("numpy", "numba")


def n_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    """Return the name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def load_average() -> float:
    """Return the average number of processes that wanted a core in the last minute; 0 if it is unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def describe(threads: int) -> str:
    """Return a line about the machine, and one about the versions of dtrees, its peers and its dependencies that are installed."""
    size = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    machine = f"{n_cores()} cores ({threads} used), {cpu_model()}, {size}, {platform.system()} {platform.machine()}"
    versions = {"dtrees": dtrees.__version__} | installed([*(pip_name for _, pip_name in PACKAGES.values()), *_BENEATH])
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{machine}, Python {platform.python_version()}, load average before: {load_average():.1f}\n\n{libraries}"
