"""Parameters of tests of which one is tried in every run, and all where slow tests are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_quick(values: Iterable[Any]) -> list[Any]:
    """Return values of one parameter, all but the first marked as slow.

    >>> [len(value.marks) for value in one_quick("abc")]
    [0, 1, 1]
    """
    return [pytest.param(value, marks=pytest.mark.slow if i else ()) for i, value in enumerate(values)]
