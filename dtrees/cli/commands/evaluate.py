"""``dtrees evaluate``: how good a saved model is on a table."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import dask

import dtrees
from dtrees.cli import scores
from dtrees.cli.clusters import cluster
from dtrees.cli.commands.fit import warn_of_repeated_names
from dtrees.cli.commands.predict import columns_by_kind, features_of
from dtrees.cli.data.output import HTML_SUFFIXES, check_destinations, check_suffix
from dtrees.cli.data.tables import CSVForm, check_columns, column_names, find_files, place_of, read_table, repeated_names
from dtrees.cli.data.target import TEXT, TargetSummary, summarize, with_target
from dtrees.cli.models import load_trees
from dtrees.cli.scores import as_document, classes_of, evaluate
from dtrees.cli.terminal.display import Display, plural
from dtrees.cli.terminal.errors import CommandError
from dtrees.plots.charts import pyplot


def run(
    *,
    model: str,
    data: str,
    targets: Sequence[str],
    report: str | None,
    form: CSVForm,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Carry out the command; the arguments are its options."""
    display = Display(as_json=as_json)
    estimator = load_trees(model) if report else dtrees.load(model)
    targets = list(dict.fromkeys(targets))
    if len(targets) != estimator.n_outputs_:
        raise CommandError(
            f"--target names {plural(len(targets), 'column')}, but {model!r} predicts {plural(estimator.n_outputs_, 'target')}; "
            "give it once for each, in the order of the fit."
        )
    if report:
        check_suffix("--report", report, HTML_SUFFIXES, "a page of HTML")
        pyplot()  # before the work is done
    classes = dict(zip(targets, classes_of(estimator), strict=True))
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(cluster(display, scheduler)) if scheduler else None
        stack.enter_context(dask.config.set(scheduler="threads") if client is None else contextlib.nullcontext())
        where = place_of(data, client)
        files = where(find_files, data)
        check_destinations({"--report": report}, [model, *files.paths])
        names = where(column_names, files, form)
        check_columns(targets, names, "--target", data)
        warn_of_repeated_names(where(repeated_names, files, form), data, display)
        columns = features_of(estimator, names, data, targets)
        of_text = [name for name, labels in classes.items() if labels and all(isinstance(label, str) for label in labels)]
        kinds = columns_by_kind(estimator)
        kinds["text"] += of_text
        kinds["numbers"] += [name for name in targets if name not in of_text]
        with display.stage(f"Scoring on {data}"):
            frame = where(read_table, data, form=form, **kinds)[list(dict.fromkeys([*columns, *targets]))]
            found = {name: summarize(frame[name]) for name in targets}
            rows = frame
            for name in targets:
                rows = with_target(rows, name, _task(found[name], classes[name], name), found[name])
            if client is None:
                estimator.set_params(n_jobs=-1)
            trivial = {name: scores.baseline(rows[name], classes[name]) for name in targets}
            figures = evaluate(estimator, rows, columns, trivial, client)
            n_all = found[targets[0]].n_rows
            n_rows = n_all if not any(one.n_missing for one in found.values()) else len(rows)
        if n_rows < n_all:
            display.warn(f"left out {n_all - n_rows:,} of {n_all:,} rows, in which {' or '.join(map(repr, targets))} is missing.")
        for name in targets:
            of = f" of {name!r}" if len(targets) > 1 else ""
            display.scores(f"Score{of} on {plural(n_rows, 'row')} of {data}", figures[name], trivial[name].describe())
        if report:
            with display.stage("Writing the report"):
                answers = rows[targets] if len(targets) > 1 else rows[targets[0]]
                dtrees.report(estimator, rows[columns], answers, report, rows=f"of {data}; target {', '.join(targets)}")
            display.result(f"Report written to {report}")
    baselines = {name: one.describe() for name, one in trivial.items()}
    documents = {name: as_document(one) for name, one in figures.items()}
    display.document(
        {
            "model": model,
            "estimator": type(estimator).__name__,
            **({"targets": targets} if len(targets) > 1 else {"target": targets[0]}),
            "n_rows": n_rows,
            "baseline": baselines if len(targets) > 1 else baselines[targets[0]],
            "scores": documents if len(targets) > 1 else documents[targets[0]],
            "report": report,
        }
    )


def _task(summary: TargetSummary, classes: list[Any] | None, target: str) -> str:
    """Return the task of the model, if the target is such as it can be compared with."""
    if not summary.kinds:
        raise CommandError(f"The target {target!r} is missing in every row; choose another column with --target.")
    if classes is None:
        if TEXT in summary.kinds:
            raise CommandError(f"The model predicts numbers, but the target {target!r} holds text such as {summary.example!r}.")
        return "regression"
    return "classification"
