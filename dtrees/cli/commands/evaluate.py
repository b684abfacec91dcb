"""``dtrees evaluate``: how good a saved model is on a table."""

from __future__ import annotations

import contextlib
from typing import Any

import dask

import dtrees
from dtrees.cli import scores
from dtrees.cli.clusters import cluster
from dtrees.cli.commands.fit import warn_of_repeated_names
from dtrees.cli.commands.predict import features_of, text_columns
from dtrees.cli.commands.scoring import as_document, classes_of, evaluate
from dtrees.cli.data import target as targets
from dtrees.cli.data.destinations import check_destinations
from dtrees.cli.data.place import place_of
from dtrees.cli.data.tables import check_columns, column_names, find_files, read_table, repeated_names
from dtrees.cli.terminal.display import Display, plural
from dtrees.cli.terminal.errors import CommandError
from dtrees.plots.canvas import pyplot


def run(
    *,
    model: str,
    data: str,
    target: str,
    report: str | None,
    separator: str | None,
    scheduler: str | None,
    as_json: bool,
    display: Display | None = None,
) -> None:
    """Carry out the command; the arguments are its options."""
    display = display or Display(as_json=as_json)
    estimator = dtrees.load(model)
    if getattr(estimator, "n_outputs_", 1) > 1:
        raise CommandError(
            f"{model!r} predicts {estimator.n_outputs_} targets at once, which are not scored here; use dtrees.report in Python."
        )
    if report:
        pyplot()  # before the work is done
    classes = classes_of(estimator)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(cluster(display, scheduler)) if scheduler else None
        stack.enter_context(dask.config.set(scheduler="threads") if client is None else contextlib.nullcontext())
        where = place_of(data, client)
        files = where(find_files, data)
        check_destinations({"--report": report}, [model, *files.paths])
        names = where(column_names, files, separator)
        check_columns([target], names, "--target", data)
        warn_of_repeated_names(where(repeated_names, files, separator), data, display)
        columns = features_of(estimator, [name for name in names if name != target], data)
        text = [*text_columns(estimator), *([target] if classes and all(isinstance(label, str) for label in classes) else [])]
        with display.stage(f"Scoring on {data}"):
            frame = where(read_table, data, separator=separator, text=text)[list(dict.fromkeys([*columns, target]))]
            found = targets.summarize(frame[target])
            rows = targets.with_target(frame, target, _task(found, classes, target), found)
            if client is None:
                estimator.set_params(n_jobs=-1)
            trivial = scores.baseline(rows[target], classes)
            figures = evaluate(estimator, rows, columns, target, trivial, client)
        if found.n_missing:
            display.warn(f"left out {found.n_missing:,} of {found.n_rows:,} rows, in which {target!r} is missing.")
        n_rows = found.n_rows - found.n_missing
        display.scores(f"Score on {plural(n_rows, 'row')} of {data}", figures, trivial.describe())
        if report:
            with display.stage("Writing the report"):
                dtrees.report(estimator, rows[columns], rows[target], report, rows=f"of {data}; target {target}")
            display.result(f"Report written to {report}")
    display.document(
        {
            "model": model,
            "estimator": type(estimator).__name__,
            "target": target,
            "n_rows": n_rows,
            "baseline": trivial.describe(),
            "scores": as_document(figures),
            "report": report,
        }
    )


def _task(summary: targets.TargetSummary, classes: list[Any] | None, target: str) -> str:
    """Return the task of the model, if the target is such as it can be compared with."""
    if not summary.kinds:
        raise CommandError(f"The target {target!r} is missing in every row; choose another column with --target.")
    if classes is None:
        if targets.TEXT in summary.kinds:
            raise CommandError(f"The model predicts numbers, but the target {target!r} holds text such as {summary.example!r}.")
        return "regression"
    if not summary.many and not set(classes) & set(summary.distinct):
        raise CommandError(f"The target {target!r} has none of the model's classes, such as {classes[0]!r}, but {summary.example!r}.")
    return "classification"
