"""The command ``python -m benchmarks``."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks import results
from benchmarks.data import DATA_VARIABLE, data_folder
from benchmarks.machine import describe, load_average, n_cores
from benchmarks.run import Run, benchmarks

#: Number of processes waiting for a core up to which a machine counts as idle.
_IDLE = 0.7


@click.command()
@click.argument("names", nargs=-1)
@click.option("--only", multiple=True, metavar="NAME", help="Run this benchmark (as often as you like); names may also just be listed.")
@click.option("--list", "listing", is_flag=True, help="List the names and stop.")
@click.option("--scale", type=click.Choice(["tiny", "small", "full"]), default="full", show_default=True, help="Sizes of the tables.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Timed turns of each contender.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads of dtrees and of peers; all cores by default.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Write the results of each benchmark to NAME.json in this folder."
)
@click.option("--data", envvar=DATA_VARIABLE, help=f"Folder of real tables [env: {DATA_VARIABLE}; default: ../shared/data].")
def main(
    names: tuple[str, ...],
    only: tuple[str, ...],
    listing: bool,
    scale: str,
    repeats: int,
    threads: int | None,
    out: Path | None,
    data: str | None,
) -> None:
    """Measure dtrees and other libraries: all benchmarks, or those named."""
    known = benchmarks()
    if listing:
        width = max(map(len, known))
        for name, one in known.items():
            click.echo(f"{name:{width}}  {one.text}")
        return
    wanted = [*names, *only]
    if unknown := sorted(set(wanted) - set(known)):
        raise click.UsageError(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(known)}")
    threads = threads or n_cores()
    run = Run(scale, repeats, threads, data_folder(data), lambda text: click.echo(text, err=True))
    if scale == "full" and (load := load_average()) > _IDLE:
        click.echo(f"The machine is busy (load {load:.1f}): figures will be off, peers' with OpenMP by a lot.", err=True)
    machine = describe(threads)
    click.echo(f"scale {scale}, up to {repeats} turns each\n\n{machine}\n\n{results.table(results.HEADINGS, ())}")
    for name in wanted or known:
        rows = []
        for row in known[name].run(run):
            rows.append(row)
            click.echo(f"| {' | '.join(results.cells(row))} |")
            if out is not None:  # after each benchmark: finished results remain if a later one is interrupted
                results.write(out, name, results.Results(machine, tuple(rows)))


if __name__ == "__main__":
    main()
