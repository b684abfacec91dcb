"""The dtypes of CSV columns, from all rows.

A CSV file does not say what its columns hold, and dask.dataframe judges by the first rows: a column that is whole numbers there and
has a missing value or a word further down fails in mid-training. So every block is parsed once just to see what it holds, and what
the blocks say is put together:

========================  ==============================================
the blocks hold           the column is
========================  ==============================================
whole numbers             int64 (uint64 beyond)
also missing values       float64
true and false            bool
also missing values       text; boolean, if it is to hold numbers
numbers of any kind       float64
anything else             text, exactly as it stands in the file
nothing                   float64, all missing
========================  ==============================================

Blocks begin and end at line breaks, and one within quotes is no end of a row. A block with an odd number of quotes begins or ends within
some; then each file is taken in one piece.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

logger = logging.getLogger("dtrees")

TEXT = "string"
_FLAGS = frozenset({"bool", "bool with gaps"})

#: Bytes of a block: parsed as one piece by one thread.
BLOCK_SIZE = 32 * 2**20


def infer(
    paths: Sequence[str],
    header: bytes,
    reading: Mapping[str, Any],
    text: Collection[str],
    numbers: Collection[str],
    compression: str | None,
) -> tuple[dict[str, Any], int | None]:
    """Return the dtype of each column, by name, and the size of the blocks in which to read the files; computed on the cluster, if any.

    Parameters
    ----------
    paths : sequence of str
        CSV files, all with the same header.
    header : bytes
        Their first line.
    reading : mapping
        Options of ``pandas.read_csv``: ``sep``, ``decimal`` and ``thousands``.
    text : collection of str
        Columns that are text whatever they look like.
    numbers : collection of str
        Columns that are to hold numbers or flags.
    compression : str or None
        For example ``"gzip"``; such files are one block each.

    Returns
    -------
    dtypes : dict
    block_size : int or None
        None: one block for each file.

    Raises
    ------
    ValueError
        If a block cannot be parsed.
    """
    if not compression:
        blocks = _inspect(paths, header, reading, text, None, BLOCK_SIZE)
        if not any(n_quotes % 2 for n_quotes, _ in blocks):
            return merge(_unwrap(blocks), numbers), BLOCK_SIZE
        logger.warning("line breaks within quotes: each file is read in one piece, which takes memory and does not share out work")
    return merge(_unwrap(_inspect(paths, header, reading, text, compression, None)), numbers), None


def _inspect(
    paths: Sequence[str], header: bytes, reading: Mapping[str, Any], text: Collection[str], compression: str | None, block_size: int | None
) -> Sequence[tuple[int, dict[str, str] | ValueError]]:
    """Return of each block how many quotes it has (if there are others of its file), and what it holds, or why it cannot be parsed."""
    import dask
    from dask.bytes import read_bytes

    _, files = read_bytes(list(paths), delimiter=b"\n", blocksize=block_size, sample=False, compression=compression)
    inspect = dask.delayed(_try_block)
    found: Sequence[tuple[int, dict[str, str] | ValueError]] = dask.compute(
        *[inspect(block, header, index > 0, reading, text, len(file) == 1) for file in files for index, block in enumerate(file)]
    )
    return found


def _try_block(
    block: bytes, header: bytes, prepend: bool, reading: Mapping[str, Any], text: Collection[str], whole: bool
) -> tuple[int, dict[str, str] | ValueError]:
    n_quotes = 0 if whole else block.count(b'"')
    try:
        return n_quotes, inspect_block(block, header, prepend, reading, text)
    except ValueError as error:
        return n_quotes, error


def _unwrap(blocks: Iterable[tuple[int, dict[str, str] | ValueError]]) -> Iterator[dict[str, str]]:
    for _, kinds in blocks:
        if isinstance(kinds, ValueError):
            raise kinds
        yield kinds


def inspect_block(block: bytes, header: bytes, prepend: bool, reading: Mapping[str, Any], text: Collection[str]) -> dict[str, str]:
    r"""Return what each column of a block holds: integer, unsigned, float, bool, bool with gaps, text or empty.

    >>> inspect_block(b"1,x,,true,true\n2,y,,false,", b"a,b,c,d,e\n", True, {}, ())
    {'a': 'integer', 'b': 'text', 'c': 'empty', 'd': 'bool', 'e': 'bool with gaps'}
    """
    frame = pd.read_csv(io.BytesIO(header + block if prepend else block), dtype=dict.fromkeys(text, str), low_memory=False, **reading)
    return {str(name): _kind(frame[name]) for name in frame.columns}


def merge(blocks: Iterable[dict[str, str]], numbers: Collection[str] = ()) -> dict[str, Any]:
    """Return the dtype of each column from what its blocks hold; ``numbers`` are columns that are to hold numbers or flags.

    >>> merge([{"a": "integer", "b": "float", "c": "text"}, {"a": "empty", "b": "integer", "c": "integer"}])
    {'a': 'float64', 'b': 'float64', 'c': 'string'}
    """
    kinds: dict[str, set[str]] = {}
    for block in blocks:
        for name, kind in block.items():
            if kind != "no rows":
                kinds.setdefault(name, set()).add(kind)
            else:
                kinds.setdefault(name, set())
    return {name: _dtype(found, name in numbers) for name, found in kinds.items()}


def _kind(column: pd.Series) -> str:
    if not len(column):
        return "no rows"
    if column.isna().all():
        return "empty"
    if column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) == "boolean":
        return "bool with gaps"
    return {"i": "integer", "u": "unsigned", "f": "float", "b": "bool"}.get(column.dtype.kind, "text")


def _dtype(kinds: set[str], to_hold_numbers: bool) -> str:
    if kinds == {"bool"}:
        return "bool"
    if to_hold_numbers and kinds & _FLAGS and kinds <= {*_FLAGS, "empty"}:
        return "boolean"
    if kinds & {"text", *_FLAGS}:
        return TEXT
    if kinds == {"integer"}:
        return "int64"
    if kinds and kinds <= {"integer", "unsigned"}:
        return "uint64"
    return "float64"
