"""Draws as functions of identity: fair, independent of order, the same in all versions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import chisquare, kstest

from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.plan.row_draws import RowDraws
from dtrees.split.compile.kernels import kernel
from dtrees.split.numbers import hashing
from tests.engine.shards import rules

SEED = hashing.as_seed(7)
words = st.integers(0, 2**64 - 1).map(np.uint64)


def bootstrap(tree: int, n_rows: int, n_draws: int, weight: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    plan = ForestPlan(rules("squared_error", 1), 7, n_draws=n_draws)
    return RowDraws.of_table(plan, np.empty(n_rows), weight).counts(tree)


def splitmix64(state: int) -> int:
    """The published generator's output for a state, on Python integers."""
    mask = 2**64 - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@given(words)
def test_mix_is_splitmix64(x: np.uint64) -> None:
    assert int(hashing.mix(x)) == splitmix64(int(x))


def test_published_value() -> None:
    assert int(hashing.mix(np.uint64(0))) == 0xE220A8397B1DCDAF


@given(words, st.integers(1, 2**32 - 1))
def test_below_and_uniform_stay_in_range(bits: np.uint64, n: int) -> None:
    assert 0 <= hashing.below(bits, n) < n
    assert hashing.below(bits, n) == (int(bits) >> 32) * n >> 32
    assert 0.0 <= hashing.uniform(bits) < 1.0
    assert hashing.uniform(bits) == (int(bits) >> 11) / 2**53


def test_extreme_bits() -> None:
    assert hashing.uniform(np.uint64(2**64 - 1)) == 1.0 - 2.0**-53
    assert hashing.uniform(np.uint64(0)) == 0.0
    assert hashing.below(np.uint64(2**64 - 1), 2**32 - 1) == 2**32 - 2


