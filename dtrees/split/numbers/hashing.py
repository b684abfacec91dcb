"""Random draws as functions of identity.

A draw is a hash of the seed and of the thing that is drawn for (which tree, node, row), never the next number of a shared generator: any
worker can compute it, in any order, any number of times. The mixing function is the finalizer of SplitMix64 (Steele, Lea and Flood,
2014, "Fast splittable pseudorandom number generators").

Streams separate draws for different purposes, for example the rows and the columns of the same tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel, lean_kernel

ROOT = np.uint64(0x9E3779B97F4A7C15)
LEFT = np.uint64(0xD1B54A32D192ED03)
RIGHT = np.uint64(0x8CB92BA72F3D8DD7)

STREAM_BOOTSTRAP = np.uint64(1)
STREAM_SUBSAMPLE = np.uint64(2)
STREAM_TREE_COLUMNS = np.uint64(3)
STREAM_NODE = np.uint64(4)
STREAM_THRESHOLD = np.uint64(5)
STREAM_VALIDATION = np.uint64(6)
STREAM_DROPOUT = np.uint64(7)


@kernel
def mix(x):
    """Return a well mixed 64-bit hash of a 64-bit integer."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def mix_each(numbers):
    """Return the hash of each number of an array."""
    out = np.empty(numbers.shape[0], np.uint64)
    for i in range(numbers.shape[0]):
        out[i] = mix(np.uint64(numbers[i]))
    return out


@kernel
def stream_key(seed, stream, tree):
    """Return the key of one stream of one tree; hash it with a counter for the draws."""
    return mix(mix(mix(np.uint64(seed)) ^ np.uint64(stream)) ^ np.uint64(tree))


@kernel
def draw(key, counter):
    """Return draw number ``counter`` of a stream, 64 random bits."""
    return mix(np.uint64(key) ^ mix(np.uint64(counter)))


@kernel
def below(bits, n):
    """Turn 64 random bits into an integer in [0, n), n < 2**32.

    The upper 32 bits are scaled (Lemire, 2019); the bias is below n / 2**32.
    """
    return np.int64(((bits >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel
def uniform(bits):
    """Turn 64 random bits into a float64 in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def child_path(path, side):
    """Return the identity of a child from its parent's (``side`` is LEFT or RIGHT)."""
    return mix(np.uint64(path) ^ np.uint64(side))


@kernel
def draw_columns(key, path, pool, n_drawn, n_wanted):
    """Continue a partial Fisher-Yates shuffle of ``pool``, in place.

    Afterwards ``pool[:n_wanted]`` are the columns drawn for the node ``path``, in the order of their drawing; ``pool[:n_drawn]`` were
    drawn before. Every node starts from the same order, so undo the shuffle with :func:`undraw_columns`.
    """
    n = pool.shape[0]
    node = mix(np.uint64(key) ^ np.uint64(path))
    for i in range(n_drawn, n_wanted):
        j = i + below(draw(node, i), n - i)
        pool[i], pool[j] = pool[j], pool[i]


@kernel
def undraw_columns(key, path, pool, n_drawn):
    """Restore ``pool`` to its state before ``n_drawn`` columns were drawn for the node ``path``."""
    n = pool.shape[0]
    node = mix(np.uint64(key) ^ np.uint64(path))
    for i in range(n_drawn - 1, -1, -1):
        j = i + below(draw(node, i), n - i)
        pool[i], pool[j] = pool[j], pool[i]


@lean_kernel
def draw_first_columns(key, path, pool, n_wanted, counters, swaps):
    """Draw the first columns of a node, faster than :func:`draw_columns`; ``swaps`` receives the input of :func:`swap_back`.

    ``counters`` are the hashes of 0, 1, 2, ...
    """
    n = np.uint64(pool.shape[0])
    node = mix(np.uint64(key) ^ np.uint64(path))
    for i in range(n_wanted):  # iterations are independent: the compiler vectorises the loop
        bits = mix(node ^ counters[i])
        swaps[i] = np.uint64(i) + (((bits >> np.uint64(32)) * (n - np.uint64(i))) >> np.uint64(32))
    for i in range(n_wanted):
        j = swaps[i]
        pool[i], pool[j] = pool[j], pool[i]


@lean_kernel
def swap_back(pool, n_drawn, swaps):
    """Undo :func:`draw_first_columns`."""
    for i in range(n_drawn - 1, -1, -1):
        j = swaps[i]
        pool[i], pool[j] = pool[j], pool[i]


def tree_columns(seed: np.uint64, tree: int, n_columns: int, n_wanted: int) -> NDArray[np.int32]:
    """Return the columns a tree may use, ascending, shape (n_wanted,)."""
    pool = np.arange(n_columns, dtype=np.int32)
    if n_wanted < n_columns:
        key = np.uint64(stream_key(seed, STREAM_TREE_COLUMNS, tree))
        draw_columns(key, ROOT, pool, 0, n_wanted)
    return np.sort(pool[:n_wanted])


@kernel
def subsample(seed, stream, tree, n_wanted, eligible, chosen):
    """Choose exactly ``n_wanted`` of the eligible rows without replacement, by selection sampling.

    Knuth, The Art of Computer Programming, vol. 2, algorithm 3.4.2 S.

    Parameters
    ----------
    eligible, chosen : ndarray of bool, shape (n_rows,)
        ``chosen`` is written.
    """
    key = stream_key(seed, stream, tree)
    left = 0
    for i in range(eligible.shape[0]):
        left += eligible[i]
    for i in range(eligible.shape[0]):
        chosen[i] = False
        if eligible[i]:
            if uniform(draw(key, i)) * left < n_wanted:
                chosen[i] = True
                n_wanted -= 1
            left -= 1


def as_seed(value: int) -> np.uint64:
    """Return a seed for the functions above."""
    return np.uint64(value & 0xFFFFFFFFFFFFFFFF)
