"""Compact encoding of sums: 64-bit integers in as few bytes as the largest ones of a block need.

Most data that shards exchange are sums of zone parts with few rows. The fixed point of gradients has bits for the sum of all rows, so
these sums do not need all of their 8 bytes, and many zone parts of small nodes are empty.

*Elements* of ``width`` numbers each are packed in blocks of up to ``BLOCK`` elements. A block begins with the number of its elements. If
some elements consist of zeros only, 128 is added to that number, a word with a bit for each other element follows, and the zero elements
are left out. Then follow ``width`` bytes of *form*, and the numbers: all first numbers of the elements, all second numbers, and so on.
The form is the number of bytes of each number, the lowest ones, whose highest bit is the sign. Or, for a number that consists of two
counts, it is the number of bytes of each half, without sign (``16 * (upper + 1) + lower``), if that is shorter. Bytes are in
little-endian order, that of all machines that Numba compiles for.

The last block is followed by ``SPARE`` bytes of padding, as bytes are read and written eight at a time.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inner_kernel, lean_kernel
from dtrees.split.compile.memory import read_word, write_word

#: Elements of a block: the bits of a word. With 16 or 128 of them, sums of trees of 1M x 28 take 1 % more bytes.
BLOCK = 64
SPARE = 8
_SOME_EMPTY = 128
_HALF = np.uint64(0xFFFFFFFF)


def packed_size(n_numbers: int, width: int, n_chunks: int) -> int:
    """Return an upper bound of the bytes of packed numbers, in a number of chunks."""
    return 8 * n_numbers + (9 + width) * (n_numbers // (BLOCK * width) + n_chunks) + SPARE


@lean_kernel
def _n_bytes(word):
    """Return the number of bytes of an unsigned number."""
    n = np.uint64(0)
    while word > 0:
        n += np.uint64(1)
        word >>= np.uint64(8)
    return n


@lean_kernel
def _take_block(numbers, first, n, width, block):
    """Copy the non-zero elements of a block, number by number; return their bits and their number."""
    one, bits, m, at = np.uint64(1), np.uint64(0), np.uint64(0), first
    if one < width < np.uint64(4):  # the same as the loop below, in two thirds of the time
        third = width - one  # for two numbers, the second once more
        for i in range(n):
            a, b, c = numbers[at], numbers[at + one], numbers[at + third]
            block[0, m], block[one, m], block[third, m] = a, b, c
            is_there = np.uint64((a | b | c) != 0)
            bits |= is_there << i
            m += is_there
            at += width
        return bits, m
    for i in range(n):
        some = np.int64(0)
        for k in range(width):
            number = numbers[at]
            block[k, m] = number
            some |= number
            at += one
        is_there = np.uint64(some != 0)
        bits |= is_there << i
        m += is_there
    return bits, m


@lean_kernel
def _pack_numbers(numbers, out, at):
    """Write numbers to ``out`` from place ``at`` on; return their form and the place after them."""
    one, eight, some, magnitudes = np.uint64(1), np.uint64(8), np.int64(0), np.int64(0)
    for number in numbers:
        some |= number
        magnitudes |= number ^ (number >> 63)
    word = np.uint64(some)
    # One more bit for the sign: a number other than 0 takes at least one byte.
    whole = eight if magnitudes >> 62 else _n_bytes(np.uint64(magnitudes) << one | np.uint64(word > 0))
    upper, lower = _n_bytes(word >> np.uint64(32)), _n_bytes(word & _HALF)
    if upper + lower < whole:
        shift, size = eight * lower, upper + lower
        for number in numbers:
            word = np.uint64(number)
            write_word(out, at, (word & _HALF) | (word >> np.uint64(32)) << shift)
            at += size
        return np.uint64(16) * (upper + one) + lower, at
    for number in numbers:
        write_word(out, at, np.uint64(number))
        at += whole
    return whole, at


@inner_kernel
def pack_bytes(numbers, width, out, at, block):
    """Write elements to ``out`` from place ``at`` on; return the place after them.

    Parameters
    ----------
    numbers : ndarray of int64, shape (n * width,)
    width : int
    out : ndarray of uint8
        At least :func:`packed_size` long.
    at : int
    block : ndarray of int64, shape (width, BLOCK + 1)
        Scratch space.
    """
    first, last, width, at = np.uint64(0), np.uint64(numbers.shape[0]), np.uint64(width), np.uint64(at)
    one = np.uint64(1)
    while first < last:
        n = min(np.uint64(BLOCK), (last - first) // width)
        bits, m = _take_block(numbers, first, n, width, block)
        out[at] = n
        if m < n:
            out[at] = n + np.uint64(_SOME_EMPTY)
            write_word(out, at + one, bits)
            at += np.uint64(8)
        head = at + one
        at = head + width
        for k in range(width):
            out[head + k], at = _pack_numbers(block[k, :m], out, at)
        first += n * width
    return np.int64(at)


@inner_kernel
def add_bytes(packed, at, width, numbers, out):
    """Add packed numbers (:func:`pack_bytes`), from place ``at`` on, to others; return whether their counts agree.

    Parameters
    ----------
    packed : ndarray of uint8
    at, width : int
    numbers, out : ndarray of int64, shape (n * width,)
        They may be the same array.
    """
    first, last, width, at = np.uint64(0), np.uint64(numbers.shape[0]), np.uint64(width), np.uint64(at)
    one, eight, every = np.uint64(1), np.uint64(8), ~np.uint64(0)
    while first < last:
        n, bits = np.uint64(packed[at]), every
        if n >= np.uint64(_SOME_EMPTY):
            n -= np.uint64(_SOME_EMPTY)
            bits = read_word(packed, at + one)
            at += eight
        if n == 0 or first + n * width > last:
            return False
        head = at + one
        at = head + width
        for k in range(width):
            form, i, left = np.uint64(packed[head + k]), first + k, bits
            if form >= np.uint64(16):
                lower = form & np.uint64(15)
                size, shift = (form >> np.uint64(4)) - one + lower, eight * lower
                below, above = (one << shift) - one, (one << (eight * (size - lower))) - one
                for _ in range(n):
                    mask = np.uint64(0) - (left & one)  # all bits of an element that is present
                    word = read_word(packed, at) & mask
                    out[i] = numbers[i] + np.int64((word & below) | ((word >> shift) & above) << np.uint64(32))
                    at += size & mask
                    left >>= one
                    i += width
            elif form > 0:
                shift = np.uint64(64) - eight * form
                for _ in range(n):
                    mask = np.uint64(0) - (left & one)
                    word = (read_word(packed, at) & mask) << shift
                    out[i] = numbers[i] + (np.int64(word) >> np.int64(shift))
                    at += form & mask
                    left >>= one
                    i += width
            else:
                for _ in range(n):
                    out[i] = numbers[i]
                    i += width
        first += n * width
    return True
