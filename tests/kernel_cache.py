"""Numba's cache on disk knows when a kernel's own file has changed, but not when a kernel that it calls, from another file, has.

Whoever edits kernels calls :func:`forget_stale_kernels` first (the tests do): it removes every cached kernel of the package when any
of its files differs from what the cache was made of. Users never edit kernels, and installing a new version replaces all files.
The cluster and the command line hold no kernels and no kernel can call into them, layers above as they are: their files do not count.

Nor does Numba's cache know that another process is compiling the same kernel just now. The tests run in several processes, which all need
the same ones: with :func:`compile_in_turn`, one compiles and the others wait for it and load the result.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

import dtrees

try:
    import fcntl
except ImportError:  # on Windows each process compiles for itself
    fcntl = None  # type: ignore[assignment]

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


def compile_in_turn() -> None:
    """From now on, let no two processes compile the same kernel at the same time (where files can be locked: not on Windows).

    A kernel's lock is held while those that it calls are compiled; as no two call each other, nobody waits for ever. Numba's own lock is
    taken first, for the threads of a process.
    """
    compile_now = Dispatcher.compile
    if fcntl is None or hasattr(compile_now, "__wrapped__"):
        return

    @wraps(compile_now)
    def compile_after_others(self: Dispatcher, signature: Any) -> Any:
        with global_compiler_lock, _lock(self.py_func):
            return compile_now(self, signature)

    Dispatcher.compile = compile_after_others


@contextmanager
def _lock(function: FunctionType) -> Iterator[None]:
    """Hold the lock of a kernel's name."""
    folder = Path(tempfile.gettempdir()) / f"dtrees-kernels-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    with (folder / f"{function.__module__}.{function.__qualname__}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    forget_stale_kernels()
