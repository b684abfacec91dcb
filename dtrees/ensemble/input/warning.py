"""Warnings of a fit, which reach the caller of the fit, also from a worker, and refer to the line that called this package."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar

_collected: ContextVar[list[Warning] | None] = ContextVar("collected", default=None)


#: Packages whose lines are skipped; scikit-learn's are around each fit.
_OURS = ("dtrees", "sklearn")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the line that called this package, or, inside :func:`collected_warnings`, collect the warning."""
    collector = _collected.get()
    if collector is None:
        warnings.warn(message, category, stacklevel=_levels_to_the_user())
    else:
        collector.append(category(message))


def _levels_to_the_user() -> int:
    """Return the stack level of the user's frame, relative to the caller (1); Python 3.12 has an equivalent."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
        level += 1
    return level


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[Warning]]:
    """Yield the list that collects this thread's warnings within the block.

    Examples
    --------
    >>> with collected_warnings() as found:
    ...     warn("a word")
    >>> found
    [UserWarning('a word')]
    """
    found: list[Warning] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
