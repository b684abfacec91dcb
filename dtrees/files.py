"""Files that are either whole or not there; arrays and a JSON document in one block of bytes: safe to read, and checked.

A file is written under a temporary name in the directory of its destination, flushed to disk, and only then given its name, in
one step of the file system. Whoever reads the destination sees the old content or the new one, also after a crash or a full disk.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "numbers.csv"
>>> with atomic_file(path) as file:
...     _ = file.write(b"1,2,3")
...     path.exists()
False
>>> path.read_bytes()
b'1,2,3'

The bytes of arrays are those of a safetensors file: plain arrays behind a header, in which the document is an entry. No pickle: reading
runs no code of the author's. A digest in the document finds damage and truncation; it is no signature.

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

#: What the header calls dtypes.
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
        Where the file is to appear, replacing what is there, whose permissions it keeps. A symbolic link is followed: the file it points to
        is replaced. What is there and no file (a pipe, a device such as ``/dev/stdout``) is written to as it is.

    Yields
    ------
    binary file
        Open for writing and seeking.

    Raises
    ------
    OSError
        If the directory does not exist or cannot be written to, or the disk is full. What was at ``path`` is then untouched.
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
    # Not tempfile: it makes files that only their owner can read, and that would stay so under the final name.
    temporary = destination.with_name(f".{destination.name}.{secrets.token_hex(6)}.tmp")
    _remove_abandoned(destination)
    mode = stat.S_IMODE(destination.stat().st_mode) if destination.exists() else None
    try:
        # What replaces a private file is never open to others, not even before it has the mode of that.
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
    """Remove temporary files of this destination that nobody has written to for a day: those of processes that were killed."""
    pattern = re.compile(rf"\.{re.escape(destination.name)}\.[0-9a-f]{{12}}\.tmp")
    with contextlib.suppress(OSError):  # whoever may write here may not be allowed to list or to remove
        for path in destination.parent.iterdir():
            if pattern.fullmatch(path.name) and time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()


def _sync_directory(directory: Path) -> None:
    """Make a rename in this directory last through a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some network file systems know no fsync of a directory; the rename itself has happened
        pass
    finally:
        os.close(descriptor)


def pack(key: str, document: dict[str, Any], arrays: Arrays) -> bytes:
    """Return document and arrays as bytes, which are the same whenever these are.

    Parameters
    ----------
    key : str
        What kind of document it is.
    document : dict
        Of JSON data. The entry ``"sha256"`` is made here.
    arrays : dict from str to ndarray
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # One entry only: safetensors writes several in random order.
    return safetensors.numpy.save(arrays, {key: json.dumps({**document, "sha256": digest(document, arrays)})})


def unpack(key: str, content: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return what :func:`pack` was given, with the same key.

    Raises
    ------
    ValueError
        If the bytes are no such document, or damaged.
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
    """Return the entries of the header of :func:`pack`'s bytes that are no arrays, and the arrays, which lie in these bytes.

    Raises
    ------
    ValueError, KeyError, TypeError, AttributeError
        If the header cannot be that of such bytes; what arrays hold is not looked at.
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
    """Return a file, mapped into memory: pages are read when they are first needed, and shared with all that map the file.

    Arrays in it can be written to, which copies a page for this process; the file stays as it is. The pages go with the last array.

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
    """Raise ValueError if a truth value is neither 0 nor 1, in which case NumPy and compiled code take it for different ones."""
    for name, array in arrays.items():
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"the array {name!r:.40} has truth values that are neither 0 nor 1")


def digest(document: dict[str, Any], arrays: Arrays) -> str:
    """Return the SHA-256 of everything but the entry for it, in an order that does not depend on the file's."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()
