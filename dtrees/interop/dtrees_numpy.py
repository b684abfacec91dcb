"""Predict with a model file of dtrees and NumPy alone. This file needs nothing else: you can copy it and use it without dtrees.

    from dtrees_numpy import load

    model = load("wage.dtrees")
    model.predict(X), model.predict_proba(X), model.decision_function(X)

Results equal those of dtrees bit for bit. The code is small rather than fast: all rows walk through one tree after the other.

Loading runs no code of the file's author. The file is a safetensors file: the length of a JSON header (8 bytes), the header, and raw
arrays. Loading raises a ValueError if the file is damaged or is not a model.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from functools import reduce
from operator import add
from typing import Any

import numpy as np

#: The newest files that can be read.
FORMAT_VERSION = 2
_DTYPES = {"BOOL": "?"} | {
    f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "uif" for size in (1, 2, 4, 8) if kind + str(size) != "f1"
}
_IDENTITY, _EXPONENTIAL = (
    {"squared_error", "absolute_error", "huber", "quantile", "lambdarank", "custom"},
    {"poisson", "gamma", "tweedie", "cox", "aft"},
)
#: The factor of raw predictions in the log odds, by loss.
_SLOPES = {"log_loss": 1.0, "custom": 1.0, "exponential": 2.0}


def load(path: str | os.PathLike[str]) -> Model:
    """Read a model that ``dtrees.save`` wrote.

    Raises
    ------
    ValueError
        If the file is not a model of dtrees, is damaged, was written by a newer dtrees, or has a loss that another package registered.
    OSError
        If it cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read()
    try:
        document, arrays = _parse(content)
        if document["format_version"] > FORMAT_VERSION:
            raise ValueError(f"it is of format {document['format_version']}, and formats up to {FORMAT_VERSION} are known here")
        if _digest(document, arrays) != document["sha256"]:
            raise ValueError("its content does not match its checksum")
        return Model(document["estimator"], document["state"], arrays)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(f"{os.fspath(path)!r} is not a sound model file of dtrees ({type(error).__name__}: {error!s:.200})") from error


def _parse(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata and the arrays of a file."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    document, arrays = json.loads(header.pop("__metadata__")["dtrees"]), {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"]
        if not 0 <= first <= last <= len(content) - start or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != last - first:
            raise ValueError(f"the array {name!r} has not the size of its shape")
        arrays[name] = np.frombuffer(content[start + first : start + last], dtype).reshape(shape)
    if sum(array.nbytes for array in arrays.values()) != len(content) - start:
        raise ValueError("its arrays are not all that follows the header")
    return document, arrays


def _digest(document: dict[str, Any], arrays: dict[str, Any]) -> str:
    """Return the checksum of everything except its own entry."""
    found = hashlib.sha256(json.dumps({key: document[key] for key in document if key != "sha256"}, sort_keys=True).encode())
    for name in sorted(arrays):
        found.update(json.dumps([name, arrays[name].dtype.str, arrays[name].shape]).encode() + arrays[name].tobytes())
    return found.hexdigest()


