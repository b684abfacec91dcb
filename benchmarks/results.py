"""What benchmarks yield: medians, lines of the table, points of the plots."""

from __future__ import annotations

from dataclasses import dataclass


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
