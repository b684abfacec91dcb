"""Kernels compiled before tests are spread over processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dtrees.split.compile.cache import is_cached


def compile_kernels() -> None:
    """Compile nearly all kernels, if there are none, in two processes side by side."""
    if not is_cached("dtrees.split.grow.parallel_subtree.grow_together"):
        fits = [sys.executable, "-m", "tests.first_fits"]
        for process in [subprocess.Popen([*fits, part], cwd=Path(__file__).parents[1]) for part in ("regression", "others")]:
            process.wait()
