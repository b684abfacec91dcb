"""Results that shards of rows compute together: sums, packed for sending, and quantiles."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.protocol.exchange import Shards
from dtrees.engine.rows import quantiles as by_order
from dtrees.engine.rows.packed import PackedSumsMismatch, SumsToSend, add_up, pack
from dtrees.engine.rows.searcher import make_sums
from dtrees.engine.threads import Threads
from dtrees.ensemble.objective.kernels import residual_quantile
from dtrees.split.zones.sums import Sums

# --- packed sums of shards are unpacked unchanged ---


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
    columns = [np.arange(shard, 5, n_shards) for shard in range(n_shards)]  # two of seven shards have none
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
    with pytest.raises(PackedSumsMismatch, match="other nodes"):
        add_up([packed], np.zeros(12, np.int64), np.array([0, 6]), np.array([6, 6]))
    packed[16 * 4] = 60  # of the first block
    with pytest.raises(PackedSumsMismatch, match="do not match their header"):
        add_up([packed])


# --- quantiles of values spread over shards equal those of one process bit for bit ---


def find(chunks: list[by_order.Grouped], q: float) -> NDArray[np.float64]:
    """Compute quantiles on shards, step by step."""
    n_shards, n = len(chunks), sum(chunk.values.shape[0] for chunk in chunks)
    threads, no_plan = Threads(1), cast(BoostingPlan, None)
    shards = [Shards(no_plan, "fit", 0, shard, n_shards, n, 1) for shard in range(n_shards)]
    programs = [by_order.quantiles(chunk, q, n, one, threads) for chunk, one in zip(chunks, shards, strict=True)]
    steps, found = [next(program) for program in programs], [np.empty(0)] * n_shards
    while steps:
        assert len({one.name for one in steps}) == 1
        sent = [[one.payloads[shard].arrays for one in steps] for shard in range(n_shards)]
        steps = []
        for shard, program in enumerate(programs):
            try:
                steps.append(program.send(sent[shard]))
            except StopIteration as end:
                found[shard] = end.value
    threads.close()
    assert all(some.tobytes() == found[0].tobytes() for some in found)
    return found[0]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_quantiles_are_those_of_one_process(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    n_groups, n_shards = data.draw(st.sampled_from([1, 2, 7])), data.draw(st.sampled_from([1, 2, 3, 5]))
    n = data.draw(st.sampled_from([n_groups, 40, 300]))
    kind = data.draw(st.sampled_from(["continuous", "ties", "neighbours", "all equal", "wide"]))
    values = rng.normal(size=n)
    match kind:
        case "ties":
            values = np.round(values)  # zeros of both signs
        case "neighbours":
            values = 1.0 + rng.permutation(n) * 2.0**-52
        case "all equal":
            values = np.full(n, -0.25)
        case "wide":
            values *= 10.0 ** rng.integers(-300, 300, n)
    weights = rng.integers(1, 5, n) if data.draw(st.booleans()) else np.empty(0, np.int64)
    group, shard = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n - n_groups)]), rng.integers(0, n_shards, n)
    q = data.draw(st.sampled_from([0.5, 0.9, 0.25, 1.0 / 3.0]))
    chunks = []
    for one in range(n_shards):
        mine = np.flatnonzero(shard == one)
        mine = mine[np.argsort(group[mine], kind="stable")]
        bounds = np.searchsorted(group[mine], np.arange(n_groups + 1))
        chunks.append(by_order.Grouped(values[mine], weights[mine] if weights.shape[0] else weights, bounds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_order, "SENT_VALUES", data.draw(st.sampled_from([0, 10, 1000])))
        found = find(chunks, q)
    for i in range(n_groups):
        some = np.flatnonzero(group == i)
        mine = np.ascontiguousarray(values[some])
        wanted = residual_quantile(mine, np.zeros(mine.shape[0]), weights[some] if weights.shape[0] else weights, q, False)
        assert found[i].tobytes() == np.float64(wanted).tobytes(), (i, found[i], wanted)