class Model:
    """A model that :func:`load` read from a file.

    Attributes
    ----------
    estimator : str
        Name of its class in dtrees.
    columns : list of str, or None
        The names of the columns, if they have any.
    classes_ : ndarray, or list of ndarray for multi-output models, or None
        Labels of a classifier.
    """

    def __init__(self, estimator: str, state: dict[str, Any], arrays: dict[str, Any]) -> None:
        members = [(state, arrays)]
        if "boosters" in state:
            parts: list[dict[str, Any]] = [{} for _ in state["boosters"]]
            for name, array in arrays.items():
                number, _, own = name.partition(".")
                parts[int(number)][own] = array
            members = [({**own, **state["shared"]}, part) for own, part in zip(state["boosters"], parts, strict=True)]
        first = members[0][0]
        self.estimator, self._schema = estimator, [dict(column) for column in first["schema"]]
        self.columns = [str(column["name"]) for column in self._schema] if first["named"] else None
        classes, self._n_targets = first.get("classes"), first.get("targets", 1)
        labels = None if classes is None else [np.array(one["values"], _label_dtype(one)) for one in _listed(classes)]
        self.classes_ = labels if labels is None or self._n_targets > 1 else labels[0]
        self._members = [_Trees(part, own, labels, len(self._schema)) for own, part in members]
        self._isolates = estimator == "IsolationForest"
        self._offset = float(first["attributes"]["offset_"]) if self._isolates else 0.0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name!r} needs dtrees (dtrees.load); without it, there are predict, predict_proba, decision_function and score_samples"
        )

    def predict(self, X: Any, base_margin: Any = None) -> Any:
        """Return the predicted values, the labels of the most probable classes, or -1 for outliers and 1 for other rows.

        Values have the shape (n,), (n, n_targets) or (n, n_quantiles).

        Parameters
        ----------
        X : array-like or frame of shape (n, n_columns), or dict of columns
            Columns are matched by name if X and the model have names. A missing value is None or NaN; a category that was not seen at fit
            counts as missing.
        base_margin : array-like of shape (n,) or (n, n_outputs), or number, or None, default=None
            Initial raw scores, for a model that was fitted with them.
        """
        if self._isolates:
            return np.where(self.decision_function(X) < 0.0, -1, 1)
        found = self._mean(X, base_margin)
        if self.classes_ is None:
            return found if found.shape[1] > 1 else found[:, 0]
        labels = [own.take(shares.argmax(axis=1)) for own, shares in zip(_listed(self.classes_), self._by_target(found), strict=True)]
        return np.column_stack(labels) if self._n_targets > 1 else labels[0]

    def predict_proba(self, X: Any, base_margin: Any = None) -> Any:
        """Return the probability of each class, shape (n, n_classes), or a list if multi-output; X as in :meth:`predict`."""
        if self.classes_ is None:
            raise TypeError(f"the model is a {self.estimator}, which has no classes")
        shares = self._by_target(self._mean(X, base_margin))
        return shares if self._n_targets > 1 else shares[0]

    def decision_function(self, X: Any, base_margin: Any = None) -> Any:
        """Return raw predictions of classes, shape (n,) or (n, n_outputs), or scores minus their offset; X as in :meth:`predict`."""
        if self._isolates:
            return self.score_samples(X) - self._offset
        if self.estimator != "GradientBoostingClassifier":
            raise TypeError(f"the model is a {self.estimator}, which has no raw predictions of classes")
        raw = self._members[0].raw(self._matrix(X), base_margin)
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def score_samples(self, X: Any) -> Any:
        """Return the scores of an isolation forest, shape (n,); X as in :meth:`predict`."""
        if not self._isolates:
            raise TypeError(f"the model is a {self.estimator}, which has no scores of rows")
        return -_exp(-self._mean(X, None)[:, 0] * math.log(2.0))

    def _by_target(self, shares: Any) -> list[Any]:
        return np.split(shares, np.cumsum([len(labels) for labels in _listed(self.classes_)])[:-1], axis=1)

    def _mean(self, X: Any, base_margin: Any) -> Any:
        matrix, n = self._matrix(X), len(self._members)
        found = [member.link(member.raw(matrix, base_margin)) for member in self._members]
        return found[0] if n == 1 and "Bagging" not in self.estimator else reduce(add, found) / n

    def _matrix(self, X: Any) -> Any:
        """Return a table as numbers: categories as their numbers, NaN if missing or unknown."""
        has_names = hasattr(X, "keys") or hasattr(X, "columns") or getattr(getattr(X, "dtype", None), "names", None)
        if self.columns is not None and has_names:
            columns = [X[name] for name in self.columns]
        else:
            X = X.toarray() if hasattr(X, "toarray") else X  # a sparse table
            X = np.ma.filled(X.astype(object), np.nan) if isinstance(X, np.ma.MaskedArray) else X
            is_text = isinstance(X, list | tuple) and any(column["kind"] == "categorical" for column in self._schema)
            X = np.asarray(X, object if is_text else None)
            if X.ndim != 2 or X.shape[1] != len(self._schema):
                raise ValueError(f"X has the shape {X.shape}; wants (n, {len(self._schema)})")
            columns = list(X.T)
        return np.stack([_numbers(column, values) for column, values in zip(self._schema, columns, strict=True)], axis=1)


def _listed(one_or_several: Any) -> list[Any]:
    return one_or_several if isinstance(one_or_several, list) else [one_or_several]


