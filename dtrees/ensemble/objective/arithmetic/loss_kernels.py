"""The arithmetic of the losses: one row after the other, so that results do not depend on threads or on the width of vector units."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.numbers.elementary import exp as exp
from dtrees.split.numbers.elementary import exponential, logarithm
from dtrees.split.numbers.elementary import log as log

#: Rows that are done at a time where all their raw predictions are wanted.
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
    """Write the squares of ``target - raw``, infinite where they are too large."""
    for i in range(target.size):
        difference = target[i] - raw[i]
        out[i] = difference * difference


@kernel
def binary_gradients(target: NDArray[np.int32], raw: NDArray[np.float64], g: NDArray[np.float64], h: NDArray[np.float64]) -> None:
    """Write the derivatives of the log loss by the log odds."""
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
    # With s = e / (2 + e), log(1 + e) = 2 artanh(s) = 2 (s + s**3 / 3 + s**5 / 5 + ...). As s is 1 / 3 at most, 19 terms are all that
    # counts; they take a tenth of the time of log1p, as this loop, without calls, does several rows at a time.
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
    """Write exp(raw) of each row, of shape (K, n), divided by the largest of the row."""
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
    """Write one class's exponentials of a block, which are done several at a time where they lie side by side."""
    for i in range(out.size):
        out[i] = raw[k, first + i] - highest[i]
    for i in range(out.size):
        out[i] = exponential(out[i])


@kernel
def multinomial_gradients(
    target: NDArray[np.int32], exponentials: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
) -> None:
    """Write the derivatives of the log loss by the raw prediction of one class; its arguments are of shape (K, n)."""
    n_outputs = exponentials.shape[0]
    factor = n_outputs / (n_outputs - 1.0)
    for i in range(target.size):
        others = 0.0
        own = exponentials[output, i]
        for k in range(n_outputs):
            if k != output:
                others += exponentials[k, i]
        p = own / (own + others)
        q = others / (own + others)
        g[i] = -q if target[i] == output else p
        h[i] = factor * p * q


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
