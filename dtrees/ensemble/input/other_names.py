"""Names of parameters that there are not: what may be meant, also where another library has them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from dtrees.ensemble.compat import parameter_names

#: Names of parameters here, and what LightGBM, XGBoost, CatBoost and scikit-learn's HistGradientBoosting call them.
_ELSEWHERE = {
    "max_leaf_nodes": "num_leaves num_leaf max_leaves max_leaf",
    "n_estimators": "num_iterations num_iteration n_iter num_boost_round num_round nrounds num_trees max_iter iterations",
    "learning_rate": "eta shrinkage_rate",
    "max_depth": "depth",
    "min_samples_leaf": "min_child_samples min_data_in_leaf min_data_per_leaf min_data",
    "min_child_weight": "min_sum_hessian_in_leaf min_sum_hessian_per_leaf min_sum_hessian min_hessian",
    "reg_lambda": "lambda lambda_l2 l2_regularization l2_leaf_reg",
    "reg_alpha": "lambda_l1 l1_regularization",
    "min_split_gain": "gamma min_split_loss min_gain_to_split",
    "subsample": "bagging_fraction sub_row",
    "colsample_bytree": "feature_fraction sub_feature",
    "max_features": "feature_fraction_bynode colsample_bynode rsm mtry",
    "random_state": "seed random_seed",
    "n_jobs": "nthread nthreads num_thread num_threads n_threads thread_count",
    "verbose": "verbosity",
    "monotonic_cst": "monotone_constraints",
    "interaction_cst": "interaction_constraints",
    "categorical_features": "categorical_feature categorical_column cat_feature cat_features enable_categorical",
    "min_samples_category": "min_data_per_group",
    "class_weight": "scale_pos_weight is_unbalance unbalance unbalanced_sets auto_class_weights class_weights",
    "loss": "objective objective_type application loss_function",
    "eval_metric": "metric metrics",
    "early_stopping_rounds": "early_stopping_round",
    "n_iter_no_change": "early_stopping od_wait",
    "estimator": "base_estimator",
}
_MEANT = {other: name for name, others in _ELSEWHERE.items() for other in others.split()}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return what a name that is not known may mean, as a sentence.

    >>> suggestion("num_leaves", ["max_leaf_nodes", "max_depth"]), suggestion("max_dept", ["max_leaf_nodes", "max_depth"])
    ("Did you mean 'max_leaf_nodes'?", "Did you mean 'max_depth'?")
    >>> suggestion("target", ["income", "age"])
    'There are: income, age.'
    """
    known = list(known)
    by_lower = {candidate.lower(): candidate for candidate in known}
    meant = _MEANT.get(name.lower())
    close = [meant] if meant in by_lower else difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.7)
    if close:
        return f"Did you mean {' or '.join(repr(by_lower[match]) for match in close)}?"
    shown = ", ".join(known[:30])
    return f"There are: {shown}{f' and {len(known) - 30} more' if len(known) > 30 else ''}."


class NamedParameters:
    """Mixin of estimators: of a parameter that there is not, the error says which may be meant."""

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **given: Any) -> None:
        """Have a class show the signature of ``__init__``."""
        super().__init_subclass__(**given)
        show_signature(cls)

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Make an estimator; raises TypeError for a parameter that there is not."""
        for name in given:
            if name not in parameter_names(cls) and not _takes_any(cls):
                raise TypeError(f"{cls.__name__} has no parameter {name!r}. {suggestion(name, parameter_names(cls))}")
        return super().__new__(cls)

    def set_params(self, **given: Any) -> Any:
        """Set parameters by name, also those of estimators within, as ``name__parameter``.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If there is no such parameter; the message says which may be meant.
        """
        for name in given:
            if name.partition("__")[0] not in parameter_names(type(self)):
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {type(self).__name__}. {suggestion(name, parameter_names(type(self)))}"
                )
        return super().set_params(**given)  # type: ignore[misc]


def show_signature(kind: Any) -> None:
    """Have a class show the signature of ``__init__``: some versions of Python 3.11 take that of ``__new__`` if both are inherited."""
    of_method = inspect.signature(kind.__init__)
    kind.__signature__ = of_method.replace(parameters=[*of_method.parameters.values()][1:])


def _takes_any(kind: type) -> bool:
    """Return whether a class, which may be a user's own, takes parameters of any name."""
    parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    return any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)
