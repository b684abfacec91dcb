"""The drawings of docs/how_it_works.md: ``python docs/images/drawings.py`` writes them beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch, Rectangle

FOLDER = Path(__file__).parent
BLUE, ORANGE, GREY, PALE = "#2463a8", "#d9730d", "#666666", "#e8eef6"
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dtrees", "font.family": "sans-serif", "font.size": 10})


def zones() -> Any:
    """Draw the score of every split of a column, the bounds of its zones, and which of them are scanned."""
    random = np.random.default_rng(7)
    n, n_zones = 4800, 24
    x = np.sort(random.normal(size=n))
    g = np.tanh(3 * (x - 0.35)) + random.normal(scale=1.6, size=n)
    g -= g.mean()
    left, count = np.cumsum(g)[:-1], np.arange(1, n)
    score = left**2 / count + left**2 / (n - count)
    edges = np.linspace(0, n, n_zones + 1).astype(int)
    inner = edges[1:-1] - 1
    bar = score[inner].max()
    figure, axis = plt.subplots(figsize=(8.4, 3.9))
    for k in range(n_zones):
        start, stop = edges[k], edges[k + 1]
        before = left[start - 1] if start else 0.0
        total, size = g[start:stop].sum(), np.abs(g[start:stop]).sum()
        ends = before - (size - total) / 2, before + (size + total) / 2
        # At the two ends of the column, k rows cannot add up to more than k times the largest gradient.
        counts = max(start, 1), min(stop, n - 1)
        corners = [min(abs(s), np.abs(g).max() * min(c, n - c)) ** 2 * (1 / c + 1 / (n - c)) for s in ends for c in counts]
        bound = max(corners)
        flagged = bound >= bar
        axis.add_patch(
            Rectangle((start, 0), stop - start, bound, facecolor="#fbe3cd" if flagged else PALE, edgecolor="white", linewidth=0.8, zorder=1)
        )
    axis.plot(count, score, color=BLUE, linewidth=1.2, zorder=3, label="score of each split")
    axis.plot(edges[1:-1], score[inner], "o", color=BLUE, markersize=3.5, zorder=4, label="scores at the edges of zones, known from sums")
    axis.axhline(bar, color=ORANGE, linewidth=1.2, linestyle="--", zorder=2, label="the bar: the best score at an edge")
    axis.plot([], [], "s", color="#fbe3cd", markersize=9, label="zone whose bound reaches the bar: scanned")
    axis.plot([], [], "s", color=PALE, markersize=9, label="zone whose bound is below the bar: skipped")
    axis.set(xlim=(0, n), ylim=(0, None), xlabel="rows of the node, in the order of the column's values", ylabel="score of a split")
    axis.legend(frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _box(axis: Any, x: float, y: float, width: float, text: str, color: str = PALE) -> None:
    axis.add_patch(
        FancyBboxPatch(
            (x, y), width, 0.7, boxstyle="round,pad=0.02,rounding_size=0.08", facecolor=color, edgecolor=GREY, linewidth=0.8, zorder=3
        )
    )
    axis.text(x + width / 2, y + 0.35, text, ha="center", va="center", fontsize=9, zorder=4)


def _arrow(axis: Any, start: tuple[float, float], stop: tuple[float, float], color: str = BLUE) -> None:
    axis.annotate("", xy=stop, xytext=start, arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.2})


def level() -> Any:
    """Draw the exchanges of a level of a tree over two workers, by columns and by rows."""
    figure, axes = plt.subplots(1, 2, figsize=(11.4, 4.9))
    by_columns = [
        ("boxes", "search columns a, b", "search columns c, d"),
        ("both ways", "best split of each node"),
        ("together", "both choose alike: column c wins"),
        ("back", "a bit for each row: left or right"),
        ("together", "both divide all rows; next level"),
    ]
    by_rows = [
        ("boxes", "sum own rows by zones", "sum own rows by zones"),
        ("both ways", "sums, to the searcher of the column"),
        ("boxes", "a, b: edges, bounds", "c, d: edges, bounds"),
        ("both ways", "bar, flagged parts, rows in these"),
        ("boxes", "scan flagged parts", "scan flagged parts"),
        ("both ways", "best split of each node"),
        ("together", "both choose alike: c wins; each divides its own rows"),
    ]
    _exchanges(axes[0], "sharded: by columns", ("worker 1\nall rows of a, b", "worker 2\nall rows of c, d"), by_columns, step=1.7)
    _exchanges(axes[1], "rows: by rows", ("worker 1\nhalf of the rows", "worker 2\nhalf of the rows"), by_rows, step=1.15)
    figure.subplots_adjust(wspace=0.06)
    return figure


def _exchanges(axis: Any, title: str, workers: tuple[str, str], steps: list[tuple[str, ...]], step: float) -> None:
    """Draw what two workers do, from top to bottom, and what they send to each other."""
    axis.set(xlim=(0, 10), ylim=(-0.3, 10.4))
    axis.axis("off")
    axis.text(5, 10.2, title, ha="center", va="center", fontsize=11, fontweight="bold", color=BLUE)
    left, right = 2.2, 7.8
    for x, name in zip((left, right), workers, strict=True):
        axis.text(x, 9.25, name, ha="center", va="center", fontsize=9.5, fontweight="bold")
        axis.plot([x, x], [0, 8.7], color=GREY, linewidth=0.8)
    y = 7.9
    for kind, *texts in steps:
        if kind == "boxes":
            for x, text in zip((left, right), texts, strict=True):
                _box(axis, x - 2.1, y, 4.2, text)
        elif kind == "together":
            _box(axis, 0.1, y, 9.8, texts[0])
        else:
            if kind == "both ways":
                _arrow(axis, (left, y + 0.3), (right, y + 0.3))
            _arrow(axis, (right, y + 0.1), (left, y + 0.1), BLUE if kind == "both ways" else ORANGE)
            axis.text(5, y + 0.4, texts[0], ha="center", va="bottom", fontsize=8.5, color=BLUE if kind == "both ways" else ORANGE)
        y -= step


def recovery() -> Any:
    """Draw what happens to a fit when a worker is lost in the middle of a tree."""
    figure, axis = plt.subplots(figsize=(10.2, 3.3))
    axis.set(xlim=(-1.6, 13.4), ylim=(0, 4.6))
    axis.axis("off")
    rows = {"worker 1": 3.4, "worker 2": 2.3, "worker 3": 1.2}
    for name, y in rows.items():
        axis.text(-0.2, y + 0.35, name, ha="right", va="center", fontsize=9.5)
        for x, tree in ((0.0, "tree 41"), (2.0, "tree 42")):
            _box(axis, x, y, 1.8, tree)
    for y in (3.4, 1.2):
        _box(axis, 4.0, y, 1.1, "tree 43")
    axis.add_patch(Rectangle((4.0, 2.3), 0.6, 0.7, facecolor="#fbe3cd", edgecolor=ORANGE, hatch="////", linewidth=0.8))
    axis.text(4.68, 2.62, "lost", color=ORANGE, fontsize=9, fontweight="bold", va="center")
    axis.plot([5.25, 5.25], [0.6, 4.3], color=ORANGE, linewidth=1.0, linestyle="--")
    axis.text(5.3, 0.75, "new epoch: messages of earlier ones are refused", color=ORANGE, fontsize=8.5)
    _box(axis, 5.4, 3.4, 3.4, "sends state of the rows")
    _box(axis, 5.4, 1.2, 3.4, "loads lost columns again")
    _arrow(axis, (7.15, 3.3), (7.15, 2.0))
    for x, tree in ((8.9, "tree 43 again"), (11.2, "tree 44")):
        for y in (3.4, 1.2):
            _box(axis, x, y, 2.1, tree)
    axis.text(11.1, 2.65, "a restarted worker takes\nthese columns over between trees", ha="center", va="center", fontsize=8.5, color=GREY)
    return figure


if __name__ == "__main__":
    for draw in (zones, level, recovery):
        figure = draw()
        figure.savefig(FOLDER / f"{draw.__name__}.svg", bbox_inches="tight", metadata={"Date": None}, facecolor="white")
        plt.close(figure)
