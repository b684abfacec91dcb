"""Large arrays whose memory goes back to the system as soon as they are forgotten.

What an allocator is given back it may keep, in each thread for itself: of what columns were sorted in, it kept 180 bytes for each row of a
table. So these arrays are mapped one by one.

>>> mapped(3, np.uint32).shape
(3,)
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dtrees.split.policy import LARGE_PAGES_BYTES, MAPPED_BYTES

T = TypeVar("T")


def mapped(n: int, dtype: DTypeLike, large_pages: bool = True) -> NDArray[Any]:
    """Return an array of shape (n,), uninitialized, in memory that goes back to the system when it is free.

    Without large pages, an array of which little is used takes little memory.
    """
    n_bytes = n * np.dtype(dtype).itemsize
    if n_bytes < MAPPED_BYTES:
        return np.empty(n, dtype)
    try:
        # Private, where there is a choice: a forked process gets a copy.
        pages = mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if hasattr(mmap, "MAP_PRIVATE") else mmap.mmap(-1, n_bytes)
    except OSError as error:
        raise MemoryError(f"the system has no {n_bytes} bytes for an array of shape ({n},) and dtype {np.dtype(dtype)}") from error
    if large_pages and n_bytes >= LARGE_PAGES_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype, n)


class Reused(Generic[T]):
    """What threads need one of for as long as a task takes, and then leave to the next task.

    Examples
    --------
    >>> buffers = Reused(lambda: mapped(3, np.float64))
    >>> with buffers.one() as first:
    ...     first[:] = 1.0
    >>> with buffers.one() as again:
    ...     again is first
    True
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: list[T] = []

    @contextmanager
    def one(self) -> Iterator[T]:
        """Give one that no other thread uses."""
        try:
            thing = self._free.pop()  # pop and append are atomic
        except IndexError:
            thing = self._make()
        yield thing
        self._free.append(thing)

    def forget(self) -> None:
        """Give up all that are not in use."""
        self._free.clear()
