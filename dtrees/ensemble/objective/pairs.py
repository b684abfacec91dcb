"""Sums over pairs of rows in a fixed order: concordant pairs, and gradients of rankings."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import kernel
from dtrees.split.numbers.elementary import binary_logarithm, exponential


@kernel
def ordered_pairs(rank, weight, ends, n_ranks):
    """Return the weight of the pairs of an end and a later beginning, and that of the concordant ones, in which ties count half.

    A pair is concordant if its end has the higher rank. Items are processed in descending order of time. Beginnings are added to sums over
    ranks (Fenwick 1994), which are read at ends.
    """
    sums = np.zeros(n_ranks + 1)
    pairs = ordered = begun = 0.0
    for k in range(rank.shape[0]):
        if ends[k]:
            below = upto = 0.0
            i = rank[k]
            while i > 0:
                below += sums[i]
                i -= i & -i
            i = rank[k] + 1
            while i > 0:
                upto += sums[i]
                i -= i & -i
            pairs += weight[k] * begun
            ordered += weight[k] * 0.5 * (below + upto)
            continue
        begun += weight[k]
        i = rank[k] + 1
        while i <= n_ranks:
            sums[i] += weight[k]
            i += i & -i
    return pairs, ordered


@kernel
def rank_gradients(order, start, gain, scale, discount, raw, truncation, g, h):
    """Write the derivatives of LambdaMART: of each pair of a query's rows with at least one among the first ``truncation``.

    ``order`` has the rows of each query from its position in ``start`` on, the highest prediction first; ``scale`` is 1 over the best DCG
    of each query. As in LightGBM, the weight of a pair is divided by the difference of its predictions, and the sums of a query are
    dampened by their logarithm.
    """
    for q in range(start.shape[0] - 1):
        rows = order[start[q] : start[q + 1]]
        n, total = rows.shape[0], 0.0
        if n < 2 or scale[q] == 0.0:
            continue
        varies = raw[rows[0]] != raw[rows[n - 1]]
        for i in range(min(truncation, n - 1)):
            for j in range(i + 1, n):
                better, worse = rows[i], rows[j]
                if gain[better] == gain[worse]:
                    continue
                if gain[better] < gain[worse]:
                    better, worse = worse, better
                difference = raw[better] - raw[worse]
                change = (gain[better] - gain[worse]) * (discount[i] - discount[j]) * scale[q]
                if varies:
                    change /= 0.01 + abs(difference)
                e = exponential(-abs(difference))
                p = (e if difference > 0.0 else 1.0) / (1.0 + e)  # probability of the wrong order
                slope, curvature = change * p, change * e / ((1.0 + e) * (1.0 + e))
                g[better] -= slope
                g[worse] += slope
                h[better] += curvature
                h[worse] += curvature
                total += 2.0 * slope
        if total > 0.0:
            factor = binary_logarithm(1.0 + total) / total
            for row in rows:
                g[row] *= factor
                h[row] *= factor
