"""Kernels that are compiled apart from their callers, in processes that load some of them from disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core import event
from numba.core.compiler import run_frontend
from numba.core.ir import Inst
from numba.core.targetconfig import TargetConfig

from dtrees.split.compile import numba_pipeline
from dtrees.split.compile.cache import PATCHES_NUMBA
from dtrees.split.compile.kernels import kernel

pytestmark = pytest.mark.skipif(not PATCHES_NUMBA, reason="this Numba is not patched")

SOURCE = """
import sys
import numpy as np
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

@lean_kernel
def between(x):
    return total(x) + 1.0

@lean_entry
def one(x):
    return between(x)

@lean_entry
def other(x):
    return between(x) + deep(x, x.shape[0] - 1)

if __name__ == "__main__":
    import apart
    for name in sys.argv[1:]:
        entry = getattr(apart, name)
        print(name, entry(np.arange(4.0)), sum(entry.stats.cache_hits.values()))
"""


def run(folder: Path, *names: str) -> list[str]:
    paths = os.pathsep.join([str(Path(__file__).parents[3]), str(folder)])
    environment = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "apart.py", *names]
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


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_interrupts_wait_for_the_machine_code() -> None:
    """What a handler raises while LLVM hands it over would be lost, and so would the machine code."""
    handled = []

    def handler(number: int, frame: FrameType | None) -> None:
        assert frame is not None
        handled.append(number)
        if frame.f_code.co_name.startswith("_raw_object_cache"):  # llvmlite, called by LLVM
            raise KeyboardInterrupt

    now = time.time_ns()  # so that this kernel is on no disk

    @kernel
    def later(x):  # type: ignore[no-untyped-def]
        return x + now

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        assert later(1) == now + 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled
    file = later._cache.find(later.signatures[0])
    assert file is not None
    file.unlink()


@pytest.mark.slow
def test_others_are_compiled_by_numba_as_ever() -> None:
    """Nothing of Numba stays changed."""
    before = TargetConfig.__eq__

    @kernel
    def assign(out, x):  # type: ignore[no-untyped-def]
        out[:] = x

    out = np.zeros(3)
    assign(out, np.arange(3.0))
    assert out.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="another shape"):
        assign(out, np.arange(4.0))
    assert TargetConfig.__eq__ is before

    @njit
    def assign_too(out, x):  # type: ignore[no-untyped-def]
        out[:] = x

    with pytest.raises(ValueError, match="from input of shape"):
        assign_too(out, np.arange(4.0))


def test_what_is_replaced_in_numba_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba still calls all that is replaced, and nothing of it stays so."""
    called = set()

    def noted(place: tuple[Any, str], replacement: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            called.add(place)
            return replacement(*arguments, **options)

        return call

    text = numba_pipeline.arrayobj, "raise_with_shape_context", numba_pipeline._raise_mismatch  # known by what it is; see above
    usual = [(owner, name, vars(owner)[name]) for owner, name, _ in numba_pipeline._REPLACED]
    noting = tuple((owner, name, noted((owner, name), ours)) for owner, name, ours in numba_pipeline._REPLACED if name != text[1])
    monkeypatch.setattr(numba_pipeline, "_REPLACED", (*noting, text))
    now = time.time_ns()  # so that this kernel is on no disk

    @kernel
    def mixed(out, x):  # type: ignore[no-untyped-def]
        y = np.empty(x.shape[0], np.int64)
        for i in range(x.shape[0]):
            y[i] = min(now, x[i] + 1)
        out[:] = y

    for out in (np.zeros(3, np.int64), np.zeros(3)):  # for other types, what has the same types is found again
        mixed(out, np.arange(3))
        assert out.tolist() == [1, 2, 3]
    assert called == {(owner, name) for owner, name, _ in noting}
    assert all(vars(owner)[name] is theirs for owner, name, theirs in usual)
    for signature in mixed.signatures:
        file = mixed._cache.find(signature)
        assert file is not None
        file.unlink()


def test_variables_of_statements() -> None:
    """They are found in the order in which Numba finds them, which decides what is generated."""

    def function(x, y):  # type: ignore[no-untyped-def]
        total = 0
        for i, one in enumerate(x[1:]):
            if one in (y, 3, i):
                total += max(one, y, key=None) * y[i, 1:]
        return [total, {"a": (x, y)}]

    statements = [one for block in run_frontend(function).blocks.values() for one in block.body]
    parts = statements + [one.value for one in statements if isinstance(getattr(one, "value", None), Inst)]
    theirs = [part.list_vars() for part in parts]
    with numba_pipeline.quickly():
        assert [part.list_vars() for part in parts] == theirs


def test_who_listens_to_numba_is_told() -> None:
    with numba_pipeline.quickly(), event.install_recorder("numba:compile") as told, event.trigger_event("numba:compile"):
        pass
    assert [one.is_start for _, one in told.buffer] == [True, False]
