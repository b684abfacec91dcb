"""What commands write: where, checked before the work is done rather than after it, and frames as a file.

Frames are written partition by partition, so that no more than a few of them are ever in memory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from dtrees.cli.data.tables import PARQUET_SUFFIXES, TEXT_SUFFIXES
from dtrees.cli.terminal.errors import CommandError

#: Of what a table can be written to; a name without one, such as that of a pipe, is CSV.
OUTPUT_SUFFIXES = ("", *TEXT_SUFFIXES, *PARQUET_SUFFIXES)


def write_frames(path: str, file: BinaryIO, frames: Iterable[Any]) -> int:
    """Write pandas DataFrames one after the other, in the format that the name of the output asks for; return how many rows they have."""
    suffix = PurePath(path).suffix.lower()
    return _write_parquet(file, frames) if suffix in PARQUET_SUFFIXES else _write_csv(file, frames, "\t" if suffix == ".tsv" else ",")


def _write_csv(file: BinaryIO, frames: Iterable[Any], separator: str) -> int:
    n_rows = 0
    for number, frame in enumerate(frames):
        file.write(frame.to_csv(index=False, sep=separator, header=number == 0, lineterminator="\n").encode())
        n_rows += len(frame)
    return n_rows


def _write_parquet(file: BinaryIO, frames: Iterable[Any]) -> int:
    """Write each frame as a row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    frames = iter(frames)
    first = next(frames)
    schema, n_rows = pa.Schema.from_pandas(first, preserve_index=False), 0
    with pq.ParquetWriter(file, schema) as writer:
        for frame in chain([first], frames):
            writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))
            n_rows += len(frame)
    return n_rows


def partitions(frame: Any, client: Any = None) -> Iterator[Any]:
    """Yield the partitions of a Dask DataFrame in order as pandas DataFrames, holding few of them at a time.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    client : distributed.Client, optional
        None computes one after the other in this process.
    """
    parts = frame.to_delayed()
    if client is None:
        for part in parts:
            yield part.compute(scheduler="threads")
        return
    ahead = 2 * sum(client.nthreads().values())
    futures: deque[Any] = deque()
    for part in parts:
        futures.append(client.compute(part))
        if len(futures) > ahead:
            yield futures.popleft().result()
    while futures:
        yield futures.popleft().result()


#: Of pages of HTML; a name without one is taken as it is.
HTML_SUFFIXES = ("", ".html", ".htm")


def check_destinations(written: Mapping[str, str | None], read: Collection[str]) -> None:
    """Raise if a file that an option names cannot be written, is read by the command, or is named by another option too.

    Parameters
    ----------
    written : mapping from str to str or None
        What each option names, by the option; None or empty where nothing is to be written.
    read : collection of str
        Files that the command reads.

    Raises
    ------
    CommandError
    """
    taken = {_place(path): "what this command reads" for path in read}
    for option, path in written.items():
        if not path:
            continue
        if not _is_address(path):
            _check_folder(option, Path(_place(path)).parent)
        if (place := _place(path)) in taken:
            raise CommandError(f"{option}: {path!r} is {taken[place]}, and would be written over; give another name.")
        taken[place] = f"what {option} names too"


def check_suffix(option: str, path: str, suffixes: Collection[str], what: str) -> None:
    """Raise if the name of what is to be written has another suffix than one of those of what it will be.

    Parameters
    ----------
    option : str
    path : str
    suffixes : collection of str
        In lower case, with the point; empty text stands for none.
    what : str
        What is written.

    Raises
    ------
    CommandError
    """
    if PurePath(path).suffix.lower() not in suffixes:
        *others, last = (suffix for suffix in suffixes if suffix)
        raise CommandError(
            f"{option}: {path!r} is no name for {what}; give one ending in {', '.join(others)}{' or ' * bool(others)}{last}."
        )


def check_new(option: str, path: str) -> None:
    """Raise if there is something at a place where a command makes up data."""
    if os.path.lexists(path):
        raise CommandError(
            f"{option}: {path!r} exists, and would be written over with a made-up table; give a new name. "
            f"To train on a table of your own: dtrees fit {path} --target COLUMN"
        )


def _check_folder(option: str, folder: Path) -> None:
    if not folder.is_dir():
        raise CommandError(f"{option}: the folder {str(folder)!r} does not exist; create it first.")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{option}: the folder {str(folder)!r} is not writable; choose another.")


def _is_address(path: str) -> bool:
    return ("://" in path or "::" in path) and not path.startswith("file://")


def _place(path: str) -> str:
    """Return what two names of one file have in common."""
    return path if _is_address(path) else os.path.realpath(os.path.expanduser(path.removeprefix("file://")))
