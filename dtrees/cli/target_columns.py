"""The columns of a table that hold the target: which options name them, what a fit takes of them, and how predictions are scored.

===================  ======================================================  =====================================
a model of           options                                                 what a fit takes
===================  ======================================================  =====================================
values               ``--target``, once for each target                      these columns as y
queries (rankings)   ``--target`` of relevances, ``--qid``                   relevances as y, numbers as qid
bounds (survival)    ``--target`` of times, ``--event``                      a frame of both columns as y
outliers             ``--target`` of labels, only to score; may be left out  labels as y, which the fit ignores
===================  ======================================================  =====================================

Also ``--intervals`` of ``dtrees fit``: its parameters, the calibration rows, and the coverage of the intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import pandas as pd

import dtrees
from dtrees.cli import target
from dtrees.cli.display import Display
from dtrees.cli.errors import CommandError
from dtrees.cli.tables import HTML_SUFFIXES, check_columns, check_suffix
from dtrees.cli.target import TargetSummary
from dtrees.ensemble.input.target import BOUNDS, OUTLIERS, QUERIES, VALUES
from dtrees.ensemble.metrics import Score
from dtrees.plots import pyplot

#: Options of a second column, by kind: what the models are, the option and its meaning.
_SECOND = {
    QUERIES: ("ranking", "--qid", "the query of each row"),
    BOUNDS: ("survival", "--event", "whether the event was observed (1 or true) or not (0 or false)"),
}
#: What columns of yes and no may hold.
_FLAGS = {BOUNDS: ({0, 1},), OUTLIERS: ({0, 1}, {-1, 1})}

#: The nominal coverage of scored intervals, and the share of the training rows for calibrating boosting.
COVERAGE, _HELD_OUT = 0.9, 0.2
_FOREST = {"keep_targets": True, "bootstrap": True, "min_samples_leaf": 5}
#: Default parameters of models with intervals.
_PARAMETERS: dict[str, dict[str, Any]] = {
    "boosting": {"loss": "quantile", "alpha": [0.05, 0.5, 0.95]},
    "forest": _FOREST,
    "extra-trees": _FOREST,
}
#: The columns of predicted intervals.
ENDS = ["lower", "upper"]


@dataclass(frozen=True)
class TargetColumns:
    """The columns that hold the target.

    Attributes
    ----------
    kind : {"values", "queries", "bounds", "outliers"}
    targets : tuple of str
        Columns of ``--target``.
    second : str or None
        The column of ``--qid`` or ``--event``.
    """

    kind: str
    targets: tuple[str, ...]
    second: str | None = None

    @classmethod
    def of(cls, kind: str, targets: Sequence[str | None], qid: str | None, event: str | None) -> TargetColumns:
        """Return the columns that options name; raise a UsageError if they are not those of this kind."""
        named = tuple(dict.fromkeys(name for name in targets if name is not None))
        if not named and kind != OUTLIERS:
            raise click.UsageError("Missing option '--target'")
        for column, (of, (models, option, meaning)) in zip((qid, event), _SECOND.items(), strict=True):
            if of == kind and column is None:
                raise click.UsageError(f"a {models} model wants {option} COLUMN: {meaning}")
            if of != kind and column is not None:
                raise click.UsageError(f"{option} is for {models} models; leave it out")
        return cls(kind, named, qid or event)

    @property
    def names(self) -> list[str]:
        """All columns."""
        return [*self.targets, *filter(None, [self.second])]

    @property
    def query(self) -> str | None:
        """The column of queries, whose rows stay together."""
        return self.second if self.kind == QUERIES else None

    def check(self, names: Sequence[str], data: str) -> None:
        """Raise a CommandError if a table lacks a column."""
        check_columns(self.targets, names, "--target", data)
        if self.second is not None:
            check_columns([self.second], names, _SECOND[self.kind][1], data)

    def complete(self, frame: Any, found: Mapping[str, TargetSummary], tasks: Mapping[str, str]) -> Any:
        """Return the rows of a Dask DataFrame that have the whole target, its columns in the dtypes to train on.

        ``tasks`` are those of columns with values; the columns of other kinds are numbers, events booleans, and queries numbers that stand
        for them in order of their first rows. Raises a CommandError if a column cannot be such.
        """
        for name, summary in found.items():
            task = tasks.get(name, "regression")
            target.check_column(summary, name, numbers=task == "regression" and name != self.query)
            frame = target.with_target(frame, name, task, summary) if name != self.query else _numbered(frame.dropna(subset=[name]), name)
        for name in self.names[-1:] if self.kind in _FLAGS else ():
            if not any(found[name].distinct <= values for values in _FLAGS[self.kind]):
                wanted = ", or ".join(f"{low} and {high}" for low, high in map(sorted, _FLAGS[self.kind]))
                raise CommandError(f"The column {name!r} holds {found[name].example!r}; wants true and false, or {wanted}.")
        return frame.assign(**{str(self.second): frame[self.second].astype(bool)}) if self.kind == BOUNDS else frame

    def count_incomplete(self, frame: Any, found: Mapping[str, TargetSummary], display: Display, rows: str = "rows") -> int:
        """Return how many rows of a Dask DataFrame lack a part of the target, and mention them."""
        lacking = [name for name, summary in found.items() if summary.n_missing]
        if not lacking:
            return 0
        first = found[lacking[0]]
        n = first.n_missing if len(lacking) == 1 else int(frame[lacking].isna().any(axis=1).sum().compute())
        display.warn(f"left out {n:,} of {first.n_rows:,} {rows}, in which {' or '.join(map(repr, lacking))} is missing.")
        return n

    def taken(self, rows: Any) -> tuple[Any, dict[str, Any]]:
        """Return y of complete rows, None without a target, and what else functions take that learn from them, by argument."""
        if self.kind == BOUNDS:
            return rows[self.names], {}
        y = None if not self.targets else rows[self.targets[0]] if len(self.targets) == 1 else rows[list(self.targets)]
        return y, {} if self.query is None else {"qid": rows[self.query]}

    def score(self, estimator: Any, rows: Any, columns: Sequence[str], train: Any, client: Any) -> dict[str, tuple[str, list[Score]]]:
        """Return by target what the baseline predicts, in words, and the scores on complete rows of a Dask DataFrame.

        Parameters
        ----------
        estimator : estimator of dtrees
        rows : dask.dataframe.DataFrame
        columns : sequence of str
            Of the table that the estimator takes.
        train : dask.dataframe.DataFrame
            Rows that the baseline is fitted to.
        client : distributed.Client or None
            None computes one partition after the other, here.
        """
        if self.kind == VALUES:
            classes = target.classes_of(estimator)
            trivial = {name: target.baseline(train[name], labels) for name, labels in zip(self.targets, classes, strict=True)}
            figures = target.score(estimator, rows, columns, trivial, client)
            return {name: (one.describe(), figures[name]) for name, one in trivial.items()}
        from dtrees.reports.orders import target_of

        y, predicted = zip(*target.over_parts(_predicted, estimator, rows, client, list(columns), self.names), strict=True)
        return {
            "".join(self.targets): target_of(estimator, pd.concat(y) if self.names else None, np.concatenate(predicted)).scores(estimator)
        }

    def report(self, estimator: Any, rows: Any, columns: Sequence[str], path: str, said: str, display: Display, **more: Any) -> None:
        """Write the report on complete rows of a Dask DataFrame; ``said`` is which they are, ``more`` other arguments of the report."""
        y, beside = self.taken(rows)
        said += f"; target {', '.join(self.names)}" if self.names else ""
        with display.stage("Writing the report"):
            dtrees.report(estimator, rows[columns], y, path, rows=said, **beside, **more)
        display.result(f"Report written to {path}")

    def as_document(self, found: Mapping[str, tuple[str, list[Score]]]) -> dict[str, Any]:
        """Return the columns and scores as plain data, by target if there are several."""
        baselines = {name: words for name, (words, _) in found.items()}
        scores = {
            name: {score.name: {"model": score.model, "baseline": score.baseline} for score in figures}
            for name, (_, figures) in found.items()
        }
        if len(self.targets) > 1:
            return {"targets": list(self.targets), "baseline": baselines, "scores": scores}
        names = {"target": next(iter(self.targets), None)}
        if self.second is not None:
            names[_SECOND[self.kind][1].removeprefix("--")] = self.second
        return names | {key: of for key, one in (("baseline", baselines), ("scores", scores)) for of in one.values()}


def check_report(path: str | None) -> None:
    """Raise, before the work is done, if a report cannot be written to a file."""
    if path:
        check_suffix("--report", path, HTML_SUFFIXES, "a page of HTML")
        pyplot()


def _numbered(frame: Any, name: str) -> Any:
    """Return a Dask DataFrame with numbers in place of the values of a column, in the order in which these come first."""
    values = pd.concat(target.by_part(pd.Series.drop_duplicates, frame[name])).drop_duplicates()
    empty = pd.Series(dtype=np.int64, name=name)
    return frame.assign(**{name: frame[name].map_partitions(_numbers, pd.Index(values), meta=empty)})


def _numbers(column: pd.Series, values: pd.Index[Any]) -> pd.Series:
    return pd.Series(values.get_indexer(column), column.index, np.int64, column.name)


def _predicted(part: Any, model: Any, columns: list[str], names: list[str]) -> tuple[Any, Any]:
    """Return the target of the rows of a partition, and predictions, or scores of outliers."""
    predict = getattr(model, "score_samples", model.predict)
    return part[names], predict(part[columns]) if len(part) else np.empty(0)


def with_intervals(model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model with intervals."""
    if model not in _PARAMETERS:
        raise click.UsageError(f"--intervals is for --model {', '.join(_PARAMETERS)}; --model is {model}")
    given = _PARAMETERS[model] | dict(parameters)
    if model == "boosting" and given["loss"] != "quantile" and "alpha" not in parameters:
        del given["alpha"]
    for name in ("keep_targets", "bootstrap"):
        if model != "boosting" and given[name] is not True:
            raise click.UsageError(f"--intervals wants {name}=True, by which trees leave out rows whose targets are known; leave it out")
    return given


