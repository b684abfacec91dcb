"""``dtrees predict`` and ``dtrees evaluate``: predictions of a saved model for the rows of a table, and their scores.

Frames are written partition by partition, so that only a few of them are in memory at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any, BinaryIO

import dask
import numpy as np
import pandas as pd

import dtrees
from dtrees.cli import tables
from dtrees.cli.clusters import cluster
from dtrees.cli.display import Display, plural
from dtrees.cli.errors import CommandError
from dtrees.cli.intervals import ENDS, check_intervals
from dtrees.cli.models import load_trees
from dtrees.cli.target import TEXT, TargetSummary, as_document, baseline, classes_of, quantiles_of, score, summarize, with_target
from dtrees.ensemble.prediction import by_target
from dtrees.files import atomic_file
from dtrees.plots import pyplot

PREDICTION = "prediction"
#: Of an isolation forest, beside whether a row is an outlier (-1) or not (1): the lower, the more of one.
SCORE = "score"


def predict(
    *,
    model: str,
    data: str,
    output: str,
    proba: bool,
    coverage: float | None,
    keep: Sequence[str],
    form: tables.CSVForm,
    scheduler: str | None,
) -> None:
    """Write predictions to a file; the arguments are the options of the command."""
    display = Display()
    tables.check_suffix("--output", output, tables.OUTPUT_SUFFIXES, "a table of predictions")
    estimator = dtrees.load(model)
    if proba and not hasattr(estimator, "predict_proba"):
        raise CommandError(f"--proba is for classes, but {model!r} is a {type(estimator).__name__}, which predicts numbers; leave it out.")
    if coverage is not None:
        check_intervals(estimator, model)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(cluster(display, scheduler)) if scheduler else None
        table = tables.find_table(data, form, client)
        tables.check_destinations({"--output": output}, [model, *table.paths])
        display.repeated_names(data, table.repeated)
        kept = tables.column_list(keep)
        tables.check_columns(kept, table.names, "--keep", data)
        features = features_of(estimator, table)
        added = _output_names(estimator, proba)
        if clash := set(kept) & {*added, *(ENDS if coverage else ())}:
            raise CommandError(f"--keep: a column {min(clash)!r} is written already; leave it out.")
        with display.stage(f"Predicting {data}"):
            frame = tables.read_table(table, client, **columns_by_kind(estimator))[list(dict.fromkeys([*features, *kept]))]
            # On a cluster partitions are predicted in parallel, here one after the other with all cores.
            estimator.set_params(n_jobs=None if client else -1)
            sent = client.scatter(estimator, broadcast=True) if client else estimator
            meta = predict_part(frame._meta, estimator, features, kept, added, coverage)
            predicted = frame.map_partitions(predict_part, sent, features, kept, added, coverage, meta=meta)
            with atomic_file(output) as file:
                n_rows = _write_frames(output, file, _partitions(predicted, client))
    tell = display.result if os.path.isfile(output) else display.note  # if predictions went to stdout, nothing else may be printed there
    tell(f"Wrote {plural(n_rows, 'prediction')} to {output}")


def predict_part(
    part: pd.DataFrame, model: Any, features: list[str], keep: list[str], names: list[str], coverage: float | None = None
) -> pd.DataFrame:
    """Return the predictions for one partition, a frame of the columns ``keep`` and ``names``, and of the ends of intervals, if wanted.

    ``names`` are those of the prediction for each target, and after them, where these are wanted, of the probability of each class.
    """
    frame, X, n = part[keep].reset_index(drop=True), part[features], len(quantiles_of(model)) or model.n_outputs_
    classes = by_target(getattr(model, "classes_", None))
    dtypes = [labels.dtype for labels in classes] or [np.dtype(np.float64)] * n
    if isolates := SCORE in names:
        n, dtypes = 2, [np.dtype(np.int64), np.dtype(np.float64)]
    if not len(part):
        predicted, shares = [np.empty(0)] * n, [np.empty((0, len(names) - n))]
    elif len(names) > n:
        shares = by_target(model.predict_proba(X))
        predicted = [labels[mine.argmax(axis=1)] for labels, mine in zip(classes, shares, strict=True)]
    elif isolates:
        predicted = [model.predict(X), model.score_samples(X)]
    else:
        predicted = list(model.predict(X).reshape(len(part), n).T)
    for name, dtype, values in zip(names, dtypes, predicted, strict=False):
        frame[name] = values.astype(dtype)
    if len(names) > n:
        frame[names[n:]] = np.hstack(shares)
    if coverage is not None:
        frame[ENDS] = model.predict_interval(X, coverage) if len(part) else np.empty((0, 2))
    return frame


def _write_frames(path: str, file: BinaryIO, frames: Iterable[Any]) -> int:
    """Write pandas DataFrames one after the other, in the format given by the file name; return the number of rows."""
    suffix = PurePath(path).suffix.lower()
    return (
        _write_parquet(file, frames) if suffix in tables.PARQUET_SUFFIXES else _write_csv(file, frames, "\t" if suffix == ".tsv" else ",")
    )


def _write_csv(file: BinaryIO, frames: Iterable[Any], separator: str) -> int:
    n_rows = 0
    for number, frame in enumerate(frames):
        file.write(frame.to_csv(index=False, sep=separator, header=number == 0, lineterminator="\n").encode())
        n_rows += len(frame)
    return n_rows


def _write_parquet(file: BinaryIO, frames: Iterable[Any]) -> int:
    """Write each frame as a row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    frames = iter(frames)
    first = next(frames)
    schema, n_rows = pa.Schema.from_pandas(first, preserve_index=False), 0
    with pq.ParquetWriter(file, schema) as writer:
        for frame in chain([first], frames):
            writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))
            n_rows += len(frame)
    return n_rows


