"""Sums over rows for many columns side by side.

A row ``x`` holds its values in some columns, NaN where missing. The loops run over columns, none of which depends on another, so that the
compiler turns them into vector instructions. For that, whatever is read is read unconditionally.
"""

from __future__ import annotations

from dtrees.split.kernel import inlined_kernel, lean_kernel


@inlined_kernel
def widen(x, low, high):
    """Take a row's values into the lowest and highest of each column."""
    for j in range(low.shape[0]):
        low[j] = x[j] if x[j] < low[j] else low[j]
        high[j] = x[j] if x[j] > high[j] else high[j]


@lean_kernel
def widen_two(x, y, low, high):
    """Do the same with two rows."""
    for j in range(low.shape[0]):
        lowest, highest = low[j], high[j]
        lowest = x[j] if x[j] < lowest else lowest
        highest = x[j] if x[j] > highest else highest
        low[j] = y[j] if y[j] < lowest else lowest
        high[j] = y[j] if y[j] > highest else highest


@lean_kernel
def add_missing(x, g, g_missing):
    """Add a number to the sums of those columns in which a row has no value."""
    for j in range(g_missing.shape[0]):
        g_missing[j] += g if x[j] != x[j] else 0


@lean_kernel
def add_left(x, cut, g, g_left, h, h_left):
    """Add two numbers of a row to the sums of those columns in which its value is up to ``cut``."""
    for j in range(cut.shape[0]):
        left = x[j] <= cut[j]
        g_left[j] += g if left else 0
        h_left[j] += h if left else 0


@inlined_kernel
def add_two_left(x, y, cut, x_g, y_g, g_left, x_h, y_h, h_left):
    """Do the same with two rows."""
    for j in range(cut.shape[0]):
        x_left, y_left = x[j] <= cut[j], y[j] <= cut[j]
        g_left[j] += (x_g if x_left else 0) + (y_g if y_left else 0)
        h_left[j] += (x_h if x_left else 0) + (y_h if y_left else 0)
