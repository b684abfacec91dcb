"""``dtrees fit``: from a table to a scored model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

import dtrees
from dtrees.cli import models, scores
from dtrees.cli.clusters import cluster
from dtrees.cli.data import holdout
from dtrees.cli.data import target as targets
from dtrees.cli.data.destinations import check_destinations
from dtrees.cli.data.tables import Files, check_columns, column_list, column_names, find_files, read_table, repeated_names
from dtrees.cli.terminal.display import Display, plural
from dtrees.cli.terminal.errors import CommandError, describe
from dtrees.plots.canvas import pyplot

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
    separator: str | None = None
    scheduler: str | None = None
    n_workers: int | None = None
    threads_per_worker: int | None = None


def run(options: FitOptions, display: Display | None = None) -> None:
    """Carry out the command."""
    display = display or Display()
    columns = _check(options, display)
    with cluster(display, options.scheduler, options.n_workers, options.threads_per_worker) as client:
        frame, summary = _read(options, options.data, columns, display)
        task, reason = targets.choose_task(summary, options.target, options.task)
        display.note(f"Task: {task} ({reason}).")
        if task == "classification" and (example := targets.number_with_comma(summary.distinct)):
            display.warn(
                f"{options.target!r} looks like numbers with decimal commas, such as {example!r}, which makes {summary.count} classes. "
                "For regression, write them with a decimal point."
            )
        if summary.n_missing:
            display.warn(f"left out {summary.n_missing:,} of {summary.n_rows:,} rows, in which {options.target!r} is missing.")
        frame = _with_target(frame, options.target, task, summary)
        train, test = _train_and_test(options, frame, columns, task, summary, display)
        watched = _watched(options, frame, columns, task, summary, display)
        n_train, n_test = _count_rows(train, test)
        if n_train == 0 or (test is not None and n_test == 0):
            raise CommandError(f"{n_train:,} rows are for training and {n_test:,} for the test; give more data or another --test-size.")

        estimator = models.build(options.model, task, options.settings, options.seed)
        display.note(f"{type(estimator).__name__} on {plural(n_train, 'row')} and {plural(len(columns), 'column')}.")
        _fit(estimator, train[columns], train[options.target], watched, options, display)
        if options.output:  # before scoring: if that fails, the work of the fit is not lost
            dtrees.save(estimator, options.output)
        if test is not None:
            with display.stage("Scoring"):
                figures, trivial = evaluate(estimator, train, test, columns, options.target, client)
            rows = plural(n_test, "held-out row") if options.test is None else f"{plural(n_test, 'row')} of {options.test}"
            display.scores(f"Score on {rows}", figures, trivial.describe())
        if options.report:
            _report(estimator, train if test is None else test, columns, options, display)
    if options.output:
        display.result(f"Model saved to {options.output}. Use it with: dtrees predict {options.output} DATA --output FILE")
    else:
        display.note("The model was not saved; --output MODEL does that.")


def _report(estimator: Any, rows: Any, columns: list[str], options: FitOptions, display: Display) -> None:
    """Write the report, about the test rows or, without any, about those of the fit."""
    said = "of the fit" if options.test is None and options.test_size == 0 else f"of {options.test}" if options.test else "held out"
    with display.stage("Writing the report"):
        dtrees.report(
            estimator, rows[columns], rows[options.target], options.report, rows=f"{said}; target {options.target}", seed=options.seed
        )
    display.result(f"Report written to {options.report}")


def _check(options: FitOptions, display: Display) -> list[str]:
    """Check all that can be checked before a cluster is started and data read; return the columns to train on."""
    if options.test is not None and options.test_size is not None:
        raise click.UsageError("--test and --test-size exclude each other: one gives the test data, the other draws it from DATA")
    if options.validation is not None and options.model != "boosting":
        raise click.UsageError(f"--validation is for --model boosting, which is trained round by round; --model is {options.model}")
    if options.checkpoint is not None and options.model == "tree":
        raise click.UsageError("--checkpoint is for models of several trees; --model is tree")
    if options.checkpoint is None and options.checkpoint_interval is not None:
        raise click.UsageError("--checkpoint-interval is for --checkpoint, which is not given")
    files = find_files(options.data)
    names = column_names(files, options.separator)
    warn_of_repeated_names(files, options.separator, display)
    columns = choose_features(names, options.target, options.features, options.drop, options.data)
    models.check_settings(options.model, options.settings)
    read = [*files.paths]
    for option, data in (("--test", options.test), ("--validation", options.validation)):
        if data is not None:
            more = find_files(data)
            read += more.paths
            check_columns([*columns, options.target], column_names(more, options.separator), option, data)
    check_destinations({"--output": options.output, "--checkpoint": options.checkpoint, "--report": options.report}, read)
    if options.report:
        pyplot()  # before the work is done
    if options.validation is None and any(name == "early_stopping_rounds" for name in models.parse_settings(options.settings)):
        raise click.UsageError("early_stopping_rounds stops by the scores on --validation DATA; or use -p n_iter_no_change=N")
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


def warn_of_repeated_names(files: Files, separator: str | None, display: Display) -> None:
    """Mention CSV columns that are called otherwise here than in the file, where an earlier one has the same name."""
    for called, name in repeated_names(files, separator).items():
        display.warn(f"{files.data!r} has several columns {name!r}; this one is called {called!r} here.")


def evaluate(
    estimator: Any, train: Any, test: Any, columns: list[str], target: str, client: Any
) -> tuple[list[scores.Score], scores.Baseline]:
    """Return the scores on the test rows, each partition scored where it lies, and the baseline they are compared with."""
    import dask

    classes = getattr(estimator, "classes_", None)
    trivial = scores.baseline(train[target], None if classes is None else classes.tolist())
    model = client.scatter(estimator, broadcast=True)
    part_sums = dask.delayed(_score_part)
    sums = np.sum(dask.compute(*[part_sums(part, model, columns, target, trivial) for part in test.to_delayed()]), axis=0)
    return (scores.regression_scores if classes is None else scores.classification_scores)(sums), trivial


def _score_part(part: Any, model: Any, columns: list[str], target: str, trivial: scores.Baseline) -> Any:
    if not len(part):
        return 0.0
    if trivial.classes:
        return scores.classification_sums(part[target], model.predict_proba(part[columns]), trivial)
    return scores.regression_sums(part[target], model.predict(part[columns]), trivial.mean)


def _read(
    options: FitOptions, data: str, columns: list[str], display: Display, text: Collection[str] = ()
) -> tuple[Any, targets.TargetSummary]:
    """Load a table into the cluster's memory, and see what its target is."""
    with display.stage(f"Reading {data}"):
        try:
            frame = read_table(data, separator=options.separator, text=text)[[*columns, options.target]].persist()
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


