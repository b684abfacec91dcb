"""Sparse tables: time against what is stored, and beside peers that take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks import libraries
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run

#: Words of a dictionary.
N_WORDS = 20_000
#: How many times longer a fit may take of a table of four times the stored cells.
_GROWTH = 5.0


def texts(n_rows: int, n_words: int = N_WORDS, length: int = 100) -> tuple[Any, NDArray[np.bool_]]:
    """Return a table like one of TF-IDF: words as common as in texts (by Zipf's law), a value for each; and a label that words tell of."""
    random = np.random.default_rng(0)
    share = 1 / np.arange(1, n_words + 1) ** 0.9
    words = random.choice(n_words, n_rows * length, p=share / share.sum()).astype(np.int32)
    starts = np.arange(0, words.shape[0] + 1, length, dtype=np.int32)
    X = sparse.csr_array((random.random(words.shape[0]), words, starts), shape=(n_rows, n_words))
    X.sum_duplicates()
    signal = X @ random.standard_normal(n_words)
    return X, signal + 0.5 * random.standard_normal(n_rows) > np.median(signal)


def one_hot(n_rows: int, n_columns: int = 10, n_levels: int = 1000) -> tuple[Any, NDArray[np.bool_]]:
    """Return columns of categories, each encoded as a column a level."""
    random = np.random.default_rng(0)
    level = random.integers(0, n_levels, (n_rows, n_columns))
    columns = (level + n_levels * np.arange(n_columns)).astype(np.int32).ravel()
    starts = np.arange(0, columns.shape[0] + 1, n_columns, dtype=np.int32)
    X = sparse.csr_array((np.ones(columns.shape[0]), columns, starts), shape=(n_rows, n_columns * n_levels))
    signal = X @ random.standard_normal(n_columns * n_levels)
    return X, signal + 0.5 * random.standard_normal(n_rows) > 0


def _makers(n_trees: int, threads: int) -> dict[str, tuple[libraries.Makers, str]]:
    """Return the works: what is compared, and its name."""
    boosting = libraries.boosting(n_trees, threads, classify=True)
    del boosting["XGBoost hist"]
    forests = libraries.forests(n_trees, threads, True, "sqrt")
    del forests["YDF"]
    return {"boosting": (boosting, f"boosting, {n_trees} trees, depth 6"), "forest": (forests, f"forest, {n_trees} trees")}


@benchmark("sparse")
def sparse_tables(run: Run) -> Iterator[Yielded]:
    """Boosting and forests of texts of 20,000 words and of one-hot columns, and their growth with the stored cells: peers."""
    n, n_trees = run.size(tiny=100, small=5_000, full=20_000), run.size(tiny=2, small=5, full=20)
    for makers, work in _makers(n_trees, run.threads).values():
        for kind, (X, y) in (("text", texts(n)), ("one-hot", one_hot(n))):
            yield from run.fits(f"{work}, {kind}, {n:,} x {X.shape[1]:,}, {X.nnz:,} stored", X, y, makers, {})


@benchmark("sparse-growth")
def sparse_growth(run: Run) -> Iterator[Yielded]:
    """Time of fits of texts against the stored cells: at most five times for four times as many."""
    n, n_trees = run.size(tiny=100, small=2_500, full=10_000), run.size(tiny=2, small=5, full=10)
    for makers, work in _makers(n_trees, run.threads).values():
        ours = {"dtrees": makers["dtrees"]}
        few, many = (run.measure_fits(*texts(rows), ours)["dtrees"] for rows in (n, 4 * n))
        allowance = Measure(_GROWTH * few.median)
        yield Row.of(f"{work}, text, {4 * n:,} rows: {_GROWTH:g} times the time of {n:,}", "allowance", allowance, many, 1.0)
