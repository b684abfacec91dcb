"""The columns of a table that hold the target: which options name them, what a fit takes of them, and how predictions are scored.

===================  ======================================================  =====================================
a model of           options                                                 what a fit takes
===================  ======================================================  =====================================
values               ``--target``, once for each target                      these columns as y
queries (rankings)   ``--target`` of relevances, ``--qid``                   relevances as y, numbers as qid
bounds (survival)    ``--target`` of times, ``--event``                      a frame of both columns as y
outliers             ``--target`` of labels, only to score; may be left out  labels as y, which the fit ignores
===================  ======================================================  =====================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import pandas as pd

from dtrees.cli import target
from dtrees.cli.display import Display
from dtrees.cli.errors import CommandError
from dtrees.cli.tables import check_columns
from dtrees.cli.target import TargetSummary
from dtrees.ensemble.metrics import Score

VALUES, QUERIES, BOUNDS, OUTLIERS = "values", "queries", "bounds", "outliers"
#: Options of a second column, by kind: what the models are, the option and its meaning.
_SECOND = {
    QUERIES: ("ranking", "--qid", "the query of each row"),
    BOUNDS: ("survival", "--event", "whether the event was observed (1 or true) or not (0 or false)"),
}
#: What columns of yes and no may hold.
_FLAGS = {BOUNDS: ({0, 1},), OUTLIERS: ({0, 1}, {-1, 1})}


def kind_of(estimator: Any) -> str:
    """Return what the target columns of a fitted model are."""
    columns = estimator._columns_of_y
    return OUTLIERS if hasattr(estimator, "score_samples") else columns if isinstance(columns, str) else VALUES


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

    @property
    def in_words(self) -> str:
        """The columns, for the sentence about rows of a report."""
        return f"; target {', '.join(self.names)}" if self.names else ""

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

    def as_document(self, found: Mapping[str, tuple[str, list[Score]]]) -> dict[str, Any]:
        """Return the columns and scores as plain data, by target if there are several."""
        baselines = {name: words for name, (words, _) in found.items()}
        scores = {name: target.as_document(figures) for name, (_, figures) in found.items()}
        if len(self.targets) > 1:
            return {"targets": list(self.targets), "baseline": baselines, "scores": scores}
        names = {"target": next(iter(self.targets), None)}
        if self.second is not None:
            names[_SECOND[self.kind][1].removeprefix("--")] = self.second
        return names | {key: of for key, one in (("baseline", baselines), ("scores", scores)) for of in one.values()}


def _numbered(frame: Any, name: str) -> Any:
    """Return a Dask DataFrame with numbers in place of the values of a column, in the order in which these come first."""
    import dask

    values = pd.concat(dask.compute(*[part[name].drop_duplicates() for part in frame.to_delayed()])).drop_duplicates()
    empty = pd.Series(dtype=np.int64, name=name)
    return frame.assign(**{name: frame[name].map_partitions(_numbers, pd.Index(values), meta=empty)})


def _numbers(column: pd.Series, values: pd.Index[Any]) -> pd.Series:
    return pd.Series(values.get_indexer(column), column.index, np.int64, column.name)


def _predicted(part: Any, model: Any, columns: list[str], names: list[str]) -> tuple[Any, Any]:
    """Return the target of the rows of a partition, and predictions, or scores of outliers."""
    predict = getattr(model, "score_samples", model.predict)
    return part[names], predict(part[columns]) if len(part) else np.empty(0)
