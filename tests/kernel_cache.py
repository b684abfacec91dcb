"""Compilation of kernels before tests are distributed to processes."""

import subprocess
import sys
import tempfile
from pathlib import Path

from dtrees.split.compile.cache import is_cached


def compile_kernels() -> None:
    """Compile nearly all kernels, if there are none, in two processes in parallel."""
    if not is_cached("dtrees.split.grow.parallel_subtree.grow_together"):
        with tempfile.TemporaryDirectory() as folder:
            fits = [sys.executable, "-m", "tests.first_fits", folder]
            for process in [subprocess.Popen([*fits, end], cwd=Path(__file__).parents[1]) for end in ("front", "back")]:
                process.wait()
