"""The estimators that are compared, configured to grow the same kind of trees, with dtrees first.

Each function returns functions that create unfitted estimators, by library; libraries are imported when an estimator is created.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import dtrees

Makers = dict[str, Callable[[], Any]]

#: The package for the first word of a contender's name, and its name for pip.
PACKAGES = {
    "dtrees": ("dtrees", "dtrees"),
    "scikit-learn": ("sklearn", "scikit-learn"),
    "scikit-learn-intelex": ("sklearnex", "scikit-learn-intelex"),
    "XGBoost": ("xgboost", "xgboost"),
    "LightGBM": ("lightgbm", "lightgbm"),
    "CatBoost": ("catboost", "catboost"),
    "YDF": ("ydf", "ydf"),
}


#: The modules of forests.
_FORESTS = {"dtrees": "dtrees", "scikit-learn": "sklearn.ensemble", "scikit-learn-intelex": "sklearnex.ensemble"}


def is_installed(name: str) -> bool:
    """Return whether the library of a contender is installed; contenders without a library belong to dtrees."""
    package = PACKAGES.get(name.split()[0].rstrip(","))
    return package is None or importlib.util.find_spec(package[0]) is not None


def _of(module: str, kind: str, classify: bool, /, **parameters: Any) -> Any:
    """Create a classifier or regressor of a kind from a module."""
    return getattr(importlib.import_module(module), f"{kind}{'Classifier' if classify else 'Regressor'}")(**parameters)


def our_boosting(n_trees: int, threads: int, classify: bool = False, depth: int | None = 6, leaves: int | None = None) -> Any:
    """Return dtrees' boosting with XGBoost's default parameters; trees with a number of leaves have no limit of depth."""
    return _of(
        "dtrees", "GradientBoosting", classify,
        n_estimators=n_trees, learning_rate=0.1, max_depth=None if leaves else depth, max_leaf_nodes=leaves, reg_lambda=1.0,
        min_child_weight=1.0, min_samples_leaf=1, max_features=None, n_jobs=threads, random_state=0,
    )  # fmt: skip


def xgboost(n_trees: int, threads: int, method: str, classify: bool = False, **parameters: Any) -> Any:
    """Return XGBoost's estimator with ``tree_method`` exact or hist."""
    settings = {"n_estimators": n_trees, "learning_rate": 0.1, "max_depth": 6, "tree_method": method, "n_jobs": threads}
    return _of("xgboost", "XGB", classify, **(settings | parameters))


def lightgbm(n_trees: int, threads: int, classify: bool = False, **parameters: Any) -> Any:
    """Return LightGBM's estimator, with trees of at most 64 leaves and depth 6."""
    settings = {"n_estimators": n_trees, "num_leaves": 64, "max_depth": 6, "learning_rate": 0.1, "n_jobs": threads, "verbose": -1}
    return _of("lightgbm", "LGBM", classify, **(settings | parameters))


def catboost(n_trees: int, threads: int, classify: bool = False, **parameters: Any) -> Any:
    """Return CatBoost's estimator, with symmetric trees of depth 6 unless parameters override it."""
    settings = {"iterations": n_trees, "learning_rate": 0.1, "depth": 6, "thread_count": threads}
    settings |= {"verbose": False, "allow_writing_files": False, "random_seed": 0}
    return _of("catboost", "CatBoost", classify, **(settings | parameters))


def boosting(n_trees: int, threads: int, classify: bool = False, leaves: int | None = None) -> Makers:
    """Boosting with a learning rate of 0.1 and trees of depth 6, or best-first with a number of leaves: dtrees, histogram libraries."""
    of_xgboost = {"max_depth": 0, "max_leaves": leaves, "grow_policy": "lossguide"} if leaves else {}
    of_lightgbm = {"max_depth": -1, "num_leaves": leaves} if leaves else {}
    of_catboost = {"depth": 16, "max_leaves": leaves, "grow_policy": "Lossguide"} if leaves else {}
    peers = boosting_with(n_trees, threads, classify, {"XGBoost hist": of_xgboost, "LightGBM": of_lightgbm, "CatBoost": of_catboost})
    return {"dtrees": lambda: our_boosting(n_trees, threads, classify, leaves=leaves), **peers}


def boosting_with(n_trees: int, threads: int, classify: bool, given: Mapping[str, dict[str, Any]]) -> Makers:
    """Boosting of the libraries to which parameters are given, which may override a learning rate of 0.1 and trees of depth 6."""
    common: dict[str, Any] = {"learning_rate": 0.1, "max_depth": 6, "random_state": 0}
    hist = {"max_iter": n_trees, "max_leaf_nodes": None, "early_stopping": False}
    makers: Makers = {
        "dtrees": partial(_of, "dtrees", "GradientBoosting", classify, n_estimators=n_trees, n_jobs=threads, **common),
        "scikit-learn": partial(_of, "sklearn.ensemble", "GradientBoosting", classify, n_estimators=n_trees, **common),  # uses one core
        "scikit-learn hist": partial(_of, "sklearn.ensemble", "HistGradientBoosting", classify, **hist, **common),
        "XGBoost exact": partial(xgboost, n_trees, threads, "exact", classify),
        "XGBoost hist": partial(xgboost, n_trees, threads, "hist", classify),
        "LightGBM": partial(lightgbm, n_trees, threads, classify),
        "CatBoost": partial(catboost, n_trees, threads, classify),
    }
    return {name: partial(makers[name], **parameters) for name, parameters in given.items()}


