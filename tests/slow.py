"""Parameters of tests of which one is tried in every run, and all where slow tests are asked for."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest

from tests.examples import THOROUGH


def one_quick(values: Iterable[Any]) -> list[Any]:
    """Return values of one parameter, all but the first marked as slow.

    >>> [len(value.marks) for value in one_quick("abc")]
    [0, 1, 1]
    """
    return [pytest.param(value, marks=pytest.mark.slow if i else ()) for i, value in enumerate(values)]


def slow_for(slow: Container[Any], values: Iterable[Any]) -> list[Any]:
    """Return values of one parameter, or of several that begin with it, those in ``slow`` marked as slow.

    >>> [len(value.marks) for value in slow_for({"b"}, ["a", "b", ("b", 1)])]
    [0, 1, 1]
    """
    marked = []
    for value in values:
        several = value if isinstance(value, tuple) else (value,)
        marked.append(pytest.param(*several, marks=pytest.mark.slow if several[0] in slow else ()))
    return marked


#: Criteria with kernels that grow trees of their own, which take long to compile. Quick tests have them search single nodes.
KERNELS_OF_THEIR_OWN = frozenset({"entropy", "poisson", "newton_l1"})


def quick_criteria(criteria: Iterable[str]) -> list[str]:
    """Return those criteria that made-up examples of quick tests are drawn from; all in a thorough run.

    >>> quick_criteria(["gini", "entropy"]) == ["gini", "entropy"][: 1 + THOROUGH]
    True
    """
    return [criterion for criterion in criteria if THOROUGH or criterion not in KERNELS_OF_THEIR_OWN]
