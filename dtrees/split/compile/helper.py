"""A helper process that compiles kernels in parallel with this process.

Compiling holds the interpreter lock, so threads do not help. A helper process compiles some of the kernels that will be needed, while
this one compiles others or does other work, and finds the helper's kernels on disk. If both want the same kernel, one waits for the
other (:mod:`dtrees.split.compile.kernels`).

Requests are written to the cache folder as *orders*, one file each, which is removed when the order has been carried out. One helper
serves all processes that use the folder: it holds a lock, and another helper that finds it taken exits at once. A helper exits when no
order has come for some seconds. It outlives the process that started it: otherwise a short program would compile the same kernels each
time it is run. Kernels that a helper fails to compile are left to the processes that need them.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dtrees.split.compile.cache import cache_folder, checked, with_digest, write_whole
from dtrees.split.compile.kernels import is_compiled

#: Seconds without an order after which a helper exits, after which it no longer waits for the lock (longer than a process holds the lock
#: to check whether it is free), and that may pass from its start until it has the lock.
_IDLE, _MOMENT, _START = 5.0, 0.5, 20.0
_LOCK, _OWNER, _SUFFIX = "helper.lock", "helper.pid", ".order"

_allowed = False
_helper: subprocess.Popen[bytes] | None = None


def allow_helper() -> None:
    """Allow this process to start a helper once there is work for it."""
    global _allowed
    _allowed = True


def compile_elsewhere(function: Callable[..., Any], *arguments: Any, name: str = "") -> Path | None:
    """Have the helper call a function that compiles. The function must be importable, and its arguments picklable.

    Returns the file of the order, which exists until the order is carried out. Returns None, and does nothing, if no helper is allowed,
    there is no processor for it, it has failed, or the environment variable DTREES_HELPER is 0.
    """
    if not _may_help():
        return None
    order = cache_folder() / f"{name or function.__qualname__}{_SUFFIX}"
    if not order.exists():
        write_whole(order, with_digest(pickle.dumps((function.__module__, function.__qualname__, arguments))))
    start_helper()
    return order


def start_helper() -> None:
    """Start a helper, unless one runs or none is allowed. It waits some seconds for its first order."""
    global _helper
    if _may_help() and not helper_runs():
        with suppress(OSError):
            _helper = _start()
            write_whole(cache_folder() / _OWNER, b"")  # other processes need not start one


def _may_help() -> bool:
    return _allowed and _is_possible() and (_helper is None or _helper.poll() in (None, 0))


def helper_runs() -> bool:
    """Return whether a helper serves this cache folder, started by this process or by another one on this machine."""
    if _helper.poll() is None if _helper is not None else _starts():
        return True
    try:
        with FileLock(cache_folder() / _LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # not every file system supports locks
        return False


def _starts() -> bool:
    """Return whether another process has just started a helper that does not hold the lock yet."""
    try:
        return time.time() - (cache_folder() / _OWNER).stat().st_mtime < _START
    except OSError:
        return False


def _is_possible() -> bool:
    if os.environ.get("DTREES_HELPER", "1") == "0":
        return False
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_processors > 1 and "python" in Path(sys.executable or "").name.lower() and not hasattr(sys, "frozen")


def _start() -> subprocess.Popen[bytes]:
    """Start a helper that inherits no stream of this process."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from dtrees.split.compile.helper import _main; _main()", str(cache_folder())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # interrupts go to this process only
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def compile_kernel(module: str, name: str, argument_types: Sequence[Any]) -> None:
    """Compile a kernel for given argument types."""
    found = getattr(import_module(module), name)
    getattr(found, "kernel", found).compile(tuple(argument_types))


def _order(kernel: Any, kinds: tuple[Any, ...]) -> Path | None:
    return compile_elsewhere(compile_kernel, kernel.__module__, kernel.__name__, kinds, name=kernel._cache.file_name(kinds))


def compile_all_elsewhere(wanted: Sequence[tuple[Any, tuple[Any, ...]]]) -> bool:
    """Order kernels, each for given argument types, that are not compiled yet; return whether there is a helper."""
    return all(_order(*one) for one in wanted) and _may_help()


def are_compiled_elsewhere(wanted: list[tuple[Any, tuple[Any, ...]]]) -> bool:
    """Return whether the helper still has kernels to compile; compiled kernels are removed from the list."""
    while wanted and is_compiled(*wanted[0]):
        wanted.pop(0)
    return bool(wanted) and helper_runs()


def compile_together(wanted: Sequence[tuple[Any, tuple[Any, ...]]]) -> None:
    """Compile missing kernels, each for given argument types: the helper from the first on, this process from the last on."""
    missing = [one for one in wanted if not is_compiled(*one)]
    for one in missing[:-1]:
        _order(*one)
    for kernel, kinds in reversed(missing):
        kernel.compile(kinds)


def _main() -> None:
    """Carry out the orders in the folder named on the command line until no more come; exit at once if another helper does so."""
    folder = Path(sys.argv[1])
    if folder != cache_folder():  # its processes would not find kernels compiled here
        return
    lock = FileLock(folder / _LOCK)
    while True:
        try:
            lock.acquire(timeout=_MOMENT)
        except Timeout:
            return
        except (OSError, NotImplementedError):
            pass
        write_whole(folder / _OWNER, str(os.getpid()).encode())
        _carry_out_all(folder)
        (folder / _OWNER).unlink(missing_ok=True)
        lock.release()
        if not _waiting(folder):  # processes that gave an order before this line rely on the helper
            return


def _carry_out_all(folder: Path) -> None:
    last = time.monotonic()
    while time.monotonic() - last < _IDLE:
        for order in _waiting(folder):
            with suppress(Exception):  # the process that needs the kernel will see the error
                module, name, arguments = pickle.loads(checked(order.read_bytes()))
                getattr(import_module(module), name)(*arguments)
            order.unlink(missing_ok=True)
            last = time.monotonic()
        time.sleep(0.05)


def _waiting(folder: Path) -> list[Path]:
    """Return the pending orders, the oldest first."""
    with suppress(OSError):
        return sorted(folder.glob(f"*{_SUFFIX}"), key=lambda order: order.stat().st_mtime_ns)
    return []
