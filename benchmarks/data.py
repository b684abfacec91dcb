"""Tables for benchmarks: synthetic and real ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

#: Columns of the synthetic table.
N_COLUMNS = 28
#: The environment variable with the folder of real tables; without it, a folder beside the checkout is tried.
DATA_VARIABLE = "DTREES_DATA"


class TrainTest(NamedTuple):
    """A training and a test set: float32 columns and float64 targets or int64 classes."""

    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]


def synthetic(n_rows: int, classify: bool = False, n_columns: int = N_COLUMNS, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return float32 columns, of which five matter, with interactions and noise; the target is float64, or 0 and 1."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n_rows, n_columns), np.float32)
    signal = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] * (X[:, 4] > 0)
    y = signal + 0.5 * random.standard_normal(n_rows)
    return X, (y > 0).astype(np.int64) if classify else y


def classes(n_rows: int, n_classes: int, n_columns: int = N_COLUMNS) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the synthetic columns, and classes of equal size derived from its target."""
    X, y = synthetic(n_rows, n_columns=n_columns)
    return X, np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))


def texts(n_rows: int, n_words: int, length: int) -> tuple[Any, NDArray[np.int64]]:
    """Return a sparse table similar to TF-IDF: words as frequent as in texts (Zipf's law), with a value each; and two classes."""
    random = np.random.default_rng(0)
    share = 1 / np.arange(1, n_words + 1) ** 0.9
    words = random.choice(n_words, n_rows * length, p=share / share.sum()).astype(np.int32)
    starts = np.arange(0, words.shape[0] + 1, length, dtype=np.int32)
    X = sparse.csr_matrix((random.random(words.shape[0]), words, starts), shape=(n_rows, n_words))
    X.sum_duplicates()
    signal = X @ random.standard_normal(n_words)
    return X, (signal + 0.5 * random.standard_normal(n_rows) > np.median(signal)).astype(np.int64)


def data_folder(given: str | None = None) -> Path | None:
    """Return the folder of real tables: the given one, the environment's, or the one beside the checkout, if it exists."""
    path = Path(given or os.environ.get(DATA_VARIABLE) or Path(__file__).parents[2] / "shared" / "data")
    return path if path.is_dir() else None


def california(folder: Path | None) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return California housing (20,640 x 9), or None if it is not available.

    Text is replaced by numbers, and missing numbers by the column's median, so that every library accepts the table.
    """
    frame = _read(folder, "california_housing.csv")
    if frame is None:
        return None
    return _as_numbers(frame.drop(columns="median_house_value")), frame["median_house_value"].to_numpy(np.float64)


def adult(folder: Path | None) -> TrainTest | None:
    """Return Adult (32,561 and 16,281 x 14), with text and missing values as in :func:`california`, or None."""
    return _adult(folder, _as_numbers)


def adult_frames(folder: Path | None) -> TrainTest | None:
    """Return Adult as frames with columns of categories, including "missing", or None."""
    return _adult(folder, _with_categories)


def _adult(folder: Path | None, convert: Callable[[Any], Any]) -> TrainTest | None:
    frames = [_read(folder, f"adult_{part}.csv") for part in ("train", "test")]
    if frames[0] is None or frames[1] is None:
        return None
    import pandas as pd

    n_train = len(frames[0])
    frame = pd.concat(frames, ignore_index=True)
    X = convert(frame.drop(columns="income"))
    y = frame["income"].str.contains(">50K").to_numpy(np.int64)
    return TrainTest(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


def hold_out(X: NDArray[Any], y: NDArray[Any], fraction: float = 0.2) -> TrainTest:
    """Hold out a fraction of the rows, drawn at random with a fixed seed."""
    order = np.random.default_rng(0).permutation(X.shape[0])
    n_test = max(1, int(fraction * X.shape[0]))
    test, train = order[:n_test], order[n_test:]
    return TrainTest(X[train], y[train], X[test], y[test])


def _read(folder: Path | None, name: str) -> Any:
    import pandas as pd

    if folder is None or not (folder / name).is_file():
        return None
    return pd.read_csv(folder / name)


def _with_categories(frame: Any) -> Any:
    import pandas as pd

    return frame.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else column.fillna("missing").astype("category"))


def _as_numbers(frame: Any) -> NDArray[np.float32]:
    import pandas as pd

    numbers = frame.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else pd.factorize(column, sort=True)[0])
    return np.ascontiguousarray(numbers.fillna(numbers.median()), np.float32)
