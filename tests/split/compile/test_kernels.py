"""Kernels that several processes need at the same time, and kernels that are compiled separately from their callers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dtrees.split.compile import kernels as kernels
from dtrees.split.compile.cache import KernelCache
from dtrees.split.compile.kernels import bind, kernel

# --- several processes that need a kernel at the same time, as the workers of a cluster do ---


SOURCE = """
import json, sys
import numpy as np
from numba.core import event
from dtrees.split.compile.kernels import inner_kernel, kernel

@inner_kernel
def half(x):
    return x[0] / 2

@kernel
def halves(x):
    return half(x) + half(x[1:])

if __name__ == "__main__":
    import kernels
    print("ready", flush=True)
    sys.stdin.readline()
    with event.install_recorder("numba:compile") as recorder:
        results = [kernels.halves(np.array([3, 5], dtype)) for dtype in sys.argv[1].split(",")]
    print(json.dumps([results, [record.data["dispatcher"].__name__ for _, record in recorder.buffer if record.is_start]]))
"""
DTYPES = "float32", "float64", "int32", "int64", "uint8"


def run_together(folder: Path, dtypes: list[str]) -> list[list[list]]:
    """Return the results of ``halves`` in one process each, and the kernels that each of them compiled."""
    (folder / "kernels.py").write_text(SOURCE)
    paths = os.pathsep.join([str(Path(__file__).parents[3]), str(folder)])
    processes = [
        subprocess.Popen(
            [sys.executable, "kernels.py", dtype],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for dtype in dtypes
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all begin before the first is joined
        process.stdin.write("\n")
        process.stdin.flush()
    return [json.loads(process.communicate(timeout=120)[0]) for process in processes]


@pytest.mark.slow
def test_different_types_are_all_cached(tmp_path: Path) -> None:
    together = run_together(tmp_path, list(DTYPES))
    assert [results for results, _ in together] == [[4.0]] * len(DTYPES)
    ((results, compiled),) = run_together(tmp_path, [",".join(DTYPES)])
    assert (results, compiled) == ([4.0] * len(DTYPES), [])


@pytest.mark.slow  # four processes import Numba
def test_one_process_compiles_and_the_others_load(tmp_path: Path) -> None:
    together = run_together(tmp_path, ["float64"] * 4)
    assert [results for results, _ in together] == [[4.0]] * 4
    assert sorted(len(compiled) for _, compiled in together) == [0, 0, 0, 2]


@kernel
def _first_of_each(arrays):
    return arrays[0][0], arrays[1][0]


def test_bound_kernels_are_for_the_types_they_were_bound_to() -> None:
    matrix = np.array([[1.5, 2.5], [3.5, 4.5]])
    for arrays in [
        (np.array([1, 2]), matrix[0]),
        (np.array([1.5]), matrix[0]),
        (np.array([7], np.uint8), matrix[:, 1]),  # not contiguous
        (np.array([7], np.int8), np.broadcast_to(np.float32(3.0), 2)),  # read only
    ]:
        assert bind(_first_of_each, arrays)(arrays) == (arrays[0][0], arrays[1][0])
        assert bind(_first_of_each, arrays) is bind(
            _first_of_each, tuple(array.copy() if array.flags.c_contiguous else array for array in arrays)
        )
    assert len(_first_of_each.signatures) == 4


@pytest.mark.parametrize("patches", sorted({kernels.PATCHES_NUMBA, False}))
@pytest.mark.parametrize(
    "options", [{"_nrt": True}, {"_nrt": False}, {"_nrt": False, "forceinline": True}], ids=["inner", "lean", "inlined"]
)
def test_parts_with_any_numba(monkeypatch, patches, options):
    monkeypatch.setattr(kernels, "PATCHES_NUMBA", patches)
    part = kernels._part_compiler(**options)

    @part
    def add(x, y, out):
        for i in range(x.shape[0]):
            out[i] = x[i] + y[i]

    @kernel
    def add_twice(x, out):
        add(x, x, out)
        add(out, x, out)

    out = np.empty(3)
    add_twice(np.arange(3.0), out)
    assert out.tolist() == [0.0, 3.0, 6.0]
    is_compiled_alone = isinstance(add._cache, KernelCache)
    assert is_compiled_alone != patches


# --- kernels compiled separately from their callers, in processes that load some of them from disk ---


APART = """
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
    (tmp_path / "apart.py").write_text(APART)
    assert run(tmp_path, "one") == ["one 13.0 0"]
    assert run(tmp_path, "one") == ["one 13.0 1"]  # and the kernel that it calls is found
    assert run(tmp_path, "other") == ["other 19.0 0"]  # compiled against the loaded kernel
    assert run(tmp_path, "other", "one") == ["other 19.0 1", "one 13.0 1"]
    (file,) = (tmp_path / "cache").rglob("apart.total-*.kernel")
    file.unlink()
    assert run(tmp_path, "one") == ["one 13.0 1"]  # the missing kernel is compiled


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
    (tmp_path / "apart.py").write_text(APART)
    (tmp_path / "program.py").write_text(PROGRAM)
    for _ in range(2):  # compiled, then from disk
        assert run(tmp_path, program="program.py") == ["wrong could not be compiled"]
