"""A report about a model: one page of HTML, with all that it shows in it."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from dtrees.effects import members_of, without_steps
from dtrees.ensemble.objective import registry
from dtrees.files import atomic_file
from dtrees.node_texts import check_integer, short_text
from dtrees.plots import pyplot
from dtrees.reports import behaviour, facts, figures
from dtrees.reports.rows import Rows, scores_of, take_rows
from dtrees.reports.slices import means_named, worst_slices

#: Of more columns, or targets, these are shown.
_MAX_COLUMNS, _MAX_TARGETS = 100, 4


class Report:
    """A page about a model; what :func:`dtrees.report` returns. Notebooks show it.

    Attributes
    ----------
    html : str
        The page. It loads nothing from elsewhere, and runs no script.
    """

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, whole or not at all."""
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
    y: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    base_margin: ArrayLike | None = None,
    max_rows: int | None = 10_000,
    seed: int = 0,
    rows: str | None = None,
    title: str | None = None,
    n_trees: int = 2,
    max_depth: int | None = 3,
) -> Report:
    """Describe a model, and how well it does on some rows, on one page of HTML.

    The page shows scores beside those of a prediction that looks at no column, learning curves, predictions beside what is, where the model
    is worst, importances, what predictions depend on and what columns add to them, the columns, the first trees, parameters and versions.
    It is a single file, which loads nothing from elsewhere.

    Parameters
    ----------
    model : estimator or bag of dtrees, or pipeline that ends with one
        Fitted. Of a pipeline, the page describes the last step, and the columns that the steps before pass on to it.
    X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
        Rows, best of all such as the model was not fitted on: scores of those it was fitted on are too good.
    y : array-like of shape (n,), or (n, k) for k targets
    path : str, path-like or None, default=None
        Where to write the page, which appears there whole or not at all; None only returns it.
    sample_weight : array-like of shape (n,) or None, default=None
        For scores, the confusion matrix, ROC and precision-recall curves.
    base_margin : array-like of shape (n,) or (n, n_outputs), or None, default=None
        For boosting that was fitted with it.
    max_rows : int or None, default=10000
        Of more rows, so many are drawn at random, and the page says so. Only these are brought from a cluster. None takes all.
    seed : int, default=0
        Decides which rows are drawn.
    rows : str or None, default=None
        What the rows are, for the page: "held out", for instance.
    title : str or None, default=None
        None for the name of the estimator.
    n_trees : int, default=2
        How many trees are drawn.
    max_depth : int or None, default=3
        How deep they are drawn; None for all of it.

    Returns
    -------
    Report
        The page, which a notebook shows, with ``save(path)`` and the text ``html``.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If this is no estimator of dtrees.
    ValueError
        If the rows are not such as the model predicts, or it predicts no values of y: times that may be censored, rankings and isolation
        forests.

    Examples
    --------
    >>> from dtrees import DecisionTreeRegressor, report
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], [5.0, 5.0, 9.0, 9.0]
    >>> page = report(DecisionTreeRegressor().fit(X, y), X, y, rows="of the fit")
    >>> page.html[:15], page.html.count("<h1>")
    ('<!DOCTYPE html>', 1)
    """
    model, X = without_steps(model, X)
    loss = getattr(members_of(model)[0], "_loss_name", "")
    if hasattr(model, "score_samples") or registry.columns_of(loss or registry.NAME):
        what = f"loss={loss!r}" if loss else type(model).__name__
        raise ValueError(
            f"a report compares predictions with y, but {what} predicts no values of y; use plot_partial_dependence and plot_shap"
        )
    pyplot()
    check_integer("n_trees", n_trees, 0)
    if max_rows is not None:
        check_integer("max_rows", max_rows, 1)
    if not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"seed is {seed!r}; wants an integer of at least 0")
    if max_depth is not None:
        check_integer("max_depth", max_depth, 0)
    taken = take_rows(model, X, y, sample_weight, base_margin, max_rows, int(seed))
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
            importances=[*figures.importances(model), behaviour.by_shuffling(looked)],
            dependence=behaviour.dependence(looked),
            explanations=behaviour.explanations(looked),
            slices=worst_slices(looked.sample, looked.target, looked.losses),
            means=means_named(looked.target),
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
        baseline, scores = scores_of(target, members_of(model)[0])
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
    """Return the template, which escapes whatever it is given."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["short"] = lambda value: short_text(float(value), 4)
    return environment.from_string((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))
