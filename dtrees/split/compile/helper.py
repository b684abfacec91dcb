"""A second process that compiles kernels beside this one.

Compiling holds the interpreter lock, so threads are no help. A helper process compiles some of the kernels that will be needed, while this
one compiles others or is at other work; what it has compiled is on disk, where this one finds it. Where both want the same kernel, one
waits for the other (:mod:`dtrees.split.compile.kernels`). A helper that fails leaves its work to this process.

When this process ends, the helper finishes what it has been told to do, with low priority: otherwise a program that ends soon would find
the same kernels lacking whenever it is run.
"""

from __future__ import annotations

import math
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

from numba import typeof

from dtrees.split.compile.kernels import is_compiled

_allowed = False
_helper: subprocess.Popen[bytes] | None = None
#: What the helper is to do; None ends the thread that sends it.
_work: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
#: How many orders the helper has been given, and how many it has carried out; infinitely many when it is gone.
_ordered, _done = 0, 0.0
#: The kernels, and the types of their arguments, that it has been told to compile, each with the number of the order.
_compiling: dict[tuple[Any, tuple[Any, ...]], int] = {}


def allow_helper() -> None:
    """Allow this process to have a helper, from when it has work for it."""
    global _allowed
    _allowed = True


def compile_elsewhere(function: Callable[..., Any], *arguments: Any) -> None:
    """Have the helper call a function that compiles; it is to be importable, and arguments picklable.

    Nothing is done where no helper is allowed, it would have no processor of its own, or the environment variable DTREES_HELPER is 0.
    """
    global _helper, _ordered
    if _helper is None and _allowed and _is_possible():
        with suppress(OSError):
            _helper = _start()
    if _helper is not None:
        _ordered += 1
        _work.put(pickle.dumps((function.__module__, function.__qualname__, arguments)))


def compiled_elsewhere(kernel: Any, *arguments: Any) -> bool:
    """Have the helper compile a kernel for arguments of these types, unless it is compiled; return whether the helper is at it still.

    Where there is no helper, or it has failed, it is not.
    """
    key = kernel, tuple(map(typeof, arguments))
    if is_compiled(*key):
        return False
    if key not in _compiling:
        compile_elsewhere(compile_kernel, kernel.__module__, kernel.__name__, key[1])
        _compiling[key] = _ordered
    return _helper is not None and _done < _compiling[key]


def stop_helper() -> None:
    """End the helper, whatever it is at."""
    global _helper
    if _helper is not None:
        _work.put(None)
        _helper.kill()
        _helper.wait()
        _helper = None
    _compiling.clear()


def _is_possible() -> bool:
    if os.environ.get("DTREES_HELPER", "1") == "0":
        return False
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_processors > 1 and "python" in Path(sys.executable or "").name.lower() and not hasattr(sys, "frozen")


def _start() -> subprocess.Popen[bytes]:
    """Start the helper; it ends when it has no work and this process has ended, or when that ends it."""
    global _work, _ordered, _done
    _work, _ordered, _done = queue.SimpleQueue(), 0, 0.0
    helper = subprocess.Popen(
        [sys.executable, "-P", "-c", "from dtrees.split.compile.helper import _main; _main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an interrupt is for this process
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    for act in (_send, _listen):
        threading.Thread(target=act, args=(helper, _work), daemon=True, name="dtrees-compile-helper").start()
    return helper


def _send(helper: subprocess.Popen[bytes], work: queue.SimpleQueue[bytes | None]) -> None:
    """Send work as it comes: the helper may be busy, and nobody should wait for it."""
    assert helper.stdin is not None
    with suppress(OSError):  # the helper is gone
        while (message := work.get()) is not None:
            helper.stdin.write(message)
            helper.stdin.flush()
    helper.wait()


def _listen(helper: subprocess.Popen[bytes], work: queue.SimpleQueue[bytes | None]) -> None:
    """Count what is done."""
    global _done
    assert helper.stdout is not None
    while helper.stdout.read(1):
        _done += work is _work
    if work is _work:
        _done = math.inf


def compile_kernel(module: str, name: str, argument_types: Sequence[Any]) -> None:
    """Compile a kernel for arguments of these types."""
    getattr(import_module(module), name).compile(tuple(argument_types))


def _main() -> None:
    """Do what is sent, until nothing more can come; write a byte whenever something is done."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(waiting,), daemon=True).start()
    while (order := waiting.get()) is not None:
        module, name, arguments = order
        with suppress(Exception):  # whoever needs the kernel will see what is wrong with it
            getattr(import_module(module), name)(*arguments)
        with suppress(OSError):  # nobody wants to know any more
            sys.stdout.buffer.write(b".")
            sys.stdout.buffer.flush()


def _receive(waiting: queue.SimpleQueue[Any]) -> None:
    """Take orders as they come. When the process that sends them has ended, nobody waits for them any more."""
    with suppress(EOFError):
        while True:
            waiting.put(pickle.load(sys.stdin.buffer))
    waiting.put(None)
    with suppress(AttributeError, OSError):  # not every system has priorities
        os.setpriority(os.PRIO_PROCESS, threading.main_thread().native_id or 0, 10)
