"""Kernels of losses, which process one row after the other, so that results do not depend on threads or on the width of vector units.

Deviances
    ``raw`` is the logarithm of the prediction.
Quantiles of residuals
    The leaf values of losses that depend on the order of residuals instead of their sums. Row weights are integers (fixed
    point), so that sums of weights are the same in any order. The q-quantile of some rows is the least residual whose cumulative weight
    exceeds q of the total; if a cumulative weight equals it, the midpoint to the next residual. Every such value minimises the pinball
    loss, and for q = 1/2 it is the weighted median as in NumPy.
Pairs of rows
    Concordant pairs, and gradients of rankings, are summed in a fixed order.
Sums without rounding
    A float is an integer times a power of two, and there are only 2,046 exponents: integers with equal exponents are added up as
    integers, and the total is computed from these sums. It is therefore the same in any order, and sums of partitions add up exactly.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.numbers.elementary import binary_logarithm, exponential, exponential_of_any, logarithm
from dtrees.split.numbers.elementary import exp as exp
from dtrees.split.numbers.elementary import log as log
from dtrees.split.search.deviations import weights_in_bits

#: Number of rows that are processed at a time if all their raw predictions are needed.
_BLOCK = 512


@kernel
def weighted_mean(target: NDArray[np.float64], weight: NDArray[np.float64]) -> Any:
    """Return the weighted mean, summed with Neumaier's compensation: exact to the last bit or two for any number of rows."""
    total = 0.0
    lost = 0.0
    weights = 0.0
    for i in range(target.size):
        term = target[i] * weight[i]
        new = total + term
        if abs(total) >= abs(term):
            lost += (total - new) + term
        else:
            lost += (term - new) + total
        total = new
        weights += weight[i]
    return (total + lost) / weights


