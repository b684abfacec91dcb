"""Zone sums of one column of a slot (:mod:`dtrees.split.zones.sums`), quantity by quantity, for :mod:`dtrees.split.zones.bounds`."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, inner_kernel, lean_kernel
from dtrees.split.criteria.statistics import G0, G1, H0, H1, N0, N1, SIZE, Moments


@inner_kernel
def zone_arrays(element, n_zones, grain, size_shift, sums):
    """Write a column's sums of zones, of ``2**grain`` elements each, up to sixteen; return the missing sums."""
    missing = n_zones << grain
    _outline(element.reshape(-1), np.uint64(element.shape[1]), n_zones, np.uint64(grain), size_shift, sums)
    n_miss = element[missing, 1] & 0xFFFFFFFF
    return Moments(element[missing, 0], element[missing, 2] if element.shape[1] == 3 else n_miss, n_miss)


@lean_kernel
def _outline(numbers, width, n_zones, grain, size_shift, sums):
    """Write the arrays of zones by loops without a dependency but the running sums; the rest is copied, several numbers at a time."""
    g, n = ZERO(), ZERO()
    at, one = np.uint64(0), np.uint64(1)
    for z in range(np.uint64(n_zones)):
        own, packed = numbers[at], numbers[at + one]
        k = at
        if grain >= 1:
            k += width
            own, packed = own + numbers[k], packed + numbers[k + one]
        if grain >= 2:
            for _ in range(2):
                k += width
                own, packed = own + numbers[k], packed + numbers[k + one]
        if grain >= 3:
            for _ in range(4):
                k += width
                own, packed = own + numbers[k], packed + numbers[k + one]
        if grain >= 4:
            for _ in range(8):
                k += width
                own, packed = own + numbers[k], packed + numbers[k + one]
        at = k + width
        sums[G0, z], sums[N0, z], sums[SIZE, z] = g, n, (packed >> 32) << size_shift
        g += own
        n += packed & 0xFFFFFFFF
    _follow(sums[G0], g, sums[G1], n_zones)
    _follow(sums[N0], n, sums[N1], n_zones)
    if width == 2:
        _copy(sums[N0], sums[H0], n_zones)
        _copy(sums[N1], sums[H1], n_zones)
        return
    h = ZERO()
    at = np.uint64(2)
    for z in range(np.uint64(n_zones)):
        sums[H0, z] = h
        for _ in range(one << grain):
            h += numbers[at]
            at += width
    _follow(sums[H0], h, sums[H1], n_zones)


@lean_kernel
def _follow(before, last, after, n):
    """Write the sums at the ends of zones, given those before each and that of all."""
    for z in range(n - 1):
        after[z] = before[z + 1]
    if n > 0:
        after[n - 1] = last


@lean_kernel
def _copy(source, target, n):
    for z in range(n):
        target[z] = source[z]


@inner_kernel
def part_arrays(element, grain, size_shift, zones, numbers, n_zones, sums, part_numbers):
    """Write the sums of the parts, those that have rows, of some zones, and their numbers; return how many there are."""
    weighted = element.shape[1] == 3
    n_parts = ZERO()
    for z in range(n_zones):
        g, h, n = zones[z].g_before, zones[z].h_before, zones[z].n_before
        for part in range(numbers[z] << grain, (numbers[z] + 1) << grain):
            packed = element[part, 1]
            count = packed & 0xFFFFFFFF
            if count > 0:
                part_numbers[n_parts] = part
                sums[G0, n_parts], sums[H0, n_parts], sums[N0, n_parts] = g, h, n
                g += element[part, 0]
                h += element[part, 2] if weighted else count
                n += count
                sums[G1, n_parts], sums[H1, n_parts], sums[N1, n_parts] = g, h, n
                sums[SIZE, n_parts] = (packed >> 32) << size_shift
                n_parts += 1
    return n_parts
