"""What benchmarks yield, and the list of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.run import Run


@dataclass(frozen=True)
class Measure:
    """A median of several measurements.

    Attributes
    ----------
    median : float
    spread : float
        Half the distance between the smallest and the largest.
    n : int
        Number of measurements.
    unit : str
    """

    median: float
    spread: float = 0.0
    n: int = 1
    unit: str = "s"

    def __str__(self) -> str:
        digits = f"{self.median:.3g}" if abs(self.median) < 1000 else f"{self.median:,.0f}"
        spread = f" ±{100 * self.spread / abs(self.median):.0f}%" if self.n > 1 and self.median else ""
        return digits + spread + ("" if self.unit == "s" else f" {self.unit}")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes
    ----------
    work, peer : str
    theirs, ours : Measure or None
    ratio : float or None
        Theirs over ours.
    target : str
        What is wanted of the ratio (or of ours, where there is no peer); empty if nothing is.
    met : bool or None
        None without a target.
    """

    work: str
    peer: str
    theirs: Measure | None
    ours: Measure | None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None

    @classmethod
    def of(cls, work: str, peer: str, theirs: Measure, ours: Measure, at_least: float | None = None) -> Row:
        """Return the row of a ratio and the least it should be."""
        ratio = theirs.median / ours.median if ours.median > 0 else float("inf")
        met = None if at_least is None else ratio >= at_least
        return cls(work, peer, theirs, ours, ratio, "" if at_least is None else f"≥ {at_least:.3g}", met)


@dataclass(frozen=True)
class Point:
    """One point of a plot with logarithmic axes: ``figure`` is its title, ``series`` the line it is on."""

    figure: str
    series: str
    x: float
    y: float
    x_label: str = "rows"
    y_label: str = "seconds"


Yielded = Row | Point


@dataclass(frozen=True)
class Benchmark:
    """A registered benchmark; its text is the first line of the function's docstring."""

    name: str
    text: str
    run: Callable[[Run], Iterator[Yielded]]


_BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str) -> Callable[[Callable[[Run], Iterator[Yielded]]], Callable[[Run], Iterator[Yielded]]]:
    """Register a function of a :class:`~benchmarks.run.Run` that yields rows and points."""

    def register(function: Callable[[Run], Iterator[Yielded]]) -> Callable[[Run], Iterator[Yielded]]:
        assert name not in _BENCHMARKS, name
        _BENCHMARKS[name] = Benchmark(name, (function.__doc__ or "").splitlines()[0], function)
        return function

    return register


#: The order of the table: what targets are stated for first. Files that are not listed follow.
_ORDER = ("boosting", "trees", "forests", "small_tables", "prediction", "memory", "growth", "losses", "worst_cases")


def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks by name, in the order of the table."""
    from benchmarks import works

    found = [module.name for module in pkgutil.iter_modules(works.__path__)]
    for name in [*_ORDER, *sorted(set(found) - set(_ORDER))]:
        importlib.import_module(f"benchmarks.works.{name}")
    return dict(_BENCHMARKS)
