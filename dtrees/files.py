"""Atomic files, and arrays with a JSON document in one block of bytes: safe to read, and checked.

A file is written under a temporary name in the directory of its destination, flushed to disk, and then renamed in one step of the file
system. A reader of the destination sees either the old or the new content, also after a crash or with a full disk.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "numbers.csv"
>>> with atomic_file(path) as file:
...     _ = file.write(b"1,2,3")
...     path.exists()
False
>>> path.read_bytes()
b'1,2,3'

Arrays are stored as a safetensors file: plain arrays after a header, in which the document is an entry. There is no pickle: reading runs
no code of the file's author. A digest in the document detects damage and truncation; it is not a signature.

>>> import numpy as np
>>> content = pack("notes", {"about": "numbers"}, {"x": np.arange(3.0)})
>>> document, arrays = unpack("notes", content)
>>> document["about"], arrays["x"].tolist()
('numbers', [0.0, 1.0, 2.0])
>>> unpack("notes", content[:-1])
Traceback (most recent call last):
...
ValueError: it cannot be parsed
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import mmap
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

_ABANDONED_SECONDS = 86_400.0

Arrays = dict[str, NDArray[Any]]

#: Names of dtypes in the header.
_DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4", "F32": "<f4",
    "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at ``path`` only when the block ends without an error.

    Parameters
    ----------
    path : str or path-like
        Destination, which is replaced if it exists, with the same permissions. A symbolic link is followed: the file it points to is
        replaced. Anything that is not a regular file (a pipe, a device such as ``/dev/stdout``) is written to directly.

    Yields
    ------
    binary file
        Open for writing and seeking.

    Raises
    ------
    OSError
        If the directory does not exist or cannot be written to, or the disk is full. Content at ``path`` is then unchanged.
    """
    destination = Path(os.path.realpath(path))
    if destination.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; give the name of a file.")
    if Path(path).exists() and not Path(path).is_file():
        with open(path, "wb") as stream:
            yield stream
        return
    if not destination.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(destination.parent)!r} does not exist; create it first.")
    # Not tempfile: its files are readable by their owner only, and would remain so after the rename.
    temporary = destination.with_name(f".{destination.name}.{secrets.token_hex(6)}.tmp")
    _remove_abandoned(destination)
    mode = stat.S_IMODE(destination.stat().st_mode) if destination.exists() else None
    try:
        # The replacement of a private file is never readable by others, not even before it has the final mode.
        private = None if mode is None else functools.partial(os.open, mode=mode & 0o700)
        with open(temporary, "xb", opener=private) as file:
            if mode is not None:
                os.chmod(temporary, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, destination)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_directory(destination.parent)


def _remove_abandoned(destination: Path) -> None:
    """Remove temporary files of this destination that have not been written to for a day, left by killed processes."""
    pattern = re.compile(rf"\.{re.escape(destination.name)}\.[0-9a-f]{{12}}\.tmp")
    with contextlib.suppress(OSError):  # a user who can write here may not be allowed to list or to remove files
        for path in destination.parent.iterdir():
            if pattern.fullmatch(path.name) and time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()


def _sync_directory(directory: Path) -> None:
    """Make a rename in this directory survive a power failure, if the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    with contextlib.suppress(OSError):  # some network file systems do not support fsync of a directory; the rename itself has happened
        os.fsync(descriptor)
    os.close(descriptor)


def pack(key: str, document: dict[str, Any], arrays: Arrays) -> bytes:
    """Return document and arrays as bytes; equal content gives equal bytes.

    Parameters
    ----------
    key : str
        Kind of the document.
    document : dict
        JSON data. The entry ``"sha256"`` is added.
    arrays : dict from str to ndarray
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # A single entry: safetensors writes several in random order.
    return safetensors.numpy.save(arrays, {key: json.dumps({**document, "sha256": digest(document, arrays)})})


def unpack(key: str, content: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return the input of :func:`pack` for the same key.

    Raises
    ------
    ValueError
        If the bytes are not such a document, or damaged.
    """
    try:
        metadata, arrays = parse(content)
        document = json.loads(metadata[key])
        is_whole = digest(document, arrays) == document["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it cannot be parsed") from error
    if not is_whole:
        raise ValueError("its content does not match its checksum")
    check_bools(arrays)
    return document, {name: array.copy() for name, array in arrays.items()}


def parse(content: bytes | mmap.mmap) -> tuple[dict[str, str], Arrays]:
    """Return the header entries of :func:`pack`'s bytes that are not arrays, and the arrays, which are views of these bytes.

    Raises
    ------
    ValueError, KeyError, TypeError, AttributeError
        If the header is invalid; the content of arrays is not checked.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    if start > len(content):
        raise ValueError("the header is longer than the file")
    header = json.loads(content[8:start])
    metadata, at = header.pop("__metadata__", {}), 0
    for first, last in sorted(entry["data_offsets"] for entry in header.values()):
        if first != at:
            raise ValueError("its arrays do not lie one after the other")
        at = last
    if start + at != len(content):
        raise ValueError("its arrays are not all that follows the header")
    return dict(metadata), {name: _array(content, start, name, entry) for name, entry in header.items()}


def _array(content: bytes | mmap.mmap, start: int, name: str, entry: dict[str, Any]) -> NDArray[Any]:
    dtype, shape, (first, last) = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
    if type(shape) is not list or any(type(number) is not int or not 0 <= number < 2**62 for number in (*shape, first, last)):
        raise ValueError(f"the array {name!r:.40} has no shape and place")
    if math.prod(shape) * dtype.itemsize != last - first or (start + first) % dtype.itemsize:
        raise ValueError(f"the array {name!r:.40} has not the size of its shape, or lies askew")
    return np.ndarray(tuple(shape), dtype, content, start + first)


def map_file(path: str | os.PathLike[str]) -> mmap.mmap:
    """Map a file into memory: pages are read when they are first needed, and shared by all processes that map the file.

    Arrays in it can be written to, which copies a page for this process; the file does not change. The mapping ends with the last array.

    Raises
    ------
    ValueError
        If the file is empty.
    OSError
        If it cannot be read or mapped.
    """
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def check_bools(arrays: Arrays) -> None:
    """Raise ValueError if a boolean byte is neither 0 nor 1: NumPy and compiled code would interpret it differently."""
    for name, array in arrays.items():
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"the array {name!r:.40} has truth values that are neither 0 nor 1")


def digest(document: dict[str, Any], arrays: Arrays) -> str:
    """Return the SHA-256 of everything except its own entry, in an order that does not depend on the file."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()
