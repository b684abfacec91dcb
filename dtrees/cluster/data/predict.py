"""Predictions for Dask collections: lazy, partition by partition.

A DataFrame gives a Series with the same partitions, divisions and index; with several values for each row (probabilities, leaves), a
DataFrame with a column for each, or an Array if these have several values each. An Array gives an Array with the same row chunks. The model
is one node of the graph, shared by the tasks of all partitions. A large model is sent to the cluster in advance, if there is one, so that
it is sent once and not with the graph of each computation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import numpy as np
import pandas as pd
from distributed import Client, get_client
from distributed.protocol.pickle import dumps, loads
from numpy.typing import NDArray

from dtrees.cluster.data.partitions import column_names, in_order, is_array, rows_beside, whole_rows
from dtrees.cluster.reliability.waiting import however_large, task_keys
from dtrees.ensemble.backend import Output

#: A model with more bytes of trees is large: half of the size at which Dask warns of a large graph, which includes the data's part.
_LARGE = 5_000_000
#: The dtype of text columns: if pandas infers object (before version 3), that does not imply text.
_TEXT = "string" if pd.Index(["text"]).dtype == object else "str"


def predict(X: Any, function: Callable[..., NDArray[Any]], output: Output, beside: Any = None) -> Any:
    """Apply a function lazily to the partitions of a collection.

    Parameters
    ----------
    X : Dask DataFrame or 2-D Dask Array
    function : callable
        Maps a block of rows to an array of ``output``'s shape and dtype.
    output : Output
    beside : Dask collection, array-like or number, or None
        A second argument of the function: values of the same rows, or one for all.

    Returns
    -------
    Dask Series, DataFrame or Array

    Raises
    ------
    ValueError
        If ``beside`` has other rows than X, as far as these are known.
    """
    X = whole_rows(X)
    shared = _shared(function)
    beside = rows_beside(X, beside)
    return _predict_array(X, shared, output, beside) if is_array(X) else _predict_frame(X, shared, output, beside)


def _shared(function: Callable[..., NDArray[Any]]) -> Any:
    """Wrap a function as a dependency of tasks: a future if it is large and there is a client, otherwise delayed."""
    client = _computing_client()
    if client is not None and _bytes_of_trees(function) > _LARGE:
        with however_large():  # a task's result can be computed again if its worker is lost
            return client.submit(loads, dumps(function), key=task_keys("model", 1)[0])
    # With a unique name: a name by contents would hash the model at every prediction.
    return dask.delayed(function, pure=False, traverse=False)


def _bytes_of_trees(function: Callable[..., NDArray[Any]]) -> int:
    """Return the bytes of the trees of a model or of a bag's boosters, without pickling them, which would take long."""
    models = [one.trees for one in getattr(function, "boosters", (function,)) if hasattr(one, "trees")]
    parts = [part for model in models for group in model.groups for tree in group for part in vars(tree).values()]
    arrays = [array for part in parts for array in (part if isinstance(part, tuple) else (part,))]
    beside: int = getattr(function, "nbytes", 0)  # leaf targets
    return beside + sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def _computing_client() -> Client | None:
    """Return the client by which Dask computes collections by default, or None."""
    if dask.config.get("scheduler", None) not in (None, "distributed", "dask.distributed"):
        return None
    try:
        return get_client()
    except ValueError:
        return None


def _predict_frame(X: Any, function: Any, output: Output, beside: Any) -> Any:
    from dask.dataframe.utils import make_meta

    options: dict[str, Any] = {"align_dataframes": False, "token": f"dtrees-{output.name}"}
    if output.further:
        # For a meta that is an array, Dask creates an Array whose chunks have the lengths of the partitions, which are unknown.
        nothing = np.empty((0, output.width or 0, *output.further), output.dtype)
        return X.map_partitions(_predict_block, beside, function, column_names(X), meta=nothing, **options)
    empty = np.empty(0 if output.width is None else (0, output.width), output.dtype)
    meta = _as_frame(empty, make_meta(X).index[:0], output)
    return X.map_partitions(_predict_partition, beside, function, output, column_names(X), meta=meta, **options)


def _predict_partition(
    part: pd.DataFrame, beside: Any, function: Callable[..., NDArray[Any]], output: Output, names: list[Any]
) -> pd.Series | pd.DataFrame:
    return _as_frame(_predict_block(part, beside, function, names), part.index, output)


def _as_frame(values: NDArray[Any], index: pd.Index, output: Output) -> pd.Series | pd.DataFrame:
    if output.width is None:
        return pd.Series(values, index=index, dtype=_dtype_in_frame(output.dtype), name=output.name)
    names = list(output.labels or range(output.width))
    frame = pd.DataFrame(values, index=index, columns=names)
    return frame.astype(
        {name: _dtype_in_frame(dtype) for name, dtype in zip(names, output.dtypes or [output.dtype] * output.width, strict=True)}
    )


def _dtype_in_frame(dtype: np.dtype[Any]) -> Any:
    """Return the dtype of a column of predictions: labels of dtype object are text, which the meta must declare."""
    return _TEXT if dtype.kind in "OUS" else dtype


def _predict_array(X: Any, function: Any, output: Output, beside: Any) -> Any:
    import dask.array as da

    shape = (*(() if output.width is None else (output.width,)), *output.further)
    options: dict[str, Any] = {"drop_axis": 1} if output.width is None else {"chunks": (X.chunks[0], *((size,) for size in shape))}
    if output.further:
        options["new_axis"] = [2 + i for i in range(len(output.further))]
    meta = np.empty((0,) * (1 + len(shape)), output.dtype)
    options |= {"function": function, "dtype": output.dtype, "meta": meta, "token": f"dtrees-{output.name}"}
    return da.map_blocks(_predict_block, X, beside, **options)


def _predict_block(block: Any, beside: Any, function: Callable[..., NDArray[Any]], names: list[Any] | None = None) -> NDArray[Any]:
    """Return the predictions of a block; a frame's columns may have another order than the ``names`` of the collection."""
    block = in_order(block, names) if names is not None and len(block) else block
    return function(block) if beside is None else function(block, beside)