def _fit(estimator: Any, X: Any, y: Any, watched: dict[str, Any], options: FitOptions, display: Display) -> None:
    """Fit, and where a column stands in the way say how to leave it out."""
    from dtrees.cluster.reliability.local_callback import local_callback

    more: dict[str, Any] = {} if not watched else {"eval_set": watched}
    if options.checkpoint is not None:
        more["checkpoint"] = options.checkpoint
        if options.checkpoint_interval is not None:
            more["checkpoint_interval"] = options.checkpoint_interval
    try:
        unit = "round" if options.model == "boosting" else "tree"
        with display.training(unit, elsewhere=options.scheduler is not None) as progress, local_callback(progress) as callback:
            estimator.fit(X, y, callbacks=[callback], **more)
    except ValueError as error:
        if "X column" not in str(error):
            raise
        raise CommandError(f"{describe(error).rstrip('.')}. Or leave the column out with --drop.") from error


def _train_and_test(
    options: FitOptions, frame: Any, columns: list[str], task: str, summary: targets.TargetSummary, display: Display
) -> tuple[Any, Any]:
    """Return the training rows and the test rows, or None where there is to be no test."""
    if options.test is None:
        test_size = _DEFAULT_TEST_SIZE if options.test_size is None else options.test_size
        return holdout.split(frame, test_size, options.seed) if test_size else (frame, None)
    return frame, _further(options, "--test", options.test, frame, columns, task, summary, display)


def _watched(
    options: FitOptions, frame: Any, columns: list[str], task: str, summary: targets.TargetSummary, display: Display
) -> dict[str, Any]:
    """Return what to score while training, by name."""
    if options.validation is None:
        return {}
    rows = _further(options, "--validation", options.validation, frame, columns, task, summary, display)
    return {"validation": (rows[columns], rows[options.target])}


def _further(
    options: FitOptions,
    option: str,
    data: str,
    frame: Any,
    columns: list[str],
    task: str,
    summary: targets.TargetSummary,
    display: Display,
) -> Any:
    """Return the rows of another table than the one to train on, which an option names."""
    target = options.target
    # A column that is text in one of the tables is text in both.
    text = [name for name in [*columns, target] if str(frame.dtypes[name]).startswith("str")]
    rows, found = _read(options, data, columns, display, text)
    if found.kinds and (targets.TEXT in found.kinds) != (targets.TEXT in summary.kinds):
        raise CommandError(f"{option}: the target {target!r} holds text in one of the two tables and numbers in the other.")
    if found.n_missing:
        kind = option.removeprefix("--")
        display.warn(f"left out {found.n_missing:,} of {found.n_rows:,} {kind} rows, in which {target!r} is missing.")
    return _with_target(rows, target, task, targets.merge([summary, found]))


def _with_target(frame: Any, target: str, task: str, summary: targets.TargetSummary) -> Any:
    """Return the rows that have a target, with the target in the dtype to train on."""
    frame = frame.dropna(subset=[target]) if summary.n_missing else frame
    empty = targets.convert(frame._meta[target], task, summary.kinds)
    return frame.assign(**{target: frame[target].map_partitions(targets.convert, task, summary.kinds, meta=empty)})


def _count_rows(train: Any, test: Any) -> tuple[int, int]:
    import dask

    count = dask.delayed(len)
    parts = [[] if frame is None else frame.to_delayed() for frame in (train, test)]
    lengths = dask.compute(*[[count(part) for part in group] for group in parts])
    return sum(lengths[0]), sum(lengths[1])