def _partitions(frame: Any, client: Any = None) -> Iterator[Any]:
    """Yield the partitions of a Dask DataFrame in order as pandas DataFrames, with few of them in memory at a time.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    client : distributed.Client, optional
        None computes them one after the other in this process.
    """
    parts = frame.to_delayed()
    if client is None:
        for part in parts:
            yield part.compute(scheduler="threads")
        return
    ahead = 2 * sum(client.nthreads().values())
    futures: deque[Any] = deque()
    for part in parts:
        futures.append(client.compute(part))
        if len(futures) > ahead:
            yield futures.popleft().result()
    while futures:
        yield futures.popleft().result()


def evaluate(
    *, model: str, data: str, targets: Sequence[str], report: str | None, form: tables.CSVForm, scheduler: str | None, as_json: bool
) -> None:
    """Score a saved model on a table; the arguments are the options of the command."""
    display = Display(as_json=as_json)
    estimator = load_trees(model) if report else dtrees.load(model)
    _check_scorable(estimator, model)
    targets = list(dict.fromkeys(targets))
    if len(targets) != estimator.n_outputs_:
        raise CommandError(
            f"--target names {plural(len(targets), 'column')}, but {model!r} predicts {plural(estimator.n_outputs_, 'target')}; "
            "give it once for each, in the order of the fit."
        )
    if report:
        tables.check_suffix("--report", report, tables.HTML_SUFFIXES, "a page of HTML")
        pyplot()  # before the work is done
    classes = dict(zip(targets, classes_of(estimator), strict=True))
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(cluster(display, scheduler)) if scheduler else None
        stack.enter_context(dask.config.set(scheduler="threads") if client is None else contextlib.nullcontext())
        table = tables.find_table(data, form, client)
        tables.check_destinations({"--report": report}, [model, *table.paths])
        tables.check_columns(targets, table.names, "--target", data)
        display.repeated_names(data, table.repeated)
        columns = features_of(estimator, table, targets)
        of_text = [name for name, labels in classes.items() if labels and all(isinstance(label, str) for label in labels)]
        kinds = columns_by_kind(estimator)
        kinds["text"] += of_text
        kinds["numbers"] += [name for name in targets if name not in of_text]
        with display.stage(f"Scoring on {data}"):
            frame = tables.read_table(table, client, **kinds)[list(dict.fromkeys([*columns, *targets]))]
            found = {name: summarize(frame[name]) for name in targets}
            rows = frame
            for name in targets:
                rows = with_target(rows, name, _task(found[name], classes[name], name), found[name])
            if client is None:
                estimator.set_params(n_jobs=-1)
            trivial = {name: baseline(rows[name], classes[name]) for name in targets}
            figures = score(estimator, rows, columns, trivial, client)
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
    several = len(targets) > 1
    display.document(
        {
            "model": model,
            "estimator": type(estimator).__name__,
            **({"targets": targets} if several else {"target": targets[0]}),
            "n_rows": n_rows,
            "baseline": baselines if several else baselines[targets[0]],
            "scores": documents if several else documents[targets[0]],
            "report": report,
        }
    )


