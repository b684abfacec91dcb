"""Several processes that need a kernel at the same time, as the workers of a cluster do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = """
import json, sys, time
import numpy as np
from numba.core import event
from numba.core.caching import IndexDataCacheFile
from dtrees.split.kernel import inner_kernel, kernel

@inner_kernel
def half(x):
    return x[0] / 2

@kernel
def halves(x):
    return half(x) + half(x[1:])

if __name__ == "__main__":
    import kernels
    save_index = IndexDataCacheFile._save_index
    IndexDataCacheFile._save_index = lambda *arguments: (time.sleep(0.3), save_index(*arguments))  # for others to come in between
    print("ready", flush=True)
    sys.stdin.readline()
    with event.install_recorder("numba:compile") as recorder:
        results = [kernels.halves(np.array([3, 5], dtype)) for dtype in sys.argv[1].split(",")]
    print(json.dumps([results, [record.data["dispatcher"].__name__ for _, record in recorder.buffer if record.is_start]]))
"""
DTYPES = "float32", "float64", "int32", "int64", "uint8"


def run_together(folder: Path, dtypes: list[str]) -> list[list[list]]:
    """Return the results of ``halves`` in one process each, and which kernels each of them compiled."""
    (folder / "kernels.py").write_text(SOURCE)
    paths = os.pathsep.join([str(Path(__file__).parents[2]), str(folder)])
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
    for process in processes:  # all begin before the first is waited for
        process.stdin.write("\n")
        process.stdin.flush()
    return [json.loads(process.communicate(timeout=120)[0]) for process in processes]


def test_different_types_are_all_cached(tmp_path: Path) -> None:
    together = run_together(tmp_path, list(DTYPES))
    assert [results for results, _ in together] == [[4.0]] * len(DTYPES)
    ((results, compiled),) = run_together(tmp_path, [",".join(DTYPES)])
    assert (results, compiled) == ([4.0] * len(DTYPES), [])


def test_one_process_compiles_and_the_others_load(tmp_path: Path) -> None:
    together = run_together(tmp_path, ["float64"] * 4)
    assert [results for results, _ in together] == [[4.0]] * 4
    assert sorted(len(compiled) for _, compiled in together) == [0, 0, 0, 2]
