"""Parameters of tests that are divided among every run, slow runs and thorough runs."""

from collections.abc import Container, Iterable, Sequence
from itertools import product
from typing import Any

import pytest

from tests.examples import THOROUGH


def one_quick(values: Iterable[Any]) -> list[Any]:
    """Return values of one parameter, all but the first marked as slow.

    >>> [len(value.marks) for value in one_quick("abc")]
    [0, 1, 1]
    """
    return [pytest.param(value, marks=pytest.mark.slow if i else ()) for i, value in enumerate(values)]


def slow_for(slow: Container[Any], values: Iterable[Any], thorough: Container[Any] = ()) -> list[Any]:
    """Return values of one parameter, or of several that begin with it, marked as slow if in ``slow``, as thorough if in ``thorough``.

    >>> [len(value.marks) for value in slow_for({"b"}, ["a", "b", ("b", 1)])]
    [0, 1, 1]
    """
    marked = []
    for value in values:
        several = value if isinstance(value, tuple) else (value,)
        marks = pytest.mark.thorough if several[0] in thorough else pytest.mark.slow if several[0] in slow else ()
        marked.append(pytest.param(*several, marks=marks))
    return marked


def thorough_for(thorough: Container[Any], values: Iterable[Any]) -> list[Any]:
    """Return values of one parameter, or of several that begin with it, marked as thorough if in ``thorough``.

    >>> [[mark.name for mark in value.marks] for value in thorough_for({"b"}, ["a", "b"])]
    [[], ['thorough']]
    """
    return slow_for((), values, thorough)


def one_of_each(*parameters: Sequence[Any], others: pytest.MarkDecorator = pytest.mark.slow) -> list[Any]:
    """Return all combinations of the values of several parameters, marked as slow except enough to have each value once.

    A value that is itself marked as slow is in no quick combination. ``others``: the mark, if it is not that of slow tests.

    >>> [len(value.marks) for value in one_of_each("abc", [1, 2])]
    [0, 1, 1, 0, 0, 1]
    """
    slow = [{i for i, value in enumerate(values) if getattr(value, "marks", ())} for values in parameters]
    plain = [[value.values if hasattr(value, "values") and hasattr(value, "marks") else value for value in values] for values in parameters]
    quick = [[i for i in range(len(values)) if i not in left_out] for values, left_out in zip(parameters, slow, strict=True)]
    chosen = {tuple(which[number % len(which)] for which in quick) for number in range(max(map(len, quick)))}
    found = []
    for which in product(*(range(len(values)) for values in plain)):
        values = [plain[k][i] for k, i in enumerate(which)]
        flat = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
        found.append(pytest.param(*flat, marks=() if which in chosen else others))
    return found


#: Criteria with kernels of their own, which take long to compile. Quick tests omit them, except in tests of sums and scores.
KERNELS_OF_THEIR_OWN = frozenset({"entropy", "poisson", "newton_l1", "absolute_error", "quantile"})


def quick_criteria(criteria: Iterable[str]) -> list[str]:
    """Return the criteria for random examples of quick tests; all in a thorough run.

    >>> quick_criteria(["gini", "entropy"]) == ["gini", "entropy"][: 1 + THOROUGH]
    True
    """
    return [criterion for criterion in criteria if THOROUGH or criterion not in KERNELS_OF_THEIR_OWN]
