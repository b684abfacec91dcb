"""The state of a fitted estimator as plain data and arrays: the content of a model file.

The state contains everything that prediction, inspection and a warm start need: parameters, schema, classes, trees, scores, and the growth
of the trees. Data of training rows (out-of-bag predictions) are left out, and parameters that are not plain data are replaced: a
``RandomState`` or ``Generator``, an estimator as ``init`` that was set after the fit, or a function as ``eval_metric`` by None, a callable
``oob_score`` by True, a scorer as ``scoring`` by "loss", an objective as ``loss`` by "custom", which supports prediction but not fitting. A
model whose trees start from an estimator is refused, as files contain no code. Restoring checks everything, since files may be damaged and
kernels do not check bounds; saving performs the same checks, so that every saved model can be restored.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dtrees.engine.plan.plans import ForestPlan, Rules
from dtrees.ensemble.compat import BaseEstimator, check_parameters, parameter_names, register_with_sklearn
from dtrees.ensemble.input.by_size import NAMES, is_auto
from dtrees.ensemble.input.plain_data import annotated, check_labels, from_plain, plain, shown, take
from dtrees.ensemble.input.rules import LARGEST_INTEGER
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.prediction import AdditiveTrees, by_target
from dtrees.tree.stacking import stacked, unstacked
from dtrees.tree.tree import Tree

#: Fitted attributes that are numbers, with their types, if an estimator has them.
_NUMBERS: dict[str, tuple[type, ...]] = {
    "max_features_": (int,),
    "learning_rate_": (int, float),
    "min_samples_leaf_": (int,),
    "reg_lambda_": (int, float),
    "split_shrinkage_": (int, float),
    "max_leaf_nodes_": (int, type(None)),
    "max_depth_": (int, type(None)),
    "n_estimators_": (int,),
    "oob_score_": (int, float),
    "max_samples_": (int,),
    "offset_": (float,),
    "best_iteration_": (int,),
    "best_score_": (int, float),
}
#: Fitted attributes that are 1-D arrays of floats, one for each round.
SERIES = ("train_score_", "validation_score_", "oob_scores_", "oob_improvement_")
#: Further arrays of floats.
_ARRAYS = ("event_times_", "cumulative_baseline_hazard_", "conformity_scores_")
#: Further fitted attributes, with their types; attribute names have a leading underscore, and False stands for a missing one.
_FACTS = {"boosted": bool, "seed": int, "validated_by": str}
#: Prefix of the names of arrays with packed trees.
PACKED = "packed."
#: Number of bytes that labels may take beyond the length of the longest one, for a dtype that is wider than its labels.
_SPARE_BYTES = 2**24
#: Limits of tree parameters: the smallest value, and an exclusive upper bound.
_BOUNDS = {"max_leaf_nodes": (2, LARGEST_INTEGER + 1), "max_depth": (1, LARGEST_INTEGER + 1)}


class EstimatorState(BaseEstimator):
    """Mixin: conversion of an estimator to metadata and arrays, and back."""

    #: Whether trees form one group per output (boosting) instead of a single group.
    _GROUP_PER_OUTPUT: ClassVar[bool] = False

    _schema: Schema
    _trees: AdditiveTrees
    _n_targets: int = 1
    #: Whether trees are boosted, in which case their nodes have gains but no impurity.
    _boosted: bool = False

    def _to_state(self, mappable: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return metadata for JSON, and named arrays; if ``mappable``, including the arrays of prediction in their final form.

        Raises
        ------
        ValueError
            If the estimator could not be restored from them, for example because a parameter was changed after the fit.
        """
        metadata: dict[str, Any] = {
            "parameters": {name: plain(value) for name, value in self.get_params(deep=False).items()},
            "schema": self._schema.to_json(),
            "named": hasattr(self, "feature_names_in_"),
            "attributes": {name: plain(getattr(self, name)) for name in _NUMBERS if hasattr(self, name)},
        }
        if hasattr(self, "_loss_name"):
            metadata["parameters"]["loss"] = self._loss_name
            metadata["parameters"].update({name: plain(value) for name, value in self._loss_parameters.items()})
            metadata["starts"] = self._starts
            if self._init_estimator is not None:
                raise ValueError(
                    f"the trees start from an estimator, init_={self.init_!r}, which a model file cannot hold, since it holds no code; fit "
                    "with its raw predictions as base_margin instead, and pass them to predict as well; or use pickle"
                )
            if callable(self.scoring):
                metadata["parameters"]["scoring"] = "loss"
        if self._n_targets > 1:
            metadata["targets"] = self._n_targets
        metadata |= {name: getattr(self, f"_{name}") for name in _FACTS if getattr(self, f"_{name}", False) is not False}
        if callable(getattr(self, "oob_score", None)):
            metadata["parameters"]["oob_score"] = True
            if type(metadata["attributes"].get("oob_score_")) not in (int, float):
                metadata["attributes"].pop("oob_score_", None)
        if hasattr(self, "_batches"):
            metadata["batches"] = [[_describe_plan(plan), first, last] for plan, first, last in self._batches]
        evaluation = getattr(self, "evals_result_", {})
        if evaluation:
            metadata["evaluation"] = {name: list(metrics) for name, metrics in evaluation.items()}
        if hasattr(self, "classes_"):
            described = [{"dtype": labels.dtype.str, "values": labels.tolist()} for labels in by_target(self.classes_)]
            metadata["classes"] = described if self._n_targets > 1 else described[0]
        arrays = stacked(self._trees.groups, whole=mappable)
        if mappable:
            arrays |= {f"{PACKED}{name}": array for name, array in self._trees.packed_arrays().items()}
        if self._trees.initial is not None:
            arrays["initial"] = self._trees.initial
        for name in (*SERIES, *_ARRAYS):
            if hasattr(self, name):
                arrays[name] = np.asarray(getattr(self, name), dtype=np.float64)
        for i, metrics in enumerate(evaluation.values()):
            arrays |= {f"evals_result_.{i}.{k}": values for k, values in enumerate(metrics.values())}
        self._restore_facts(metadata, arrays)
        if not np.isfinite(arrays["trees.value"]).all():
            raise ValueError("trees have values that are not finite, as boosting had that diverged; fit again, with other parameters")
        return metadata, arrays

    @classmethod
    def _from_state(cls, metadata: Any, arrays: dict[str, NDArray[Any]], mapped: bool = False) -> Self:
        """Return the estimator that :meth:`_to_state` described.

        Parameters
        ----------
        metadata : dict
        arrays : dict from str to ndarray
        mapped : bool, default=False
            Whether the estimator uses the given arrays themselves, from a ``mappable`` state.

        Raises
        ------
        ValueError
            If metadata and arrays are not a valid description.
        """
        try:
            model: Any = cls._restore_facts(metadata, arrays)
            model._restore_trees(arrays)
            register_with_sklearn(type(model))  # type: ignore[arg-type]
            if "seed" in metadata and not cls._GROUP_PER_OUTPUT and "batches" not in metadata:
                raise ValueError("the model's state has a seed, but not the batches of trees that were grown from it")
            if "batches" in metadata:
                model._batches = _restore_batches(model, metadata["batches"])
                model._oob_sums = None
            if mapped:
                packed = {name.removeprefix(PACKED): array for name, array in arrays.items() if name.startswith(PACKED)}
                model._trees.take_packed(packed)
        except (AttributeError, KeyError, TypeError, IndexError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"the model's state is damaged or of another kind: {type(error).__name__}: {error}") from error
        return model

    @classmethod
    def _restore_facts(cls, metadata: Any, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return an estimator with everything but trees; raises ValueError for invalid data."""
        owner = "the model's state"
        parameters = take(metadata, "parameters", dict, owner)
        unknown = parameters.keys() - set(parameter_names(cls))
        if unknown:
            raise ValueError(f"the model's parameters contain {shown(sorted(unknown)[0])}, which is not a parameter of {cls.__name__}")
        attributes = take(metadata, "attributes", dict, owner)
        model: Any = cls(**{name: from_plain(value) for name, value in parameters.items()})
        check_parameters(model)
        if cls._GROUP_PER_OUTPUT:
            model._loss_name = model.loss
            model._loss_parameters = model._parameters_of_loss()
            model._starts = metadata.get("starts", "loss")
            if model._starts not in ("loss", "zero", "base_margin"):
                raise ValueError(f"the model's trees start from {shown(model._starts)}; wants 'loss', 'zero' or 'base_margin'")
        if "targets" in metadata:
            model._n_targets = _restore_targets(model, take(metadata, "targets", int, owner), arrays)
        model._schema = Schema.from_json(take(metadata, "schema", list, owner))
        names = [column.name for column in model._schema.columns]
        model.n_features_in_ = len(names)
        if take(metadata, "named", bool, owner):
            if None in names or len(set(names)) < len(names):
                raise ValueError("the model's columns have names that are not distinct")
            model.feature_names_in_ = np.array(names, dtype=object)
        model._note_categories(model._chosen_categories())
        if is_classifier(model) != ("classes" in metadata):
            raise ValueError(f"the model's state {'has' if 'classes' in metadata else 'lacks'} classes, but is to be a {cls.__name__}")
        if "classes" in metadata:
            described = metadata["classes"] if model._n_targets > 1 else [metadata["classes"]]
            if type(described) is not list or len(described) != model._n_targets:
                raise ValueError(f"the model's classes are {shown(described)}; wants a list of those of its {model._n_targets} targets")
            classes = list(map(_restore_classes, described))
            take_classes(model, classes if model._n_targets > 1 else classes[0])
            if cls._GROUP_PER_OUTPUT and any(len(labels) < 2 for labels in by_target(model.classes_)):
                raise ValueError("the model's state has one class; boosting wants at least two")
        for name in attributes:
            if name not in _NUMBERS:
                raise ValueError(f"the model's state has the attribute {name!r:.40}; wants some of {', '.join(_NUMBERS)}")
            setattr(model, name, take(attributes, name, _NUMBERS[name], owner))
        if not 1 <= take(attributes, "max_features_", int, owner) <= len(names):
            raise ValueError(f"the model's state has max_features_ = {attributes['max_features_']}, but {len(names)} columns")
        if cls._GROUP_PER_OUTPUT:
            _restore_by_size(model)
        for name in (*SERIES, *_ARRAYS):
            if name in arrays:
                setattr(model, name, _series(arrays, name))
        if "evaluation" in metadata:
            evaluation = take(metadata, "evaluation", dict, owner)
            if not all(type(metric) is str for name in evaluation for metric in take(evaluation, name, list, "the evaluation")):
                raise ValueError("the model's metrics have names that are not text")
            model.evals_result_ = {
                name: {metric: _series(arrays, f"evals_result_.{i}.{k}") for k, metric in enumerate(metrics)}
                for i, (name, metrics) in enumerate(evaluation.items())
            }
        for name in _FACTS.keys() & metadata.keys():
            setattr(model, f"_{name}", annotated(metadata[name], _FACTS[name], f"{owner} has {name}"))
        return model

    def _restore_trees(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Set the trees; raises ValueError or KeyError for invalid data."""
        n_values = sum(map(len, by_target(getattr(self, "classes_", None)))) or self._n_targets
        n_groups, n_values = (self._fitted_loss.n_outputs, 1) if self._GROUP_PER_OUTPUT else (1, n_values)
        groups = unstacked(arrays, n_groups, n_values, len(self._schema))
        initial = arrays.get("initial")
        if (initial is not None) != self._GROUP_PER_OUTPUT:
            raise ValueError(f"the initial prediction of a {type(self).__name__} is {'absent' if initial is None else 'there'}")
        if initial is not None and (initial.dtype != np.float64 or initial.shape != (n_groups,) or not np.isfinite(initial).all()):
            raise ValueError(f"the model's initial prediction is {shown(initial.tolist())}; wants {n_groups} finite float64")
        n_trees, n_rounds = len(groups[0]), getattr(self, "n_estimators_", len(groups[0]))
        n_parallel = max(1, n_trees // max(1, n_rounds)) if self._GROUP_PER_OUTPUT else 1
        self._trees = AdditiveTrees(groups, initial, n_parallel)
        if n_trees != n_rounds * n_parallel or not 0 <= getattr(self, "best_iteration_", 0) < n_rounds:
            raise ValueError(f"the model's n_estimators_ or best_iteration_ do not go with its {n_trees} trees of each output")
        if self._GROUP_PER_OUTPUT and not (hasattr(self, "n_estimators_") and len(getattr(self, "train_score_", ())) == n_rounds):
            raise ValueError(f"the model's state has no n_estimators_, or not a train_score_ for each of {n_rounds} rounds")
        n_categories = np.array([len(column.categories or ()) for column in self._schema.columns])
        for group in groups:
            for tree in group:
                _check_categories(tree, n_categories)


def take_classes(estimator: Any, classes: Any) -> None:
    """Set the classes of a classifier, and their number; lists for several targets."""
    estimator.classes_ = classes
    estimator.n_classes_ = [len(labels) for labels in classes] if isinstance(classes, list) else len(classes)


def _restore_targets(model: Any, n_targets: int, arrays: dict[str, NDArray[Any]]) -> int:
    """Return the number of targets, which in boosting must match the trees and initial predictions; raises ValueError otherwise."""
    if model._GROUP_PER_OUTPUT:
        fits = is_classifier(model) or arrays["initial"].shape == (n_targets,)  # for classification, the classes give their number
    else:
        fits = n_targets <= arrays["trees.value"].shape[-1]
    if not fits or n_targets < 2:
        raise ValueError(f"the model's state has {shown(n_targets)} targets, which its {type(model).__name__} has not")
    return n_targets


def _restore_by_size(model: Any) -> None:
    """Check the resolved values of parameters that may be "auto"; files of earlier versions have numbers without resolved values."""
    for name in NAMES:
        given, found = getattr(model, name), getattr(model, f"{name}_", None)
        least, beyond = _BOUNDS.get(name, (0, math.inf))
        if found is not None and not least <= found < beyond:
            raise ValueError(f"the model's state has {name}_ = {found!r:.40}; wants a finite number of at least {least}")
        if hasattr(model, f"{name}_"):
            continue
        if name == "split_shrinkage" and is_auto(given):  # from versions without it
            given = 0.0
        if is_auto(given):
            raise ValueError(f"the model's {name} is 'auto', but its state does not say what {name}_ was")
        if name in ("learning_rate", "reg_lambda", "split_shrinkage"):
            setattr(model, f"{name}_", float(given))
        elif name in _BOUNDS:
            setattr(model, f"{name}_", given)


def _check_categories(tree: Tree, n_categories: NDArray[np.integer]) -> None:
    """Raise ValueError if a node splits on categories that its column does not have."""
    node, offset, words = tree.categories
    n_bits = 32 * (np.diff(offset) - 1) + np.frexp(np.append(words, 0)[offset[1:] - 1])[1]  # up to the highest bit that is set
    if np.any(n_bits > n_categories[tree.feature[node]]):
        raise ValueError("the model's trees have sets of categories that their columns have not")
    by_number = np.flatnonzero((tree.feature >= 0) & np.isfinite(tree.threshold))
    n, threshold = n_categories[tree.feature[by_number]], tree.threshold[by_number]
    if np.any((n > 0) & ((threshold < 0) | (threshold >= n - 1))):
        raise ValueError("the model's trees split columns of categories by thresholds that separate no categories")


def _series(arrays: dict[str, NDArray[Any]], name: str) -> NDArray[np.float64]:
    if name not in arrays or arrays[name].dtype != np.float64 or arrays[name].ndim != 1:
        raise ValueError(f"the model's array {name!r} is absent, or not float64 in one dimension")
    return arrays[name]


def _describe_plan(plan: ForestPlan) -> dict[str, Any]:
    """Return a plan (without checkpoint) and its rules as plain data."""
    described = plan.rules.described() | {name: value for name, value in vars(plan).items() if value or name != "distinct_draws"}
    return {name: plain(value) for name, value in described.items() if name not in _SEPARATE}


def _restore_batches(model: Any, data: Any) -> list[tuple[ForestPlan, int, int]]:
    """Return batches of a forest, given descriptions of their plans and their tree numbers.

    Raises
    ------
    ValueError
        If they do not belong to such a forest.
    """
    if type(data) is not list or not all(type(batch) is list and len(batch) == 3 for batch in data):
        raise ValueError("the model's batches are not a list of plans and bounds")
    n_trees, classes = model._trees.n_rounds, by_target(getattr(model, "classes_", None))
    # The number of classes of each target, 1 for each of several numeric targets, 0 for a single one.
    targets = tuple(map(len, classes)) or ((1,) * model._n_targets if model._n_targets > 1 else (0,))
    batches = [(_restore_plan(described, model.n_features_in_, targets), first, last) for described, first, last in data]
    bounds = [0, *(last for _, _, last in batches)]
    if any(type(bound) is not int for bound in bounds) or [first for _, first, _ in batches] != bounds[:-1] or bounds[-1] != n_trees:
        raise ValueError(f"the model's batches do not add up to its {n_trees} trees")
    return batches


#: The criteria in files of the first version, by number.
_NUMBERED_CRITERIA = ("squared_error", "gini", "entropy", "newton", "absolute_error")


#: Fields of a plan that are restored separately, or follow from the model.
_SEPARATE = {"rules", "checkpoint", "targets"}


def _restore_fields(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan, or of its rules, in a file; files of earlier versions have fewer."""
    annotations = get_type_hints(kind)
    return {
        name: annotated(data[name], annotations[name], f"the model's plan has {name}", least=-1 if name == "monotonic" else 0)
        for name in annotations.keys() & data.keys() - _SEPARATE
    }


def _restore_plan(data: Any, n_features: int, targets: tuple[int, ...]) -> ForestPlan:
    from dtrees.split.criteria.criterion import criterion_named  # imports Numba

    owner = "the model's plan"
    criterion = take(data, "criterion", (int, str), owner)
    criterion = _NUMBERED_CRITERIA[criterion] if criterion in range(len(_NUMBERED_CRITERIA)) else criterion_named(str(criterion)).name
    rules = Rules(**_restore_fields(Rules, data | {"criterion": criterion}))
    plan = ForestPlan(rules, targets=targets if len(targets) > 1 else (), **_restore_fields(ForestPlan, data))
    if rules.min_weight_fraction_leaf > 0.5:
        raise ValueError(f"{owner} has min_weight_fraction_leaf = {rules.min_weight_fraction_leaf}; wants at most 0.5")
    n_sets, columns = len(rules.categorical), range(n_features)
    if not len(rules.min_samples_category) == len(rules.max_cat_threshold) == n_sets or not set(rules.categorical) <= set(columns):
        raise ValueError(f"{owner} has categories that are not those of {n_features} columns")
    fits = len(rules.monotonic) in (0, n_features) and set(rules.monotonic) <= {-1, 0, 1} and rules.most_columns < max(1, n_features)
    if not fits or (rules.interactions and set().union(*rules.interactions) != set(columns)):
        raise ValueError(f"{owner} has constraints that are not for {n_features} columns")
    criterion_named(criterion).at(rules.alpha)
    if plan.class_weight is not None:
        each: tuple[Any, ...] = plan.class_weight if plan.targets else (plan.class_weight,)
        if tuple(map(np.shape, each)) != tuple((n,) for n in targets):
            raise ValueError(f"{owner} has class_weight = {shown(plan.class_weight)}; wants a number for each class")
    is_for_numbers = plan.n_classes == 0 and (targets == (0,) or set(plan.targets) == {1})
    fits = is_for_numbers or plan.n_classes == sum(targets)
    if not fits or not 1 <= rules.max_features <= n_features or not 1 <= rules.columns_per_tree <= n_features:
        raise ValueError(f"the model's trees were grown by a plan that is not for {n_features} columns and {sum(targets)} classes")
    return plan


def _restore_classes(data: Any) -> NDArray[Any]:
    """Return classes from a dtype and a list of labels, not larger than necessary."""
    owner = "the model's classes"
    name, values = take(data, "dtype", str, owner), take(data, "values", list, owner)
    check_labels(values, owner)
    if not values:
        raise ValueError(f"{owner} are none; wants at least one label")
    dtype = np.dtype(name)
    kinds = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": str}
    if type(values[0]) is not kinds.get(dtype.kind) or (dtype.itemsize > 8 and dtype.kind != "U"):
        raise ValueError(f"{owner} are of dtype {name!r:.40}; wants one of their kind, numbers or text")
    if dtype.kind == "U":
        longest = 4 * max(map(len, values))
        if longest > dtype.itemsize:
            raise ValueError(f"{owner} are longer than their dtype {name!r:.40}")
        if (dtype.itemsize - longest) * len(values) > _SPARE_BYTES:
            dtype = np.dtype(f"U{longest // 4}")
    classes = np.array(values, dtype=dtype)
    if classes.tolist() != values:
        raise ValueError(f"{owner} are not what their dtype {name!r:.40} can hold")
    return classes
