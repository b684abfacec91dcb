"""Sums of floats by blocks."""

from __future__ import annotations

import numpy as np
import pytest

from dtrees.split.numbers.float_sums import add_up_blocks, mean_of


@pytest.mark.parametrize("n", [1, 2, 8, 9, 127, 128, 129, 130, 1000, 8192, 8193, 20_001])
def test_sums_are_those_of_numpy_to_the_last_bit(n: int) -> None:
    r = np.random.default_rng(n)
    x = r.normal(size=n) * 10.0 ** r.integers(-8, 8, n)
    sums = np.zeros((-(-n // 8192), 2))
    add_up_blocks(x, 8192, sums, 1)
    assert sums[:, 1].tobytes() == np.add.reduceat(x, np.arange(0, n, 8192)).tobytes()
    assert not sums[:, 0].any()


@pytest.mark.parametrize("n", [1, 2, 8, 9, 127, 128, 129, 130, 1000, 8192, 8193, 20_001])
def test_means_are_those_of_numpy_whatever_the_layout(n: int) -> None:
    r = np.random.default_rng(n)
    x = r.normal(size=n) * 10.0 ** r.integers(-8, 8, n)
    unaligned = np.empty(8 * n + 1, np.uint8)[1:].view(np.float64)
    unaligned[:] = x
    assert mean_of(x) == mean_of(unaligned) == mean_of(np.repeat(x, 3)[::3]) == x.mean()


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9, 17, 300])
def test_negative_zeros_add_up_to_one(n: int) -> None:
    sums = np.ones((1, 1))
    add_up_blocks(np.full(n, -0.0), 8192, sums, 0)
    assert sums.tobytes() == np.add.reduceat(np.full(n, -0.0), [0]).tobytes()


def test_a_sum_that_is_not_finite_gives_no_warning() -> None:
    sums = np.zeros((1, 1))
    add_up_blocks(np.full(3, 1e308), 8192, sums, 0)
    assert np.isinf(sums[0, 0])
