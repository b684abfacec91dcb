"""The list of benchmarks, and one run of them: scale, repetitions, threads, and shared helpers."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import TrainTest, adult, california, hold_out, synthetic
from benchmarks.libraries import is_installed
from benchmarks.results import Measure, Row
from benchmarks.timing import PAUSE, interleave
from dtrees.split.compile.helper import helper_runs

T = TypeVar("T")
#: Creates an unfitted estimator.
Maker = Callable[[], Any]
OURS = "dtrees"
#: Rows of the warm-up of peers: enough to start their threads.
_WARM_UP_ROWS = 2000
#: Most seconds to wait for the helper that compiles kernels.
_MOST_SECONDS = 300.0


@dataclass
class Run:
    """Scale, repetitions and threads of a run, and helpers of all benchmarks.

    Attributes
    ----------
    scale : {"tiny", "small", "full"}
    repeats : int
        Number of turns of each contender.
    threads : int
        Threads of dtrees and of peers, unless a benchmark sets them.
    data : Path or None
        The folder of real tables.
    say : callable
        Called with messages about skipped work.
    """

    scale: str
    repeats: int
    threads: int
    data: Path | None = None
    say: Callable[[str], None] = print
    _said: set[str] = field(default_factory=set)

    def size(self, *, tiny: T, small: T, full: T) -> T:
        """Return the value for the run's scale."""
        return {"tiny": tiny, "small": small, "full": full}[self.scale]

    def skip(self, text: str) -> None:
        """Report something that is skipped, once."""
        if text not in self._said:
            self._said.add(text)
            self.say(f"skipped: {text}")

    def installed(self, contenders: Mapping[str, T]) -> dict[str, T]:
        """Return the contenders whose library is installed, and report the others."""
        found = {}
        for name, contender in contenders.items():
            if is_installed(name):
                found[name] = contender
            else:
                self.skip(f"{name} is not installed")
        return found

    def measure(self, contenders: Mapping[str, Callable[[], Any]]) -> dict[str, Measure]:
        """Time contenders in turns."""
        if self.scale == "tiny":
            return interleave(contenders, self.repeats, pause=0.0, shortest=0.0)
        return interleave(contenders, self.repeats, pause=PAUSE)

    def compare(self, work: str, contenders: Mapping[str, Callable[[], Any]]) -> Iterator[Row]:
        """Time contenders of installed libraries, including dtrees, all warmed up, and yield a row for each peer."""
        yield from self.rows(work, self.measure(contenders))

    def rows(self, work: str, measures: Mapping[str, Measure]) -> Iterator[Row]:
        """Yield a row with each peer's and dtrees' measure."""
        peers = [name for name in measures if name != OURS]
        for name in peers:
            yield Row(work, measures[OURS], name, measures[name])
        if not peers:
            yield Row(work, measures[OURS])

    def fits(self, work: str, X: Any, y: NDArray[Any], makers: Mapping[str, Maker]) -> Iterator[Row]:
        """Compare complete fits from the user's arrays, after one fit that is not counted.

        That warm-up of dtrees is a fit of the whole table, to compile kernels; that of peers a fit of a part. The helper process that
        compiles the kernels for later fits has ended when the turns begin.
        """
        makers = self.installed(makers)
        for name, make in makers.items():
            n = X.shape[0] if name == OURS else _WARM_UP_ROWS
            make().fit(X[:n], y[:n])
        wait_for_kernels()
        yield from self.compare(work, {name: lambda make=make: make().fit(X, y) for name, make in makers.items()})

    def prices_and_incomes(self) -> tuple[TrainTest, TrainTest]:
        """Return California housing, in units of 100,000, and Adult; synthetic ones where these are not available or should be tiny."""
        housing, incomes = california(self.data), adult(self.data)
        if housing is None or incomes is None or self.scale == "tiny":
            X, y = synthetic(self.size(tiny=300, small=5_000, full=20_000), n_columns=14)
            return hold_out(X, np.exp(y / 4)), hold_out(X, (y > 0).astype(np.int64))
        return hold_out(housing[0], housing[1] / 100_000), incomes

    def losses(self, work: str, table: TrainTest, makers: Mapping[str, Maker], metric: Callable[[Any, Any], float]) -> Iterator[Row]:
        """Compare losses on held-out rows, of probabilities if available."""
        measures = {}
        for name, make in self.installed(makers).items():
            model = make().fit(table.X, table.y)
            predicted = np.asarray(getattr(model, "predict_proba", model.predict)(table.X_test))
            measures[name] = Measure(metric(table.y_test, predicted), unit="")
        yield from self.rows(work, measures)


def wait_for_kernels() -> None:
    """Wait until the helper process that compiles kernels after a first fit, on this machine, has ended."""
    deadline = time.monotonic() + _MOST_SECONDS
    while helper_runs() and time.monotonic() < deadline:
        time.sleep(0.1)


@dataclass(frozen=True)
class Benchmark:
    """A registered benchmark; its text is the first line of the function's docstring."""

    name: str
    text: str
    run: Callable[[Run], Iterator[Row]]


_BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str) -> Callable[[Callable[[Run], Iterator[Row]]], Callable[[Run], Iterator[Row]]]:
    """Register a function of a :class:`~benchmarks.run.Run` that yields rows."""

    def register(function: Callable[[Run], Iterator[Row]]) -> Callable[[Run], Iterator[Row]]:
        assert name not in _BENCHMARKS, name
        _BENCHMARKS[name] = Benchmark(name, (function.__doc__ or "").splitlines()[0], function)
        return function

    return register


def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks by name."""
    from benchmarks import works

    for module in pkgutil.iter_modules(works.__path__):
        importlib.import_module(f"benchmarks.works.{module.name}")
    return dict(_BENCHMARKS)
