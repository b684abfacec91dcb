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
numbers of any kind       float64
anything else             text, exactly as it stands in the file
nothing                   float64, all missing
========================  ==============================================
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pandas as pd

TEXT = "string"

#: Bytes of a block: parsed as one piece by one thread.
BLOCK_SIZE = 32 * 2**20


def infer(paths: Sequence[str], header: bytes, separator: str, text: Collection[str], compression: str | None) -> dict[str, Any]:
    """Return the dtype of each column, by name; computed on the cluster where there is one.

    Parameters
    ----------
    paths : sequence of str
        CSV files, all with the same header.
    header : bytes
        Their first line.
    separator : str
    text : collection of str
        Columns that are text whatever they look like.
    compression : str or None
        For example ``"gzip"``; such files are one block each.

    Raises
    ------
    ValueError
        If a block cannot be parsed.
    """
    import dask
    from dask.bytes import read_bytes

    _, files = read_bytes(
        list(paths), delimiter=b"\n", blocksize=None if compression else BLOCK_SIZE, sample=False, compression=compression
    )
    inspect = dask.delayed(inspect_block)
    kinds = dask.compute(*[inspect(block, header, index > 0, separator, text) for file in files for index, block in enumerate(file)])
    return merge(kinds)


def inspect_block(block: bytes, header: bytes, prepend: bool, separator: str, text: Collection[str]) -> dict[str, str]:
    r"""Return what each column of a block holds: integer, unsigned, float, bool, text or empty.

    >>> inspect_block(b"1,x,,true\n2,y,,false", b"a,b,c,d\n", True, ",", ())
    {'a': 'integer', 'b': 'text', 'c': 'empty', 'd': 'bool'}
    """
    frame = pd.read_csv(io.BytesIO(header + block if prepend else block), sep=separator, dtype=dict.fromkeys(text, str), low_memory=False)
    return {str(name): _kind(frame[name]) for name in frame.columns}


def merge(blocks: Iterable[dict[str, str]]) -> dict[str, Any]:
    """Return the dtype of each column from what its blocks hold.

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
    return {name: _dtype(found) for name, found in kinds.items()}


def _kind(column: pd.Series) -> str:
    if not len(column):
        return "no rows"
    if column.isna().all():
        return "empty"
    return {"i": "integer", "u": "unsigned", "f": "float", "b": "bool"}.get(column.dtype.kind, "text")


def _dtype(kinds: set[str]) -> str:
    if kinds == {"bool"}:
        return "bool"
    if kinds & {"text", "bool"}:
        return TEXT
    if kinds == {"integer"}:
        return "int64"
    if kinds and kinds <= {"integer", "unsigned"}:
        return "uint64"
    return "float64"
