"""Compare dtrees in this checkout with another one, in turns: ``python -m benchmarks.versions CHECKOUT``.

Each version runs in its own process, which stores its tables and compiles its kernels; the versions fit the same table one after the
other, so that other load of the machine affects both. The ratio is the other's median divided by this version's: below 1 this version is
slower. A process may be up to 5 % faster than another one of the same version, during its whole life. So both are restarted several
times, and the ratio is the median over restarts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import click

from benchmarks import results
from benchmarks.machine import describe

#: Works by name: the number of turns out of ten, and the expressions for the table and the timed call.
_WORKS = {
    "boosting, 100 trees, 100,000 x 28": (10, "table(100_000)", "GBR(n_estimators=100, n_jobs=2).fit(X, y)"),
    "boosting, 30 trees, 1,000,000 x 28": (3, "table(1_000_000)", "GBR(n_estimators=30, n_jobs=2).fit(X, y)"),
    "boosting of two classes, 50 trees, 100,000 x 28": (10, "labels(100_000)", "GBC(n_estimators=50, n_jobs=2).fit(X, y)"),
    "boosting, 100 trees, 20,000 x 8": (10, "table(20_000, 8)", "GBR(n_estimators=100, n_jobs=2).fit(X, y)"),
    "boosting, 50 trees, 1,000 x 8": (10, "table(1_000, 8)", "[GBR(n_estimators=50).fit(X, y) for _ in range(10)]"),
    "boosting, 50 trees, 150 x 4": (10, "table(150, 4)", "[GBR(n_estimators=50).fit(X, y) for _ in range(20)]"),
    "boosting, 31 leaves, 20 trees, 20,000 x 8": (5, "table(20_000, 8)", "GBR(n_estimators=20, max_leaf_nodes=31, n_jobs=2).fit(X, y)"),
    "tree of full depth, 100,000 x 28": (10, "table(100_000)", "Tree().fit(X, y)"),
    "tree of depth 6, 100,000 x 28": (10, "table(100_000)", "Tree(max_depth=6).fit(X, y)"),
    "tree by absolute error, depth 6, 30,000 x 28": (10, "table(30_000)", "Tree(max_depth=6, criterion='absolute_error').fit(X, y)"),
    "forest regression, 16 trees, 100,000 x 28": (5, "table(100_000)", "RFR(16, **third).fit(X, y)"),
    "forest regression, float64, 16 trees, 100,000 x 28": (5, "table(100_000, dtype='float64')", "RFR(16, **third).fit(X, y)"),
    "forest of two classes, 16 trees, 100,000 x 28": (5, "labels(100_000)", "RFC(16, n_jobs=2, random_state=0).fit(X, y)"),
    "forest of four classes, 16 trees, 100,000 x 28": (5, "labels(100_000, 4)", "RFC(16, n_jobs=2, random_state=0).fit(X, y)"),
    "forest by entropy, 8 trees, 100,000 x 28": (5, "labels(100_000)", "RFC(8, criterion='entropy', n_jobs=2, random_state=0).fit(X, y)"),
    "forest of 100, 150 x 4": (10, "labels(150, 3, 4)", "[RFC(100, random_state=0).fit(X, y) for _ in range(5)]"),
    "extra-trees regression, 16 trees, 100,000 x 28": (5, "table(100_000)", "ETR(16, n_jobs=2, random_state=0).fit(X, y)"),
    "extra-trees of two classes, 16 trees, 100,000 x 28": (5, "labels(100_000)", "ETC(16, n_jobs=2, random_state=0).fit(X, y)"),
    "forest on sparse columns, 8 trees, 100,000 x 28": (5, "sparse(100_000)", "RFR(8, **third).fit(X, y)"),
    "boosting on sparse columns, 50 trees, 100,000 x 28": (5, "sparse(100_000)", "GBR(n_estimators=50, n_jobs=2).fit(X, y)"),
    "prediction, boosting of 100, 1,000,000 rows": (10, "grown(GBR(n_estimators=100, n_jobs=2))", "model.predict(X)"),
    "prediction, forest of 8, 1,000,000 rows": (10, "grown(RFR(8, n_jobs=2, random_state=0))", "model.predict(X)"),
}

_SERVER = """
import sys, time
from functools import partial
import numpy as np
from dtrees import DecisionTreeRegressor as Tree, ExtraTreesClassifier as ETC, ExtraTreesRegressor as ETR
from dtrees import GradientBoostingClassifier, GradientBoostingRegressor
from dtrees import RandomForestClassifier as RFC, RandomForestRegressor as RFR