def sklearn_hist_boosting(n_trees: int, threads: int, classify: bool = False) -> Any:
    """Return scikit-learn's histogram boosting."""
    settings = {"learning_rate": 0.1, "max_depth": 6, "max_leaf_nodes": 64, "early_stopping": False, "random_state": 0}
    return InThreads(_of("sklearn.ensemble", "HistGradientBoosting", classify, max_iter=n_trees, **settings), threads)


def boosting_by_default(threads: int, classify: bool, rounds: int | None = None) -> Makers:
    """Boosting with each library's defaults, except that ``rounds`` sets the number of rounds."""
    quiet = {"thread_count": threads, "verbose": False, "allow_writing_files": False}

    def of(name: str) -> dict[str, int]:
        return {} if rounds is None else {name: rounds}

    return {
        "dtrees": lambda: _of("dtrees", "GradientBoosting", classify, n_jobs=threads, **of("n_estimators")),
        "scikit-learn hist": lambda: _of("sklearn.ensemble", "HistGradientBoosting", classify, random_state=0, **of("max_iter")),
        "XGBoost hist": lambda: _of("xgboost", "XGB", classify, n_jobs=threads, **of("n_estimators")),
        "LightGBM": lambda: _of("lightgbm", "LGBM", classify, n_jobs=threads, verbose=-1, **of("n_estimators")),
        "CatBoost": lambda: _of("catboost", "CatBoost", classify, **quiet, **of("iterations")),
    }


def forest_by_default(threads: int, classify: bool) -> Makers:
    """Random forests with each library's own defaults."""
    modules = {"dtrees": "dtrees", "scikit-learn RandomForest": "sklearn.ensemble"}
    return {name: partial(_of, module, "RandomForest", classify, random_state=0, n_jobs=threads) for name, module in modules.items()}


class InThreads:
    """An estimator without ``n_jobs`` that uses all threads of OpenMP, limited to a number of threads."""

    def __init__(self, estimator: Any, threads: int) -> None:
        self._estimator, self._threads = estimator, threads

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit."""
        with threadpool_limits(self._threads, "openmp"):
            self._estimator.fit(X, y)
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Predict."""
        with threadpool_limits(self._threads, "openmp"):
            return self._estimator.predict(X)


def trees(depth: int | None, **parameters: Any) -> Makers:
    """Single regression trees on one core."""
    settings = {"max_depth": depth, "random_state": 0, **parameters}
    return {
        "dtrees": lambda: dtrees.DecisionTreeRegressor(n_jobs=1, **settings),
        "scikit-learn": lambda: _of("sklearn.tree", "DecisionTree", False, **settings),
    }


def forests(n_trees: int, threads: int, classify: bool, max_features: Any) -> Makers:
    """Random forests of full depth."""
    makers = _of_each(_FORESTS, "RandomForest", classify, n_trees, threads, max_features=max_features)
    return {**makers, "YDF": lambda: YdfForest(n_trees, threads, classify, max_features)}


def extra_trees(n_trees: int, threads: int, classify: bool = False) -> Makers:
    """Extra-trees of full depth, with all columns tried in each node (for classification: the square root of their number)."""
    return _of_each(_FORESTS, "ExtraTrees", classify, n_trees, threads)


def _of_each(modules: Mapping[str, str], kind: str, classify: bool, n_trees: int, threads: int, **parameters: Any) -> Makers:
    """Return a kind of forest of each library."""
    settings = {"n_estimators": n_trees, "n_jobs": threads, "random_state": 0, **parameters}
    return {name: partial(_of, module, kind, classify, **settings) for name, module in modules.items()}


class YdfForest:
    """YDF's random forest of full depth with scikit-learn's interface; its splits are exact."""

    def __init__(self, n_trees: int, threads: int, classify: bool, max_features: Any) -> None:
        import ydf

        ydf.verbose(0)
        self._learner = ydf.RandomForestLearner(
            label="y",
            task=ydf.Task.CLASSIFICATION if classify else ydf.Task.REGRESSION,
            num_trees=n_trees,
            max_depth=-1,
            min_examples=1,
            num_candidate_attributes=0 if max_features == "sqrt" else None,  # 0 means the square root
            num_candidate_attributes_ratio=None if max_features == "sqrt" else float(max_features),
            compute_oob_performances=False,
            winner_take_all=False,
            num_threads=threads,
        )

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Train."""
        self._model = self._learner.train({"x": X, "y": y})
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Predict numbers, or the probability of the second class."""
        return self._model.predict({"x": X})
