"""``dtrees show``: what a saved model is."""

from __future__ import annotations

from typing import Any

import numpy as np

import dtrees
from dtrees.cli.models import load_trees
from dtrees.cli.terminal.display import Display
from dtrees.export.branches import single_tree
from dtrees.plots.charts import importance_by
from dtrees.reports.facts import facts_of, figures_of, parameters_of


def run(
    *, model: str, tree: int | None, depth: int, importance_type: str, columns: int, as_json: bool, display: Display | None = None
) -> None:
    """Carry out the command; the arguments are its options."""
    display = display or Display(as_json=as_json)
    estimator = load_trees(model)
    if tree is not None:
        text = dtrees.export_text(single_tree(estimator, tree), max_depth=depth, show_missing=True)
        display.result(text.rstrip("\n"))
        display.document({"model": model, "tree": tree, "text": text})
        return
    facts = [("estimator", type(estimator).__name__), *facts_of(estimator)]
    display.table(facts)
    changed = [parameter for parameter in parameters_of(estimator) if parameter.changed]
    if changed:
        display.table([(one.name, one.value, one.default) for one in changed], ("parameter", "value", "default"))
    shares = _importances(estimator, importance_type)
    rows = [(name, f"{share:.4f}") for name, share in list(shares.items())[:columns]]
    display.table(rows, (f"column{f' ({len(rows)} of {len(shares)})' if len(rows) < len(shares) else ''}", importance_type), right=[1])
    display.document(
        {
            "model": model,
            "estimator": type(estimator).__name__,
            **figures_of(estimator),
            "parameters": estimator.get_params(deep=False),
            "importance_type": importance_type,
            "importances": shares,
            "classes": getattr(estimator, "classes_", None),
        }
    )


def _importances(estimator: Any, kind: str) -> dict[str, float]:
    """Return the importances by the name of the column, the largest first."""
    values = importance_by(estimator, kind)
    names = getattr(estimator, "feature_names_in_", [f"feature_{j}" for j in range(len(values))])
    return {str(names[j]): float(values[j]) for j in np.argsort(-values, kind="stable").tolist()}
