"""What a model is, in words and numbers, and with which versions it is looked at."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import is_classifier

from dtrees.reports.members import members_of
from dtrees.version import __version__

_PACKAGES = ("numpy", "numba", "scikit-learn", "scipy", "pandas", "dask", "distributed", "matplotlib")


@dataclass(frozen=True)
class Parameter:
    """A parameter, its value and its default as text, and whether they differ."""

    name: str
    value: str
    default: str
    changed: bool


def parameters_of(model: Any) -> list[Parameter]:
    """Return the parameters of a model, the changed ones first.

    >>> from dtrees import DecisionTreeRegressor
    >>> parameters_of(DecisionTreeRegressor(max_depth=3))[0]
    Parameter(name='max_depth', value='3', default='None', changed=True)
    """
    defaults = type(model)().get_params(deep=False)
    found = []
    for name, value in model.get_params(deep=False).items():
        default = defaults[name]
        same = value is default or (type(value) is type(default) and repr(value) == repr(default))
        found.append(Parameter(name, f"{value!r:.200}", f"{default!r:.200}", not same))
    return sorted(found, key=lambda parameter: not parameter.changed)


def figures_of(model: Any) -> dict[str, Any]:
    """Return what a fitted model amounts to, as plain data: counts, scores, and of leaves and depths the least, the most and the mean."""
    members = members_of(model)
    trees = [tree for member in members for group in member._trees.groups for tree in group]
    found: dict[str, Any] = {"task": _task(model)}
    if len(members) > 1:
        found["n_boosters"] = len(members)
    found |= {
        "n_trees": len(trees),
        "n_rounds": len(trees) // len(members[0]._trees.groups),
        "leaves": _spread([tree.n_leaves for tree in trees]),
        "depth": _spread([tree.max_depth for tree in trees]),
        "n_columns": model.n_features_in_,
    }
    if hasattr(model, "best_iteration_"):
        found |= {"best_round": model.best_iteration_ + 1, "best_score": model.best_score_}
    if hasattr(model, "oob_score_"):
        found["oob_score"] = model.oob_score_
    if hasattr(model, "placement_"):
        found["fitted"] = str(model.placement_)
    return found


def facts_of(model: Any) -> list[tuple[str, str]]:
    """Return the figures of a fitted model in words: pairs of what, and how much."""
    found = figures_of(model)
    by_round = found["n_trees"] // max(1, found["n_rounds"])
    trees = f"{found['n_trees']:,}" + (f": {found['n_rounds']:,} rounds of {by_round}" if by_round > 1 else "")
    facts = [("task", found["task"])]
    if "n_boosters" in found:
        facts.append(("boosters", f"{found['n_boosters']:,}"))
    facts += [("trees", trees), ("leaves", _range(found["leaves"])), ("depth", _range(found["depth"]))]
    facts.append(("columns", f"{found['n_columns']:,}"))
    if "best_round" in found:
        facts.append(("best round", f"{found['best_round']:,}, with a score of {found['best_score']:.6g}"))
    if "oob_score" in found:
        facts.append(("out-of-bag score", f"{found['oob_score']:.6g}"))
    if "fitted" in found:
        facts.append(("fitted", found["fitted"]))
    return facts


def times_of(model: Any) -> list[tuple[str, str]]:
    """Return how long the fit took: pairs of what, and how long; none for a model that came from a file or another tool.

    Of several fits by ``warm_start`` it is the last.
    """
    seconds = getattr(model, "_growing_seconds", None)
    if seconds is None:
        return []
    n, what = model._n_grown or 0, "round" if hasattr(model, "learning_rate") else "tree"  # a checkpoint may have had some trees
    grown = f"{n:,} {what}s, {1000 * seconds / n:.3g} ms each" if n > 1 else "trees" if n == 0 else f"a {what}"
    return [("fit", f"{model._loading_seconds:.3g} s to check and sort the table, {seconds:.3g} s to grow {grown}")]


def speed_of(n_rows: int, seconds: float) -> tuple[str, str]:
    """Return how fast predictions were."""
    return "prediction", f"{seconds:.3g} s for {n_rows:,} rows here, {n_rows / max(seconds, 1e-9):,.0f} rows a second"


def _task(model: Any) -> str:
    task, n_targets = "classification" if is_classifier(model) else "regression", getattr(model, "n_outputs_", 1)
    if n_targets > 1:
        return f"{task}, {n_targets} targets"
    return f"{task}, {len(model.classes_):,} classes" if is_classifier(model) else task


def _spread(numbers: list[int]) -> dict[str, float]:
    return {"n": len(numbers), "min": min(numbers), "max": max(numbers), "mean": sum(numbers) / len(numbers)}


def _range(spread: Mapping[str, float]) -> str:
    if spread["min"] == spread["max"]:
        return f"{spread['min']:,}{' each' if spread['n'] > 1 else ''}"
    return f"{spread['min']:,} to {spread['max']:,}, {spread['mean']:,.1f} on average"


def environment() -> list[tuple[str, str]]:
    """Return versions and the machine: pairs of what, and which."""
    found = [("dtrees", __version__), ("Python", platform.python_version())]
    for name in _PACKAGES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    found.append(("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"))
    return found


def now() -> str:
    """Return the date and time, with the offset of the time zone."""
    return datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z")
