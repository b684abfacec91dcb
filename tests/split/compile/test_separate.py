"""Kernels that are compiled apart from their callers, in processes that load some of them from disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
import sys
import numpy as np
from numba import types
from dtrees.split.compile.kernels import lean_entry, lean_kernel, separate_kernel

@separate_kernel
def deep(x, i):
    return 2.0 * x[i]

@separate_kernel
def total(x):
    result = 0.0
    for i in range(x.shape[0]):
        result += deep(x, i)
    return result

@separate_kernel(returns=types.float64)
def seldom(x):
    return -total(x)

@separate_kernel(returns=types.float64)
def wrong(x):
    return x.no_such_attribute

@lean_kernel
def between(x):
    return total(x) + 1.0

@lean_entry
def one(x):
    return between(x)

@lean_entry
def other(x):
    return between(x) + deep(x, x.shape[0] - 1)

@lean_entry
def choosing(x, kind):
    if kind == 2:
        return wrong(x)
    return seldom(x) if kind == 1 else 0.0

if __name__ == "__main__":
    import apart
    for name in sys.argv[1:]:
        entry = getattr(apart, name)
        print(name, entry(np.arange(4.0)), sum(entry.stats.cache_hits.values()))
"""


def run(folder: Path, *names: str, program: str = "apart.py") -> list[str]:
    paths = os.pathsep.join([str(Path(__file__).parents[3]), str(folder)])
    environment = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, program, *names]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=300).stdout.splitlines()


@pytest.mark.slow
def test_kernels_apart(tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text(SOURCE)
    assert run(tmp_path, "one") == ["one 13.0 0"]
    assert run(tmp_path, "one") == ["one 13.0 1"]  # and what it calls is found
    assert run(tmp_path, "other") == ["other 19.0 0"]  # compiled against what was loaded
    assert run(tmp_path, "other", "one") == ["other 19.0 1", "one 13.0 1"]
    (file,) = (tmp_path / "cache").rglob("apart.total-*.kernel")
    file.unlink()
    assert run(tmp_path, "one") == ["one 13.0 1"]  # what is missing is compiled


PROGRAM = """
import numpy as np
import apart
x = np.arange(4.0)
assert apart.choosing(x, 0) == 0.0
assert apart.seldom.kernel.signatures == []
assert apart.choosing(x, 1) == -12.0
assert len(apart.seldom.kernel.signatures) == 1
try:
    apart.choosing(x, 2)
except RuntimeError as error:
    print(error)
"""


def test_a_kernel_that_is_compiled_when_it_is_met(tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text(SOURCE)
    (tmp_path / "program.py").write_text(PROGRAM)
    for _ in range(2):  # compiled, then from disk
        assert run(tmp_path, program="program.py") == ["wrong could not be compiled"]
