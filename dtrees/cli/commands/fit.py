"""``dtrees fit``: from a table to a scored model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

import dtrees
from dtrees.cli import models, scores
from dtrees.cli.clusters import cluster
from dtrees.cli.data import target as targets
from dtrees.cli.data.output import HTML_SUFFIXES, check_destinations, check_suffix
from dtrees.cli.data.tables import (
    DEFAULT_FORM,
    CSVForm,
    check_columns,
    column_list,
    column_names,
    find_files,
    place_of,
    read_table,
    repeated_names,
)
from dtrees.cli.scores import as_document, classes_of, evaluate
from dtrees.cli.terminal.display import Display, plural
from dtrees.cli.terminal.errors import CommandError, describe
from dtrees.plots.charts import pyplot

_DEFAULT_TEST_SIZE = 0.2


@dataclass(frozen=True)
class FitOptions:
    """The options of the command, by their names there (``settings`` are those of ``--set``)."""

    data: str
    target: str
    model: str = "boosting"
    settings: Sequence[str] = ()
    seed: int = 0
    task: str = "auto"
    features: Sequence[str] = ()
    drop: Sequence[str] = ()
    test_size: float | None = None
    test: str | None = None
    validation: str | None = None
    checkpoint: str | None = None
    checkpoint_interval: float | None = None
    output: str | None = None
    report: str | None = None
    params: str | None = None
    as_json: bool = False
    form: CSVForm = DEFAULT_FORM
    scheduler: str | None = None
    n_workers: int | None = None
    threads_per_worker: int | None = None


def run(options: FitOptions, display: Display | None = None) -> None:
    """Carry out the command."""
    display = display or Display(as_json=options.as_json)
    parameters = _check(options)
    columns = None if options.scheduler else _check_files(options, None, display)
    with cluster(display, options.scheduler, options.n_workers, options.threads_per_worker) as client:
        elsewhere = client if options.scheduler else None
        columns = columns or _check_files(options, elsewhere, display)
        tables = _Tables(options, columns, elsewhere, display)
        frame, summary = tables.read(options.data)
        task, reason = targets.choose_task(summary, options.target, options.task)
        display.note(f"Task: {task} ({reason}).")
        if task == "classification" and (example := targets.number_as_text(summary.distinct)):
            display.warn(
                f"{options.target!r} looks like numbers, such as {example!r}, which makes {summary.count} classes. {targets.AS_NUMBERS}"
            )
        if summary.n_missing:
            display.warn(f"left out {summary.n_missing:,} of {summary.n_rows:,} rows, in which {options.target!r} is missing.")
        frame = targets.with_target(frame, options.target, task, summary)
        train, test = _train_and_test(options, tables, frame, task, summary)
        watched = _watched(options, tables, frame, task, summary)
        n_train, n_test = _count_rows(train, test)
        if n_train == 0 or (test is not None and n_test == 0):
            raise CommandError(f"{n_train:,} rows are for training and {n_test:,} for the test; give more data or another --test-size.")

        estimator = models.build(options.model, task, parameters, options.seed)
        display.note(f"{type(estimator).__name__} on {plural(n_train, 'row')} and {plural(len(columns), 'column')}.")
        _fit(estimator, train[columns], train[options.target], watched, options, display)
        found = {"estimator": type(estimator).__name__, "task": task, "target": options.target, "columns": columns, "n_train": n_train}
        if options.output:  # before scoring: if that fails, the work of the fit is not lost
            dtrees.save(estimator, options.output)
        if test is not None:
            with display.stage("Scoring"):
                trivial = scores.baseline(train[options.target], classes_of(estimator)[0])
                figures = evaluate(estimator, test, columns, {options.target: trivial}, client)[options.target]
            rows = plural(n_test, "held-out row") if options.test is None else f"{plural(n_test, 'row')} of {options.test}"
            display.scores(f"Score on {rows}", figures, trivial.describe())
            found |= {"n_test": n_test, "baseline": trivial.describe(), "scores": as_document(figures)}
        if options.report:
            _report(estimator, train if test is None else test, columns, options, display)
    if options.output:
        display.result(f"Model saved to {options.output}. Use it with: dtrees predict {options.output} DATA --output FILE")
    else:
        display.note("The model was not saved; --output MODEL does that.")
    display.document({**found, "model": options.output, "report": options.report})


def _report(estimator: Any, rows: Any, columns: list[str], options: FitOptions, display: Display) -> None:
    """Write the report, about the test rows or, without any, about those of the fit."""
    said = "of the fit" if options.test is None and options.test_size == 0 else f"of {options.test}" if options.test else "held out"
    with display.stage("Writing the report"):
        dtrees.report(
            estimator, rows[columns], rows[options.target], options.report, rows=f"{said}; target {options.target}", seed=options.seed
        )
    display.result(f"Report written to {options.report}")


def _check(options: FitOptions) -> dict[str, Any]:
    """Check all that can be checked before a cluster is started and files are looked at; return the parameters of the model."""
    if options.test is not None and options.test_size is not None:
        raise click.UsageError("--test and --test-size exclude each other: one gives the test data, the other draws it from DATA")
    if options.validation is not None and options.model != "boosting":
        raise click.UsageError(f"--validation is for --model boosting, which is trained round by round; --model is {options.model}")
    if options.checkpoint is not None and options.model == "tree":
        raise click.UsageError("--checkpoint is for models of several trees; --model is tree")
    if options.checkpoint is None and options.checkpoint_interval is not None:
        raise click.UsageError("--checkpoint-interval is for --checkpoint, which is not given")
    parameters = models.read_parameters(options.params, options.settings)
    if options.validation is None and "early_stopping_rounds" in parameters:
        raise click.UsageError("early_stopping_rounds stops by the scores on --validation DATA; or use -p n_iter_no_change=N")
    models.check_parameters(options.model, parameters)
    if options.report:
        check_suffix("--report", options.report, HTML_SUFFIXES, "a page of HTML")
        pyplot()
    return parameters


def _check_files(options: FitOptions, client: Any, display: Display) -> list[str]:
    """Check that files are there and have the columns that options name; return the columns to train on."""
    where = place_of(options.data, client)
    files = where(find_files, options.data)
    names = where(column_names, files, options.form)
    warn_of_repeated_names(where(repeated_names, files, options.form), options.data, display)
    columns = choose_features(names, options.target, options.features, options.drop, options.data)
    read = [*files.paths, *([options.params] if options.params else [])]
    for option, data in (("--test", options.test), ("--validation", options.validation)):
        if data is not None:
            where = place_of(data, client)
            more = where(find_files, data)
            read += more.paths
            check_columns([*columns, options.target], where(column_names, more, options.form), option, data)
    check_destinations({"--output": options.output, "--checkpoint": options.checkpoint, "--report": options.report}, read)
    return columns


def choose_features(names: Sequence[str], target: str, features: Sequence[str], drop: Sequence[str], data: str) -> list[str]:
    """Return the columns to train on, in the table's order."""
    check_columns([target], names, "--target", data)
    wanted, dropped = column_list(features), column_list(drop)
    check_columns(wanted, names, "--features", data)
    check_columns(dropped, names, "--drop", data)
    if target in wanted:
        raise CommandError(f"--features names the target {target!r}; a model that is given the answer learns nothing. Leave it out.")
    columns = [name for name in names if name != target and name not in dropped and (not wanted or name in wanted)]
    if not columns:
        raise CommandError(f"No columns are left to train on besides the target {target!r}; check --features and --drop.")
    return columns


