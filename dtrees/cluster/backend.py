"""The backend for Dask DataFrames and Arrays; see :class:`dtrees.ensemble.in_process.Backend` for the interface.

With a :class:`distributed.Client`, tables are loaded and trees are grown on its cluster. Without one, the collections are computed by
Dask's local scheduler, and the fit runs in this process. Inside a task, the client is that of the task's worker. Predictions are lazy in
either case.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtrees.cluster.data.loading import load
from dtrees.cluster.data.partitions import column_names, computed, draw_rows, in_order, is_array, queries_beside, whole_rows
from dtrees.cluster.data.predict import predict
from dtrees.cluster.growing.submission import coordinate, fit
from dtrees.cluster.reliability.fit import Fit, Settings, coordinating, is_coordinating, new_name, register
from dtrees.cluster.transport.clients import checked_client, client_given, default_client, in_task, out_of_the_way, own_client
from dtrees.engine.plan.plans import BoostingResult, ForestResult
from dtrees.ensemble.backend import LoadOptions, Output, Table
from dtrees.ensemble.in_process import LOCAL, Backend, in_memory

if TYPE_CHECKING:
    from dtrees.ensemble.evaluation_sets import EvalSet
    from dtrees.ensemble.metrics import Metric

logger = logging.getLogger("dtrees.cluster")


def _growing(module: str, name: str, table: Table, *how: Any, **named: Any) -> Any:
    """Call a function of the modules that grow trees, which are imported only when needed."""
    with out_of_the_way():
        return getattr(importlib.import_module(f"dtrees.cluster.growing.{module}"), name)(table, *how, **named)


def _coordinated(placement: str | None, function: Callable[..., Any], *data: Any, **options: Any) -> Any:
    """Call a function that fits, in a task of the user, as the coordinator of a fit that was not submitted."""
    register(own_client())
    with coordinating(Fit(new_name(), Settings.read(placement=placement))):
        return function(*data, **options)


class DaskBackend(Backend):
    """Fits and predicts on the cluster of the current client."""

    def fit(
        self, estimator: Any, X: Any, y: Any, sample_weight: Any, options: dict[str, Any], client: Any = None, placement: str | None = None
    ) -> Any:
        """Fit on the cluster and return the fitted copy; None if this process already runs on the cluster, or there is no cluster."""
        if in_task():
            if client is not None:
                raise ValueError(f"client is {client!r}, but this is a task of a cluster, whose worker has its own; leave it out")
            return None if is_coordinating() else _coordinated(placement, estimator.fit, X, y, sample_weight, **options)
        if client is None:
            client = default_client()
        if client is not None:
            return fit(estimator, X, y, sample_weight, options, checked_client(client_given(client)), placement)
        if placement is not None:
            raise ValueError(f"placement is {placement!r}, but there is no Dask client, so that X is computed here; make one, or pass it")
        return None

    def coordinate(self, function: Callable[..., Any], *data: Any, label: str = "") -> Any:
        """Call a function that runs many fits in a task of the cluster; without a client, in this process with the computed data."""
        if in_task():
            return function(*data) if is_coordinating() else _coordinated(None, function, *data)
        client = default_client()
        if client is not None:
            return coordinate(function, data, client, label)
        estimator, X, *others = data
        names = column_names(whole_rows(X))
        X, *others = computed(X, *others)
        return function(estimator, in_order(X, names), *others)

    def validation(self, kind: type[Any], *arguments: Any) -> Any:
        """Return the validation object by which folds are fitted: as weights of one table on the cluster."""
        return importlib.import_module("dtrees.cluster.folds").ClusterValidation(*arguments)

    def load(self, X: Any, y: Any, sample_weight: Any, options: LoadOptions) -> Table:
        """Check, encode and presort a training set, on the cluster if there is one."""
        with out_of_the_way():
            client = own_client() if in_task() else default_client()
            if client is not None:
                return load(client, X, y, sample_weight, options)
        logger.info("no Dask client: computing the collections here, and fitting in this process")
        names = column_names(whole_rows(X))
        X, y, sample_weight, margin = computed(X, y, sample_weight, options.base_margin)
        return LOCAL.load(in_order(X, names), y, sample_weight, replace(options, base_margin=margin))

    def load_evaluation(self, table: Table, sets: Sequence[EvalSet], metrics: Sequence[Metric]) -> Table:
        """Check and encode evaluation sets."""
        return replace(table, evaluation=_growing("evaluation", "load_evaluation", table, sets, metrics))

    def fingerprint(self, table: Table) -> str:
        """Return a digest of the whole training set."""
        return str(table.columns.fingerprint(table))

    def grow_forest(self, table: Table, *how: Any, **named: Any) -> ForestResult:
        """Grow the trees ``first`` to ``last - 1``."""
        return _growing("fits", "grow_forest", table, *how, **named)

    def boost(self, table: Table, *how: Any, **named: Any) -> BoostingResult:
        """Boost up to ``plan.n_rounds`` rounds."""
        return _growing("fits", "boost", table, *how, **named)

    def grow_bag(self, table: Table, *how: Any, **named: Any) -> list[Any]:
        """Return the boosters of a bag by number, each grown by a task."""
        return _growing("fits", "grow_bag", table, *how, **named)

    def target(self, table: Table) -> NDArray[Any]:
        """Fetch the encoded target into this process."""
        found: NDArray[Any] = table.columns.fetch("target")
        return found

    def weight(self, table: Table) -> NDArray[np.float64] | None:
        """Fetch the weights into this process."""
        return None if table.weight is None else table.columns.fetch("weight")

    def header(self, X: Any) -> Any:
        """Return a frame or array without rows that has the columns of ``X``."""
        X = whole_rows(X)
        if is_array(X):
            return np.empty((0, X.shape[1]), X.dtype)
        from dask.dataframe.utils import make_meta  # imported late, as it takes 27 MB of memory

        return make_meta(X)

    def predict(self, X: Any, function: Callable[..., NDArray[Any]], output: Output, beside: Any = None) -> Any:
        """Apply ``function`` lazily; see :func:`dtrees.cluster.data.predict.predict`."""
        return predict(X, function, output, beside)

    def beside(self, y: Any, qid: Any) -> Any:
        """Return relevances and queries side by side, lazily, in the partitions of y."""
        return queries_beside(y, qid)

    def gather(self, *collections: Any) -> list[Any]:
        """Compute collections; collections of one kind are computed together."""
        return computed(*collections)

    def draw_rows(self, n: int | None, seed: int, X: Any, *others: Any, queries: Any = None) -> tuple[int, list[Any]]:
        """Return at most ``n`` rows of collections; other rows are not fetched."""
        return draw_rows(n, seed, X, others, *in_memory(queries))
