"""Files that are either whole or not there.

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
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_ABANDONED_SECONDS = 86_400.0


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
