"""The README's picture, time against rows beside other libraries: ``python -m benchmarks.picture docs/images/boosting.svg``.

The times are kept beside the picture, in a file of the same name that ends in ``.json``. The picture can be drawn again from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from benchmarks import libraries, plots
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.machine import describe, n_cores
from benchmarks.results import Point
from benchmarks.run import Run

_SIZES = {
    "tiny": (200, 400),
    "small": (1_000, 3_000, 10_000, 30_000),
    "full": (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
}
_N_TREES = {"tiny": 2, "small": 100, "full": 100}
_SKLEARN = "scikit-learn, 1 core"


def measure(run: Run, longest: float) -> Iterator[Point]:
    """Yield the seconds of boosting on larger and larger tables; who took longer than ``longest`` is left out from then on."""
    n_trees, sizes = _N_TREES[run.scale], _SIZES[run.scale]
    title = f"Gradient boosting, {n_trees} trees of depth 6, {N_COLUMNS} columns, {run.threads} cores"
    makers = {**libraries.boosting(n_trees, run.threads), _SKLEARN: lambda: libraries.sklearn_boosting(n_trees)}
    X, y = synthetic(sizes[-1])
    for n in sizes:
        for name, one in run.measure_fits(X[:n], y[:n], makers).items():
            yield Point(title, name, n, one.median)
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
        points = [Point(**point) for point in json.loads(times.read_text(encoding="utf-8"))["points"]]
    else:
        run = Run(scale, repeats, threads or n_cores(), say=lambda text: click.echo(text, err=True))
        points = []
        for point in measure(run, longest):
            click.echo(f"{point.series}, {point.x:,} rows: {point.y:.3g} s")
            points.append(point)
        _keep(times, describe(run.threads), points)
    plots.draw_lines(path, points)


def _keep(path: Path, machine: str, points: Sequence[Point]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(vars(point)) for point in points)
    path.write_text(f'{{"machine": {json.dumps(machine)}, "points": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
