"""Methods of a task: code that depends on the type of a hidden field is compiled for each type, their caller once."""

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import float64, int64
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import lean_entry
from dtrees.split.compile.methods import UNKNOWN, Hidden, MethodSet, hide
from dtrees.split.compile.specialised import specialised


class Circle(NamedTuple):
    radius: float


class Box(NamedTuple):
    sides: NDArray[np.float64]
    height: int


class Nothing(NamedTuple):
    pass


@by_reference
class Shape(NamedTuple):
    factor: float
    form: Any


@by_reference
class Task(NamedTuple):
    shape: Hidden
    methods: NDArray[np.int64]


@specialised
def area(form):  # type: ignore[no-untyped-def]
    """Return the area of a form."""


@area.of(Circle)
def _(form):  # type: ignore[no-untyped-def]
    return form.radius * form.radius * 3.0


@area.of(Box)
def _(form):  # type: ignore[no-untyped-def]
    return form.sides.sum() * form.height


METHODS = MethodSet()


@METHODS.method(int64, returns=float64)
def scaled_area(task, times):  # type: ignore[no-untyped-def]
    return times * task.shape.factor * area(task.shape.form)


@METHODS.method(int64)
def never_called(task, times):  # type: ignore[no-untyped-def]
    task.shape.form[times] = 1  # no form is an array


@lean_entry
def areas(task, n):  # type: ignore[no-untyped-def]
    """Call the method up to ``n`` times, or the other one."""
    total = task.shape.factor
    for k in range(n):
        total += scaled_area(task, k)
    if n < 0:
        never_called(task, n)
    return total


def task_of(form: Any, factor: float = 2.0) -> Task:
    shape = Shape(factor, form)
    task = Task(hide(shape, shape._replace(form=Nothing())), UNKNOWN.addresses)
    methods = METHODS.of(task, "shape")
    methods.write(shape, task.shape.memory)
    return task._replace(methods=methods.addresses)


def test_one_caller_for_all_kinds() -> None:
    assert areas(task_of(Circle(2.0)), 4) == 2.0 + 6 * 2.0 * 12.0
    assert areas(task_of(Box(np.array([1.0, 2.0]), 3), 0.5), 3) == 0.5 + 3 * 0.5 * 9.0
    assert areas(task_of(Circle(1.0), 1.0), 2) == 1.0 + 3.0
    assert len(areas.overloads) == 1
    assert len(scaled_area.kernel.overloads) == 2
    assert not never_called.kernel.overloads


def test_kinds_have_tables_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if threads request them at the same time."""
    monkeypatch.setattr(METHODS, "_known", {})
    found: list[Any] = []
    forms = [Circle(1.0), Box(np.zeros(2), 1)] * 4
    threads = [threading.Thread(target=lambda form=form: found.append((type(form), task_of(form).methods))) for form in forms]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tables = {(kind, id(table)) for kind, table in found}
    assert len(found) == 8
    assert len(tables) == 2
    assert len({int(table[0]) for _, table in found}) == 2


def test_what_is_hidden_is_written_again() -> None:
    task = task_of(Circle(1.0))
    METHODS.of(task, "shape").write(Shape(3.0, Circle(2.0)), task.shape.memory)
    assert areas(task, 2) == 3.0 + 3.0 * 12.0


def test_a_method_that_does_not_compile(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="never_called could not be compiled"):
        areas(task_of(Circle(1.0)), -1)
    assert "a kernel could not be compiled" in caplog.text
