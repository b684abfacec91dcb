"""Fits with the time after each round, and the held-out loss by round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import libraries


@dataclass(frozen=True)
class Staged:
    """A library's boosting, round by round.

    Attributes
    ----------
    fit : callable
        Function of (X, y, note) that returns a fitted model and calls ``note`` after each round.
    predict : callable
        Function of (model, X, rounds) that returns predictions (numbers, or probabilities of the second class) after some rounds,
        ascending.
    """

    fit: Callable[[NDArray[Any], NDArray[Any], Callable[[], None]], Any]
    predict: Callable[[Any, NDArray[Any], Sequence[int]], Iterator[NDArray[Any]]]

    def trace(self, X: NDArray[Any], y: NDArray[Any]) -> tuple[Any, NDArray[np.float64]]:
        """Fit; return the model, and the seconds from the start to the end of each round."""
        times: list[float] = []
        began = time.perf_counter()
        model = self.fit(X, y, lambda: times.append(time.perf_counter() - began))
        return model, np.array(times)


def loss(y: NDArray[Any], predicted: NDArray[Any], classify: bool) -> float:
    """Return the mean squared error, or the mean log loss."""
    if not classify:
        return float(np.mean((y - predicted) ** 2))
    probability = np.clip(np.where(y == 1, predicted, 1.0 - predicted), 1e-12, 1.0)
    return float(-np.mean(np.log(probability)))


def contenders(n_trees: int, threads: int, classify: bool) -> dict[str, Staged]:
    """Return dtrees, XGBoost hist and LightGBM."""
    return {
        "dtrees": _dtrees(n_trees, threads, classify),
        "XGBoost hist": _xgboost(n_trees, threads, classify),
        "LightGBM": _lightgbm(n_trees, threads, classify),
    }


def _dtrees(n_trees: int, threads: int, classify: bool) -> Staged:
    def fit(X: NDArray[Any], y: NDArray[Any], note: Callable[[], None]) -> Any:
        return libraries.our_boosting(n_trees, threads, classify).fit(X, y, callbacks=[lambda progress: note()])

    def predict(model: Any, X: NDArray[Any], rounds: Sequence[int]) -> Iterator[NDArray[Any]]:
        staged = model.staged_predict_proba(X) if classify else model.staged_predict(X)
        wanted = set(rounds)
        for k, predicted in enumerate(staged, start=1):
            if k in wanted:
                yield predicted[:, 1] if classify else predicted

    return Staged(fit, predict)


def _xgboost(n_trees: int, threads: int, classify: bool) -> Staged:
    def fit(X: NDArray[Any], y: NDArray[Any], note: Callable[[], None]) -> Any:
        from xgboost.callback import TrainingCallback

        class Note(TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                note()
                return False

        return libraries.xgboost(n_trees, threads, "hist", classify).set_params(callbacks=[Note()]).fit(X, y)

    def predict(model: Any, X: NDArray[Any], rounds: Sequence[int]) -> Iterator[NDArray[Any]]:
        for k in rounds:
            yield model.predict_proba(X, iteration_range=(0, k))[:, 1] if classify else model.predict(X, iteration_range=(0, k))

    return Staged(fit, predict)


def _lightgbm(n_trees: int, threads: int, classify: bool) -> Staged:
    def fit(X: NDArray[Any], y: NDArray[Any], note: Callable[[], None]) -> Any:
        return libraries.lightgbm(n_trees, threads, classify).fit(X, y, callbacks=[lambda environment: note()])

    def predict(model: Any, X: NDArray[Any], rounds: Sequence[int]) -> Iterator[NDArray[Any]]:
        for k in rounds:
            yield model.predict_proba(X, num_iteration=k)[:, 1] if classify else model.predict(X, num_iteration=k)

    return Staged(fit, predict)
