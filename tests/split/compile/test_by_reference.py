"""Named tuples that kernels get by reference."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core.errors import TypingError

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import kernel, lean_entry, lean_kernel


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
    """Nothing is remembered of a tuple at the same address."""
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
    after = sys.getrefcount(outer.one.array)  # pytest holds on to what is in an assertion
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
