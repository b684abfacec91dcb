"""Numba's cache on disk knows when a kernel's own file has changed, but not when a kernel that it calls, from another file, has.

Whoever edits kernels calls :func:`forget_stale_kernels` first (the tests do): it removes every cached kernel of the package when any
of its files differs from what the cache was made of. Users never edit kernels, and installing a new version replaces all files.
The cluster and the command line hold no kernels and no kernel can call into them, layers above as they are: their files do not count.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import dtrees

#: The layers above all kernels.
WITHOUT_KERNELS = {"cluster", "cli"}


def forget_stale_kernels() -> None:
    """Remove the package's compiled kernels if its source has changed since they were compiled."""
    package = Path(dtrees.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in WITHOUT_KERNELS:
            continue
        digest.update(path.read_bytes())
    stamp = package / "__pycache__" / "kernels.sha256"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    for pattern in ("*.nbi", "*.nbc"):
        for path in package.rglob(pattern):
            path.unlink(missing_ok=True)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(digest.hexdigest())


def compile_kernels() -> None:
    """Compile nearly all kernels, if there are none, for both types of columns side by side."""
    if not any(Path(dtrees.__file__).parent.rglob("team.*.nbi")):
        fits = [sys.executable, "-m", "tests.first_fits"]
        for process in [subprocess.Popen([*fits, dtype], cwd=Path(__file__).parents[1]) for dtype in ("float32", "float64")]:
            process.wait()


if __name__ == "__main__":
    forget_stale_kernels()