# Versions differ in their defaults, which would have them grow other trees.
explicit = dict(learning_rate=0.1, max_depth=6, min_samples_leaf=1, max_leaf_nodes=None, max_features=None, reg_lambda=1.0)
third = dict(max_features=1 / 3, n_jobs=2, random_state=0)
GBR, GBC = partial(GradientBoostingRegressor, **explicit), partial(GradientBoostingClassifier, **explicit)

def table(n, k=28, dtype="float32"):
    r = np.random.default_rng(0)
    X = r.normal(size=(n, k)).astype(dtype)
    y = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) + np.sin(3 * X[:, 3]) + 0.5 * r.normal(size=n)
    return X, y.astype("float64"), None

def labels(n, classes=2, k=28):
    X, y, _ = table(n, k)
    return X, np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)), None

def sparse(n):
    X, y, _ = table(n)
    X[np.random.default_rng(1).random(X.shape) < 0.9] = 0
    return X, y + X.sum(axis=1), None

def grown(model):
    X, y, _ = table(50_000)
    model.fit(X, y)
    return np.tile(X, (20, 1)), None, model

for line in sys.stdin:
    made, timed = line.rstrip("\\n").split("\\t")
    if made:
        X, y, model = eval(made)
    began = time.perf_counter()
    eval(timed)
    print("seconds", time.perf_counter() - began, flush=True)
"""


class _Version:
    """A process with one version."""

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(folder), "DTREES_HELPER": "0"}
        command = [sys.executable, "-P", "-c", _SERVER]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, timed: str, made: str = "") -> float:
        """Time an expression, after creating a table."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{made}\t{timed}\n")
        self._process.stdin.flush()
        while (line := self._process.stdout.readline()) and not line.startswith("seconds"):
            pass
        if not line:
            raise click.ClickException("one of the processes has ended")
        return float(line.split()[1])

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


@click.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", default="", help="Works with this in their name.")
@click.option("--turns", type=click.IntRange(1), default=10, show_default=True, help="Turns of the short works; long ones have fewer.")
@click.option("--starts", type=click.IntRange(1), default=3, show_default=True, help="How often both versions are started.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write the results to versions.json in this folder.")
def main(checkout: Path, only: str, turns: int, starts: int, out: Path | None) -> None:
    """Time this version and the one at CHECKOUT in turns."""
    folders = (checkout.resolve(), Path(__file__).parents[1])
    rows = []
    click.echo(results.table(results.HEADINGS, ()))
    for work, (share, made, timed) in _WORKS.items():
        if only not in work:
            continue
        found = [_medians(folders if start % 2 else folders[::-1], made, timed, max(1, share * turns // 10)) for start in range(starts)]
        before, now = ([medians[folder] for medians in found] for folder in folders)
        ratios = sorted(theirs / mine for theirs, mine in zip(before, now, strict=True))
        measures = (results.Measure(statistics.median(ratios) * statistics.median(now)), results.Measure(statistics.median(now)))
        rows.append(results.Row(work, measures[1], "before", measures[0], f"{ratios[0]:.2f} to {ratios[-1]:.2f}"))
        click.echo(f"| {' | '.join(results.cells(rows[-1]))} |")
        if out is not None:
            results.write(out, "versions", results.Results(describe(2).splitlines()[0], tuple(rows)))


def _medians(folders: tuple[Path, ...], made: str, timed: str, turns: int) -> dict[Path, float]:
    """Start the version in each folder, and return the median of its seconds."""
    versions = {folder: _Version(folder) for folder in folders}
    for version in versions.values():
        version.seconds(timed, made)  # compiles kernels, and fills caches
    seconds: dict[Path, list[float]] = {folder: [] for folder in folders}
    for turn in range(turns):
        for folder in folders[:: 1 if turn % 2 else -1]:
            seconds[folder].append(versions[folder].seconds(timed))
    for version in versions.values():
        version.end()
    return {folder: statistics.median(some) for folder, some in seconds.items()}


if __name__ == "__main__":
    main()
