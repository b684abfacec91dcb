"""Two hundred cases of the differential fuzzer; ``python -m tests.differential`` tries thousands, of all kinds of models."""

from __future__ import annotations

import pytest

from tests import differential, random_cases


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(10, 200, 38))])
def test_fits_are_the_same_in_every_way(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    last = 10 if first == 0 else first + 38
    count = differential.run(((number, random_cases.draw(0, number, few_kernels=True)) for number in range(first, last)), n_ways=4)
    assert not count["DIFFERENT"], capsys.readouterr().out
    assert count["refused"] < count["cases"] / 2
