"""Time to the same held-out loss, not to the same number of trees."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks import staged
from benchmarks.data import TrainTest, adult, california, hold_out, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Row
from benchmarks.run import Run
from benchmarks.timing import PAUSE, summary

#: Losses are computed every this many rounds.
_EVERY = 5


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
    contenders = run.installed(staged.contenders(n_trees, run.threads, classify))
    times: dict[str, list[NDArray[np.float64]]] = {contender: [] for contender in contenders}
    losses: dict[str, list[float]] = {}
    for contender, boosting in contenders.items():  # the warm-up: losses are the same in every turn
        model, _ = boosting.trace(table.X, table.y)
        losses[contender] = [staged.loss(table.y_test, p, classify) for p in boosting.predict(model, table.X_test, rounds)]
    for _ in range(run.repeats):
        for contender, boosting in contenders.items():
            time.sleep(run.size(tiny=0.0, small=PAUSE, full=PAUSE))
            times[contender].append(boosting.trace(table.X, table.y)[1][_EVERY - 1 :: _EVERY])
    common = max(min(values) for values in losses.values())  # the best loss that all of them reach
    measures = {
        contender: summary([float(turn[first_below(losses[contender], common)]) for turn in turns]) for contender, turns in times.items()
    }
    yield from run.rows(f"{name}: {'log loss' if classify else 'squared error'} of {common:.4g}", measures)


def first_below(values: Sequence[float], bound: float) -> int:
    """Return the index of the first value that is not above a bound."""
    return next(i for i, value in enumerate(values) if value <= bound)
