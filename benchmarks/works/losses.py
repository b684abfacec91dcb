"""Time to the same held-out loss, not to the same number of trees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import libraries
from benchmarks.data import TrainTest, adult, california, hold_out, synthetic
from benchmarks.results import Row
from benchmarks.run import Run, benchmark
from benchmarks.timing import PAUSE, summary

#: Losses are computed every this many rounds.
_EVERY = 5


@dataclass(frozen=True)
class Staged:
    """A library's boosting, round by round.

    Attributes
    ----------
    fit : callable
        Function of (X, y, note) that returns a fitted model and calls ``note`` after each round.
    first : callable
        Function of a number of rounds that returns the argument by which a model predicts with only these.
    """

    fit: Callable[[NDArray[Any], NDArray[Any], Callable[[], None]], Any]
    first: Callable[[int], dict[str, Any]]

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


def contenders_of(n_trees: int, threads: int, classify: bool) -> dict[str, Staged]:
    """Return dtrees, XGBoost hist and LightGBM."""

    def ours(X: NDArray[Any], y: NDArray[Any], note: Callable[[], None]) -> Any:
        return libraries.our_boosting(n_trees, threads, classify).fit(X, y, callbacks=[lambda progress: note()])

    def xgboost(X: NDArray[Any], y: NDArray[Any], note: Callable[[], None]) -> Any:
        from xgboost.callback import TrainingCallback

        class Note(TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                note()
                return False

        return libraries.xgboost(n_trees, threads, "hist", classify, callbacks=[Note()]).fit(X, y)

    def lightgbm(X: NDArray[Any], y: NDArray[Any], note: Callable[[], None]) -> Any:
        return libraries.lightgbm(n_trees, threads, classify).fit(X, y, callbacks=[lambda environment: note()])

    return {
        "dtrees": Staged(ours, lambda k: {"n_trees": k}),
        "XGBoost hist": Staged(xgboost, lambda k: {"iteration_range": (0, k)}),
        "LightGBM": Staged(lightgbm, lambda k: {"num_iteration": k}),
    }


@benchmark("loss")
def same_loss(run: Run) -> Iterator[Row]:
    """Time to the same held-out loss, real tables and synthetic ones of 1M rows: XGBoost hist, LightGBM."""
    for name, table, classify in _tables(run):
        yield from _compare(run, name, table, classify)


def _tables(run: Run) -> Iterator[tuple[str, TrainTest, bool]]:
    housing, incomes = california(run.data), adult(run.data)
    if housing is None or incomes is None:
        run.skip("the loss on California housing and Adult, which are not at hand (--data)")
    elif run.scale == "tiny":
        yield "California", hold_out(housing[0][::50], housing[1][::50]), False
    else:
        yield "California", hold_out(*housing), False
        yield "Adult", incomes, True
    n = run.size(tiny=300, small=20_000, full=1_000_000)
    for classify in (False, True):
        kind = "classification" if classify else "regression"
        yield f"synthetic {kind}, {n:,} rows", hold_out(*synthetic(n, classify), fraction=0.1), classify


def _compare(run: Run, name: str, table: TrainTest, classify: bool) -> Iterator[Row]:
    n_trees = run.size(tiny=2 * _EVERY, small=50, full=200)
    rounds = range(_EVERY, n_trees + 1, _EVERY)
    contenders = run.installed(contenders_of(n_trees, run.threads, classify))
    times: dict[str, list[NDArray[np.float64]]] = {contender: [] for contender in contenders}
    losses: dict[str, list[float]] = {}
    for contender, boosting in contenders.items():  # the warm-up: losses are the same in every turn
        model, _ = boosting.trace(table.X, table.y)
        losses[contender] = [loss(table.y_test, _predicted(model, table.X_test, classify, boosting.first(k)), classify) for k in rounds]
    for _ in range(run.repeats):
        for contender, boosting in contenders.items():
            time.sleep(run.size(tiny=0.0, small=PAUSE, full=PAUSE))
            times[contender].append(boosting.trace(table.X, table.y)[1][_EVERY - 1 :: _EVERY])
    common = max(min(values) for values in losses.values())  # the best loss that all of them reach
    measures = {
        contender: summary([float(turn[first_below(losses[contender], common)]) for turn in turns]) for contender, turns in times.items()
    }
    yield from run.rows(f"{name}: {'log loss' if classify else 'squared error'} of {common:.4g}", measures)


def _predicted(model: Any, X: NDArray[Any], classify: bool, first: dict[str, Any]) -> NDArray[Any]:
    """Return numbers, or probabilities of the second class."""
    return np.asarray(model.predict_proba(X, **first)[:, 1] if classify else model.predict(X, **first))


def first_below(values: Sequence[float], bound: float) -> int:
    """Return the index of the first value that is not above a bound."""
    return next(i for i, value in enumerate(values) if value <= bound)
