"""Quantiles of residuals: what leaves hold where a loss follows from the order of residuals, not from their sums.

Rows have whole numbers for weights (fixed point), so that sums of weights are the same in any order. The q-quantile of some rows is the
least residual up to which the rows weigh q of all; where they weigh just that, it is halfway to the next residual. Every such value
minimises the pinball loss, and for q of 1/2 it is the weighted median as NumPy has it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.search.deviations import weights_in_bits


@inner_kernel
def _swap(values, weights, i, j):
    values[i], values[j] = values[j], values[i]
    if weights.shape[0] > 0:
        weights[i], weights[j] = weights[j], weights[i]


@inner_kernel
def _pivot(values, first, last):
    """Return the middle one of three of the values."""
    a, b, c = values[first], values[(first + last) // 2], values[last - 1]
    return max(min(a, b), min(max(a, b), c))


@inner_kernel
def quantile_of(values, weights, n, q):
    """Return the weighted q-quantile of the first ``n`` values, which are reordered; ``weights`` may be empty. It is never -0.0."""
    weighted = weights.shape[0] > 0
    total = n
    if weighted:
        total = 0
        for i in range(n):
            total += weights[i]
    wanted = q * total
    first, last, below, following = 0, n, 0, math.inf
    while True:
        # Smaller values go to first:low, equal ones to low:high, larger ones to high:last.
        pivot = _pivot(values, first, last)
        low, high, i = first, last, first
        lighter = equal = 0
        while i < high:
            if values[i] < pivot:
                lighter += weights[i] if weighted else 1
                _swap(values, weights, low, i)
                low += 1
                i += 1
            elif values[i] > pivot:
                high -= 1
                _swap(values, weights, i, high)
            else:
                equal += weights[i] if weighted else 1
                i += 1
        if low > first and below + lighter >= wanted:
            last, following = low, pivot
        elif below + lighter + equal < wanted and high < last:
            below += lighter + equal
            first = high
        else:
            if below + lighter + equal == wanted:
                for k in range(high, last):
                    following = min(following, values[k])
                if following < math.inf:
                    return pivot / 2.0 + following / 2.0 + 0.0
            return pivot + 0.0


@inner_kernel
def _gather(target, raw, weight, rows, start, stop, values, weights):
    """Write the residuals, and weights, of a leaf's rows."""
    for i in range(stop - start):
        row = rows[start + i]
        values[i] = target[row] - raw[row]
        if weight.shape[0] > 0:
            weights[i] = weight[row]


@inner_kernel
def _room(weight, start, stop):
    """Return arrays for the residuals and weights of the largest leaf."""
    n = 0
    for leaf in range(start.shape[0]):
        n = max(n, stop[leaf] - start[leaf])
    return np.empty(n), np.empty(n if weight.shape[0] > 0 else 0, np.int64)


@kernel
def leaf_quantiles(target, raw, weight, rows, start, stop, q, out):
    """Write the q-quantile of the residuals of each leaf; see :meth:`~dtrees.engine.plan.plans.Loss.measure_leaves`."""
    values, weights = _room(weight, start, stop)
    for leaf in range(start.shape[0]):
        _gather(target, raw, weight, rows, start[leaf], stop[leaf], values, weights)
        out[leaf] = quantile_of(values, weights, stop[leaf] - start[leaf], q)


@kernel
def leaf_centers(target, raw, weight, rows, start, stop, delta, out):
    """Write the median residual of each leaf, plus the mean deviation from it, cut off at ``delta`` (Friedman 2001, algorithm 4)."""
    values, weights = _room(weight, start, stop)
    for leaf in range(start.shape[0]):
        n = stop[leaf] - start[leaf]
        _gather(target, raw, weight, rows, start[leaf], stop[leaf], values, weights)
        median = quantile_of(values, weights, n, 0.5)
        # In the order of the rows again: a sum of floats depends on it.
        _gather(target, raw, weight, rows, start[leaf], stop[leaf], values, weights)
        total = weight_of_all = 0.0
        for i in range(n):
            w = float(weights[i]) if weight.shape[0] > 0 else 1.0
            total += w * min(max(values[i] - median, -delta), delta)
            weight_of_all += w
        out[leaf] = median + total / weight_of_all


@kernel
def residual_quantile(target, raw, weight, q, absolute):
    """Return the q-quantile of residuals, or of what they are apart from their signs, over the rows that have a weight."""
    n_rows = target.shape[0]
    values, weights = np.empty(n_rows), np.empty(weight.shape[0], np.int64)
    n = 0
    for row in range(n_rows):
        if weight.shape[0] > 0:
            if weight[row] == 0:
                continue
            weights[n] = weight[row]
        residual = target[row] - raw[row]
        values[n] = abs(residual) if absolute else residual
        n += 1
    return quantile_of(values, weights, n, q)


def target_quantile(target: NDArray[np.float64], weight: NDArray[np.float64] | None, q: float) -> float:
    """Return the weighted q-quantile of a target."""
    bits = np.empty(0, np.int64) if weight is None else weights_in_bits(weight)[0]
    return float(residual_quantile(np.ascontiguousarray(target), np.zeros(target.shape[0]), bits, q, False))


@kernel
def pinball_gradients(target, raw, alpha, g):
    """Write the derivatives of the pinball loss, 0 where it has none."""
    for i in range(target.shape[0]):
        g[i] = 1.0 - alpha if raw[i] > target[i] else -alpha if raw[i] < target[i] else 0.0


@kernel
def pinball_loss(target, raw, alpha, out):
    """Write alpha times each residual above zero, and alpha - 1 times each below."""
    for i in range(target.shape[0]):
        residual = target[i] - raw[i]
        out[i] = max(alpha * residual, (alpha - 1.0) * residual)


@kernel
def huber_gradients(target, raw, delta, g):
    """Write prediction less target, cut off at ``delta`` on both sides."""
    for i in range(target.shape[0]):
        g[i] = min(max(raw[i] - target[i], -delta), delta)


@kernel
def huber_loss(target, raw, delta, out):
    """Write half the square of each residual up to ``delta``, and what goes on straight from there."""
    for i in range(target.shape[0]):
        residual = abs(target[i] - raw[i])
        out[i] = 0.5 * residual * residual if residual <= delta else delta * (residual - 0.5 * delta)
