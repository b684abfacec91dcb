"""Plots of a run, by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Point, Row, Yielded


def draw(folder: Path, results: Sequence[tuple[str, Yielded]]) -> list[Path]:
    """Draw each figure of the points, and the ratios of the rows; return the files.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    points = [result for _, result in results if isinstance(result, Point)]
    paths = [
        _lines(folder, title, [point for point in points if point.figure == title]) for title in dict.fromkeys(p.figure for p in points)
    ]
    rows = [result for _, result in results if isinstance(result, Row) and result.ratio is not None and result.peer]
    if rows:
        paths.append(_ratios(folder, rows))
    return paths


def _lines(folder: Path, title: str, points: Sequence[Point]) -> Path:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for series in dict.fromkeys(point.series for point in points):
        line = sorted((point.x, point.y) for point in points if point.series == series)
        ours = series.startswith("dtrees")
        axes.plot(*zip(*line, strict=True), marker="o", markersize=4, label=series, linewidth=2.5 if ours else 1.2)
    axes.set(xscale="log", yscale="log", xlabel=points[0].x_label, ylabel=points[0].y_label, title=title)
    _label(axes.xaxis)
    _label(axes.yaxis)
    axes.grid(alpha=0.3)
    axes.legend()
    return _save(figure, folder, title)


def _ratios(folder: Path, rows: Sequence[Row]) -> Path:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.28 * len(rows)), layout="constrained")
    colours = [{True: "tab:green", False: "tab:red", None: "tab:gray"}[row.met] for row in rows]
    axes.barh(range(len(rows)), [(row.ratio or 0.0) - 1.0 for row in rows], left=1.0, color=colours)
    axes.set_yticks(range(len(rows)), [f"{row.work}: {row.peer}" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="peer / dtrees; green: target met, red: missed")
    _label(axes.xaxis)
    axes.grid(alpha=0.3, axis="x")
    return _save(figure, folder, "ratios")


def _label(axis: Any) -> None:
    """Write plain numbers at 1, 2, 5 and so on."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _save(figure: Any, folder: Path, title: str) -> Path:
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"\W+", "_", title).strip("_").lower() + ".png")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
