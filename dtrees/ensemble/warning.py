"""Warnings of a fit, which should reach whoever called it, wherever it runs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar

_collected: ContextVar[list[Warning] | None] = ContextVar("collected", default=None)


def warn(message: str, stacklevel: int = 1, category: type[Warning] = UserWarning) -> None:
    """Warn the user, or whoever collects warnings to pass them on; ``stacklevel`` is that of :func:`warnings.warn`."""
    collector = _collected.get()
    if collector is None:
        warnings.warn(message, category, stacklevel=stacklevel + 1)
    else:
        collector.append(category(message))


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[Warning]]:
    """Give the list that this thread's warnings go to for as long as the block lasts.

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
