"""The README's picture, time against rows beside other libraries: ``python -m benchmarks.picture docs/images/boosting.svg``.

The times are kept beside the picture, in a file of the same name that ends in ``.json``. The picture can be drawn again from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.machine import describe, n_cores
from benchmarks.run import Run

_SIZES = {
    "tiny": (200, 400),
    "small": (1_000, 3_000, 10_000, 30_000),
    "full": (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
}
_N_TREES = {"tiny": 2, "small": 100, "full": 100}


class Point(NamedTuple):
    """The median time of a library on a table."""

    series: str
    rows: int
    seconds: float


def measure(run: Run, longest: float) -> Iterator[Point]:
    """Yield the seconds of boosting on larger and larger tables; who took longer than ``longest`` is left out from then on."""
    n_trees, sizes = _N_TREES[run.scale], _SIZES[run.scale]
    makers = libraries.boosting(n_trees, run.threads)
    makers["XGBoost exact"] = lambda: libraries.xgboost(n_trees, run.threads, "exact")
    makers["scikit-learn, 1 core"] = lambda: libraries.sklearn_boosting(n_trees)
    X, y = synthetic(sizes[-1])
    for n in sizes:
        for name, one in run.measure_fits(X[:n], y[:n], makers).items():
            yield Point(name, n, one.median)
            if one.median > longest:
                del makers[name]


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--again", is_flag=True, help="Draw from the times beside PATH; measure nothing.")
@click.option("--scale", type=click.Choice(list(_SIZES)), default="full", show_default=True, help="Sizes of the tables.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Timed turns of each library.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads; all cores by default.")
@click.option("--longest", type=float, default=30.0, show_default=True, help="Seconds beyond which a library gets no larger table.")
def main(path: Path, again: bool, scale: str, repeats: int, threads: int | None, longest: float) -> None:
    """Measure boosting on tables of different length, beside other libraries, and draw it to PATH (.svg or .png)."""
    times = path.with_suffix(".json")
    if again:
        kept = json.loads(times.read_text(encoding="utf-8"))
        title, points = kept["title"], [Point(*point) for point in kept["points"]]
    else:
        run = Run(scale, repeats, threads or n_cores(), say=lambda text: click.echo(text, err=True))
        title = f"Gradient boosting, {_N_TREES[scale]} trees of depth 6, {N_COLUMNS} columns, {run.threads} cores"
        points = []
        for point in measure(run, longest):
            click.echo(f"{point.series}, {point.rows:,} rows: {point.seconds:.3g} s")
            points.append(point)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(map(json.dumps, points))
        heading = f'"machine": {json.dumps(describe(run.threads))}, "title": {json.dumps(title)}'
        times.write_text(f'{{{heading}, "points": [\n{lines}\n]}}\n', encoding="utf-8")
    draw(path, title, points)


def draw(path: Path, title: str, points: Sequence[Point]) -> None:
    """Draw seconds against rows, both logarithmic, to a file, PNG or SVG by its name."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for series in dict.fromkeys(point.series for point in points):
        line = sorted((point.rows, point.seconds) for point in points if point.series == series)
        axes.plot(*zip(*line, strict=True), marker="o", markersize=4, label=series, linewidth=2.5 if series == "dtrees" else 1.2)
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds", title=title)
    for axis in (axes.xaxis, axes.yaxis):  # plain numbers at 1, 2, 5 and so on
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    axes.legend()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dtrees"}):  # text as text, and the same file for the same figures
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


if __name__ == "__main__":
    main()
