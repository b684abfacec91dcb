"""The picture of the README, time by rows: ``python -m benchmarks.picture benchmarks/measured docs/images/boosting.svg``.

It is drawn from the results of the benchmark ``boosting-sizes``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.data import N_COLUMNS
from benchmarks.results import Row, read
from benchmarks.run import OURS

_WORK = re.compile(rf"([\d,]+) x {N_COLUMNS}")


@click.command()
@click.argument("results", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def main(results: Path, path: Path) -> None:
    """Draw the time of boosting in RESULTS, a folder, to PATH (.svg or .png)."""
    draw(path, read(results)["boosting-sizes"].rows)


def lines(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Return seconds by the number of rows for each library, dtrees first, of works whose name is a shape only."""
    found: dict[str, dict[int, float]] = {OURS: {}}
    for row in rows:
        if (shape := _WORK.fullmatch(row.work)) and row.theirs is not None:
            n_rows = int(shape[1].replace(",", ""))
            found[OURS][n_rows] = row.ours.value
            found.setdefault(row.peer, {})[n_rows] = row.theirs.value
    return found


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw seconds by rows, both logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for series, line in lines(rows).items():
        axes.plot(
            *zip(*sorted(line.items()), strict=True), marker="o", markersize=4, label=series, linewidth=2.5 if series == OURS else 1.2
        )
    title = f"Gradient boosting, 100 trees of depth 6, {N_COLUMNS} columns, 2 cores"
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds", title=title)
    for axis, digits in ((axes.xaxis, (1,)), (axes.yaxis, (1, 2, 5))):  # tick labels without exponents
        axis.set_major_locator(LogLocator(subs=digits))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    axes.legend()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dtrees"}):  # text as text, and the same file for the same data
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


if __name__ == "__main__":
    main()
