"""Sums that shards send one another, packed: what comes of them is what they were."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.rows.packed import PackedWrongly, SumsToSend, add_up, pack
from dtrees.engine.rows.searcher import make_sums
from dtrees.engine.threads import Threads
from dtrees.split.zones.sums import Sums


def numbers_of(sums: Sums, slot: int, columns: NDArray[np.int64]) -> NDArray[np.int64]:
    starts = sums.starts[sums.grains[slot]]
    return np.concatenate([np.empty(0, np.int64), *(sums.slots[slot, starts[j] : starts[j + 1]] for j in columns.tolist())])


def some_sums(n_nodes: int, width: int, rng: np.random.Generator) -> Sums:
    sizes = np.array([[5, 70, 1, 9, 130], [10, 140, 1, 18, 260]]) * width
    starts = np.zeros((2, 6), np.int64)
    np.cumsum(sizes, axis=1, out=starts[:, 1:])
    slots = rng.integers(-(2**40), 2**40, (n_nodes, int(starts[1, -1]))) >> rng.integers(0, 41, (n_nodes, 1))
    sums = make_sums(slots, starts, np.zeros((2, 5), np.uint64), width, 0)
    sums.grains[:] = rng.integers(0, 2, n_nodes)
    return sums


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n_shards", [1, 2, 3, 7])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_sums_of_nodes(n_shards: int, width: int, n_threads: int) -> None:
    rng = np.random.default_rng(n_shards)
    columns = [np.arange(shard, 5, n_shards) for shard in range(n_shards)]  # of seven shards, two have none
    with Threads(n_threads) as threads:
        of_shards = [SumsToSend(shard, threads) for shard in range(n_shards)]
        for n_nodes in (1, 8, 2):
            sums = [some_sums(n_nodes, width, rng) for _ in range(n_shards)]
            for other in sums:
                other.grains[:] = sums[0].grains
            sent = [one.pack(own, columns) for one, own in zip(of_shards, sums, strict=True)]
            for searcher, mine in enumerate(columns):
                wanted = [sum(numbers_of(one, slot, mine) for one in sums) for slot in range(n_nodes)]
                sizes = np.array([len(one) for one in wanted])
                room = int(sizes.max()) + 3
                out, order = np.full(n_nodes * room, -1), rng.permutation(n_nodes)
                add_up([one[searcher] for one in sent], out, order * room, sizes, threads)
                for slot, one in zip(order.tolist(), wanted, strict=True):
                    assert np.array_equal(out[slot * room : slot * room + len(one)], one)
                    assert (out[slot * room + len(one) : (slot + 1) * room] == -1).all()
                for shard, one in enumerate(sent):
                    assert one[searcher].dtype == (np.int64 if shard == searcher else np.uint8)


def test_sums_of_other_nodes_are_refused() -> None:
    packed = pack(np.arange(12), 2, np.array([0, 4, 12]))
    with pytest.raises(PackedWrongly, match="other nodes"):
        add_up([packed], np.zeros(12, np.int64), np.array([0, 6]), np.array([6, 6]))
    packed[16 * 4] = 60  # of the first block
    with pytest.raises(PackedWrongly, match="not of the numbers"):
        add_up([packed])
