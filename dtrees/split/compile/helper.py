"""A second process that compiles kernels beside this one.

Compiling holds the interpreter lock, so threads are no help. A helper process compiles some of the kernels that will be needed, while this
one compiles others or is at other work; what it has compiled is on disk, where this one finds it. Where both want the same kernel, one
waits for the other (:mod:`dtrees.split.compile.kernels`). A helper that fails, or is slow, leaves its work to this process.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_allowed = False
_helper: subprocess.Popen[bytes] | None = None
#: What the helper is to do; None ends the thread that sends it.
_work: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()


def allow_helper() -> None:
    """Allow this process to have a helper, from when it has work for it."""
    global _allowed
    _allowed = True


def compile_elsewhere(function: Callable[..., Any], *arguments: Any) -> None:
    """Have the helper call a function that compiles; it is to be importable, and arguments picklable.

    Nothing is done where no helper is allowed or it would have no processor of its own.
    """
    global _helper
    if _helper is None and _allowed and _is_possible():
        with suppress(OSError):
            _helper = _start()
    if _helper is not None:
        _work.put(pickle.dumps((function.__module__, function.__qualname__, arguments)))


def stop_helper() -> None:
    """End the helper, whatever it is at."""
    global _helper
    if _helper is not None:
        _work.put(None)
        _helper.kill()
        _helper.wait()
        _helper = None


def _is_possible() -> bool:
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_processors > 1 and "python" in Path(sys.executable or "").name.lower() and not hasattr(sys, "frozen")


def _start() -> subprocess.Popen[bytes]:
    """Start the helper; it ends with this process, or when that ends it."""
    global _work
    _work = queue.SimpleQueue()
    helper = subprocess.Popen(
        [sys.executable, "-P", "-c", "from dtrees.split.compile.helper import _main; _main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    threading.Thread(target=_send, args=(helper, _work), daemon=True, name="dtrees-compile-helper").start()
    atexit.register(stop_helper)
    return helper


def _send(helper: subprocess.Popen[bytes], work: queue.SimpleQueue[bytes | None]) -> None:
    """Send work as it comes: the helper may be busy, and nobody should wait for it."""
    assert helper.stdin is not None
    with suppress(OSError):  # the helper is gone
        while (message := work.get()) is not None:
            helper.stdin.write(message)
            helper.stdin.flush()
    helper.wait()


def compile_kernel(module: str, name: str, argument_types: Sequence[Any]) -> None:
    """Compile a kernel for arguments of these types."""
    getattr(import_module(module), name).compile(tuple(argument_types))


def _main() -> None:
    """Do what is sent, until nothing more can come."""
    while True:
        try:
            module, name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        with suppress(Exception):  # whoever needs the kernel will see what is wrong with it
            getattr(import_module(module), name)(*arguments)
