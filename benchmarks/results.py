"""Results of benchmarks: measures, rows of a table, and the JSON files that store them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Units that times are printed in.
_SMALLER = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True)
class Measure:
    """The summary of several measurements.

    Attributes
    ----------
    value : float
        The least of the times of several turns, as other work on the machine only adds to them; for other measurements the median.
    spread : float
        Half the distance between the smallest and the largest.
    n : int
        Number of measurements.
    unit : str
    """

    value: float
    spread: float = 0.0
    n: int = 1
    unit: str = "s"

    def __str__(self) -> str:
        """Return three digits and the unit.

        >>> str(Measure(0.00594)), str(Measure(2.0)), str(Measure(1234.5, unit="bytes a row"))
        ('5.94 ms', '2 s', '1,234 bytes a row')
        """
        scale, unit = next((one for one in _SMALLER if self.value >= 0.1 * one[0]), _SMALLER[-1]) if self.unit == "s" else (1.0, self.unit)
        value = self.value / scale
        return f"{value:.3g} {unit}".rstrip() if abs(value) < 1000 else f"{value:,.0f} {unit}".rstrip()


@dataclass(frozen=True)
class Row:
    """One row of a table: a work with dtrees, and with a peer, if there is one.

    Attributes
    ----------
    work : str
    ours : Measure
    peer : str
    theirs : Measure or None
    note : str
    """

    work: str
    ours: Measure
    peer: str = ""
    theirs: Measure | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The peer's value divided by dtrees'."""
        return None if self.theirs is None else self.theirs.value / max(self.ours.value, 1e-12)


@dataclass(frozen=True)
class Results:
    """The rows of a benchmark, and the lines that describe machine and versions."""

    machine: str
    rows: tuple[Row, ...]


HEADINGS = ("work", "peer", "peer's", "dtrees'", "ratio", "note")


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (headings, ["---"] * len(headings), *lines))


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, below :data:`HEADINGS`."""
    return row.work, row.peer, str(row.theirs or ""), str(row.ours), "" if row.ratio is None else f"{row.ratio:.2f}", row.note


def write(folder: Path, name: str, results: Results) -> None:
    """Write the results of a benchmark to ``NAME.json`` in a folder, a line for each row."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(dataclasses.asdict(row)) for row in results.rows)
    text = f'{{"machine": {json.dumps(results.machine)}, "rows": [\n{rows}\n]}}\n'
    (folder / f"{name}.json").write_text(text, encoding="utf-8")


def read(folder: Path) -> dict[str, Results]:
    """Return the results in a folder, by the name of the benchmark."""
    return {path.stem: _results(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))}


def _results(found: dict[str, Any]) -> Results:
    rows = [row | {side: row[side] and Measure(**row[side]) for side in ("ours", "theirs")} for row in found["rows"]]
    return Results(found["machine"], tuple(Row(**row) for row in rows))
