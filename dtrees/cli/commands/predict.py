"""``dtrees predict``: from a saved model and a table to a file of predictions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

import dtrees
from dtrees.atomic_file import atomic_file
from dtrees.cli.clusters import cluster
from dtrees.cli.commands.fit import warn_of_repeated_names
from dtrees.cli.data.output import OUTPUT_SUFFIXES, check_destinations, check_suffix, partitions, write_frames
from dtrees.cli.data.tables import CSVForm, check_columns, column_list, column_names, find_files, place_of, read_table, repeated_names
from dtrees.cli.terminal.display import Display, plural
from dtrees.cli.terminal.errors import CommandError

PREDICTION = "prediction"


def run(
    *,
    model: str,
    data: str,
    output: str,
    proba: bool,
    keep: Sequence[str],
    form: CSVForm,
    scheduler: str | None,
) -> None:
    """Carry out the command; the arguments are its options."""
    display = Display()
    check_suffix("--output", output, OUTPUT_SUFFIXES, "a table of predictions")
    estimator = dtrees.load(model)
    if proba and not hasattr(estimator, "predict_proba"):
        raise CommandError(f"--proba is for classes, but {model!r} is a {type(estimator).__name__}, which predicts numbers; leave it out.")
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(cluster(display, scheduler)) if scheduler else None
        where = place_of(data, client)
        files = where(find_files, data)
        check_destinations({"--output": output}, [model, *files.paths])
        names = where(column_names, files, form)
        warn_of_repeated_names(where(repeated_names, files, form), data, display)
        kept = column_list(keep)
        check_columns(kept, names, "--keep", data)
        features = features_of(estimator, names, data)
        added = _output_names(estimator, proba)
        if clash := set(kept) & set(added):
            raise CommandError(f"--keep: a column {min(clash)!r} is written already; leave it out.")
        with display.stage(f"Predicting {data}"):
            frame = where(read_table, data, form=form, **columns_by_kind(estimator))[list(dict.fromkeys([*features, *kept]))]
            # On a cluster partitions are predicted side by side, here one after the other with all cores.
            estimator.set_params(n_jobs=None if client else -1)
            sent = client.scatter(estimator, broadcast=True) if client else estimator
            meta = predict_part(frame._meta, estimator, features, kept, added)
            predicted = frame.map_partitions(predict_part, sent, features, kept, added, meta=meta)
            with atomic_file(output) as file:
                n_rows = write_frames(output, file, partitions(predicted, client))
    tell = display.result if os.path.isfile(output) else display.note  # where they went to stdout, nothing else must
    tell(f"Wrote {plural(n_rows, 'prediction')} to {output}")


def predict_part(part: pd.DataFrame, model: Any, features: list[str], keep: list[str], names: list[str]) -> pd.DataFrame:
    """Return the predictions for one partition, a frame of the columns ``keep`` and ``names``.

    ``names`` are the prediction's, or one for the prediction of each target, and after it one for the probability of each class where these
    are wanted.
    """
    frame = part[keep].reset_index(drop=True)
    classes = getattr(model, "classes_", None)
    if getattr(model, "n_outputs_", 1) > 1:
        _predict_targets(frame, part[features], model, names)
    elif len(names) > 1 and classes is not None:
        shares = model.predict_proba(part[features]) if len(part) else np.empty((0, len(classes)))
        frame[names[0]] = classes[shares.argmax(axis=1)] if len(part) else classes[:0]
        frame[names[1:]] = shares
    else:
        empty = np.empty(0) if classes is None else classes[:0]
        frame[names[0]] = model.predict(part[features]) if len(part) else empty
    return frame


def _predict_targets(frame: pd.DataFrame, X: pd.DataFrame, model: Any, names: list[str]) -> None:
    """Write the predictions of several targets, and after them the probabilities of their classes where these are wanted."""
    n, classes = model.n_outputs_, getattr(model, "classes_", None)
    predicted = model.predict(X) if len(X) else np.empty((0, n))
    for k, name in enumerate(names[:n]):
        dtype = np.dtype(np.float64) if classes is None else classes[k].dtype
        frame[name] = predicted[:, k].astype(dtype)
    if len(names) > n:
        frame[names[n:]] = np.hstack(model.predict_proba(X)) if len(X) else np.empty((0, len(names) - n))


def features_of(estimator: Any, names: Sequence[str], data: str, targets: Sequence[str] = ()) -> list[str]:
    """Return the model's columns, which the table must have; for a model fitted without names, all of the table's but the targets."""
    wanted = getattr(estimator, "feature_names_in_", None)
    if wanted is None:
        names = [name for name in names if name not in targets]
        if len(names) != estimator.n_features_in_:
            raise CommandError(
                f"The model was fitted on {estimator.n_features_in_} columns without names, but {data!r} has {len(names)}; "
                "give it exactly those, in that order."
            )
        return list(names)
    for target in targets:
        if target in wanted:
            raise CommandError(f"--target: {target!r} is a column that the model predicts from; give the target of the fit.")
    missing = [str(name) for name in wanted if name not in names]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise CommandError(f"{data!r} lacks {len(missing)} of the {len(wanted)} columns that the model was fitted on: {shown}.")
    return [str(name) for name in wanted]


def _output_names(estimator: Any, proba: bool) -> list[str]:
    n_targets = getattr(estimator, "n_outputs_", 1)
    if n_targets > 1:
        shares = enumerate(estimator.classes_ if proba else ())
        return [*(f"{PREDICTION}_{k}" for k in range(n_targets)), *(f"probability_{k}_{label}" for k, labels in shares for label in labels)]
    return [PREDICTION, *(f"probability_{label}" for label in (estimator.classes_ if proba else ()))]


def columns_by_kind(estimator: Any) -> dict[str, list[str]]:
    """Return the columns that held text when the model was fitted, and those that held numbers: they are read as such again."""
    named = [column for column in estimator._schema.columns if column.name is not None]
    text = [column.name for column in named if any(isinstance(category, str) for category in column.categories)]
    return {"text": text, "numbers": [column.name for column in named if column.name not in text]}
