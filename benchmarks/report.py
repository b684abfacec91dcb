"""What a run leaves behind: a Markdown table, the figures as JSON, and plots."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.results import Point, Row, Yielded

_HEADINGS = ("work", "peer", "peer seconds", "dtrees seconds", "ratio", "target", "met")


def heading() -> str:
    """Return the first two lines of the table."""
    return _line(_HEADINGS) + "\n" + _line(["---"] * len(_HEADINGS))


def line(row: Row) -> str:
    """Return a row of the table."""
    return _line(
        [
            row.work,
            row.peer or "-",
            str(row.theirs or ""),
            str(row.ours or ""),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.target,
            "" if row.met is None else "yes" if row.met else "no",
        ]
    )


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def write(folder: Path, title: str, machine: str, results: Sequence[tuple[str, Yielded]]) -> None:
    """Write ``table.md`` and ``results.json``; results are pairs of a benchmark's name and what it yielded."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [result for _, result in results if isinstance(result, Row)]
    note = "Medians, with half the distance between the fastest and the slowest turn. The ratio is the peer's over dtrees'."
    table = "\n".join([heading(), *map(line, rows)])
    (folder / "table.md").write_text(f"{title}\n\n{machine}\n\n{note}\n\n{table}\n", encoding="utf-8")
    as_json = [
        {"benchmark": name, "kind": "point" if isinstance(result, Point) else "row", **dataclasses.asdict(result)}
        for name, result in results
    ]
    (folder / "results.json").write_text(json.dumps({"title": title, "machine": machine, "results": as_json}, indent=1), encoding="utf-8")