def _label_dtype(described: dict[str, Any]) -> Any:
    """Return the dtype of labels, long enough for text labels."""
    dtype = np.dtype(described["dtype"])
    if dtype.kind not in "biufUO" or (dtype.kind != "U" and dtype.itemsize > 8):
        raise ValueError(f"labels are of dtype {described['dtype']!r:.40}")
    return None if dtype.kind == "U" else dtype


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _numbers(column: dict[str, Any], given: Any) -> Any:
    """Return the values of a column as numbers."""
    values, name = np.asarray(given), column["name"]
    if column["kind"] == "unknown":  # no value was known at fit, and no tree uses the column
        return np.full(len(values), np.nan)
    if column["kind"] == "categorical":
        numbers = {category: float(number) for number, category in enumerate(column["categories"])}
        wanted = isinstance(next(iter(numbers), None), str)
        found = np.array([numbers.get(value, np.nan) for value in values.tolist()], np.float64)
        for value in values[np.isnan(found)].tolist():
            if not _is_missing(value) and isinstance(value, str) != wanted:
                raise ValueError(f"X column {name!r} holds {value!r:.40}; wants categories such as {column['categories'][0]!r:.40}")
        return found
    if values.dtype.kind not in "biuf":
        plain = [np.nan if _is_missing(value) else value for value in values.tolist()]
        try:
            if any(isinstance(value, str | bytes) for value in plain):
                raise TypeError("text is not a number")
            values = np.array(plain, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"X column {name!r} wants numbers ({error})") from error
    if values.dtype.kind in "iu" and values.size and not -(2**53) <= values.min() <= values.max() <= 2**53:
        raise ValueError(f"X column {name!r} contains integers beyond 2**53, which are not exact as float64")
    return values.astype(np.float64)


