"""Flagged parts in batches, so that the rows in them, which shards send one another, take little memory whatever is flagged.

The flagged parts of all columns of nodes, one after the other, are cut where their rows come to more than a shard is to be sent at a time.
What there is of a column of a node in a batch is a *piece* of it: flagged parts that follow one another, and the parts between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.shard.targets.places import bounds_of, places_of
from dtrees.split.zones.over_shards.records import ALL_PARTS, PIECE


def in_batches(requests: NDArray[Any], flagged: NDArray[Any], most: int) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Cut what is flagged in columns of nodes so that the parts of each batch have up to ``most`` rows, or those of one part more.

    Parameters
    ----------
    requests : ndarray, shape (n,)
        ``flagged[first:last]`` are the parts of each.
    flagged : ndarray
        Flagged parts: their numbers ``part`` and rows ``n``.
    most : int

    Returns
    -------
    place : ndarray of int64, shape (n_pieces,)
        Of each piece, the request that it is of; ascending.
    pieces : ndarray of PIECE, shape (n_pieces,)
    batches : ndarray of int64, shape (n_batches + 1,)
        The pieces of batch k are those from ``batches[k]`` to ``batches[k + 1] - 1``.

    Examples
    --------
    >>> requests = np.array([(0, 2), (2, 2), (2, 5)], [("first", np.int64), ("last", np.int64)])
    >>> flagged = np.array([(1, 4), (3, 4), (2, 4), (5, 4), (6, 4)], [("part", np.int64), ("n", np.int64)])
    >>> place, pieces, batches = in_batches(requests, flagged, 10)
    >>> place.tolist(), pieces["first"].tolist(), pieces["last"].tolist(), batches.tolist()
    ([0, 1, 2, 2], [0, 2, 2, 3], [2, 2, 3, 5], [0, 3, 4])
    >>> pieces["n_rows"].tolist(), pieces["first_part"].tolist(), [int(part) for part in pieces["stop_part"] if part < ALL_PARTS]
    ([8, 0, 4, 8], [0, 0, 0, 5], [5])
    """
    counts = requests["last"] - requests["first"]
    begins, places = bounds_of(counts), places_of(requests["first"], counts)
    rows = bounds_of(flagged["n"][places])
    batch = rows[:-1] // most
    starts = np.append(True, batch[1:] != batch[:-1])
    batch, cuts = starts.cumsum() - 1, starts.nonzero()[0]
    of_cut = begins.searchsorted(cuts, side="right") - 1
    inside = begins[of_cut] < cuts
    place, first = (np.concatenate(both) for both in ((np.arange(counts.shape[0]), of_cut[inside]), (begins[:-1], cuts[inside])))
    order = np.lexsort((first, place))
    place, first = place[order], first[order]
    goes_on = place[1:] == place[:-1]
    stop = np.where(np.append(goes_on, False), np.append(first[1:], 0), begins[place + 1])
    pieces = np.empty(place.shape[0], PIECE)
    shift = requests["first"][place] - begins[place]
    pieces["first"], pieces["last"], pieces["n_rows"] = first + shift, stop + shift, rows[stop] - rows[first]
    cut_at = flagged["part"][pieces["first"][1:][goes_on]]
    pieces["first_part"], pieces["stop_part"] = 0, ALL_PARTS
    pieces["first_part"][1:][goes_on] = pieces["stop_part"][:-1][goes_on] = cut_at
    of_piece = batch[np.minimum(first, batch.shape[0] - 1)]
    return place, pieces, of_piece.searchsorted(np.arange(batch[-1] + 2))
