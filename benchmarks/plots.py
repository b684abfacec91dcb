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
    paths = []
    for title in dict.fromkeys(point.figure for point in points):
        paths.append(folder / _name(title))
        draw_lines(paths[-1], [point for point in points if point.figure == title])
    rows = [result for _, result in results if isinstance(result, Row) and result.ratio is not None and result.peer]
    if rows:
        paths.append(_ratios(folder, rows))
    return paths


def draw_lines(path: Path, points: Sequence[Point]) -> None:
    """Draw one figure of points to a file, PNG or SVG by its name.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for series in dict.fromkeys(point.series for point in points):
        line = sorted((point.x, point.y) for point in points if point.series == series)
        ours = series.startswith("dtrees")
        axes.plot(*zip(*line, strict=True), marker="o", markersize=4, label=series, linewidth=2.5 if ours else 1.2)
    axes.set(xscale="log", yscale="log", xlabel=points[0].x_label, ylabel=points[0].y_label, title=points[0].figure)
    _label(axes.xaxis)
    _label(axes.yaxis)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)


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
    path = folder / _name("ratios")
    _save(figure, path)
    return path


def _label(axis: Any) -> None:
    """Write plain numbers at 1, 2, 5 and so on."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _name(title: str) -> str:
    return re.sub(r"\W+", "_", title).strip("_").lower() + ".png"


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dtrees"}):  # text as text, and the same file for the same figures
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
