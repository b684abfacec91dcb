"""Two hundred cases of the differential fuzzer; ``python -m tests.differential`` tries thousands, of all kinds of models."""

from collections.abc import Iterator

import pytest

from tests import differential, random_cases


@pytest.fixture(scope="module", autouse=True)
def closed_cluster() -> Iterator[None]:
    """Close the cluster of cases that use one."""
    yield
    if differential.client.cache_info().currsize:
        differential.client().shutdown()
        differential.client.cache_clear()


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(10, 200, 38))])
def test_fits_are_the_same_in_every_way(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    last = 10 if first == 0 else first + 38
    cases = ((number, random_cases.draw(0, number, few_kernels=True)) for number in range(first, last))
    count = differential.run(cases, n_ways=4, on_cluster=0.3 if first else 0.0)
    assert not count["DIFFERENT"], capsys.readouterr().out
    assert count["refused"] < count["cases"] / 2
