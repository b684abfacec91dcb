"""Time fits beside those of other libraries and print a Markdown table.

Contenders take turns, after one fit each that is not counted; the table has medians and the ratio of each peer's to dtrees'.
"""

from __future__ import annotations

import os
import platform
import statistics
import time

import click

from benchmarks.fits import N_COLUMNS, N_ROWS, synthetic, works


@click.command()
@click.option("--rows", default=N_ROWS, show_default=True, help="Rows of the synthetic table.")
@click.option("--repeats", default=3, show_default=True, help="Timed fits of each contender.")
@click.option("--only", default="", help="Run only comparisons whose name contains this.")
def main(rows: int, repeats: int, only: str) -> None:
    """Compare the time of fits."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    click.echo(f"{rows:,} x {N_COLUMNS} float32, {cores} cores, {platform.machine()}, Python {platform.python_version()}\n")
    click.echo("| fit | threads | library | seconds | its time / dtrees' |\n|---|---|---|---|---|")
    for work in works():
        if only not in work.name:
            continue
        X, y = synthetic(rows, work.classify)
        threads = work.threads or cores
        seconds: dict[str, list[float]] = {name: [] for name in work.contenders}
        for repeat in range(repeats + 1):
            for name, make in work.contenders.items():
                began = time.perf_counter()
                make(threads).fit(X, y)
                if repeat:
                    seconds[name].append(time.perf_counter() - began)
        ours = statistics.median(seconds["dtrees"])
        for name, times in seconds.items():
            median = statistics.median(times)
            click.echo(f"| {work.name} | {threads} | {name} | {median:.2f} | {median / ours:.2f} |")


if __name__ == "__main__":
    main()
