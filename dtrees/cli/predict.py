"""``dtrees predict`` and ``dtrees evaluate``: predictions of a saved model for the rows of a table, and their scores.

Frames are written partition by partition, so that only a few of them are in memory at a time. ``options`` are declared in
:mod:`dtrees.cli.main`.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, BinaryIO, NamedTuple

import dask
import numpy as np
import pandas as pd

import dtrees
from dtrees.cli import tables
from dtrees.cli.clusters import cluster
from dtrees.cli.display import Display, plural
from dtrees.cli.errors import CommandError, describe
from dtrees.cli.models import load_trees
from dtrees.cli.target import classes_of, quantiles_of, summarize
from dtrees.cli.target_columns import ENDS, TargetColumns, check_intervals, check_report
from dtrees.ensemble.input.target import BOUNDS, OUTLIERS, kind_of
from dtrees.ensemble.prediction import by_target
from dtrees.files import atomic_file

#: Columns of predictions, and of the scores of outliers, which are lower for more unusual rows.
PREDICTION, SCORE = "prediction", "score"


def predict(**given: Any) -> None:
    """Run the command ``dtrees predict`` with its options as arguments."""
    options, display = SimpleNamespace(**given), Display()
    model, data, output, proba = options.model, options.data, options.output, options.proba
    tables.check_suffix("--output", output, tables.OUTPUT_SUFFIXES, "a table of predictions")
    estimator = dtrees.load(model)
    if proba and not hasattr(estimator, "predict_proba"):
        raise CommandError(f"--proba is for classes, but {model!r} is a {type(estimator).__name__}, which predicts numbers; leave it out.")
    further = _further(estimator, model, options.coverage, tables.column_list(options.times))
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(cluster(display, options.scheduler)) if options.scheduler else None
        table = tables.find_table(data, options.form, client)
        tables.check_destinations({"--output": output}, [model, *table.paths])
        display.repeated_names(data, table.repeated)
        kept = tables.column_list(options.keep)
        tables.check_columns(kept, table.names, "--keep", data)
        features = features_of(estimator, table)
        added = _output_names(estimator, proba)
        if clash := set(kept) & {*added, *(name for one in further for name in one.names)}:
            raise CommandError(f"--keep: a column {min(clash)!r} is written already; leave it out.")
        with display.stage(f"Predicting {data}"):
            frame = tables.read_table(table, client, **columns_by_kind(estimator))[list(dict.fromkeys([*features, *kept]))]
            # On a cluster partitions are predicted in parallel, here one after the other with all cores.
            estimator.set_params(n_jobs=None if client else -1)
            sent = client.scatter(estimator, broadcast=True) if client else estimator
            meta = predict_part(frame._meta, estimator, features, kept, added, further)
            predicted = frame.map_partitions(predict_part, sent, features, kept, added, further, meta=meta)
            with atomic_file(output) as file:
                n_rows = _write_frames(output, file, _partitions(predicted, client))
    tell = display.result if os.path.isfile(output) else display.note  # if predictions went to stdout, nothing else may be printed there
    tell(f"Wrote {plural(n_rows, 'prediction')} to {output}")


class Further(NamedTuple):
    """Columns beside the predictions: their names, the method of the model that returns their values, and its arguments after X."""

    names: list[str]
    method: str
    arguments: tuple[Any, ...] = ()


def _further(estimator: Any, path: str, coverage: float | None, times: list[str]) -> list[Further]:
    """Return the columns that options ask for, and the scores of outliers."""
    kind, found = kind_of(estimator), []
    if kind == OUTLIERS:
        found.append(Further([SCORE], "score_samples"))
    if coverage is not None:
        check_intervals(estimator, path)
        found.append(Further(ENDS, "predict_interval", (coverage,)))
    if times:
        if kind != BOUNDS:
            raise CommandError(f"--times is for models with the losses cox and aft, but {path!r} is a {type(estimator).__name__} without.")
        try:
            found.append(Further([f"survival_{time}" for time in times], "predict_survival_function", ([*map(float, times)],)))
        except ValueError as error:
            raise CommandError(f"--times: {describe(error)}; give numbers, such as 30,365") from error
    return found


def predict_part(
    part: pd.DataFrame, model: Any, features: list[str], keep: list[str], names: list[str], further: Sequence[Further] = ()
) -> pd.DataFrame:
    """Return the predictions for one partition, a frame of the columns ``keep``, ``names`` and those of ``further``.

    ``names`` are those of the prediction for each target, and after them, where these are wanted, of the probability of each class.
    """
    frame, X, n = part[keep].reset_index(drop=True), part[features], len(quantiles_of(model)) or model.n_outputs_
    classes = by_target(getattr(model, "classes_", None))
    dtypes = [labels.dtype for labels in classes] or [np.dtype(np.int64 if kind_of(model) == OUTLIERS else np.float64)] * n
    if not len(part):
        predicted, shares = [np.empty(0)] * n, [np.empty((0, len(names) - n))]
    elif len(names) > n:
        shares = by_target(model.predict_proba(X))
        predicted = [labels[mine.argmax(axis=1)] for labels, mine in zip(classes, shares, strict=True)]
    else:
        predicted = list(model.predict(X).reshape(len(part), n).T)
    for name, dtype, values in zip(names, dtypes, predicted, strict=False):
        frame[name] = values.astype(dtype)
    if len(names) > n:
        frame[names[n:]] = np.hstack(shares)
    for added, method, arguments in further:
        frame[added] = getattr(model, method)(X, *arguments).reshape(len(part), -1) if len(part) else np.empty((0, len(added)))
    return frame


def _write_frames(path: str, file: BinaryIO, frames: Iterable[Any]) -> int:
    """Write pandas DataFrames one after the other, in the format given by the file name; return the number of rows."""
    suffix, n_rows = PurePath(path).suffix.lower(), 0
    if suffix in tables.PARQUET_SUFFIXES:
        return _write_parquet(file, frames)
    separator = "\t" if suffix == ".tsv" else ","
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
        yield from (part.compute(scheduler="threads") for part in parts)
        return
    further = map(client.compute, parts)
    under_way = deque(islice(further, 2 * sum(client.nthreads().values())))
    while under_way:
        found = under_way.popleft().result()
        under_way.extend(islice(further, 1))
        yield found


def evaluate(**given: Any) -> None:
    """Run the command ``dtrees evaluate`` with its options as arguments."""
    options = SimpleNamespace(**given)
    model, data, report, display = options.model, options.data, options.report, Display(as_json=options.as_json)
    estimator = load_trees(model) if report else dtrees.load(model)
    wanted = TargetColumns.of(kind_of(estimator), options.targets, options.qid, options.event)
    names = wanted.targets
    if names and len(names) != estimator.n_outputs_:
        raise CommandError(
            f"--target names {plural(len(names), 'column')}, but {model!r} predicts {plural(estimator.n_outputs_, 'target')}; "
            "give it once for each, in the order of the fit."
        )
    check_report(report)
    classes = dict(zip(names, classes_of(estimator), strict=False))
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(cluster(display, options.scheduler)) if options.scheduler else None
        stack.enter_context(dask.config.set(scheduler="threads") if client is None else contextlib.nullcontext())
        table = tables.find_table(data, options.form, client)
        tables.check_destinations({"--report": report}, [model, *table.paths])
        wanted.check(table.names, data)
        display.repeated_names(data, table.repeated)
        columns = features_of(estimator, table, wanted.names)
        of_text = [name for name, labels in classes.items() if labels and all(isinstance(label, str) for label in labels)]
        kinds = columns_by_kind(estimator)
        kinds["text"] += of_text
        kinds["numbers"] += [name for name in wanted.names if name not in of_text]
        with display.stage(f"Scoring on {data}"):
            frame = tables.read_table(table, client, **kinds)[list(dict.fromkeys([*columns, *wanted.names]))]
            found = {name: summarize(frame[name]) for name in wanted.names}
            tasks = {name: "regression" if labels is None else "classification" for name, labels in classes.items()}
            rows = wanted.complete(frame, found, tasks)
            if client is None:
                estimator.set_params(n_jobs=-1)
            figures = wanted.score(estimator, rows, columns, rows, client)
            n_all = next((one.n_rows for one in found.values()), None) or len(frame)
            n_rows = n_all - wanted.count_incomplete(frame, found, display)
        for name, (trivial, scores) in figures.items():
            of = f" of {name!r}" if len(names) > 1 else ""
            display.scores(f"Score{of} on {plural(n_rows, 'row')} of {data}", scores, trivial)
        if report:
            wanted.report(estimator, rows, columns, report, f"of {data}", display)
    document = {"model": model, "estimator": type(estimator).__name__, "n_rows": n_rows, "report": report}
    display.document(document | wanted.as_document(figures))


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
    """Return the names of predictions, numbered by target or quantile if there are several, and of the probabilities of classes."""
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
