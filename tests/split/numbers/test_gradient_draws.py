"""Rows drawn by the sizes of their gradients: correct probabilities, the same on any shards, and unbiased sums."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from dtrees.split.numbers import hashing
from dtrees.split.numbers.gradient_draws import count_sizes, draw_by_size, in_bins, probabilities
from tests import naive

SEED = np.uint64(3)
ALL = np.empty(0, np.bool_)
#: Ties, zeros, neighbours of bins, sizes far apart.
SIZES = st.one_of(st.just(0.0), st.just(1.0), st.integers(0, 20).map(lambda k: 1.0 + k / 16), st.floats(1e-150, 1e150), st.just(1e12))
SHARES = st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.999])


def counted(sizes: NDArray[np.float64], eligible: NDArray[np.bool_] = ALL) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    bins = np.empty(sizes.shape[0], np.uint16)
    return bins, in_bins(count_sizes(sizes, eligible, bins))


def factors_of(round_: int, first: int, bins: NDArray[np.uint16], probability: NDArray[np.float64]) -> NDArray[np.float64]:
    factors = np.empty(bins.shape[0])
    draw_by_size(np.uint64(hashing.stream_key(SEED, hashing.STREAM_SUBSAMPLE, round_)), first, bins, probability, factors)
    return factors


@given(st.lists(SIZES, min_size=1, max_size=40), SHARES)
def test_probabilities_by_the_book(sizes: list[float], share: float) -> None:
    bins, found = counted(np.array(sizes))
    probability = probabilities(found, share)[bins]
    wanted = naive.probabilities_by_gradient(sizes, share)
    assert probability.tolist() == pytest.approx([float(p) for p in wanted], rel=1e-12)
    assert probability.sum() == pytest.approx(max(1.0, share * len(sizes)), rel=1e-12)
    assert (probability > 0).all()


@given(st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=40), SHARES, st.lists(st.integers(0, 40), max_size=4))
def test_shards_draw_what_one_process_draws(rows: list[Any], share: float, cuts: list[int]) -> None:
    sizes, eligible = np.array([size for size, _ in rows]), np.array([may for _, may in rows])
    bins, found = counted(sizes, eligible)
    probability = probabilities(found, share)
    factors = factors_of(5, 0, bins, probability)
    assert not factors[~eligible].any()
    drawn = factors > 0
    assert_array_equal(factors[drawn], 1.0 / probability[bins[drawn]])
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    shards = [(first, *counted(sizes[first:last], eligible[first:last])) for first, last in pairwise(bounds)]
    theirs = probabilities(np.concatenate([found for *_, found in shards[::-1]], axis=1), share)
    assert_array_equal(theirs, probability)
    assert_array_equal(np.concatenate([factors_of(5, first, bins, theirs) for first, bins, _ in shards]), factors)


@given(st.lists(SIZES, min_size=1, max_size=20), st.integers(-300, 300))
def test_only_ratios_of_sizes_matter(sizes: list[float], exponent: int) -> None:
    scaled = np.ldexp(np.array(sizes), exponent)
    one, other = (probabilities(found, 0.3)[bins] for bins, found in (counted(np.array(sizes)), counted(scaled)))
    assert_array_equal(one, other)


def test_sums_are_right_on_average() -> None:
    rng = np.random.default_rng(0)
    n, n_rounds = 2000, 400
    g = rng.normal(size=n) * rng.choice([0.01, 1.0, 30.0], n)
    bins, found = counted(np.abs(g))
    probability = probabilities(found, 0.2)
    factors = np.array([factors_of(round_, 0, bins, probability) for round_ in range(n_rounds)])
    assert (factors > 0).sum(axis=1).mean() == pytest.approx(0.2 * n, rel=0.01)
    sums, spread = factors @ g, np.sqrt(np.sum(g**2 * (1 / probability[bins] - 1)))
    assert abs(sums.mean() - g.sum()) < 4 * spread / np.sqrt(n_rounds)
    assert sums.std() == pytest.approx(spread, rel=0.2)
    assert spread < 0.5 * np.sqrt(np.sum(g**2) * (1 / 0.2 - 1))  # of rows with equal probabilities


@pytest.mark.parametrize("wild", [np.inf, -np.inf, np.nan, -np.nan])
def test_numbers_that_are_not_finite_are_drawn(wild: float) -> None:
    bins, found = counted(np.array([0.0, 1.0, wild, 5e-324]))
    assert probabilities(found, 0.3)[bins[2]] == 1.0


def test_no_rows() -> None:
    for sizes, eligible in ((np.empty(0), ALL), (np.ones(3), np.zeros(3, np.bool_))):
        bins, found = counted(sizes, eligible)
        assert not factors_of(0, 0, bins, probabilities(found, 0.5)).any()