def warn_of_repeated_names(repeated: Mapping[str, str], data: str, display: Display) -> None:
    """Mention CSV columns that are called otherwise here than in the file, where an earlier one has the same name."""
    for called, name in repeated.items():
        display.warn(f"{data!r} has several columns {name!r}; this one is called {called!r} here.")


class _Tables:
    """The tables of one command."""

    def __init__(self, options: FitOptions, columns: list[str], client: Any, display: Display) -> None:
        self._options, self._wanted, self._client, self._display = options, [*columns, options.target], client, display
        self.columns = columns

    def read(self, data: str, **kinds: Collection[str]) -> tuple[Any, targets.TargetSummary]:
        """Load a table into the cluster's memory, and see what its target is; ``kinds`` are options of :func:`read_table`."""
        options = self._options
        with self._display.stage(f"Reading {data}"):
            try:
                frame = place_of(data, self._client)(read_table, data, form=options.form, **kinds)[self._wanted].persist()
                return frame, targets.summarize(frame[options.target])
            except FileNotFoundError as error:
                if options.scheduler is None:
                    raise
                path = error.filename or data
                raise CommandError(
                    f"The workers of {options.scheduler} cannot read {path}; put the data where all of them find it under that path."
                ) from error
            except KeyError as error:  # of CSV files, the headers were compared already
                raise CommandError(f"Cannot read {data}: some of its files lack columns that the first has ({error.args[0]}).") from error
            except ValueError as error:
                raise CommandError(f"Cannot read {data}: {describe(error)}") from error

    def read_further(self, option: str, data: str, frame: Any, task: str, summary: targets.TargetSummary) -> Any:
        """Return the rows of another table than the one to train on, which an option names."""
        target = self._options.target
        # A column that is text in one of the tables is text in both, and one of numbers or flags is read as such.
        text = [name for name in self._wanted if str(frame.dtypes[name]).startswith("str")]
        rows, found = self.read(data, text=text, numbers=[name for name in self._wanted if name not in text])
        if found.kinds and (targets.TEXT in found.kinds) != (targets.TEXT in summary.kinds):
            raise CommandError(f"{option}: the target {target!r} holds text in one of the two tables and numbers in the other.")
        if found.n_missing:
            kind = option.removeprefix("--")
            self._display.warn(f"left out {found.n_missing:,} of {found.n_rows:,} {kind} rows, in which {target!r} is missing.")
        return targets.with_target(rows, target, task, targets.merge([summary, found]))