def test_draws_look_uniform() -> None:
    key = np.uint64(hashing.stream_key(SEED, hashing.STREAM_THRESHOLD, 0))
    u = [hashing.uniform(np.uint64(hashing.draw(key, i))) for i in range(5000)]
    assert kstest(u, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.06


def test_identities_do_not_collide() -> None:
    streams = [getattr(hashing, name) for name in dir(hashing) if name.startswith("STREAM_")]
    assert len(set(streams)) == len(streams)
    keys = [int(hashing.stream_key(hashing.as_seed(seed), stream, tree)) for seed in range(5) for stream in streams for tree in range(40)]
    assert len(set(keys)) == len(keys)
    level = [hashing.ROOT]
    paths = [int(hashing.ROOT)]
    for _ in range(10):
        level = [np.uint64(hashing.child_path(path, side)) for path in level for side in (hashing.LEFT, hashing.RIGHT)]
        paths += [int(path) for path in level]
    assert len(set(paths)) == len(paths) == 2**11 - 1


@given(arrays(np.uint64, st.integers(0, 9), elements=st.integers(0, 2**64 - 1)), st.randoms(use_true_random=False))
def test_child_paths(paths: NDArray[np.uint64], random: np.random.Generator) -> None:
    sides = np.array([random.randint(0, 1) for _ in paths], np.int64)
    one_by_one = [int(hashing.child_path(p, hashing.RIGHT if s else hashing.LEFT)) for p, s in zip(paths, sides, strict=True)]
    assert hashing.mix_each(paths ^ np.where(sides == 1, hashing.RIGHT, hashing.LEFT)).tolist() == one_by_one


@given(words, words, st.integers(1, 12).flatmap(lambda n: st.permutations(range(0, 3 * n, 3))), st.data())
def test_draw_columns(key: np.uint64, path: np.uint64, start: list[int], data: st.DataObject) -> None:
    before = np.array(start, np.int32)
    n_wanted = data.draw(st.integers(0, len(start)))
    n_first = data.draw(st.integers(0, n_wanted))
    pool = before.copy()
    hashing.draw_columns(key, path, pool, 0, n_wanted)
    assert sorted(pool.tolist()) == sorted(start)
    in_two = before.copy()
    hashing.draw_columns(key, path, in_two, 0, n_first)
    assert in_two[:n_first].tolist() == pool[:n_first].tolist()
    hashing.draw_columns(key, path, in_two, n_first, n_wanted)
    assert in_two.tolist() == pool.tolist()
    hashing.undraw_columns(key, path, pool, n_wanted)
    assert pool.tolist() == start
    assert draw_and_swap_back(key, path, pool, n_wanted, hashing.mix_each(np.arange(len(start)))).tolist() == in_two.tolist()
    assert pool.tolist() == start


@kernel
def draw_and_swap_back(key, path, pool, n_wanted, counters):  # type: ignore[no-untyped-def]
    """Call parts of kernels, which Python cannot call."""
    swaps = np.empty(pool.shape[0], np.uint64)
    hashing.draw_first_columns(key, path, pool, n_wanted, counters, swaps)
    drawn = pool.copy()
    hashing.swap_back(pool, n_wanted, swaps)
    return drawn


def test_every_subset_of_columns_is_equally_likely() -> None:
    key = np.uint64(hashing.stream_key(SEED, hashing.STREAM_NODE, 0))
    counts = dict.fromkeys(itertools.permutations(range(4), 2), 0)
    for path in range(2400):
        pool = np.arange(4, dtype=np.int32)
        hashing.draw_columns(key, np.uint64(path), pool, 0, 2)
        counts[tuple(pool[:2].tolist())] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_tree_columns() -> None:
    drawn = [hashing.tree_columns(SEED, tree, 10, 4) for tree in range(500)]
    for columns in drawn:
        assert columns.dtype == np.int32
        assert np.all(np.diff(columns) > 0)
        assert columns.shape == (4,)
    assert chisquare(np.bincount(np.concatenate(drawn), minlength=10)).pvalue > 1e-4
    assert hashing.tree_columns(SEED, 3, 10, 4).tolist() == drawn[3].tolist()
    assert hashing.tree_columns(SEED, 3, 5, 5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("n_rows", "n_draws"), [(1, 1), (10, 10), (7, 100), (1000, 20)])
def test_bootstrap_counts_sum_to_the_draws(n_rows: int, n_draws: int) -> None:
    for tree in range(5):
        counts = bootstrap(tree, n_rows, n_draws)
        assert counts.sum() == n_draws
        assert counts.min() >= 0
        assert counts.tolist() == bootstrap(tree, n_rows, n_draws).tolist()
    if n_rows > 1:
        assert bootstrap(0, n_rows, n_draws).tolist() != bootstrap(1, n_rows, n_draws).tolist()


def test_bootstrap_is_fair() -> None:
    assert chisquare(bootstrap(0, 50, 20_000)).pvalue > 1e-4
    share_drawn = np.mean([np.mean(bootstrap(tree, 500, 500) > 0) for tree in range(20)])
    assert share_drawn == pytest.approx(1 - np.exp(-1), abs=0.01)


@pytest.mark.parametrize("scale", [1.0, 2.0**50])
def test_bootstrap_follows_the_weights(scale: float) -> None:
    weights = np.array([0, 1, 2, 0, 5, 2, 0]) * scale
    counts = bootstrap(0, 7, 10_000, weights)
    assert counts.sum() == 10_000
    assert not counts[weights == 0].any()
    present = weights > 0
    assert chisquare(counts[present], 10_000 * (weights[present] / weights.sum())).pvalue > 1e-4


@given(arrays(np.bool_, st.integers(1, 60)), st.integers(0, 60), st.integers(0, 5))
def test_subsample_has_exactly_the_size_wanted(eligible: NDArray[np.bool_], n_wanted: int, tree: int) -> None:
    n_wanted = min(n_wanted, int(eligible.sum()))
    chosen = np.ones_like(eligible)
    hashing.subsample(SEED, hashing.STREAM_SUBSAMPLE, tree, n_wanted, eligible, chosen)
    assert chosen.sum() == n_wanted
    assert not np.any(chosen & ~eligible)


def test_subsample_is_fair() -> None:
    eligible = np.arange(30) % 3 > 0
    total = np.zeros(30)
    chosen = np.empty(30, np.bool_)
    for tree in range(2000):
        hashing.subsample(SEED, hashing.STREAM_SUBSAMPLE, tree, 5, eligible, chosen)
        total += chosen
    assert chisquare(total[eligible]).pvalue > 1e-4


@pytest.mark.parametrize("value", [0, 1, 2**64 - 1, 2**64, 2**70 + 3, -1])
def test_any_integer_is_a_seed(value: int) -> None:
    assert int(hashing.as_seed(value)) == value % 2**64


def test_draws_stay_the_same_for_ever() -> None:
    """A model is a function of its seed, in this release and in the next."""
    assert bootstrap(0, 6, 6).tolist() == FROZEN_COUNTS
    assert hashing.tree_columns(SEED, 0, 10, 3).tolist() == FROZEN_COLUMNS


FROZEN_COUNTS = [2, 0, 2, 2, 0, 0]
FROZEN_COLUMNS = [0, 2, 6]
