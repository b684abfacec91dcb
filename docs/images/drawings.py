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
    """Draw the score of every cut of a column, the bounds of its zones, and which of them are scanned."""
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
    axis.plot(count, score, color=BLUE, linewidth=1.2, zorder=3, label="score of each cut")
    axis.plot(edges[1:-1], score[inner], "o", color=BLUE, markersize=3.5, zorder=4, label="scores at edges of zones, known from sums")
    axis.axhline(bar, color=ORANGE, linewidth=1.2, linestyle="--", zorder=2, label="the bar: the best of these")
    axis.plot([], [], "s", color="#fbe3cd", markersize=9, label="zone whose bound reaches the bar: scanned")
    axis.plot([], [], "s", color=PALE, markersize=9, label="zone that cannot hold a better cut: skipped")
    axis.set(xlim=(0, n), ylim=(0, None), xlabel="rows of the node, in the order of the column", ylabel="score of a split")
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
    """Draw the exchange of a level of a tree whose columns are spread over workers."""
    figure, axis = plt.subplots(figsize=(8.4, 3.6))
    axis.set(xlim=(0, 12), ylim=(1.8, 8.2))
    axis.axis("off")
    lanes = {"coordinator": 1.6, "worker 1\ncolumns a, b": 5.6, "worker 2\ncolumns c, d": 10.0}
    for name, x in lanes.items():
        axis.text(x, 7.7, name, ha="center", va="center", fontsize=10, fontweight="bold")
        axis.plot([x, x], [1.9, 7.2], color=GREY, linewidth=0.8)
    first, second, third = lanes.values()
    _box(axis, second - 1.6, 6.3, 3.2, "search a, b in each node")
    _box(axis, third - 1.6, 6.3, 3.2, "search c, d in each node")
    _arrow(axis, (second, 6.2), (first, 5.6))
    _arrow(axis, (third, 6.2), (first, 5.5))
    axis.text(2.7, 6.3, "best splits,\na bit for each row", ha="center", fontsize=8.5, color=BLUE)
    _box(axis, first - 1.4, 4.6, 2.8, "choose: column c wins")
    _arrow(axis, (first, 4.5), (second, 3.4), ORANGE)
    _arrow(axis, (first, 4.4), (third, 3.4), ORANGE)
    axis.text(2.6, 3.15, "splits and bits", ha="center", fontsize=8.5, color=ORANGE)
    _box(axis, second - 1.6, 2.5, 3.2, "divide rows, search again")
    _box(axis, third - 1.6, 2.5, 3.2, "divide rows, search again")
    return figure


def recovery() -> Any:
    """Draw what happens to a fit when a worker is lost in the middle of a tree."""
    figure, axis = plt.subplots(figsize=(9.6, 3.3))
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
    axis.text(4.75, 2.62, "lost", color=ORANGE, fontsize=9.5, fontweight="bold", va="center")
    axis.plot([5.2, 5.2], [0.6, 4.3], color=ORANGE, linewidth=1.0, linestyle="--")
    axis.text(5.3, 0.75, "epoch + 1: older messages are refused", color=ORANGE, fontsize=8.5)
    _box(axis, 5.6, 3.4, 3.1, "sends its rows' state")
    _box(axis, 5.6, 1.2, 3.1, "loads the lost columns")
    _arrow(axis, (7.15, 3.3), (7.15, 2.0))
    for x, tree in ((8.9, "tree 43 anew"), (11.2, "tree 44")):
        for y in (3.4, 1.2):
            _box(axis, x, y, 2.1, tree)
    axis.text(11.1, 2.65, "a restarted worker takes\ncolumns over between trees", ha="center", va="center", fontsize=8.5, color=GREY)
    return figure


if __name__ == "__main__":
    for draw in (zones, level, recovery):
        figure = draw()
        figure.savefig(FOLDER / f"{draw.__name__}.svg", bbox_inches="tight", metadata={"Date": None}, facecolor="white")
        plt.close(figure)