class _Trees:
    """The trees of a model in one table of nodes, with the meaning of raw predictions.

    Nodes are in preorder: a left child is the next node, and a right child follows all descendants of the left one; it is the next node
    with the same number of places open for later nodes.
    """

    def __init__(self, arrays: dict[str, Any], state: dict[str, Any], labels: list[Any] | None, n_columns: int) -> None:
        counts, feature = arrays["trees.node_counts"].astype(np.int64), arrays["trees.feature"].astype(np.int64)
        ends, inner = np.cumsum(counts), feature >= 0
        if counts.ndim != 2 or not 1 <= counts.min() <= counts.max() <= len(feature) or ends[-1] != len(feature):
            raise ValueError("trees do not have the nodes that there are")
        steps = np.where(inner, 1, -1)
        after = np.cumsum(steps) + np.repeat(np.arange(counts.size), counts.ravel()) + 1  # number of open places after each node
        is_last = np.zeros(len(feature), bool)
        is_last[ends - 1] = True
        if not np.array_equal(after <= 0, is_last) or after[-1]:
            raise ValueError("nodes do not form whole trees")
        if feature.max() >= n_columns:
            raise ValueError("trees split columns that there are not")
        self._roots, self._feature = (ends - counts.ravel()).reshape(counts.shape), feature
        in_order = np.argsort(after - steps, kind="stable")
        self._right = np.full(len(feature), len(feature))
        self._right[in_order[:-1]] = in_order[1:]
        self._threshold, self._missing_left = (self._of_nodes(arrays[f"trees.{name}"]) for name in ("threshold", "missing_go_to_left"))
        self._value = arrays["trees.value"].astype(np.float64)
        self._first_word, self._n_words, self._words = self._sets(arrays, ends - counts.ravel())
        self._initial: Any = arrays.get("initial")
        self._by_margin = state.get("starts") == "base_margin"
        self._n_classes = [] if labels is None else [len(own) for own in labels]
        self._loss = None if self._initial is None else state["parameters"]["loss"]
        if self._loss not in {None} | (set(_SLOPES) if labels else _IDENTITY | _EXPONENTIAL):
            raise ValueError(f"what raw predictions of loss={self._loss!r:.40} mean is not known here")
        alpha = state["parameters"]["alpha"] if self._loss == "quantile" else None
        self._in_order = isinstance(alpha, list)  # several quantiles of one target
        of_numbers = len(alpha) if isinstance(alpha, list) else state.get("targets", 1)
        n_outputs = sum(n if n > 2 or self._loss is None else 1 for n in self._n_classes) or of_numbers
        wanted = (1, n_outputs) if self._loss is None else (n_outputs, 1)
        if (
            (len(counts), *self._value.shape[1:]) != wanted
            or len(self._value) != len(feature)
            or (self._initial is not None and self._initial.shape != wanted[:1])
        ):
            raise ValueError("trees have not the values of such a model")

    def _of_nodes(self, values: Any) -> Any:
        """Return values of all nodes from values that may exclude the leaves."""
        if len(values) == len(self._feature):
            return values
        spread = np.zeros(len(self._feature), values.dtype)
        spread[self._feature >= 0] = values
        return spread

    def _sets(self, arrays: dict[str, Any], starts: Any) -> tuple[Any, Any, Any]:
        """Return the start of each node's set of categories, its number of words, and the words."""
        first, size = np.zeros((2, len(self._feature)), np.int64)
        words = np.zeros(1, np.uint32)
        if "trees.set_counts" in arrays:
            counts, nodes, sizes, given = (arrays[f"trees.set_{name}"] for name in ("counts", "nodes", "sizes", "words"))
            if counts.min(initial=0) < 0 or counts.max(initial=0) > len(nodes) or counts.sum() != len(nodes):
                raise ValueError("trees do not have the sets of categories that there are")
            at = np.repeat(starts, counts) + nodes
            if sizes.min(initial=0) < 0 or sizes.sum() != len(given) or at.min(initial=0) < 0:
                raise ValueError("sets of categories do not have the words there are")
            first[at], size[at], words = np.cumsum(sizes) - sizes, sizes, np.append(given, words)
        return first, size, words

    def _leaves(self, X: Any, root: int) -> Any:
        """Return the leaf that each row falls into."""
        node, rows = np.full(len(X), root), np.arange(len(X))
        while True:
            rows = rows[self._feature[node[rows]] >= 0]
            if not len(rows):
                return node
            at = node[rows]
            x, size = X[rows, self._feature[at]], self._n_words[at]
            missing, left = np.isnan(x), x <= self._threshold[at]
            if size.any():
                category = np.where(missing | (size == 0), 0, x).astype(np.int64)
                inside = category // 32 < size
                word = self._words[self._first_word[at] + np.where(inside, category // 32, 0)].astype(np.int64)
                left = np.where(size > 0, inside & (word >> category % 32 & 1 > 0), left)
            node[rows] = np.where(np.where(missing, self._missing_left[at], left), at + 1, self._right[at])

    def raw(self, X: Any, base_margin: Any) -> Any:
        """Return sums over trees, in their order, shape (n, n_outputs)."""
        sums = []
        for roots in self._roots:
            total = np.zeros((len(X), self._value.shape[1]))
            for root in roots:
                total += self._value[self._leaves(X, root)]
            sums.append(total)
        raw = np.hstack(sums) if self._initial is None else np.hstack(sums) + self._initial
        if (base_margin is not None) != self._by_margin:
            raise ValueError(
                f"base_margin is to be given where the model was fitted with it, and this one was{'' if self._by_margin else ' not'}"
            )
        if base_margin is None:
            return raw
        margin = np.asarray(base_margin, np.float64)
        margin = margin[:, np.newaxis] if margin.ndim == 1 else margin
        if margin.ndim and margin.shape != raw.shape:
            raise ValueError(f"base_margin has the shape {np.shape(base_margin)}; wants {raw.shape}, or a number")
        return raw + margin

    def link(self, raw: Any) -> Any:
        """Return values, or probabilities, of several targets side by side, given raw predictions."""
        if self._loss is None:
            return raw / self._roots.shape[1]
        if self._in_order:
            return np.sort(raw, axis=1)
        if not self._n_classes:
            return raw if self._loss in _IDENTITY else np.where(raw > 0.0, 1.0 / _exp(-np.abs(raw)), _exp(-np.abs(raw)))
        parts = np.split(raw, np.cumsum([n if n > 2 else 1 for n in self._n_classes])[:-1], axis=1)
        return np.hstack([_logistic(_SLOPES[self._loss] * part[:, 0]) if part.shape[1] == 1 else _softmax(part) for part in parts])


def _logistic(odds: Any) -> Any:
    """Return the probabilities of two classes, given log odds."""
    e = _exp(-np.abs(odds))
    small, large = e / (1.0 + e), 1.0 / (1.0 + e)
    return np.where((odds > 0.0)[:, np.newaxis], np.column_stack([small, large]), np.column_stack([large, small]))


def _softmax(raw: Any) -> Any:
    """Return the probabilities of classes, given raw predictions."""
    powers = _exp(raw - raw.max(axis=1, keepdims=True))
    return powers / reduce(add, powers.T, np.zeros(len(powers)))[:, np.newaxis]


#: 1 / 13!, 1 / 12! and so on; a constant that rounds floats when added; the logarithm of 2 in two parts, the first with 33 bits.
_TERMS = [1.0 / math.factorial(k) for k in range(13, 1, -1)]
_ROUNDER, _LN_2, _REST_OF_LN_2 = 1.5 * 2.0**52, 6.93147180369123816490e-01, 1.90821492927058770002e-10


def _exp(x: Any) -> Any:
    """Return exp(x) for x <= 0, computed as in dtrees on every machine: with x = k log(2) + r it is 2**k exp(r)."""
    x = np.maximum(x, -746.0)
    multiple = (x * (1.0 / math.log(2.0)) + _ROUNDER) - _ROUNDER
    r = (x - multiple * _LN_2) - multiple * _REST_OF_LN_2
    series = np.zeros_like(r)
    for term in _TERMS:
        series = series * r + term
    k = multiple.astype(np.int64)
    half = k // 2  # 2**k itself may be too small for a float
    return (1.0 + (r + r * r * series)) * np.ldexp(1.0, half) * np.ldexp(1.0, k - half)
