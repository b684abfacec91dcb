"""Exact weighted quantiles of groups of values that are spread over shards, for all groups at once.

Floats are treated as 64-bit integers in the same order. Each group has an *owner* among the shards. In each round, shards send to the
owners the weights of their values by the next 16 bits, and the owners reply which of these bits the quantile has; values with other bits
are discarded. When few values remain, these are sent to the owners, who finish the search. Usually this takes one round.

The result is the same as in one process (:mod:`dtrees.ensemble.objective.kernels`): the least value up to which the cumulative weight
exceeds q of the total or, if the weight equals it exactly, the midpoint to the next value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.exchange import Arrays, Shards, Steps
from dtrees.engine.shard.targets.places import places_of
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition
from dtrees.split.zones.over_shards.categories import make_lists, make_tally, sum_by_category

#: The number of remaining values, over all groups, that are sent directly.
SENT_VALUES = 1 << 16
_BITS = 16
_SIGN, _NONE = np.uint64(2**63), np.uint64(2**64 - 1)
_NO_WEIGHTS, _ONE_TARGET = np.empty(0, np.int64), np.empty((0, 0), np.int64)


class Grouped(NamedTuple):
    """A shard's values: group i has ``values[bounds[i]:bounds[i + 1]]``.

    Attributes
    ----------
    values : ndarray of float64
    weights : ndarray of int64
        Positive; empty if all are 1.
    bounds : ndarray of int64, shape (n_groups + 1,)
    """

    values: NDArray[np.float64]
    weights: NDArray[np.int64]
    bounds: NDArray[np.int64]


def keys_of(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the bits of floats as integers in the order of the floats, -0.0 as 0.0.

    Examples
    --------
    >>> keys = keys_of(np.array([-np.inf, -1.5, -0.0, 0.0, 1e-300, 2.0]))
    >>> bool((np.diff(keys.astype(object)) >= 0).all()), values_of(keys).tolist()
    (True, [-inf, -1.5, 0.0, 0.0, 1e-300, 2.0])
    """
    bits = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def values_of(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the floats with the given keys."""
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)


def quantiles(grouped: Grouped, q: float, n_values: int, shards: Shards, threads: Threads) -> Steps[NDArray[np.float64]]:
    """Find the q-quantiles of non-empty groups together with the other shards; none is -0.0.

    Group i is owned by shard ``i % n_shards``. ``n_values`` is the number of values over all shards and groups.
    """
    selection = _Selection(grouped, q, shards.shard, shards.n_shards, threads)
    while n_values > SENT_VALUES:
        sent = yield shards.step("counts", selection.counts(), shards.everyone)
        sent = yield shards.to_all("bins", selection.choose(sent))
        n_values = selection.narrow(sent)
    sent = yield shards.step("rest", selection.rest(), shards.everyone)
    of_all = np.empty(grouped.bounds.shape[0] - 1)
    for shard, found in enumerate((yield from shards.gather("quantiles", selection.finish(sent)))):
        of_all[shard :: shards.n_shards] = found
    return of_all


def _merged(n_groups: int, sent: Sequence[Arrays]) -> list[NDArray[Any]]:
    """Return the keys of each group, ascending, with the totals of other numbers over equal keys.

    Each shard has sent the number of keys of each group, then the keys and the other numbers, group by group.
    """
    group = np.concatenate([np.repeat(np.arange(n_groups), one[0]) for one in sent])
    keys, *numbers = (np.concatenate(some) for some in zip(*(one[1:] for one in sent), strict=True))
    order = np.lexsort([keys, group])
    group, keys = group[order], keys[order]
    first = np.flatnonzero(np.append(True, (keys[1:] != keys[:-1]) | (group[1:] != group[:-1])))
    return [group[first], keys[first], *(np.add.reduceat(some[order], first) for some in numbers)]


class _Selection:
    """The state of a search for quantiles on a shard."""

    def __init__(self, grouped: Grouped, q: float, shard: int, n_shards: int, threads: Threads) -> None:
        n = grouped.bounds.shape[0] - 1
        self._q, self._shard, self._n_shards, self._threads = q, shard, n_shards, threads
        self._keys, self._weights, self._bounds = keys_of(grouped.values), grouped.weights, grouped.bounds
        self._prefix, self._level, self._above = np.zeros(n, np.uint64), 0, np.full(n, _NONE)
        own = np.arange(shard, n, n_shards)
        self._own, self._below, self._equal = own, np.zeros(own.shape[0], np.int64), np.zeros(own.shape[0], np.int64)
        self._wanted: NDArray[np.float64] | None = None
        self._by_owner = np.concatenate([np.arange(owner, n, n_shards) for owner in range(n_shards)])

    def counts(self) -> dict[int, Arrays]:
        """Return the weights of values by their next bits, for the owners of their groups."""
        shift = np.uint64(64 - _BITS - self._level)
        digits = ((self._keys >> shift) & np.uint64(2**_BITS - 1)).astype(np.uint32)[np.newaxis]
        n, sizes = self._by_owner.shape[0], np.diff(self._bounds)[self._by_owner]
        weights = self._weights if self._weights.shape[0] else np.ones(digits.shape[1], np.int64)
        partition = RowPartition(np.arange(digits.shape[1], dtype=np.uint32), weights, _NO_WEIGHTS)
        lists = make_lists(np.minimum(sizes, 2**_BITS), False)
        first = self._bounds[self._by_owner]
        tasks = np.ascontiguousarray(np.stack([first, first + sizes, np.zeros(n, np.int64), np.arange(n)], axis=1))
        tallies = [make_tally(2**_BITS) for _ in range(self._threads.n_threads)]
        self._threads.share(
            n, lambda queue, thread: sum_by_category(queue, tasks, digits, partition, tallies[thread], lists, 0, _ONE_TARGET)
        )
        ends = np.cumsum([len(range(owner, n, self._n_shards)) for owner in range(self._n_shards)])
        sent: dict[int, Arrays] = {}
        for owner, mine in enumerate(np.split(np.arange(n), ends[:-1])):
            at = places_of(lists.begin[mine], lists.length[mine])
            sent[owner] = (lists.length[mine], lists.code[at], lists.n[at], lists.g[at])
        return sent

    def choose(self, sent: Sequence[Arrays]) -> Arrays:
        """Return the next bits of the quantiles of this shard's groups, and the number of values with these bits."""
        k = self._own.shape[0]
        if not k:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        group, code, n, g = _merged(k, sent)
        place = self._place(g, np.bincount(group, minlength=k))
        self._equal = g[place]
        return code[place].astype(np.uint64), n[place].astype(np.int64)

    def _place(self, weights: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first place in each group at which the cumulative weight suffices, else the last; store the weight before it."""
        up_to, ends = np.cumsum(weights), np.cumsum(sizes)
        before = up_to[ends - sizes] - weights[ends - sizes]
        if self._wanted is None:
            self._wanted = self._q * (up_to[ends - 1] - before)
        enough = np.repeat(self._below - before, sizes) + up_to >= np.repeat(self._wanted, sizes)
        enough[ends - 1] = True
        place = np.minimum.reduceat(np.where(enough, np.arange(enough.shape[0]), enough.shape[0]), ends - sizes)
        self._below = self._below + (up_to[place] - weights[place]) - before
        return place

    def narrow(self, sent: Sequence[Arrays]) -> int:
        """Discard values without the bits that the owners have chosen; return the number of values that remain over all shards."""
        digit, left = (np.empty(self._by_owner.shape[0], dtype) for dtype in (np.uint64, np.int64))
        digit[self._by_owner], left[self._by_owner] = (np.concatenate([one[i] for one in sent]) for i in range(2))
        self._level += _BITS
        shift = np.uint64(64 - self._level)
        self._prefix |= digit << shift
        group = np.repeat(np.arange(digit.shape[0]), np.diff(self._bounds))
        mine, bits = self._keys >> shift, (self._prefix >> shift)[group]
        higher, matching = mine > bits, mine == bits
        np.minimum.at(self._above, group[higher], self._keys[higher])
        self._keys, self._weights = self._keys[matching], self._weights[matching] if self._weights.shape[0] else self._weights
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(group[matching], minlength=digit.shape[0]))])
        if self._level == 64:  # the remaining values are all equal
            self._keys, self._weights, self._bounds = self._keys[:0], self._weights[:0], np.zeros_like(self._bounds)
            return 0
        return int(left.sum())

    def rest(self) -> dict[int, Arrays]:
        """Return the remaining values, and the least value above them, for the owners of their groups."""
        sent: dict[int, Arrays] = {}
        for owner in range(self._n_shards):
            groups = np.arange(owner, self._above.shape[0], self._n_shards)
            sizes = np.diff(self._bounds)[groups]
            at = places_of(self._bounds[groups], sizes)
            sent[owner] = (sizes, self._keys[at], self._weights[at] if self._weights.shape[0] else self._weights, self._above[groups])
        return sent

    def finish(self, sent: Sequence[Arrays]) -> NDArray[np.float64]:
        """Return the quantiles of this shard's groups."""
        k = self._own.shape[0]
        if not k:
            return np.empty(0)
        above = np.min([one[3] for one in sent], axis=0)
        if self._level == 64:
            assert self._wanted is not None
            key, up_to = self._prefix[self._own], self._below + self._equal
        else:
            ones = np.ones(max(keys.shape[0] for _, keys, _, _ in sent), np.int64)
            group, keys, weights = _merged(k, [(n, keys, own if own.shape[0] else ones[: keys.shape[0]]) for n, keys, own, _ in sent])
            place = self._place(weights, np.bincount(group, minlength=k))
            key, up_to = keys[place], self._below + weights[place]
            following = np.minimum(place + 1, keys.shape[0] - 1)
            above = np.where(group[following] == np.arange(k) if k else False, np.where(following > place, keys[following], above), above)
        assert self._wanted is not None
        halfway = (up_to == self._wanted) & (above != _NONE)
        value = values_of(key)
        return np.where(halfway, value / 2.0 + np.where(halfway, values_of(above), 0.0) / 2.0, value) + 0.0
