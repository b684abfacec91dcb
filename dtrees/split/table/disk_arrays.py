"""Large arrays in files on a local disk, for what memory does not hold, and what is read in order.

The files have no names: they are gone when nobody uses them any more, however a process ends. Their pages come into memory as they are
read, and stay for as long as the system pleases; but what has been read counts as a process's memory until it *forgets* it, and whoever
watches that (Dask restarts workers by it) cannot tell these pages from others. So a pass over an array forgets what it has read.

Use
---
>>> import tempfile
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
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dtrees.split.table.mmap_arrays import mapped

#: Returns an uninitialized array of so many numbers.
Room = Callable[[int, DTypeLike], NDArray[Any]]


class NoRoomOnDisk(OSError):
    """A folder's disk has no room for an array."""


class _FilePages(mmap.mmap):
    """The pages of a file without a name, and the folder that it is in."""

    folder: str


def on_disk(folder: str, n: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of shape (n,), zeros, in a file in a folder.

    Raises
    ------
    NoRoomOnDisk
        If there is no room for it, or no file can be made. Later it cannot run out: the room is set aside.
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
        raise NoRoomOnDisk(
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
    """Let this process have as many files open as it may at all (each array is one); return whether these are more than before."""
    try:
        import resource
    except ImportError:
        return False
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft != hard


def is_on_disk(array: NDArray[Any]) -> bool:
    """Tell whether an array is one of those here, or a view of one."""
    return _pages_of(array) is not None


def beside(array: NDArray[Any]) -> Room:
    """Return what makes further arrays where an array is: in its folder, or in memory."""
    pages = _pages_of(array)
    return mapped if pages is None else partial(on_disk, pages.folder)


def forget(*arrays: NDArray[Any]) -> None:
    """Give back the memory that arrays take which are on disk; those in memory are left as they are.

    Each is a whole array, or a view of a stretch of its memory. Others may read and write it meanwhile.
    """
    for array in arrays:
        pages = _pages_of(array)
        if pages is None or not array.nbytes or not hasattr(mmap, "MADV_DONTNEED"):
            continue
        whole = np.frombuffer(pages, np.uint8)
        first = (array.ctypes.data - whole.ctypes.data) // mmap.PAGESIZE * mmap.PAGESIZE
        pages.madvise(mmap.MADV_DONTNEED, first, min(array.ctypes.data - whole.ctypes.data + array.nbytes, len(pages)) - first)


def _pages_of(array: NDArray[Any]) -> _FilePages | None:
    """Return the pages that an array is a view of."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, _FilePages) else None
