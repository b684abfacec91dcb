"""Exact decision-tree ensembles, on one machine or on a Dask cluster.

Ten estimators with scikit-learn's interface (single trees, forests, extra-trees, gradient boosting, each as regressor and
classifier), bags of boosters, and model files that are safe to load:

>>> import numpy as np
>>> from dtrees import DecisionTreeClassifier
>>> tree = DecisionTreeClassifier().fit(np.array([[0.0], [1.0], [2.0]]), ["low", "low", "high"])
>>> tree.predict(np.array([[1.4], [1.6]])).tolist()
['low', 'high']

Names are loaded when first used (PEP 562), so ``import dtrees`` costs next to nothing and pulls in neither Numba nor Dask.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from dtrees.backends import register_backend
from dtrees.version import __version__

if TYPE_CHECKING:
    from dtrees.cluster.growing.submission import attach, submit
    from dtrees.cluster.growing.watching import fits, progress
    from dtrees.cluster.reliability.fit_context import Settings
    from dtrees.ensemble import (
        BaggingClassifier,
        BaggingRegressor,
        DecisionTreeClassifier,
        DecisionTreeRegressor,
        EarlyStopping,
        ExtraTreeClassifier,
        ExtraTreeRegressor,
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from dtrees.ensemble.evaluation.callbacks import KeepOnInterrupt, ProgressBar
    from dtrees.errors import NotEnoughMemory, SchedulerLost, WorkerLost
    from dtrees.export.graphviz import export_graphviz
    from dtrees.export.text import export_text
    from dtrees.interop.description import to_numbers
    from dtrees.interop.from_sklearn import from_sklearn
    from dtrees.interop.mlflow_callback import MLflowCallback
    from dtrees.interop.to_jax import to_jax
    from dtrees.interop.to_onnx import to_onnx
    from dtrees.interop.to_sklearn import to_sklearn
    from dtrees.interop.to_treelite import to_treelite
    from dtrees.interop.to_xgboost import to_xgboost
    from dtrees.model_file import load, save
    from dtrees.plots.charts import plot_importance, plot_metric
    from dtrees.plots.tree import plot_tree
    from dtrees.reports.report import report

__all__ = [
    "BaggingClassifier",
    "BaggingRegressor",
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "EarlyStopping",
    "ExtraTreeClassifier",
    "ExtraTreeRegressor",
    "ExtraTreesClassifier",
    "ExtraTreesRegressor",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
    "KeepOnInterrupt",
    "MLflowCallback",
    "NotEnoughMemory",
    "ProgressBar",
    "RandomForestClassifier",
    "RandomForestRegressor",
    "SchedulerLost",
    "Settings",
    "WorkerLost",
    "__version__",
    "attach",
    "export_graphviz",
    "export_text",
    "fits",
    "from_sklearn",
    "load",
    "plot_importance",
    "plot_metric",
    "plot_tree",
    "progress",
    "report",
    "save",
    "submit",
    "to_jax",
    "to_numbers",
    "to_onnx",
    "to_sklearn",
    "to_treelite",
    "to_xgboost",
]


_MODULES = {
    "export_graphviz": "dtrees.export.graphviz",
    "export_text": "dtrees.export.text",
    "from_sklearn": "dtrees.interop.from_sklearn",
    "to_numbers": "dtrees.interop.description",
    "to_jax": "dtrees.interop.to_jax",
    "MLflowCallback": "dtrees.interop.mlflow_callback",
    "to_onnx": "dtrees.interop.to_onnx",
    "to_sklearn": "dtrees.interop.to_sklearn",
    "to_treelite": "dtrees.interop.to_treelite",
    "to_xgboost": "dtrees.interop.to_xgboost",
    "load": "dtrees.model_file",
    "plot_importance": "dtrees.plots.charts",
    "plot_metric": "dtrees.plots.charts",
    "plot_tree": "dtrees.plots.tree",
    "report": "dtrees.reports.report",
    "save": "dtrees.model_file",
    "attach": "dtrees.cluster.growing.submission",
    "fits": "dtrees.cluster.growing.watching",
    "progress": "dtrees.cluster.growing.watching",
    "Settings": "dtrees.cluster.reliability.fit_context",
    "KeepOnInterrupt": "dtrees.ensemble.evaluation.callbacks",
    "ProgressBar": "dtrees.ensemble.evaluation.callbacks",
    "NotEnoughMemory": "dtrees.errors",
    "SchedulerLost": "dtrees.errors",
    "WorkerLost": "dtrees.errors",
    "submit": "dtrees.cluster.growing.submission",
}


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("dask", "distributed")  # a collection, or a client


@functools.cache
def _dask_backend() -> Any:
    return importlib.import_module("dtrees.cluster.backend").DaskBackend()


# Registered here, and not where estimators are made: a model unpickled in a fresh process serves Dask collections too.
register_backend(_is_dask, _dask_backend)


if not TYPE_CHECKING:  # who checks types would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _MODULES.get(name, "dtrees.ensemble")
        value = getattr(importlib.import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
