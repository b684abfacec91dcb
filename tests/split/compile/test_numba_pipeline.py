"""What is replaced in Numba."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core import event
from numba.core.targetconfig import TargetConfig

from dtrees.split.compile import numba_pipeline
from dtrees.split.compile.cache import PATCHES_NUMBA
from dtrees.split.compile.kernels import kernel

pytestmark = pytest.mark.skipif(not PATCHES_NUMBA, reason="this Numba is not patched")


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


def test_who_listens_to_numba_is_told() -> None:
    with numba_pipeline.quickly(), event.install_recorder("numba:compile") as told, event.trigger_event("numba:compile"):
        pass
    assert [one.is_start for _, one in told.buffer] == [True, False]
