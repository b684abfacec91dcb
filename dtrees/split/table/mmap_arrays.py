"""Large arrays in memory that returns to the system as soon as they are freed, or in files on a local disk.

An allocator may retain freed memory, in each thread: it retained 180 bytes for each row of a table after its columns were sorted. So
these arrays are mapped one by one.

Files hold arrays that do not fit memory and are read in sequence. They are unnamed, so they are deleted when no process uses them any
more, however a process ends. Pages that have been read stay in memory for as long as the system decides, but they count as a process's
memory until it *forgets* them, and monitors of memory (Dask restarts workers by it) cannot tell these pages from others. So a pass over
an array forgets the pages that it has read.

Use
---
>>> import tempfile
>>> mapped(3, np.uint32).shape
(3,)
>>> numbers = on_disk(tempfile.gettempdir(), 3, np.uint32)
>>> numbers[:] = 7
>>> forget(numbers)  # not the numbers, but that they are in memory
>>> numbers.tolist(), is_on_disk(numbers), is_on_disk(numbers + 1)
([7, 7, 7], True, False)
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dtrees.split.policy import LARGE_PAGES_BYTES, MAPPED_BYTES

T = TypeVar("T")


def mapped(n: int, dtype: DTypeLike, large_pages: bool = True) -> NDArray[Any]:
    """Return an uninitialized array of shape (n,), in memory that returns to the system when it is freed.

    Without large pages, an array of which only a small part is used takes little memory.
    """
    n_bytes = n * np.dtype(dtype).itemsize
    if n_bytes < MAPPED_BYTES:
        return np.empty(n, dtype)
    try:
        # A private mapping, if the system has them: a forked process gets a copy.
        pages = mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if hasattr(mmap, "MAP_PRIVATE") else mmap.mmap(-1, n_bytes)
    except OSError as error:
        raise MemoryError(f"the system has no {n_bytes} bytes for an array of shape ({n},) and dtype {np.dtype(dtype)}") from error
    if large_pages and n_bytes >= LARGE_PAGES_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # not every system has large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype, n)


class Reused(Generic[T]):
    """A pool of objects, such as buffers, of which each thread needs one during a task.

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
        """Yield an object that no other thread uses."""
        try:
            thing = self._free.pop()  # pop and append are atomic
        except IndexError:
            thing = self._make()
        yield thing
        self._free.append(thing)

    def forget(self) -> None:
        """Drop all objects that are not in use."""
        self._free.clear()


#: Returns an uninitialized array of a given number of elements.
Allocate = Callable[[int, DTypeLike], NDArray[Any]]


class NoSpaceOnDisk(OSError):
    """The disk of a folder has no space for an array."""


class _FilePages(mmap.mmap):
    """The pages of an unnamed file, and the folder that it is in."""

    folder: str


def on_disk(folder: str, n: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of shape (n,), all zeros, in a file in a folder.

    Raises
    ------
    NoSpaceOnDisk
        If there is no space for it, or no file can be created. The space is reserved, so it cannot run out later.
    """
    n_bytes = n * np.dtype(dtype).itemsize
    if not n_bytes:
        return np.empty(n, dtype)
    try:
        try:
            pages = _make_file(folder, n_bytes)
        except OSError as error:
            if error.errno != errno.EMFILE or not _allow_more_files():
                raise
            pages = _make_file(folder, n_bytes)
    except OSError as error:
        raise NoSpaceOnDisk(
            error.errno or errno.ENOSPC,
            f"the folder {folder} has no room for a file of {n_bytes:,} bytes ({error.strerror or error}): cells of a table that memory "
            "does not hold are kept in such files. Free some of its disk, or have workers use another (dask worker --local-directory, or "
            "temporary-directory in Dask's configuration)",
        ) from error
    pages.folder = folder
    return np.frombuffer(pages, dtype, n)


def _make_file(folder: str, n_bytes: int) -> _FilePages:
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            file.truncate(n_bytes)
        return _FilePages(file.fileno(), n_bytes)


def _allow_more_files() -> bool:
    """Raise the limit of open files to its maximum (each array is one); return whether that increased it."""
    try:
        import resource
    except ImportError:
        return False
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft != hard


def is_on_disk(array: NDArray[Any]) -> bool:
    """Return whether an array, or the array that it is a view of, is in a file of this module."""
    return _pages_of(array) is not None


def beside(array: NDArray[Any]) -> Allocate:
    """Return a function that allocates further arrays where this one is: in its folder, or in memory."""
    pages = _pages_of(array)
    return mapped if pages is None else partial(on_disk, pages.folder)


def forget(*arrays: NDArray[Any]) -> None:
    """Release the memory of arrays that are on disk; arrays in memory are not changed.

    Each is a whole array, or a contiguous view of one. Other threads may read and write it meanwhile.
    """
    for array in arrays:
        pages = _pages_of(array)
        if pages is None or not array.nbytes or not hasattr(mmap, "MADV_DONTNEED"):
            continue
        whole = np.frombuffer(pages, np.uint8)
        first = (array.ctypes.data - whole.ctypes.data) // mmap.PAGESIZE * mmap.PAGESIZE
        pages.madvise(mmap.MADV_DONTNEED, first, min(array.ctypes.data - whole.ctypes.data + array.nbytes, len(pages)) - first)


def _pages_of(array: NDArray[Any]) -> _FilePages | None:
    """Return the pages that an array is a view of, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, _FilePages) else None