def _fit(estimator: Any, X: Any, y: Any, watched: dict[str, Any], options: FitOptions, display: Display) -> None:
    """Fit, and where a column stands in the way say how to leave it out."""
    from dtrees.cluster.growing.watching import local_callback

    more: dict[str, Any] = {} if not watched else {"eval_set": watched}
    if options.checkpoint is not None:
        more["checkpoint"] = options.checkpoint
        if options.checkpoint_interval is not None:
            more["checkpoint_interval"] = options.checkpoint_interval
    try:
        unit = "round" if options.model == "boosting" else "tree"
        with (
            display.training(unit, elsewhere=options.scheduler is not None) as progress,
            local_callback(progress, note=display.note) as callback,
        ):
            estimator.fit(X, y, callbacks=[callback], **more)
    except ValueError as error:
        if "X column" not in str(error):
            raise
        raise CommandError(f"{describe(error).rstrip('.')}. Or leave the column out with --drop.") from error


def _train_and_test(options: FitOptions, tables: _Tables, frame: Any, task: str, summary: targets.TargetSummary) -> tuple[Any, Any]:
    """Return the training rows and the test rows, or None where there is to be no test."""
    if options.test is None:
        test_size = _DEFAULT_TEST_SIZE if options.test_size is None else options.test_size
        return targets.split(frame, test_size, options.seed) if test_size else (frame, None)
    return frame, tables.read_further("--test", options.test, frame, task, summary)


def _watched(options: FitOptions, tables: _Tables, frame: Any, task: str, summary: targets.TargetSummary) -> dict[str, Any]:
    """Return what to score while training, by name."""
    if options.validation is None:
        return {}
    rows = tables.read_further("--validation", options.validation, frame, task, summary)
    return {"validation": (rows[tables.columns], rows[options.target])}


def _count_rows(train: Any, test: Any) -> tuple[int, int]:
    import dask

    count = dask.delayed(len)
    parts = [[] if frame is None else frame.to_delayed() for frame in (train, test)]
    lengths = dask.compute(*[[count(part) for part in group] for group in parts])
    return sum(lengths[0]), sum(lengths[1])