def _check_scorable(estimator: Any, path: str) -> None:
    """Raise for a model whose predictions are no values of one column."""
    columns = getattr(estimator, "_columns_of_y", "")
    kind = "isolates" if hasattr(estimator, "score_samples") else columns if isinstance(columns, str) else ""
    reasons = {
        "isolates": "finds outliers without a target; write its scores with dtrees predict",
        "queries": "ranks the rows of queries; use model.score(X, y, qid=...) in Python, for NDCG",
        "bounds": "predicts times of events, which may be censored; use model.score(X, y) in Python, for the concordance index",
    }
    if kind in reasons:
        what = f"a {type(estimator).__name__}, which {reasons[kind]}"
        raise CommandError(f"dtrees evaluate scores predictions of one column, but {path!r} has {what}.")


def _task(summary: TargetSummary, classes: list[Any] | None, target: str) -> str:
    """Return the task of the model, if the target is such as it can be compared with."""
    if not summary.kinds:
        raise CommandError(f"The target {target!r} is missing in every row; choose another column with --target.")
    if classes is None:
        if TEXT in summary.kinds:
            raise CommandError(f"The model predicts numbers, but the target {target!r} holds text such as {summary.example!r}.")
        return "regression"
    return "classification"


def features_of(estimator: Any, table: tables.Table, targets: Sequence[str] = ()) -> list[str]:
    """Return the model's columns, which the table must have; for a model without names, all of the table's except the targets."""
    wanted = getattr(estimator, "feature_names_in_", None)
    if wanted is None:
        names = [name for name in table.names if name not in targets]
        if len(names) != estimator.n_features_in_:
            raise CommandError(
                f"The model was fitted on {estimator.n_features_in_} columns without names, but {table.data!r} has {len(names)}; "
                "give it exactly those, in that order."
            )
        return names
    for target in targets:
        if target in wanted:
            raise CommandError(f"--target: {target!r} is a column that the model predicts from; give the target of the fit.")
    missing = [str(name) for name in wanted if name not in table.names]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise CommandError(f"{table.data!r} lacks {len(missing)} of the {len(wanted)} columns that the model was fitted on: {shown}.")
    return [str(name) for name in wanted]


def _output_names(estimator: Any, proba: bool) -> list[str]:
    """Return the names of predictions, numbered by target or quantile where there are several, and of the probabilities of classes."""
    if hasattr(estimator, "score_samples"):
        return [PREDICTION, SCORE]
    n_targets, quantiles = estimator.n_outputs_, quantiles_of(estimator)
    numbers = [f"_{quantile:g}" for quantile in quantiles] or ([f"_{k}" for k in range(n_targets)] if n_targets > 1 else [""])
    classes = by_target(estimator.classes_) if proba else []
    shares = [f"probability{number}_{label}" for number, labels in zip(numbers, classes, strict=False) for label in labels]
    return [*(PREDICTION + number for number in numbers), *shares]


def columns_by_kind(estimator: Any) -> dict[str, list[str]]:
    """Return the columns that were text at fit, and those that were numbers: they are read in the same way."""
    named = [column for column in estimator._schema.columns if column.name is not None]
    text = [column.name for column in named if any(isinstance(category, str) for category in column.categories)]
    return {"text": text, "numbers": [column.name for column in named if column.name not in text]}