@kernel
def squared_errors(target: NDArray[np.float64], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the squares of ``target - raw``, infinite if they are too large."""
    for i in range(target.size):
        difference = target[i] - raw[i]
        out[i] = difference * difference


@kernel
def binary_gradients(target: NDArray[np.int32], raw: NDArray[np.float64], g: NDArray[np.float64], h: NDArray[np.float64]) -> None:
    """Write the derivatives of the log loss with respect to the log odds."""
    for i in range(target.size):
        # The smaller probability is computed directly, not as 1 - p, so that the hessian of a confident row does not round to zero.
        e = exponential(-abs(raw[i]))
        small = e / (1.0 + e)
        large = 1.0 / (1.0 + e)
        if target[i] == 1:
            g[i] = -(small if raw[i] > 0.0 else large)
        else:
            g[i] = large if raw[i] > 0.0 else small
        h[i] = small * large


@kernel
def binary_loss(target: NDArray[np.int32], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write log(1 + exp(-raw)) for class 1 and log(1 + exp(raw)) for class 0."""
    for i in range(target.size):
        out[i] = exponential(-abs(raw[i]))
    # With s = e / (2 + e), log(1 + e) = 2 artanh(s) = 2 (s + s**3 / 3 + s**5 / 5 + ...). As s is at most 1 / 3, 19 terms suffice; they take
    # a tenth of the time of log1p, since this loop, without calls, is vectorized.
    for i in range(target.size):
        s = out[i] / (2.0 + out[i])
        square, series = s * s, 0.0
        for k in range(37, 0, -2):
            series = series * square + 1.0 / k
        margin = raw[i] if target[i] == 1 else -raw[i]
        out[i] = max(-margin, 0.0) + 2.0 * s * series


@kernel
def binary_probabilities(raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the probabilities of two classes, shape (n, 2), from the log odds of the second."""
    for i in range(raw.size):
        e = exponential(-abs(raw[i]))
        small, large = e / (1.0 + e), 1.0 / (1.0 + e)
        out[i, 0], out[i, 1] = (small, large) if raw[i] > 0.0 else (large, small)


@kernel
def probabilities(raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the probabilities of classes, shape (n, K), from raw predictions of that shape."""
    for i in range(raw.shape[0]):
        highest, total = raw[i, 0], 0.0
        for k in range(1, raw.shape[1]):
            highest = max(highest, raw[i, k])
        for k in range(raw.shape[1]):
            out[i, k] = exponential(raw[i, k] - highest)
            total += out[i, k]
        for k in range(raw.shape[1]):
            out[i, k] /= total


@kernel
def exponentials(raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write exp(raw), of shape (K, n), divided by the largest value of each row."""
    highest, some = np.empty(_BLOCK), np.empty(_BLOCK)
    for first in range(0, raw.shape[1], _BLOCK):
        m = min(_BLOCK, raw.shape[1] - first)
        _note_highest(raw, first, highest[:m])
        for k in range(raw.shape[0]):
            _exponentials_of(raw, k, first, highest, some[:m])
            out[k, first : first + m] = some[:m]


@inner_kernel
def _note_highest(raw, first, highest):
    """Write the largest raw prediction of each row of a block."""
    for i in range(highest.size):
        highest[i] = raw[0, first + i]
    for k in range(1, raw.shape[0]):
        for i in range(highest.size):
            highest[i] = max(highest[i], raw[k, first + i])


@inner_kernel
def _exponentials_of(raw, k, first, highest, out):
    """Write one class's exponentials of a block; contiguous values are vectorized."""
    for i in range(out.size):
        out[i] = raw[k, first + i] - highest[i]
    for i in range(out.size):
        out[i] = exponential(out[i])


@inner_kernel
def _add_each(some, sums):
    """Add numbers to sums, several at a time."""
    for i in range(some.size):
        sums[i] += some[i]


@kernel
def multinomial_gradients(
    target: NDArray[np.int32], exponentials: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
) -> None:
    """Write the derivatives of the log loss with respect to the raw prediction of one class; arguments have shape (K, n)."""
    n_outputs = exponentials.shape[0]
    factor, others = n_outputs / (n_outputs - 1.0), np.empty(_BLOCK)
    for first in range(0, target.size, _BLOCK):
        m = min(_BLOCK, target.size - first)
        others[:] = 0.0
        for k in range(n_outputs):
            if k != output:
                _add_each(exponentials[k, first : first + m], others)
        for i in range(m):
            row, own = first + i, exponentials[output, first + i]
            p = own / (own + others[i])
            q = others[i] / (own + others[i])
            g[row] = -q if target[row] == output else p
            h[row] = factor * p * q


@kernel
def multinomial_loss(target: NDArray[np.int32], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write log(sum_k exp(raw_k)) - raw_target; raw has shape (K, n)."""
    highest, some, total = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for first in range(0, target.size, _BLOCK):
        m = min(_BLOCK, target.size - first)
        _note_highest(raw, first, highest[:m])
        total[:] = 0.0
        for k in range(raw.shape[0]):
            _exponentials_of(raw, k, first, highest, some[:m])
            for i in range(m):
                total[i] += some[i]
        for i in range(m):
            out[first + i] = logarithm(total[i]) + highest[i] - raw[target[first + i], first + i]


@kernel
def deviance_gradients(target, raw, power, g, h):
    """Write the derivatives of half the deviance, given the power of the mean in which the variance grows, from 1 to 2."""
    up, down = 2.0 - power, 1.0 - power
    for i in range(target.shape[0]):
        one = exponential_of_any(up * raw[i]) if up != 0.0 else 1.0
        other = target[i] * exponential_of_any(down * raw[i]) if down != 0.0 else target[i]
        g[i] = one - other
        h[i] = up * one - down * other


@kernel
def poisson_deviance(target, raw, out):
    """Write 2 (y log(y / p) - y + p)."""
    for i in range(target.shape[0]):
        y = target[i]
        constant = y * (logarithm(y) - raw[i]) - y if y > 0.0 else 0.0
        out[i] = 2.0 * max(constant + exponential_of_any(raw[i]), 0.0)


@kernel
def gamma_deviance(target, raw, out):
    """Write 2 (y / p - log(y / p) - 1)."""
    for i in range(target.shape[0]):
        ratio = target[i] * exponential_of_any(-raw[i])
        out[i] = 2.0 * max(ratio - (logarithm(target[i]) - raw[i]) - 1.0, 0.0)


@kernel
def tweedie_deviance(target, raw, power, out):
    """Write 2 (y**(2 - power) / ((1 - power) (2 - power)) - y p**(1 - power) / (1 - power) + p**(2 - power) / (2 - power))."""
    up, down = 2.0 - power, 1.0 - power
    for i in range(target.shape[0]):
        y = target[i]
        constant = exponential_of_any(up * logarithm(y)) / (up * down) if y > 0.0 else 0.0
        half = constant - y * exponential_of_any(down * raw[i]) / down + exponential_of_any(up * raw[i]) / up
        out[i] = 2.0 * max(half, 0.0)


@kernel
def exponential_gradients(target, raw, g, h):
    """Write the derivatives of exp(-raw) for class 1 and exp(raw) for class 0."""
    for i in range(target.shape[0]):
        h[i] = exponential_of_any(-raw[i] if target[i] == 1 else raw[i])
        g[i] = -h[i] if target[i] == 1 else h[i]


@kernel
def exponential_loss(target, raw, out):
    """Write exp(-raw) for class 1 and exp(raw) for class 0."""
    for i in range(target.shape[0]):
        out[i] = exponential_of_any(-raw[i] if target[i] == 1 else raw[i])


@inner_kernel
def _swap(values, weights, i, j):
    values[i], values[j] = values[j], values[i]
    if weights.shape[0] > 0:
        weights[i], weights[j] = weights[j], weights[i]


@inner_kernel
def _pivot(values, first, last):
    """Return the median of three of the values."""
    a, b, c = values[first], values[(first + last) // 2], values[last - 1]
    return max(min(a, b), min(max(a, b), c))


@inner_kernel
def quantile_of(values, weights, n, q):
    """Return the weighted q-quantile of the first ``n`` values, never -0.0; values are reordered, and ``weights`` may be empty."""
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
    """Write the residuals and weights of a leaf's rows."""
    for i in range(stop - start):
        row = rows[start + i]
        values[i] = target[row] - raw[row]
        if weight.shape[0] > 0:
            weights[i] = weight[row]


@inner_kernel
def _buffers(weight, start, stop):
    """Return arrays for the residuals and weights of the largest leaf."""
    n = 0
    for leaf in range(start.shape[0]):
        n = max(n, stop[leaf] - start[leaf])
    return np.empty(n), np.empty(n if weight.shape[0] > 0 else 0, np.int64)


@kernel
def leaf_quantiles(target, raw, weight, rows, start, stop, q, out):
    """Write the q-quantile of the residuals of each leaf; see :meth:`~dtrees.engine.plan.plans.Loss.measure_leaves`."""
    values, weights = _buffers(weight, start, stop)
    for leaf in range(start.shape[0]):
        _gather(target, raw, weight, rows, start[leaf], stop[leaf], values, weights)
        out[leaf] = quantile_of(values, weights, stop[leaf] - start[leaf], q)


@kernel
def leaf_centers(target, raw, weight, rows, start, stop, delta, out):
    """Write the median residual of each leaf plus the mean deviation from it, clipped at ``delta`` (Friedman 2001, algorithm 4)."""
    values, weights = _buffers(weight, start, stop)
    for leaf in range(start.shape[0]):
        n = stop[leaf] - start[leaf]
        _gather(target, raw, weight, rows, start[leaf], stop[leaf], values, weights)
        median = quantile_of(values, weights, n, 0.5)
        # Gathered again in row order, on which a sum of floats depends.
        _gather(target, raw, weight, rows, start[leaf], stop[leaf], values, weights)
        total = weight_of_all = 0.0
        for i in range(n):
            w = float(weights[i]) if weight.shape[0] > 0 else 1.0
            total += w * min(max(values[i] - median, -delta), delta)
            weight_of_all += w
        out[leaf] = median + total / weight_of_all


@kernel
def _quantile(values, weights, q):
    return quantile_of(values, weights, values.shape[0], q)


def residual_quantile(target: NDArray[np.float64], raw: Any, weight: NDArray[np.int64], q: float, absolute: bool) -> float:
    """Return the q-quantile of residuals, or of their absolute values, over the rows with a positive weight; ``weight`` may be empty."""
    values = np.abs(target - raw) if absolute else target - raw
    if weight.shape[0]:
        values, weight = values[weight > 0], weight[weight > 0]
    return float(_quantile(values, weight, q))


def target_quantile(target: NDArray[np.float64], weight: NDArray[np.float64] | None, q: float) -> float:
    """Return the weighted q-quantile of a target."""
    return residual_quantile(target, 0.0, np.empty(0, np.int64) if weight is None else weights_in_bits(weight)[0], q, False)


@kernel
def pinball_gradients(target, raw, alpha, g):
    """Write the derivatives of the pinball loss, 0 where it is not differentiable."""
    for i in range(target.shape[0]):
        g[i] = 1.0 - alpha if raw[i] > target[i] else -alpha if raw[i] < target[i] else 0.0


@kernel
def pinball_loss(target, raw, alpha, out):
    """Write alpha times each positive residual, and alpha - 1 times each negative one."""
    for i in range(target.shape[0]):
        residual = target[i] - raw[i]
        out[i] = max(alpha * residual, (alpha - 1.0) * residual)


@kernel
def huber_loss(target, raw, delta, out):
    """Write half the square of each residual up to ``delta``, and its linear continuation beyond."""
    for i in range(target.shape[0]):
        residual = abs(target[i] - raw[i])
        out[i] = 0.5 * residual * residual if residual <= delta else delta * (residual - 0.5 * delta)


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


#: Offset of a float's exponent bits if its mantissa is treated as an integer.
_BIAS = 1075

#: A sum: exact, or infinite or NaN.
Sum = Fraction | float


def exact_sum(values: NDArray[np.float64]) -> Sum:
    """Return the exact sum of up to 2**36 floats.

    Returns
    -------
    Fraction
        A float, infinite or NaN, if one of the values is, or if infinities cancel out.

    Examples
    --------
    >>> float(exact_sum(np.array([1e16, 1.0, 1.0, -1e-300])))
    1.0000000000000002e+16
    """
    values = np.require(values, np.float64, ["C", "W"])  # the kernel would be compiled again for read-only arrays
    high, low = np.zeros(2048, np.int64), np.zeros(2048, np.int64)
    _add_up(values.view(np.int64), high, low)
    if high[2047]:
        with np.errstate(invalid="ignore"):
            return float(values[~np.isfinite(values)].sum())
    used = np.flatnonzero(high | low).tolist()
    if not used:
        return Fraction(0)
    first = used[0]
    total = sum(((int(high[i]) << 27) + int(low[i])) << (i - first) for i in used)
    return Fraction(total) * Fraction(2) ** (first - _BIAS)


def ratio(total: Sum, weight: Sum) -> float:
    """Return the quotient of two sums, rounded once; NaN for 0 / 0, infinite if it exceeds the range of floats.

    Examples
    --------
    >>> ratio(Fraction(1), Fraction(3)), ratio(Fraction(0), Fraction(0))
    (0.3333333333333333, nan)
    """
    if weight == 0:
        return math.nan
    try:
        return float(total / weight)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@kernel
def _add_up(bits, high, low):
    """Add integers by exponent, with their last 27 bits separate to avoid overflow; ``bits`` are those of the floats."""
    for i in range(bits.shape[0]):
        exponent = (bits[i] >> 52) & 2047
        mantissa = bits[i] & 0xFFFFFFFFFFFFF
        if exponent == 2047:
            high[2047] = 1
            continue
        if exponent:
            mantissa |= 1 << 52
        else:
            exponent = 1  # of subnormal numbers
        if bits[i] < 0:
            mantissa = -mantissa
        high[exponent] += mantissa >> 27
        low[exponent] += mantissa & 0x7FFFFFF
