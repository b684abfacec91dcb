"""``dtrees plot``: a picture of a saved model."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import dtrees
from dtrees.atomic_file import atomic_file
from dtrees.cli.data.output import check_destinations, check_suffix
from dtrees.cli.models import load_trees
from dtrees.cli.terminal.display import Display

_SUFFIXES = (".png", ".svg", ".pdf")


def run(
    *,
    model: str,
    what: str,
    output: str,
    tree: int,
    depth: int | None,
    importance_type: str | None,
    metric: str | None,
    display: Display | None = None,
) -> None:
    """Carry out the command; the arguments are its options."""
    display = display or Display()
    check_suffix("--output", output, _SUFFIXES, "a picture")
    check_destinations({"--output": output}, [model])
    estimator = load_trees(model)
    ax = _draw(estimator, what, tree, depth, importance_type, metric)
    with atomic_file(output) as file:
        ax.figure.savefig(file, format=PurePath(output).suffix[1:].lower(), dpi=150)
    display.result(f"Picture written to {output}")


def _draw(estimator: Any, what: str, tree: int, depth: int | None, importance_type: str | None, metric: str | None) -> Any:
    from dtrees.plots.charts import pyplot

    pyplot().switch_backend("agg")
    if what == "tree":
        return dtrees.plot_tree(estimator, tree_index=tree, max_depth=depth)
    if what == "importance":
        return dtrees.plot_importance(estimator, importance_type=importance_type)
    return dtrees.plot_metric(estimator, metric)
