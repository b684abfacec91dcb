"""What shards of rows tell one another, and the coordinator, of the trees of a forest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Votes(NamedTuple):
    """Sums for the shard's rows, in fixed point, shape (n_rows, n_values), and of how many trees they are, shape (n_rows,)."""

    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
