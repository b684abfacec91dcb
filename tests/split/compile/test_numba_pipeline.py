"""Replaced attributes of Numba, and named tuples that kernels receive by reference."""

import signal
import sys
import time
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core import event
from numba.core.errors import TypingError
from numba.core.targetconfig import TargetConfig

from dtrees.split.compile import numba_pipeline
from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.cache import PATCHES_NUMBA
from dtrees.split.compile.kernels import kernel, lean_entry, lean_kernel

if_patched = pytest.mark.skipif(not PATCHES_NUMBA, reason="this Numba is not patched")

# --- replaced attributes of Numba ---


@if_patched
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_interrupts_wait_for_the_machine_code() -> None:
    """An exception of a handler during the call from LLVM would be lost, and so would the machine code."""
    handled = []

    def handler(number: int, frame: FrameType | None) -> None:
        assert frame is not None
        handled.append(number)
        if frame.f_code.co_name.startswith("_raw_object_cache"):  # llvmlite, called by LLVM
            raise KeyboardInterrupt

    now = time.time_ns()  # so that this kernel is not on disk

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


@if_patched
@pytest.mark.slow
def test_others_are_compiled_by_numba_as_ever() -> None:
    """No attribute of Numba stays changed."""
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


@if_patched
def test_what_is_replaced_in_numba_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba still uses all replaced attributes, and none stays replaced."""
    called = set()

    def noted(place: tuple[Any, str], replacement: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            called.add(place)
            return replacement(*arguments, **options)

        return call

    text = numba_pipeline.arrayobj, "raise_with_shape_context", numba_pipeline._raise_mismatch  # compared by identity; see above
    usual = [(owner, name, vars(owner)[name]) for owner, name, _ in numba_pipeline._REPLACED]
    noting = tuple((owner, name, noted((owner, name), ours)) for owner, name, ours in numba_pipeline._REPLACED if name != text[1])
    monkeypatch.setattr(numba_pipeline, "_REPLACED", (*noting, text))
    now = time.time_ns()  # so that this kernel is not on disk

    @kernel
    def mixed(out, x):  # type: ignore[no-untyped-def]
        y = np.empty(x.shape[0], np.int64)
        for i in range(x.shape[0]):
            y[i] = min(now, x[i] + 1)
        out[:] = y

    for out in (np.zeros(3, np.int64), np.zeros(3)):  # for other types, a kernel with equal types is found
        mixed(out, np.arange(3))
        assert out.tolist() == [1, 2, 3]
    assert called == {(owner, name) for owner, name, _ in noting}
    assert all(vars(owner)[name] is theirs for owner, name, theirs in usual)
    for signature in mixed.signatures:
        file = mixed._cache.find(signature)
        assert file is not None
        file.unlink()


@if_patched
def test_who_listens_to_numba_is_told() -> None:
    with numba_pipeline.quickly(), event.install_recorder("numba:compile") as told, event.trigger_event("numba:compile"):
        pass
    assert [one.is_start for _, one in told.buffer] == [True, False]


# --- named tuples that kernels receive by reference ---


@by_reference
class Inner(NamedTuple):
    array: Any
    number: int
    flag: bool


@by_reference
class Outer(NamedTuple):
    out: Any
    one: Inner
    other: Inner
    nothing: None
    pair: tuple[int, float]


def make() -> Outer:
    return Outer(np.zeros(2), Inner(np.arange(4.0), 7, True), Inner(np.arange(5.0), 8, False), None, (1, 2.5))


@lean_kernel
def one_of(outer, i):  # type: ignore[no-untyped-def]
    return outer.one if i == 0 else outer.other


@lean_kernel
def total(inner):  # type: ignore[no-untyped-def]
    result = 0.0
    for i in range(inner.array.shape[0]):
        result += inner.array[i]
    return result + inner.number


@lean_kernel
def is_given(value):  # type: ignore[no-untyped-def]
    if value is None:
        return False
    return value.no_such_field > 0


@lean_entry
def totals(outer):  # type: ignore[no-untyped-def]
    if outer.one.flag and not is_given(outer.nothing):
        outer.out[0] = total(one_of(outer, 0))
        outer.out[1] = total(one_of(outer, 1)) * outer.pair[1]


@kernel
def sum_of_all(outer):  # type: ignore[no-untyped-def]
    return outer.one.array.sum() + outer.other.array[1:].sum()


@kernel
def sum_twice(outer, n):  # type: ignore[no-untyped-def]
    result = 0.0
    for _ in range(n):
        result += sum_of_all(outer)
    return result


def test_fields() -> None:
    outer = make()
    totals(outer)
    assert outer.out.tolist() == [13.0, 45.0]
    totals(outer._replace(one=outer.other, other=outer.one))
    assert outer.out.tolist() == [13.0, 45.0]  # its flag is not set


def test_what_the_reference_leads_to_is_read_anew() -> None:
    """Nothing is cached about a tuple at the same address."""
    results = []
    for number in range(5):
        outer = make()
        totals(outer._replace(one=outer.one._replace(number=number)))
        results.append(float(outer.out[0]))
    assert results == [6.0, 7.0, 8.0, 9.0, 10.0]


def test_arrays_are_released() -> None:
    outer = make()
    before = sys.getrefcount(outer.one.array)
    for _ in range(10):
        assert sum_twice(outer, 3) == 48.0
    after = sys.getrefcount(outer.one.array)  # pytest keeps references to objects in an assertion
    assert after == before


def test_kernels_cannot_make_one() -> None:
    @kernel
    def make_one(array):  # type: ignore[no-untyped-def]
        return total(Inner(array, 1, True)._replace(number=2))

    with pytest.raises(TypingError):
        make_one(np.zeros(1))


def test_other_tuples_do_not_fit() -> None:
    with pytest.raises(TypingError):
        totals((1, 2))
