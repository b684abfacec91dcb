"""A report about a model, as a single HTML page."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dtrees.effects import members_of, without_steps
from dtrees.files import atomic_file
from dtrees.node_texts import check_integers, check_optional, short_text
from dtrees.plots import pyplot
from dtrees.reports import behaviour, facts, figures
from dtrees.reports.behaviour import Rows, take_rows

#: Most columns, and targets, that are shown.
_MAX_COLUMNS, _MAX_TARGETS = 100, 4


class Report:
    """The HTML page that :func:`dtrees.report` returns. Notebooks display it.

    Attributes
    ----------
    html : str
        The page. It loads no other files, and runs no script.
    """

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file atomically."""
        with atomic_file(path) as file:
            file.write(self.html.encode())

    def _repr_html_(self) -> str:
        page = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" sandbox style="width: 100%; height: 800px; border: 1px solid #ccc"></iframe>'

    def __repr__(self) -> str:
        return f"<Report of {len(self.html):,} characters; save(path) writes it to a file>"


def report(
    model: Any,
    X: Any,
    y: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    qid: Any = None,
    sample_weight: ArrayLike | None = None,
    base_margin: ArrayLike | None = None,
    max_rows: int | None = 10_000,
    seed: int = 0,
    rows: str | None = None,
    title: str | None = None,
    n_trees: int = 2,
    max_depth: int | None = 3,
) -> Report:
    """Describe a model and its predictions for some rows on one HTML page.

    The page shows scores next to those of a baseline that uses no column, learning curves, predicted and true values, the rows that the
    model predicts worst, importances, partial dependence and Shapley values, the columns, the first trees, parameters and versions. It
    is a single file and loads no other files. Of rankers, survival models and isolation forests it says which parts are left out.

    Parameters
    ----------
    model : estimator or bag of dtrees, or pipeline that ends with one
        Fitted. For a pipeline, the page describes the last step and the columns that this step receives.
    X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
        Rows to score. Pass held-out rows: scores of the training rows are too good.
    y : array-like of shape (n,), or (n, k) for k targets
        For survival, as in :meth:`GradientBoostingRegressor.fit`. For an isolation forest, None, or labels of outliers: True or 1, others
        False or 0; or -1 and 1.
    path : str, path-like or None, default=None
        File to which the page is written atomically. None only returns it.
    qid : array-like of shape (n,) or None, default=None
        Query of each row, for a ranker. A random sample of the rows then has whole queries.
    sample_weight : array-like of shape (n,) or None, default=None
        Weights of rows in scores, the confusion matrix, ROC and precision-recall curves.
    base_margin : array-like of shape (n,) or (n, n_outputs), or None, default=None
        Initial scores, for boosting that was fitted with them.
    max_rows : int or None, default=10000
        Maximum number of rows used. Of more rows, a random sample is drawn, and only the sample leaves a cluster. None uses all rows.
    seed : int, default=0
        Seed of the random sample.
    rows : str or None, default=None
        Description of the rows on the page, such as "held out".
    title : str or None, default=None
        Title of the page. None uses the name of the estimator.
    n_trees : int, default=2
        Number of trees that are drawn.
    max_depth : int or None, default=3
        Depth to which trees are drawn. None draws all nodes.

    Returns
    -------
    Report
        The page, with the method ``save(path)`` and the text ``html``. Notebooks display it.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If ``model`` is not an estimator of dtrees.
    ValueError
        If the model cannot predict the rows, or y is not a target of the model.

    Examples
    --------
    >>> from dtrees import DecisionTreeRegressor, report
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], [5.0, 5.0, 9.0, 9.0]
    >>> page = report(DecisionTreeRegressor().fit(X, y), X, y, rows="of the fit")
    >>> page.html[:15], page.html.count("<h1>")
    ('<!DOCTYPE html>', 1)
    """
    model, X = without_steps(model, X)
    pyplot()
    check_integers(n_trees=(n_trees, 0))
    check_optional(max_rows=(max_rows, 1), max_depth=(max_depth, 0))
    if not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"seed is {seed!r}; wants an integer of at least 0")
    taken = take_rows(model, X, y, sample_weight, base_margin, max_rows, int(seed), qid)
    page = Report(_page(model, taken, rows, title, n_trees, max_depth, weighted=sample_weight is not None))
    if path is not None:
        page.save(path)
    return page


def _page(model: Any, rows: Rows, what: str | None, title: str | None, n_trees: int, max_depth: int | None, *, weighted: bool) -> str:
    columns, n_columns = facts.summarise_columns(model, rows.X, _MAX_COLUMNS)
    parameters = facts.parameters_of(model)
    looked = behaviour.Looked.of(model, rows)
    return str(
        _template().render(
            title=title or type(model).__name__,
            estimator=type(model).__name__,
            sentence=_sentence(rows, what),
            warnings=list(_warnings(rows, what, weighted)),
            targets=_targets(model, rows),
            n_targets=len(rows.targets),
            curves=figures.curves(model),
            importances=[*figures.importances(model), *behaviour.by_shuffling(looked)],
            dependence=behaviour.dependence(looked),
            explanations=behaviour.explanations(looked),
            slices=behaviour.worst_slices(looked.sample, looked.target, looked.losses),
            losses=looked.losses,
            of_first=f" of {rows.targets[0].name}" if len(rows.targets) > 1 else "",
            columns=columns,
            n_columns=n_columns,
            trees=figures.trees(model, n_trees, max_depth),
            changed=[parameter for parameter in parameters if parameter.changed],
            unchanged=[parameter for parameter in parameters if not parameter.changed],
            facts=[*facts.facts_of(model), *facts.times_of(model), facts.speed_of(rows.n, rows.seconds)],
            environment=facts.environment(),
            now=facts.now(),
        )
    )


def _targets(model: Any, rows: Rows) -> list[dict[str, Any]]:
    found = []
    for target in rows.targets[:_MAX_TARGETS]:
        baseline, scores = target.scores(members_of(model)[0])
        found.append({"name": target.name, "baseline": baseline, "scores": scores, "pictures": figures.predictions(target)})
    return found


def _sentence(rows: Rows, what: str | None) -> str:
    said = f"{rows.n_total:,} rows" if rows.n_total != 1 else "1 row"
    said = f"{said} ({what})" if what else said
    return f"{rows.n:,} of {said}, drawn at random" if rows.n < rows.n_total else said


def _warnings(rows: Rows, what: str | None, weighted: bool) -> Sequence[str]:
    found = []
    if what is None:
        found.append("Scores of rows that the model was fitted on are too good; those of other rows tell what to expect.")
    if rows.n_unknown:
        found.append(f"{rows.n_unknown:,} rows are of classes that the model does not know; scores and pictures are without them.")
    if weighted:
        found.append("Scores, confusion matrix, ROC and precision-recall curves count rows by their weights; other pictures do not.")
    return found


def _template() -> Any:
    """Return the template, which escapes all values."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["short"] = lambda value: "-" if np.isnan(value) else short_text(float(value), 4)
    return environment.from_string((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))
