"""The model of larger clusters (:mod:`benchmarks.model`): its costs measured, its predictions beside measurements of other sizes."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
from distributed import Client
from scipy.optimize import nnls

from benchmarks import libraries, model
from benchmarks.cluster import News, cluster, collections, news, placed
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.model import Cluster, Costs, Shape
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Point, Row, Yielded
from benchmarks.rows_model import boosting_by_rows
from benchmarks.run import Run
from benchmarks.works.clusters import grow_forest
from benchmarks.works.row_costs import calibrate_rows, messages_of, own_work, row_costs, talk

_N_TREES = 12
#: Columns of a wider table, which tells the cost of a cell from that of a row.
_WIDER = 3 * N_COLUMNS


@benchmark("model")
def models(run: Run) -> Iterator[Yielded]:
    """A model of clusters up to 400 workers and 10G rows: predicted beside measured, then predictions."""
    small, middle, large = run.size(tiny=(400, 600, 800), small=(20_000, 30_000, 50_000), full=(100_000, 400_000, 800_000))
    sizes = (2, 4) if run.threads >= 4 else (1, 2)
    trees, n_forest = run.size(tiny=4, small=20, full=40), run.size(tiny=300, small=5_000, full=20_000)
    told: dict[Shape, News] = {}
    by_rows: dict[Shape, News] = {}
    talks: dict[int, tuple[float, float]] = {}
    forests: dict[tuple[int, int], float] = {}
    for n_workers in sizes:
        with cluster(n_workers) as client:
            for size in ((small, N_COLUMNS), (middle, N_COLUMNS), (middle, _WIDER), (large, N_COLUMNS)):
                shape = Shape(*size, n_workers)
                told[shape], by_rows[shape] = _boost(client, shape)
            talks[n_workers] = talk(client)
            for n in (n_forest, 4 * n_forest):
                dX, dy = collections(client, *synthetic(n))
                grow_forest(client, dX, dy, n_workers)
                forests[n, n_workers] = grow_forest(client, dX, dy, trees)
    costs = calibrate({shape: one for shape, one in told.items() if shape.n_rows < large})
    in_turn = math.ceil(trees / sizes[0]) * n_forest * math.log2(n_forest) * N_COLUMNS / 3
    costs = dataclasses.replace(costs, forest_cell=forests[n_forest, sizes[0]] / in_turn)
    yield from _costs(costs)
    shapes = [Shape(*size, n) for size in ((small, N_COLUMNS), (middle, N_COLUMNS), (middle, _WIDER)) for n in (2, 4, 8)]
    by_rows_costs = calibrate_rows({shape: own_work(*shape, _N_TREES) for shape in shapes}, messages_of(talks))
    yield from row_costs(by_rows_costs)
    for n_workers in sizes:
        work = f"boosting, a tree of depth 6, {large:,} x {N_COLUMNS}, {n_workers} workers of a thread"
        # On one machine there is no link to wait for.
        predicted = model.boosting(costs, Cluster(n_workers, 1, bandwidth=math.inf), large, N_COLUMNS)
        yield _beside(work, predicted.seconds, _seconds(told[Shape(large, N_COLUMNS, n_workers)]))
        predicted = boosting_by_rows(by_rows_costs, Cluster(n_workers, 1, bandwidth=math.inf), large, N_COLUMNS)
        yield _beside(f"{work}, by rows", predicted.seconds, _seconds(by_rows[Shape(large, N_COLUMNS, n_workers)]))
        work = f"forest of {trees}, {4 * n_forest:,} x {N_COLUMNS}, {n_workers} workers of a thread"
        predicted = model.forest(costs, Cluster(n_workers, 1), 4 * n_forest, N_COLUMNS, trees)
        yield _beside(work, predicted.seconds, forests[4 * n_forest, n_workers])
    costs = dataclasses.replace(costs, speed_up=_speed_up(run, small))
    yield Row("speed-up of boosting by 4 threads of a process", "", None, Measure(costs.speed_up, unit="times"))
    for n_rows in model.ROWS:
        for n_workers in (4, 8, 16, 40, 100, 200, 400):
            predicted = model.boosting(costs, Cluster(n_workers), n_rows, 400)
            series = f"{model.short(n_rows)} rows" + (" (more than row numbers go)" if n_rows > model.MOST_ROWS else "")
            yield Point("a tree of boosting predicted, 400 columns, 10 Gbit a second", series, n_workers, predicted.seconds, "workers")


def _boost(client: Client, shape: Shape) -> tuple[News, News]:
    """Return what fits over columns and over rows tell."""
    X, y = collections(client, *synthetic(shape.n_rows, n_columns=shape.n_columns))
    told = []
    for placement in ("sharded", "rows"):
        with placed(placement):
            libraries.our_boosting(2, 1).fit(X, y)
            libraries.our_boosting(_N_TREES, 1).fit(X, y)
        told.append(news(client))
    return told[0], told[1]


def _work(told: News) -> float:
    """Return the seconds of the slowest workers' own work in a tree."""
    return statistics.median(tree["slowest"] for tree in told.trees())


def _seconds(told: News) -> float:
    return statistics.median(after["seconds"] - before["seconds"] for before, after in pairwise(told.rounds))


def calibrate(told: Mapping[Shape, News]) -> Costs:
    """Return what fits of trees of depth 6 say: of different rows and columns, and different workers.

    All that a tree takes beyond the slowest workers' own work, and of this what it takes for any table, is counted to its levels.
    """
    cells = np.array([[shape.n_rows, shape.n_rows * -(-shape.n_columns // shape.n_workers), 1.0] for shape in told])
    work = np.array([_work(one) for one in told.values()])
    (row, cell, fixed), _ = nnls(cells / work[:, None], np.ones_like(work))  # for relative errors to be small
    workers = np.array([[1.0, shape.n_workers] for shape in told])
    beyond = np.array([(_seconds(one) - _work(one)) / 6 for one in told.values()])
    (level, level_worker), _ = nnls(workers, beyond)
    return Costs(float(row), float(cell), float(level + fixed / 6), float(level_worker), 0.0)


def _costs(costs: Costs) -> Iterator[Row]:
    units = {"row": (1e9, "ns a row and tree"), "cell": (1e9, "ns a cell and tree"), "level": (1e3, "ms"), "level_worker": (1e3, "ms")}
    for name, (scale, unit) in {**units, "forest_cell": (1e9, "ns a cell tried")}.items():
        yield Row(f"model: {name}", "", None, Measure(scale * getattr(costs, name), unit=unit))


def _beside(work: str, predicted: float, measured: float) -> Row:
    return Row(work, "the model", Measure(predicted), Measure(measured), predicted / measured)


def _speed_up(run: Run, n: int) -> float:
    X, y = synthetic(n)
    fits = {str(threads): lambda threads=threads: libraries.our_boosting(_N_TREES, threads).fit(X, y) for threads in (1, 4)}
    for fit in fits.values():
        fit()
    measures = run.measure(fits)
    return measures["1"].median / measures["4"].median
