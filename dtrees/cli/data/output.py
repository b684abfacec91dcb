"""Frames as a file, partition by partition, so that no more than a few of them are ever in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, BinaryIO, Protocol

from dtrees.cli.data.tables import PARQUET_SUFFIXES, TEXT_SUFFIXES

#: Of what a table can be written to; a name without one, such as that of a pipe, is CSV.
OUTPUT_SUFFIXES = ("", *TEXT_SUFFIXES, *PARQUET_SUFFIXES)


class Writer(Protocol):
    """Writes frames one after the other."""

    def write(self, frame: Any) -> None:
        """Append the rows of a pandas DataFrame."""

    def close(self) -> None:
        """Write what is still to be written."""


class CSVWriter:
    """Appends frames to a CSV file, with one header."""

    def __init__(self, file: BinaryIO, separator: str = ",") -> None:
        self._file, self._separator = file, separator
        self._header = True

    def write(self, frame: Any) -> None:
        """Append the rows of a pandas DataFrame."""
        self._file.write(frame.to_csv(index=False, sep=self._separator, header=self._header, lineterminator="\n").encode())
        self._header = False

    def close(self) -> None:
        """Leave the file as it is: each frame was written at once."""


class ParquetWriter:
    """Appends frames to a Parquet file, a row group each."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None

    def write(self, frame: Any) -> None:
        """Append the rows of a pandas DataFrame."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._schema = pa.Schema.from_pandas(frame, preserve_index=False)
            self._writer = pq.ParquetWriter(self._file, self._schema)
        self._writer.write_table(pa.Table.from_pandas(frame, schema=self._schema, preserve_index=False))

    def close(self) -> None:
        """Write the footer."""
        if self._writer is not None:
            self._writer.close()


def writer_for(path: str, file: BinaryIO) -> Writer:
    """Return a writer of the format that the name of the output asks for."""
    suffix = PurePath(path).suffix.lower()
    return ParquetWriter(file) if suffix in PARQUET_SUFFIXES else CSVWriter(file, "\t" if suffix == ".tsv" else ",")


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
