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
from dtrees.version import __version__ as __version__

if TYPE_CHECKING:  # for type checkers, to which "as" says that a name is public
    from dtrees.cluster.growing.submission import attach as attach
    from dtrees.cluster.growing.submission import submit as submit
    from dtrees.cluster.growing.watching import fits as fits
    from dtrees.cluster.growing.watching import progress as progress
    from dtrees.cluster.reliability.fit_context import Settings as Settings
    from dtrees.ensemble import BaggingClassifier as BaggingClassifier
    from dtrees.ensemble import BaggingRegressor as BaggingRegressor
    from dtrees.ensemble import DecisionTreeClassifier as DecisionTreeClassifier
    from dtrees.ensemble import DecisionTreeRegressor as DecisionTreeRegressor
    from dtrees.ensemble import EarlyStopping as EarlyStopping
    from dtrees.ensemble import ExtraTreeClassifier as ExtraTreeClassifier
    from dtrees.ensemble import ExtraTreeRegressor as ExtraTreeRegressor
    from dtrees.ensemble import ExtraTreesClassifier as ExtraTreesClassifier
    from dtrees.ensemble import ExtraTreesRegressor as ExtraTreesRegressor
    from dtrees.ensemble import GradientBoostingClassifier as GradientBoostingClassifier
    from dtrees.ensemble import GradientBoostingRegressor as GradientBoostingRegressor
    from dtrees.ensemble import RandomForestClassifier as RandomForestClassifier
    from dtrees.ensemble import RandomForestRegressor as RandomForestRegressor
    from dtrees.ensemble.callbacks import KeepOnInterrupt as KeepOnInterrupt
    from dtrees.ensemble.callbacks import ProgressBar as ProgressBar
    from dtrees.errors import NotEnoughMemory as NotEnoughMemory
    from dtrees.errors import SchedulerLost as SchedulerLost
    from dtrees.errors import WorkerLost as WorkerLost
    from dtrees.export.graphviz import export_graphviz as export_graphviz
    from dtrees.export.text import export_text as export_text
    from dtrees.interop.description import to_numbers as to_numbers
    from dtrees.interop.from_sklearn import from_sklearn as from_sklearn
    from dtrees.interop.mlflow_callback import MLflowCallback as MLflowCallback
    from dtrees.interop.to_jax import to_jax as to_jax
    from dtrees.interop.to_onnx import to_onnx as to_onnx
    from dtrees.interop.to_sklearn import to_sklearn as to_sklearn
    from dtrees.interop.to_treelite import to_treelite as to_treelite
    from dtrees.interop.to_xgboost import to_xgboost as to_xgboost
    from dtrees.model_file import load as load
    from dtrees.model_file import save as save
    from dtrees.plots.charts import plot_importance as plot_importance
    from dtrees.plots.charts import plot_metric as plot_metric
    from dtrees.plots.tree import plot_tree as plot_tree
    from dtrees.reports.report import report as report

#: The modules of public names.
_NAMES = {
    "dtrees.cluster.growing.submission": "attach submit",
    "dtrees.cluster.growing.watching": "fits progress",
    "dtrees.cluster.reliability.fit_context": "Settings",
    "dtrees.ensemble": "BaggingClassifier BaggingRegressor DecisionTreeClassifier DecisionTreeRegressor EarlyStopping "
    "ExtraTreeClassifier ExtraTreeRegressor ExtraTreesClassifier ExtraTreesRegressor GradientBoostingClassifier "
    "GradientBoostingRegressor RandomForestClassifier RandomForestRegressor",
    "dtrees.ensemble.callbacks": "KeepOnInterrupt ProgressBar",
    "dtrees.errors": "NotEnoughMemory SchedulerLost WorkerLost",
    "dtrees.export.graphviz": "export_graphviz",
    "dtrees.export.text": "export_text",
    "dtrees.interop.description": "to_numbers",
    "dtrees.interop.from_sklearn": "from_sklearn",
    "dtrees.interop.mlflow_callback": "MLflowCallback",
    "dtrees.interop.to_jax": "to_jax",
    "dtrees.interop.to_onnx": "to_onnx",
    "dtrees.interop.to_sklearn": "to_sklearn",
    "dtrees.interop.to_treelite": "to_treelite",
    "dtrees.interop.to_xgboost": "to_xgboost",
    "dtrees.model_file": "load save",
    "dtrees.plots.charts": "plot_importance plot_metric",
    "dtrees.plots.tree": "plot_tree",
    "dtrees.reports.report": "report",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_MODULES, "__version__"]


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("dask", "distributed")  # a collection, or a client


@functools.cache
def _dask_backend() -> Any:
    return importlib.import_module("dtrees.cluster.backend").DaskBackend()


# Registered here, and not where estimators are made: a model unpickled in a fresh process serves Dask collections too.
register_backend(_is_dask, _dask_backend)


if not TYPE_CHECKING:  # who checks types would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
