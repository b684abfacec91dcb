"""``dtrees show``, ``dtrees plot`` and ``dtrees export``: a saved model as text, as a picture, and in the format of another tool."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import numpy as np

import dtrees
from dtrees.cli.display import Display
from dtrees.cli.models import load_trees
from dtrees.cli.tables import check_destinations, check_suffix
from dtrees.files import atomic_file
from dtrees.interop import dtrees_numpy
from dtrees.node_texts import column_names, single_tree
from dtrees.plots import importance_by, pyplot
from dtrees.reports.facts import facts_of, figures_of, parameters_of


def show(*, model: str, tree: int | None, depth: int, importance_type: str, columns: int, as_json: bool) -> None:
    """Print a summary of a saved model; the arguments are the options of the command."""
    display = Display(as_json=as_json)
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
    if rows:
        shown = f" ({len(rows)} of {len(shares)})" if len(rows) < len(shares) else ""
        display.table(rows, (f"column{shown}", importance_type), right=[1])
    found = {"model": model, "estimator": type(estimator).__name__, **figures_of(estimator)}
    found |= {"parameters": estimator.get_params(deep=False), "importance_type": importance_type, "importances": shares}
    display.document({**found, "classes": getattr(estimator, "classes_", None)})


def _importances(estimator: Any, kind: str) -> dict[str, float]:
    """Return the importances by name of the column, the largest first; empty for an isolation forest."""
    if not hasattr(estimator, "feature_importances_"):
        return {}
    values = importance_by(estimator, kind)
    names = column_names(estimator)
    return {names[j]: float(values[j]) for j in np.argsort(-values, kind="stable").tolist()}


_SUFFIXES = (".png", ".svg", ".pdf")


def plot(*, model: str, what: str, output: str, tree: int, depth: int | None, importance_type: str | None, metric: str | None) -> None:
    """Draw a picture of a saved model; the arguments are the options of the command."""
    display = Display()
    check_suffix("--output", output, _SUFFIXES, "a picture")
    check_destinations({"--output": output}, [model])
    estimator = load_trees(model)
    ax = _draw(estimator, what, tree, depth, importance_type, metric)
    with atomic_file(output) as file:
        ax.figure.savefig(file, format=PurePath(output).suffix[1:].lower(), dpi=150)
    display.result(f"Picture written to {output}")


def _draw(estimator: Any, what: str, tree: int, depth: int | None, importance_type: str | None, metric: str | None) -> Any:
    pyplot().switch_backend("agg")
    if what == "tree":
        return dtrees.plot_tree(estimator, tree_index=tree, max_depth=depth)
    if what == "importance":
        return dtrees.plot_importance(estimator, importance_type=importance_type)
    return dtrees.plot_metric(estimator, metric)


def export(*, model: str, form: str, output: str, tree: int) -> None:
    """Write a saved model in the format of another tool; the arguments are the options of the command."""
    display = Display()
    check_destinations({"--output": output}, [model])
    estimator = load_trees(model) if form in ("text", "dot") else dtrees.load(model)
    content = _exported(estimator, form, tree, PurePath(output).stem) if form != "numpy" else _module_for(model)
    with atomic_file(output) as file:
        file.write(content)
    display.result(f"Wrote {output} ({form}, {len(content):,} bytes)")


def _module_for(model: str) -> bytes:
    """Return the module that predicts with NumPy alone, if it supports this file."""
    dtrees_numpy.load(model)
    return Path(dtrees_numpy.__file__).read_bytes()


def _exported(estimator: Any, form: str, tree: int, name: str) -> bytes:
    """Return one tree as text or for Graphviz, or a model in the format of another tool; C functions have a prefix."""
    if form == "text":
        return dtrees.export_text(estimator, tree_index=tree, max_depth=1_000_000, show_missing=True).encode()
    if form == "dot":
        return dtrees.export_graphviz(estimator, tree_index=tree).encode()
    if form == "c":
        return dtrees.to_c(estimator, name=re.sub(r"^(?=\d)|\W", "_", name, flags=re.ASCII)).encode()
    if form == "onnx":
        return bytes(dtrees.to_onnx(estimator).SerializeToString())
    if form == "xgboost":
        return _through_a_file(lambda path: dtrees.to_xgboost(estimator, path), "model.json")
    return _through_a_file(lambda path: dtrees.to_treelite(estimator).serialize(path), "model.treelite")


def _through_a_file(write: Callable[[str], Any], name: str) -> bytes:
    """Return the bytes that a tool writes to a path."""
    with tempfile.TemporaryDirectory(prefix="dtrees-export-") as folder:
        path = Path(folder) / name
        write(str(path))
        return path.read_bytes()
