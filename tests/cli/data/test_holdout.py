"""The rows held out for the test."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dtrees.cli.target import held_out, split

FRAME = pd.DataFrame({"row": np.arange(1000)})


@pytest.fixture(autouse=True)
def in_this_process() -> object:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("n_partitions", [1, 3, 7])
def test_the_same_rows_in_any_partitioning(n_partitions: int) -> None:
    train, test = split(dd.from_pandas(FRAME, npartitions=n_partitions, sort=False), 0.3, seed=5)
    wanted = held_out(0, 1000, 0.3, seed=5)
    assert test["row"].compute().tolist() == np.flatnonzero(wanted).tolist()
    assert train["row"].compute().tolist() == np.flatnonzero(~wanted).tolist()


def test_empty_partitions() -> None:
    frame = dd.from_pandas(FRAME, npartitions=4, sort=False)
    emptied = frame[(frame["row"] < 250) | (frame["row"] >= 750)]
    train, test = split(emptied, 0.5, seed=0)
    assert len(train) + len(test) == 500


def test_share_is_met_on_average_and_seeds_differ() -> None:
    shares = [held_out(0, 2000, 0.2, seed).mean() for seed in range(200)]
    assert abs(np.mean(shares) - 0.2) < 0.002
    overlap = (held_out(0, 20_000, 0.2, 0) & held_out(0, 20_000, 0.2, 1)).mean()
    assert abs(overlap - 0.04) < 0.005
    assert not held_out(0, 100, 0.0, 0).any()
