"""Where the boxes of a drawn tree are: as close as they can be, parents in the middle above their children (Reingold and Tilford, 1981)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def centres(left: Sequence[int], right: Sequence[int], width: Sequence[float], gap: float) -> NDArray[np.float64]:
    """Return the middle of each box, shape (n,); the leftmost box begins at 0.

    Parameters
    ----------
    left, right : sequence of int
        The children of each node, -1 where it has none. Nodes are in preorder.
    width : sequence of float
        Of the boxes.
    gap : float
        The least space between boxes of a level.

    Examples
    --------
    >>> centres([1, -1, -1], [2, -1, -1], [4.0, 2.0, 6.0], 1.0).tolist()
    [3.5, 1.0, 6.0]
    """
    n = len(width)
    shift = np.zeros(n)
    # The outlines of subtrees: how far they reach to the left and to the right of their root, level by level.
    outlines: list[tuple[list[float], list[float]]] = [([], [])] * n
    for node in range(n - 1, -1, -1):
        half = width[node] / 2
        begin, end = [-half], [half]
        if left[node] >= 0:
            (left_begin, left_end), (right_begin, right_end) = outlines[left[node]], outlines[right[node]]
            apart = (max(a - b for a, b in zip(left_end, right_begin, strict=False)) + gap) / 2
            shift[left[node]], shift[right[node]] = -apart, apart
            begin += [x - apart for x in left_begin] + [x + apart for x in right_begin[len(left_begin) :]]
            end += [x + apart for x in right_end] + [x - apart for x in left_end[len(right_end) :]]
            outlines[left[node]] = outlines[right[node]] = ([], [])
        outlines[node] = begin, end
    middle = np.zeros(n)
    for node in range(n):
        if left[node] >= 0:
            for child in (left[node], right[node]):
                middle[child] = middle[node] + shift[child]
    return middle - min(outlines[0][0]) if n else middle
