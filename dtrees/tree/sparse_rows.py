"""Rows of a sparse table for prediction: made dense a block at a time, in those columns only that trees ask for.

>>> rows = SparseRows(np.array([0, 2, 2]), np.array([0, 3]), np.array([5.0, 7.0]), 4)
>>> [block.tolist() for _, block in rows.blocks(0, 2, np.array([1, 3]))]
[[[0.0, 7.0], [0.0, 0.0]]]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import bind, kernel

#: Bytes of a block, and the fewest rows.
_BLOCK_BYTES, _FEWEST_ROWS = 2**22, 16


@dataclass(frozen=True)
class SparseRows:
    """A sparse table, row by row.

    Attributes
    ----------
    starts : ndarray of int32 or int64, shape (n_rows + 1,)
        Row ``i`` has the cells ``starts[i]:starts[i + 1]``.
    columns : ndarray of int32 or int64, shape (n_cells,)
        Each once in a row.
    data : ndarray of float32 or float64, shape (n_cells,)
        NaN is missing; what is not stored is 0.
    n_columns : int
    """

    starts: NDArray[Any]
    columns: NDArray[Any]
    data: NDArray[Any]
    n_columns: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.starts.shape[0] - 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self), self.n_columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.data.dtype

    def blocks(self, first: int, last: int, columns: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the rows ``first:last`` of some columns as arrays, each with the number of its first row."""
        place_of = np.full(self.n_columns, -1, np.int64)
        place_of[columns] = np.arange(columns.shape[0])
        step = max(_FEWEST_ROWS, _BLOCK_BYTES // (self.dtype.itemsize * (columns.shape[0] + 1)))
        for start in range(first, last, step):
            stop = min(start + step, last)
            block = np.zeros((columns.shape[0], stop - start), self.dtype)  # trees ask for one column after the other
            arguments = self.starts[start : stop + 1].astype(np.int64), self.columns, self.data, place_of, block
            bind(_fill, *arguments, any_layout=(self.columns, self.data))(*arguments)
            yield start, block.T


@kernel
def _fill(starts, columns, data, place_of, block):
    """Write the cells of rows to a block of zeros, column by column."""
    for i in range(block.shape[1]):
        for k in range(starts[i], starts[i + 1]):
            place = place_of[columns[k]]
            if place >= 0:
                block[place, i] = data[k]
