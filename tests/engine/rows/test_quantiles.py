"""Quantiles of values that are spread over shards: bit for bit those of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.rows import quantiles as by_order
from dtrees.engine.rows.exchange import Step
from dtrees.engine.threads import Threads
from dtrees.ensemble.objective.arithmetic.residual_kernels import residual_quantile


def find(pieces: list[by_order.Grouped], q: float) -> NDArray[np.float64]:
    """Have shards find quantiles, step by step."""
    n_shards, n = len(pieces), sum(piece.values.shape[0] for piece in pieces)
    threads = Threads(1)

    def step(name: str, arrays: Any, senders: Any) -> Step:
        return Step("fit", 0, 0, name, arrays, senders)

    programs = [by_order.quantiles(piece, q, n, shard, n_shards, threads, step) for shard, piece in enumerate(pieces)]
    steps, found = [next(program) for program in programs], [np.empty(0)] * n_shards
    while steps:
        assert len({one.name for one in steps}) == 1
        sent = [[one.parcels[shard] for one in steps] for shard in range(n_shards)]
        steps = []
        for shard, program in enumerate(programs):
            try:
                steps.append(program.send(sent[shard]))
            except StopIteration as end:
                found[shard] = end.value
    threads.close()
    out = np.empty(sum(some.shape[0] for some in found))
    for shard, some in enumerate(found):
        out[shard::n_shards] = some
    return out


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
    pieces = []
    for one in range(n_shards):
        mine = np.flatnonzero(shard == one)
        mine = mine[np.argsort(group[mine], kind="stable")]
        bounds = np.searchsorted(group[mine], np.arange(n_groups + 1))
        pieces.append(by_order.Grouped(values[mine], weights[mine] if weights.shape[0] else weights, bounds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_order, "SENT_VALUES", data.draw(st.sampled_from([0, 10, 1000])))
        found = find(pieces, q)
    for i in range(n_groups):
        some = np.flatnonzero(group == i)
        mine = np.ascontiguousarray(values[some])
        wanted = residual_quantile(mine, np.zeros(mine.shape[0]), weights[some] if weights.shape[0] else weights, q, False)
        assert found[i].tobytes() == np.float64(wanted).tobytes(), (i, found[i], wanted)