def hold_out(model: str, train: Any, seed: int) -> tuple[Any, Any]:
    """Return the rows to fit, and those for calibration, None if the model uses out-of-bag rows."""
    return target.split(train, _HELD_OUT, seed + 1) if model == "boosting" else (train, None)


def check_intervals(estimator: Any, path: str) -> None:
    """Raise unless a saved model supports intervals."""
    if not hasattr(estimator, "conformity_scores_") and not hasattr(estimator, "_leaf_targets"):
        raise CommandError(f"--coverage is for models of dtrees fit --intervals, but {path!r} is a {type(estimator).__name__} without.")


def score_intervals(estimator: Any, rows: Any, columns: Sequence[str], name: str, client: Any) -> dict[str, float]:
    """Return the share of rows that intervals with :data:`COVERAGE` cover, and their mean width."""
    n, inside, width = target.sum_over_parts(_interval_sums, estimator, rows, client, list(columns), name)
    return {"coverage": COVERAGE, "covered": inside / n, "width": width / n}


def intervals_in_words(scores: Mapping[str, float], rows: str) -> str:
    """Return the scores in words."""
    wanted, found = (f"{100 * scores[name]:.3g} %" for name in ("coverage", "covered"))
    return f"Intervals for {wanted} cover {found} of {rows}; they are {scores['width']:.6g} wide on average"


def _interval_sums(part: Any, model: Any, columns: list[str], name: str) -> Any:
    """Return sums over the rows of a partition: their number, the covered ones, and the widths of intervals."""
    if not len(part):
        return np.zeros(3)
    low, high = model.predict_interval(part[columns], COVERAGE).T
    y = part[name].to_numpy(dtype=np.float64)
    return np.array([len(y), np.count_nonzero((low <= y) & (y <= high)), np.sum(high - low)])
