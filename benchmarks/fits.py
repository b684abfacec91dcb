"""What is fitted, by whom, and on what data."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import dtrees

#: Rows of the comparisons that are asked for by default, and columns of every one.
N_ROWS, N_COLUMNS = 100_000, 28


@dataclass(frozen=True)
class Work:
    """One comparison: dtrees first, then its peers, each a function that makes an unfitted estimator."""

    name: str
    classify: bool
    threads: int | None  # None: all cores
    contenders: dict[str, Callable[[int], Any]]


def synthetic(n_rows: int, classify: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 columns, of which five matter, with interactions and noise."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows, N_COLUMNS)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] * (X[:, 4] > 0) + 0.5 * random.normal(size=n_rows)
    return X, (y > 0).astype(np.int64) if classify else y.astype(np.float64)


def works() -> list[Work]:
    """Return all comparisons with the peers that are installed."""
    from sklearn import ensemble, tree

    boosting = {
        "dtrees": lambda t: dtrees.GradientBoostingRegressor(
            n_estimators=100, learning_rate=0.1, reg_lambda=1.0, min_child_weight=1.0, n_jobs=t, random_state=0
        )
    }
    if importlib.util.find_spec("xgboost"):
        from xgboost import XGBRegressor

        for method in ("exact", "hist"):
            boosting[f"XGBoost {method}"] = lambda t, method=method: XGBRegressor(
                n_estimators=100, learning_rate=0.1, max_depth=6, tree_method=method, n_jobs=t
            )
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        boosting["LightGBM"] = lambda t: LGBMRegressor(n_estimators=100, num_leaves=64, max_depth=6, n_jobs=t, verbose=-1)
    return [
        Work("boosting, 100 trees, depth 6", False, None, boosting),
        *(
            Work(
                f"tree, {'full depth' if depth is None else f'depth {depth}'}",
                False,
                1,
                {
                    "dtrees": lambda t, d=depth: dtrees.DecisionTreeRegressor(max_depth=d, n_jobs=t, random_state=0),
                    "scikit-learn": lambda t, d=depth: tree.DecisionTreeRegressor(max_depth=d, random_state=0),
                },
            )
            for depth in (None, 6)
        ),
        Work(
            "forest regression, 20 trees, a third of the columns",
            False,
            None,
            {
                "dtrees": lambda t: dtrees.RandomForestRegressor(20, max_features=1 / 3, n_jobs=t, random_state=0),
                "scikit-learn": lambda t: ensemble.RandomForestRegressor(20, max_features=1 / 3, n_jobs=t, random_state=0),
            },
        ),
        Work(
            "forest classification, 20 trees",
            True,
            None,
            {
                "dtrees": lambda t: dtrees.RandomForestClassifier(20, n_jobs=t, random_state=0),
                "scikit-learn": lambda t: ensemble.RandomForestClassifier(20, n_jobs=t, random_state=0),
            },
        ),
        Work(
            "extra-trees regression, 20 trees",
            False,
            None,
            {
                "dtrees": lambda t: dtrees.ExtraTreesRegressor(20, n_jobs=t, random_state=0),
                "scikit-learn": lambda t: ensemble.ExtraTreesRegressor(20, n_jobs=t, random_state=0),
            },
        ),
    ]
