"""What a fitted estimator is, as plain data and arrays: the content of a model file.

State holds all that prediction, inspection and a warm start need: parameters, schema, classes, trees, scores, and how the trees were
grown. What belongs to the training set (the out-of-bag predictions of its rows) is left out, and so are parameters that are no plain data:
a ``RandomState`` or a function as ``eval_metric`` becomes None, a callable ``oob_score`` True. Restoring checks everything that prediction
relies on, since kernels do not check bounds.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plans import Criterion, ForestPlan, Rules
from dtrees.ensemble.prediction import TreeSum
from dtrees.ensemble.schema import Schema
from dtrees.tree.stacking import stacked, unstacked

#: Fitted attributes that are numbers or 1-D arrays of floats, where an estimator has them.
_NUMBERS = ("max_features_", "n_estimators_", "oob_score_", "best_iteration_", "best_score_")
_SERIES = ("train_score_", "validation_score_")
_CLASS_KINDS = "biufUO"


class EstimatorState:
    """Mixin: an estimator to metadata and arrays, and back."""

    #: Whether trees come in one group per output (boosting) rather than in one group in all.
    _GROUP_PER_OUTPUT: ClassVar[bool] = False

    _schema: Schema
    _trees: TreeSum

    def _to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return metadata that JSON can hold, and named arrays."""
        metadata: dict[str, Any] = {
            "parameters": {name: _plain(value) for name, value in self.get_params(deep=False).items()},  # type: ignore[attr-defined]
            "schema": self._schema.to_json(),
            "named": hasattr(self, "feature_names_in_"),
            "attributes": {name: _plain(getattr(self, name)) for name in _NUMBERS if hasattr(self, name)},
        }
        if callable(getattr(self, "oob_score", None)):
            metadata["parameters"]["oob_score"] = True
        if hasattr(self, "_seed"):
            metadata["seed"] = self._seed
        if hasattr(self, "_batches"):
            metadata["batches"] = [[_describe_plan(plan), first, last] for plan, first, last in self._batches]
        evaluation = getattr(self, "evals_result_", {})
        if evaluation:
            metadata["evaluation"] = {name: list(metrics) for name, metrics in evaluation.items()}
        if hasattr(self, "classes_"):
            metadata["classes"] = {"dtype": self.classes_.dtype.str, "values": self.classes_.tolist()}
        arrays = stacked(self._trees.groups)
        if self._trees.initial is not None:
            arrays["initial"] = self._trees.initial
        for name in _SERIES:
            if hasattr(self, name):
                arrays[name] = np.asarray(getattr(self, name), dtype=np.float64)
        for i, metrics in enumerate(evaluation.values()):
            arrays |= {f"evals_result_.{i}.{k}": values for k, values in enumerate(metrics.values())}
        return metadata, arrays

    @classmethod
    def _from_state(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the estimator that :meth:`_to_state` described.

        Raises
        ------
        ValueError
            If metadata and arrays do not describe such an estimator.
        """
        try:
            return cls._restore(metadata, arrays)
        except (AttributeError, KeyError, TypeError, IndexError) as error:
            raise ValueError(f"the model's state is damaged or of another kind: {type(error).__name__}: {error}") from error

    @classmethod
    def _restore(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        model = cls(**{name: _from_plain(value) for name, value in metadata["parameters"].items()})
        model._schema = Schema.from_json(metadata["schema"])
        model.n_features_in_ = len(model._schema)  # type: ignore[attr-defined]
        if metadata["named"]:
            model.feature_names_in_ = np.array([column.name for column in model._schema.columns], dtype=object)  # type: ignore[attr-defined]
        n_classes = 0
        if "classes" in metadata:
            model.classes_ = _restore_classes(metadata["classes"])  # type: ignore[attr-defined]
            model.n_classes_ = n_classes = len(model.classes_)  # type: ignore[attr-defined]
        for name, value in metadata["attributes"].items():
            if name not in _NUMBERS or not isinstance(value, int | float):
                raise ValueError(f"the model's state has the attribute {name!r} with value {value!r}; wants one of {_NUMBERS}, a number")
            setattr(model, name, value)
        for name in _SERIES:
            if name in arrays:
                setattr(model, name, arrays[name])
        if "evaluation" in metadata:
            model.evals_result_ = {  # type: ignore[attr-defined]
                name: {metric: arrays[f"evals_result_.{i}.{k}"] for k, metric in enumerate(metrics)}
                for i, (name, metrics) in enumerate(metadata["evaluation"].items())
            }
        if cls._GROUP_PER_OUTPUT:
            n_groups, n_values = (n_classes if n_classes > 2 else 1), 1
        else:
            n_groups, n_values = 1, max(1, n_classes)
        groups = unstacked(arrays, n_groups, n_values, len(model._schema))
        initial = arrays.get("initial")
        if initial is not None and (initial.dtype != np.float64 or initial.shape != (n_groups,) or not np.isfinite(initial).all()):
            raise ValueError(f"the model's initial prediction is {initial}; wants {n_groups} finite float64")
        model._trees = TreeSum(groups, initial)
        if "seed" in metadata:
            model._seed = int(metadata["seed"])  # type: ignore[attr-defined]
        if "batches" in metadata:
            model._batches = _restore_batches(metadata["batches"], len(groups[0]), len(model._schema), n_classes)  # type: ignore[attr-defined]
            model._votes = None  # type: ignore[attr-defined]
        return model


def _describe_plan(plan: ForestPlan) -> dict[str, Any]:
    """Return a plan (without checkpoint) and its rules as plain data."""
    return {name: _plain(value) for name, value in (vars(plan.rules) | vars(plan)).items() if name not in ("rules", "checkpoint")}


def _restore_batches(data: list[Any], n_trees: int, n_features: int, n_classes: int) -> list[tuple[ForestPlan, int, int]]:
    """Return batches of a forest from descriptions of their plans and their tree numbers.

    Raises
    ------
    ValueError
        If they are not those of such a forest.
    """
    batches = [(_restore_plan(described, n_features, n_classes), first, last) for described, first, last in data]
    bounds = [0, *(last for _, _, last in batches)]
    if [first for _, first, _ in batches] != bounds[:-1] or bounds[-1] != n_trees:
        raise ValueError(f"the model's batches end at the trees {bounds[1:]}, but there are {n_trees} trees")
    return batches


def _restore_plan(data: dict[str, Any], n_features: int, n_classes: int) -> ForestPlan:
    rules = Rules(**{field.name: data[field.name] for field in fields(Rules)} | {"criterion": Criterion(data["criterion"])})
    own = {field.name: data[field.name] for field in fields(ForestPlan) if field.name in data}
    if own["class_weight"] is not None:
        own["class_weight"] = tuple(map(float, own["class_weight"]))
    plan = ForestPlan(rules, **own)
    fits = plan.n_classes == n_classes and (plan.class_weight is None or len(plan.class_weight) == n_classes)
    if not fits or not 1 <= rules.max_features <= n_features or not 1 <= rules.columns_per_tree <= n_features:
        raise ValueError(f"the model's trees were grown by {plan}, which is not for {n_features} columns and {n_classes} classes")
    return plan


def _restore_classes(data: dict[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(data["dtype"])
    if dtype.kind not in _CLASS_KINDS or not all(isinstance(value, str | int | float) for value in data["values"]):
        raise ValueError(f"the model's classes are of dtype {dtype}; wants numbers or text")
    classes = np.array(data["values"], dtype=dtype)
    if classes.ndim != 1 or len(classes) == 0:
        raise ValueError(f"the model's classes have shape {classes.shape}; wants at least one label")
    return classes


def _plain(value: Any) -> Any:
    """Return a parameter as JSON data; what has no such form becomes None."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {"dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return None if any(callable(item) for item in value) else [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else None


def _from_plain(value: Any) -> Any:
    return dict(value["dict"]) if isinstance(value, dict) else value
