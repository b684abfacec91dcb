"""The parameters of the estimators: descriptions, constraints and defaults.

Parameters are declared once; ``__init__``, the checks of a fit, and the documentation are generated from the declarations. A class declares
them like fields of a dataclass, and describes them in its docstring, without the defaults::

    @with_parameters
    class Depth:
        max_depth: int | None = parameter(default=None, allowed=[POSITIVE_INTEGER, None])

An estimator has the parameters of its bases, possibly with other defaults. Descriptions of parameters and attributes, and notes, of its
bases are added to its docstring. (It is not a dataclass: Dask would treat models with equal parameters as equal.)

Values are checked like those of scikit-learn's own estimators, by constraints in its notation. For unknown parameter names, errors suggest
similar names, also by the names in other libraries.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

import numpy as np

from dtrees.ensemble.compat import BaseEstimator, HasMethods, Interval, NamesAtTheTime, Options, RealNotInt, StrOptions, parameter_names
from dtrees.ensemble.input.by_size import AUTO
from dtrees.ensemble.input.rules import ALPHA, LARGEST_INTEGER, criteria_of

#: Parameter names, and their names in LightGBM, XGBoost, CatBoost and scikit-learn's HistGradientBoosting.
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
    "n_parallel_trees": "num_parallel_tree",
    "subsample": "bagging_fraction sub_row",
    "subsample_by": "data_sample_strategy sampling_method bootstrap_type",
    "drop_rate": "rate_drop",
    "drop_normalization": "normalize_type",
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
    """Return a suggestion for an unknown name, as a sentence.

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
    """Mixin of estimators: errors for unknown parameters suggest similar names."""

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **given: Any) -> None:
        """Set the class's displayed signature to that of ``__init__``."""
        super().__init_subclass__(**given)
        show_signature(cls)

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Create an estimator; raises TypeError for unknown parameters."""
        for name in given:
            if name not in parameter_names(cls) and not _takes_any(cls):
                raise TypeError(f"{cls.__name__} has no parameter {name!r}. {suggestion(name, parameter_names(cls))}")
        return super().__new__(cls)

    def set_params(self, **given: Any) -> Any:
        """Set parameters by name, also those of nested estimators, as ``name__parameter``.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If there is no such parameter; the message suggests similar names.
        """
        for name in given:
            if name.partition("__")[0] not in parameter_names(type(self)):
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {type(self).__name__}. {suggestion(name, parameter_names(type(self)))}"
                )
        return super().set_params(**given)  # type: ignore[misc]


def show_signature(kind: Any) -> None:
    """Set a class's displayed signature to that of ``__init__``: some versions of Python 3.11 use ``__new__`` if both are inherited."""
    of_method = inspect.signature(kind.__init__)
    kind.__signature__ = of_method.replace(parameters=[*of_method.parameters.values()][1:])


def _takes_any(kind: type) -> bool:
    """Return whether a class, which may be a user's own, takes parameters of any name."""
    parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    return any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)


C = TypeVar("C", bound=type)


class _Declared(NamedTuple):
    """A parameter: its default, its constraints in scikit-learn's notation, and whether it is keyword-only."""

    default: Any
    allowed: list[Any] | None
    kw_only: bool
    annotation: str = "Any"


#: The parameters that each class declares itself.
_declared: dict[type, dict[str, _Declared]] = {}


def parameter(*, default: Any, allowed: list[Any] | None = None, kw_only: bool = True) -> Any:
    """Declare a parameter; ``allowed`` has constraints in scikit-learn's notation, by default those of a base class."""
    return _Declared(default, allowed, kw_only)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter,))
def with_parameters(cls: C) -> C:
    """Decorate a class that declares parameters; an estimator class gets ``__init__``, constraints and documentation."""
    own = _declared[cls] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        if not annotation.startswith("ClassVar"):
            given = vars(cls)[name]
            known = given if isinstance(given, _Declared) else _Declared(given, None, True)
            own[name] = known._replace(annotation=annotation)
            setattr(cls, name, known.default)
    if issubclass(cls, BaseEstimator):
        _make_estimator(cls)
    return cls


def _make_estimator(cls: Any) -> None:
    """Set the generated parts of an estimator class from its parameters and those of its bases, in inherited order, except ``_WITHOUT``."""
    found: dict[str, _Declared] = {}
    for base in cls.__mro__:
        for name, known in _declared.get(base, {}).items():
            over = found.pop(name, known)
            found[name] = over._replace(allowed=over.allowed or known.allowed, kw_only=over.kw_only and known.kw_only)
    found = {name: known for name, known in found.items() if name not in getattr(cls, "_WITHOUT", ())}
    found = dict(sorted(found.items(), key=lambda item: item[1].kw_only))
    cls._parameter_constraints = {name: known.allowed for name, known in found.items()}
    fields = [(name, known.annotation, dataclasses.field(default=known.default, kw_only=known.kw_only)) for name, known in found.items()]
    made: Any = dataclasses.make_dataclass(cls.__name__, fields, namespace={"__module__": cls.__module__}, repr=False, eq=False)
    cls.__init__ = made.__init__
    show_signature(cls)
    if cls.__doc__:  # docstrings may be stripped
        cls.__doc__ = _description(cls, {name: known.default for name, known in found.items()})


def _description(cls: type, defaults: Mapping[str, Any]) -> str:
    """Return the docstring of an estimator including the sections of its bases."""
    own, *of_bases = [_sections(base.__doc__ or "") for base in cls.__mro__ if base.__module__.startswith("dtrees.")]
    parameters, attributes = (_entries([own, *of_bases], title) for title in ("Parameters", "Attributes"))
    without: frozenset[str] = getattr(cls, "_WITHOUT", frozenset())
    sections = {
        "Parameters": "\n".join(_with_default(parameters[name], default) for name, default in defaults.items()),
        "Attributes": "\n".join(text for name, text in attributes.items() if not {name, name.rstrip("_")} & without),
        **next(({"Notes": one["Notes"]} for one in (own, *of_bases) if "Notes" in one), {}),
    }
    others = {title: text for title, text in own.items() if title not in ("", *sections)}
    return "\n\n".join([own[""], *(f"{title}\n{'-' * len(title)}\n{text}" for title, text in (sections | others).items())])


def _sections(docstring: str) -> dict[str, str]:
    """Return the sections of a docstring by title; the text before them has the title ""."""
    first, *rest = re.split(r"^(\w+)\n-+\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {"": first.strip(), **{title: text.strip() for title, text in zip(rest[::2], rest[1::2], strict=True)}}


def _entries(docstrings: list[dict[str, str]], title: str) -> dict[str, str]:
    """Return the entries of a section by name, each from the first docstring that has it."""
    found: dict[str, str] = {}
    for sections in docstrings:
        for entry in re.split(r"\n(?=\S)", sections[title]) if title in sections else ():
            found.setdefault(entry.partition(" : ")[0], entry)
    return found


def _with_default(entry: str, default: Any) -> str:
    """Return the description of a parameter with its default."""
    first, end, rest = entry.partition("\n")
    return f"{first}, default={json.dumps(default) if isinstance(default, str) else repr(default)}{end}{rest}"


POSITIVE_INTEGER = Interval(Integral, 1, LARGEST_INTEGER, closed="both")
AT_LEAST_TWO = Interval(Integral, 2, LARGEST_INTEGER, closed="both")
NOT_NEGATIVE = Interval(Real, 0.0, None, closed="left")
#: Shares of all rows or columns; a float share excludes integers, since 1 is then a number of rows or columns.
SHARE = Interval(Real, 0.0, 1.0, closed="right")
FLOAT_SHARE = Interval(RealNotInt, 0.0, 1.0, closed="right")
PROBABILITY = Interval(Real, 0.0, 1.0, closed="both")
INSIDE_ONE = Interval(Real, 0.0, 1.0, closed="neither")
RANDOM_STATE = ["random_state", np.random.Generator]
N_JOBS = [Interval(Integral, None, -1, closed="right"), POSITIVE_INTEGER, None]
MAX_DEPTH = [POSITIVE_INTEGER, None]
MIN_SAMPLES_LEAF = [POSITIVE_INTEGER, Interval(RealNotInt, 0.0, 1.0, closed="neither")]
MAX_FEATURES = [POSITIVE_INTEGER, FLOAT_SHARE, StrOptions({"sqrt", "log2"}), None]
MAX_LEAF_NODES = [AT_LEAST_TWO, None]


@with_parameters
class CommonParameters:
    """Parameters of single trees, forests and boosting.

    Parameters
    ----------
    min_samples_split : int or float
        Minimum number of rows of a node to be split. A float is a fraction of all rows (with a weight above 0), rounded up.
    min_weight_fraction_leaf : float
        Minimum weight of a leaf, as a fraction of the total weight.
    min_impurity_decrease : float
        Minimum decrease of impurity of a split, weighted by the node's share of the total weight.
    ccp_alpha : float
        Complexity parameter of minimal cost-complexity pruning. As long as a subtree lowers impurity, weighted by its share of the total
        weight, by at most this much per leaf beyond the first, the subtree that lowers it least becomes a leaf.
    categorical_features : "from_dtype", array-like or None
        Columns that are split by sets of categories instead of thresholds. "from_dtype" selects columns of text and of category dtypes; a
        list selects columns by name, position or mask, also of numbers, and "from_dtype" in a list adds those of text and category dtypes.
        None treats category numbers as numbers, in the order of an ordered dtype, otherwise sorted. Missing values are a category.
        Categories without rows in a node go right; those not seen at fit go where missing values go.
    cat_smooth : float
        Weight by which the mean of a category is moved towards the mean of its node before categories are sorted. With 0, the best split in
        this order is the best of all sets, except in trees and forests for more than two classes.
    min_samples_category : int or None
        Minimum number of rows of a category in a node; rarer categories are pooled. None is 2, and in boosting and classification the gains
        of sets are then corrected for chance: the best k of m uninformative categories gain about ``v * (m log(m) - k log(k) - (m - k)
        log(m - k))``, where v is the variance of gradients over hessians, or of class membership. This amount, times 1.5 for
        classification, is subtracted from the gain by which a set is chosen. In columns with fewer than four rows per category, None is
        then 1. With random thresholds or multi-output targets, None is half of the mean number of rows per category of the column (rows of
        weight 0 do not count), but at most 10, or a fifth of it, but at most 100, whichever is larger.
    max_cat_threshold : int or None
        Maximum number of categories on the smaller side of a split. None is twice the square root of the number of categories of the column
        (the square root itself with fewer than four rows per category), but at least 32.
    random_state : int, RandomState, Generator or None
        Seed of the columns that nodes draw (with ``max_features``) and of random thresholds. Pass an int for reproducible trees.
    n_jobs : int or None
        Number of threads for fit and predict. None is 1, -1 all cores. The result does not depend on it. On a cluster, the number of
        threads of each worker counts.
    monotonic_cst : array-like of int of shape (n_features,), dict or None
        Constraints on predictions: 1 for columns with which they must not fall, -1 for columns with which they must not rise, 0 for others.
        A dict maps names of columns to these numbers; other columns have 0. Predictions are monotonic to the last bit, except for rows with
        a missing value in the column. In a classifier (two classes only), the probability of the second class is constrained.
    interaction_cst : {"pairwise", "no_interactions"}, list of lists, tuples or sets, or None
        Sets of columns, by number or name, that may be used together on a path from the root to a leaf. Columns that are in no set form one
        more set. "pairwise" allows any two columns, "no_interactions" a single column. In a node, columns that may not be used count as
        constant.
    importance_type : {"gain", "split", "cover"}
        Quantity that ``feature_importances_`` sums for each column: the gains of its splits, the number of splits, or the weight of the
        rows that they divide (in boosted trees, the sum of hessians). It may be set after the fit.
    """

    min_samples_split: int | float = parameter(default=2, allowed=[AT_LEAST_TWO, FLOAT_SHARE])
    min_weight_fraction_leaf: float = parameter(default=0.0, allowed=[Interval(Real, 0.0, 0.5, closed="both")])
    min_impurity_decrease: float = parameter(default=0.0, allowed=[NOT_NEGATIVE])
    ccp_alpha: float = parameter(default=0.0, allowed=[NOT_NEGATIVE])
    categorical_features: Any = parameter(default="from_dtype", allowed=["array-like", StrOptions({"from_dtype"}), None])
    cat_smooth: float = parameter(default=10.0, allowed=[NOT_NEGATIVE])
    min_samples_category: int | None = parameter(default=None, allowed=[POSITIVE_INTEGER, None])
    max_cat_threshold: int | None = parameter(default=None, allowed=[POSITIVE_INTEGER, None])
    random_state: Any = parameter(default=None, allowed=RANDOM_STATE)
    n_jobs: int | None = parameter(default=None, allowed=N_JOBS)
    monotonic_cst: Any = parameter(default=None, allowed=["array-like", dict, None])
    interaction_cst: Any = parameter(default=None, allowed=[StrOptions({"pairwise", "no_interactions"}), list, tuple, None])
    importance_type: str = parameter(default="gain", allowed=[StrOptions({"gain", "split", "cover"})])


@with_parameters
class GrowthParameters:
    """Parameters of single trees and forests.

    Parameters
    ----------
    max_depth : int or None
        Maximum depth of a tree. None grows until leaves are pure or too small to split.
    min_samples_leaf : int or float
        Minimum number of rows of a leaf. A float is a fraction of all rows (with a weight above 0), rounded up.
    max_features : int, float, {"sqrt", "log2"} or None
        Number of columns drawn for each node to find a split: a number, a share, or the square root or base-2 logarithm of the number of
        columns that the tree uses. None uses all. Columns without a possible split do not count.
    max_leaf_nodes : int or None
        Maximum number of leaves. The node with the largest gain is split next. None sets no limit.
    """

    max_depth: int | None = parameter(default=None, allowed=MAX_DEPTH)
    min_samples_leaf: int | float = parameter(default=1, allowed=MIN_SAMPLES_LEAF)
    max_features: int | float | str | None = parameter(default=None, allowed=MAX_FEATURES)
    max_leaf_nodes: int | None = parameter(default=None, allowed=MAX_LEAF_NODES)


@with_parameters
class RegressionCriterion:
    """Parameters of single trees and forests for regression.

    Parameters
    ----------
    criterion : {"squared_error", "absolute_error", "quantile", "poisson", "friedman_mse"}
        Quantity that a split minimises: the mean squared distance of the target from its mean in the children, which leaves then predict
        ("friedman_mse" is another name); the mean absolute distance from the weighted median, which is more robust to outliers and several
        times slower; the mean pinball loss about the weighted quantile of ``alpha``, also slower; or half the Poisson deviance from the
        mean, for non-negative targets such as counts. All support missing values. For absolute error, weights that are not integers are
        rounded to a 2**40th of their sum; for quantiles, to this times the denominator of ``alpha``.
    alpha : float
        Quantile of the criterion "quantile", from 0.0001 to 0.9999. With more than four decimals, the nearest fraction with a denominator
        of at most 10,000 is used. Other criteria ignore it.
    """

    criterion: str = parameter(default="squared_error", allowed=[NamesAtTheTime(partial(criteria_of, "regression"))])
    alpha: float = parameter(default=ALPHA, allowed=[INSIDE_ONE])


@with_parameters
class ClassWeight:
    """The weights of classes.

    Parameters
    ----------
    class_weight : dict, list of dicts, "balanced" or None
        Weights of the classes, by which row weights are multiplied. "balanced" gives all classes the same total weight. For several
        targets, a list has a dict for each, and their factors are multiplied.
    """

    class_weight: Any = parameter(default=None, allowed=[Options(str, {"balanced"}), dict, None, list])


@with_parameters
class ClassificationCriterion(ClassWeight):
    """Parameters of single trees and forests for classification.

    Parameters
    ----------
    criterion : {"gini", "entropy", "log_loss"}
        Quantity that a split minimises: the Gini impurity, or the entropy ("log_loss" is another name).
    """

    criterion: str = parameter(default="gini", allowed=[NamesAtTheTime(partial(criteria_of, "classification"))])


@with_parameters
class ForestParameters(GrowthParameters):
    """Parameters of forests.

    Parameters
    ----------
    n_estimators : int
        The number of trees.
    bootstrap : bool
        Whether each tree is grown on rows drawn with replacement, with probability in proportion to their weight, or on all rows.
    oob_score : bool or callable
        Whether to predict each row by the trees that did not draw it, and to score these predictions: by ``score``, or by the callable
        ``metric(y_true, y_pred)``, which gets class codes (positions in ``classes_``) for classification. Requires ``bootstrap``.
    max_samples : int, float or None
        Number of rows drawn for each tree, with ``bootstrap``. A float is a share of the number of rows with a weight above 0, whatever
        their weights. None draws as many rows as have a weight above 0.
    colsample_bytree : float
        Share of the columns drawn once for each tree; nodes draw from these.
    verbose : int
        Verbosity: 0 is silent, 1 shows the progress as :class:`dtrees.ProgressBar`, 2 prints a line after every tree. If the logger
        "dtrees" is enabled at level INFO, the lines are log records.
    warm_start : bool
        Whether to keep the trees of the previous fit, and add trees up to ``n_estimators``.
    random_state : int, RandomState, Generator or None
        Seed of the rows and columns drawn and of random thresholds. Pass an int for a reproducible forest.
    """

    n_estimators: int = parameter(default=100, allowed=[POSITIVE_INTEGER], kw_only=False)
    bootstrap: bool | str = parameter(default=True, allowed=["boolean"])
    oob_score: Any = parameter(default=False, allowed=["boolean", callable])
    max_samples: int | float | None = parameter(
        default=None, allowed=[None, Interval(RealNotInt, 0.0, None, closed="neither"), POSITIVE_INTEGER]
    )
    colsample_bytree: float = parameter(default=1.0, allowed=[SHARE])
    verbose: int = parameter(default=0, allowed=["verbose"])
    warm_start: bool = parameter(default=False, allowed=["boolean"])


@with_parameters
class BoostingParameters:
    """Parameters of boosting. Defaults differ from scikit-learn's; that of ``n_estimators`` is cheap and works well on several tables.

    Parameters
    ----------
    learning_rate : float or "auto"
        Factor by which the step of each tree is multiplied. Fewer, longer steps fit faster and generalise worse. "auto" is meant for 200
        rounds; pass a number for many more or far fewer. It is 0.1; with 10,000 or more rows of a weight above 0, it is 0.15 for
        regression, and 0.07 if ``max_leaf_nodes`` is "auto" and resolves to 31. The value used is ``learning_rate_``.
    n_estimators : int
        The number of rounds. A round grows one tree, or one per class for more than two classes, or per target.
    n_parallel_trees : int
        Number of trees that a round grows for each output (a boosted forest, XGBoost's ``num_parallel_tree``), all on the gradients at its
        beginning. Each draws its own rows (``subsample``) and columns, and ``learning_rate`` is divided by their number.
    subsample : float
        Share of the rows drawn, without replacement, for each round, and for each of its ``n_parallel_trees``.
    subsample_by : {"uniform", "gradient"}
        How rows are drawn: all with the same probability ("uniform"), or those with large gradients more often ("gradient"). "gradient" is
        minimal variance sampling (Ibragimov and Gusev 2019, with lambda = 0): a row is drawn with probability p = min(1, s / mu), and its
        gradients and hessians are multiplied by 1 / p. Here s is its absolute gradient (times its weight; summed over outputs), and mu is
        such that a share of ``subsample`` is expected. Sums are then estimates of those over all rows. It is not for losses whose leaves
        are quantiles ("absolute_error", "quantile", "huber"), nor for ``subsample=1``, and sets no ``oob_scores_``.
    drop_rate : float
        Probability that an earlier round is dropped while a round is grown: DART (Rashmi and Gilad-Bachrach 2015), with XGBoost's weights.
        With k dropped rounds, the values of the new one are multiplied by 1 / (k + learning_rate), those of the dropped ones by k / (k +
        learning_rate). Losses and scores after a round use the weights at that time; the fitted model and its staged predictions use the
        final weights. Each row takes one byte of memory per tree, two for trees of more than 256 nodes. A fit that continues earlier rounds
        by ``warm_start`` does not support it.
    skip_drop : float
        Probability that a round drops no earlier round.
    drop_normalization : {"tree", "forest"}
        Weight of the new round: that of each dropped round ("tree"), or of all of them together ("forest"). With "forest", new and dropped
        rounds are multiplied by 1 / (1 + learning_rate).
    max_depth : int, "auto" or None
        Maximum depth of a tree; None sets no limit. "auto" is 6, and None if the number of leaves is limited. The value used is
        ``max_depth_``.
    min_samples_leaf : int, float or "auto"
        Minimum number of rows of a leaf. A float is a fraction of all rows (with a weight above 0), rounded up. "auto" is a tenth of these
        rows, but at least 1 and at most 5, and 1 with 10,000 or more. The value used is ``min_samples_leaf_``.
    min_child_weight : float
        Minimum sum of hessians of a leaf. For squared error, this is its weight, or number of rows; for log loss, it shrinks as predictions
        approach 0 or 1.
    min_weight_fraction_leaf : float
        Minimum sum of hessians of a leaf, as a fraction of the sum over all rows in the tree's sample. This is a fraction of the weight if
        the hessian of each row is its weight, as for squared error, and with ``criterion="squared_error"``.
    reg_lambda : float or "auto"
        L2 penalty on leaf values, before shrinkage. "auto" is 5, and 1 for more than two classes. The value used is ``reg_lambda_``.
    split_shrinkage : float or "auto"
        Strength of the shrinkage of split effects: the values of the children of a node, less its own, are multiplied by max(0, 1 -
        split_shrinkage * noise / gain), James and Stein's shrinkage, split by split as in hierarchical shrinkage (Agarwal et al. 2022). The
        noise is the variance of gradients over the mean hessian in the rows of the tree. 0 disables it. "auto" is, if ``min_samples_leaf``
        is "auto" and for n < 10,000 rows of a weight above 0, log10(n) for regression and log10(n / 10) for classification, but at least 0;
        otherwise 0. The value used is ``split_shrinkage_``.
    reg_alpha : float
        L1 penalty on leaf values, before shrinkage, as in XGBoost: in leaf values and in gains, sums of gradients are moved towards zero by
        it, but not beyond.
    max_features : int, float, {"sqrt", "log2", "auto"} or None
        Number of columns drawn for each node to find a split: a number, a share, or the square root or base-2 logarithm of the number of
        columns that the tree uses. None uses all. Columns without a possible split do not count. "auto" is 0.5 for classification with
        fewer than 10,000 rows of a weight above 0 and without ``colsample_bylevel``, otherwise None. The value used is ``max_features_``.
    colsample_bytree : float
        Share of the columns drawn once for each tree; nodes draw from these.
    colsample_bylevel : float
        Share of these columns drawn once for each level of a tree, instead of ``max_features`` for each node. A node that none of them can
        split draws others.
    max_leaf_nodes : int, "auto" or None
        Maximum number of leaves. The node with the largest gain is split next. None sets no limit. "auto" is 31 for two classes with at
        least 10,000 and fewer than 100,000 rows of a weight above 0, unless ``max_depth`` is passed; otherwise None. The value used is
        ``max_leaf_nodes_``.
    min_impurity_decrease : float
        Minimum gain of a split, per unit of the tree's sum of hessians.
    min_split_gain : float
        Minimum gain of a split, not normalised: LightGBM's parameter of this name, and XGBoost's ``gamma``.
    criterion : {"newton", "squared_error"}
        Quantity that a split improves: the second-order model of the loss (gradients and hessians), or the squared error of the gradients
        alone, as in scikit-learn's gradient boosting and the L2 score functions of CatBoost; a row then counts by its weight, and leaves
        still hold Newton steps. Both are the same if hessians are 1, as for squared error.
    init : estimator, "zero" or None
        Initial prediction: the best constant (None), zero ("zero"), or that of an estimator, which is cloned and fitted to the rows that
        are not held out; its predictions (probabilities) become the raw predictions that trees are added to. On a cluster, all rows are
        fetched to the process that coordinates the fit. A model file cannot hold the estimator. For raw scores of each row, pass
        ``base_margin`` to fit.
    ccp_alpha : float
        Complexity parameter of pruning, which is applied to a tree before its step: as long as a subtree gains at most this much, per unit
        of the tree's sum of hessians and per leaf beyond the first, the subtree that gains least becomes a leaf.
    validation_fraction : float or None
        Share of the rows (of each class) that is held out, with ``n_iter_no_change``. With None, no rows are held out: the training rows
        decide. If ``fit`` gets ``X_val``, these rows decide instead.
    n_iter_no_change : int or None
        Number of rounds after which the fit stops if the loss or score of the held-out rows has not improved by ``tol``. With
        ``warm_start``, the rounds of earlier fits count if these scored the same rows by the same ``scoring``.
    tol : float
        Minimum improvement; see ``n_iter_no_change``.
    scoring : str, callable or None
        Score of the held-out rows, with ``n_iter_no_change``: the loss, the name of a scorer of scikit-learn, or a scorer made by
        :func:`sklearn.metrics.make_scorer`; None is R2 or accuracy. Scorers of labels get class codes (positions in ``classes_``). Any
        other callable is called as ``scoring(estimator, X, y)``, with ``sample_weight`` if there are weights, and returns a number (larger
        is better); ``y`` are labels, and ``X`` stands for the rows without their columns: the methods ``predict``, ``predict_proba`` and
        ``decision_function`` of ``estimator`` take it, or ``X[rows]``.
    early_stopping_rounds : int or None
        Number of rounds after which the fit stops if the last metric of ``eval_metric`` has not improved on the last evaluation set. Rounds
        after the best one are dropped. For another set or metric, see :class:`dtrees.EarlyStopping`. Requires an ``eval_set`` at fit.
    verbose : int
        Verbosity: 0 is silent, 1 shows the progress as :class:`dtrees.ProgressBar`, 2 prints a line after every round. If the logger
        "dtrees" is enabled at level INFO, the lines are log records.
    warm_start : bool
        Whether to keep the rounds of the previous fit, and add rounds up to ``n_estimators``.
    random_state : int, RandomState, Generator or None
        Seed of the rows and columns drawn. Pass an int for a reproducible model. With None, each fit draws anew, unless only columns are
        drawn, and only because ``max_features`` is "auto": then every fit draws the same.
    """

    learning_rate: float | str = parameter(default=AUTO, allowed=[NOT_NEGATIVE, StrOptions({AUTO})])
    n_estimators: int = parameter(default=200, allowed=[POSITIVE_INTEGER])
    n_parallel_trees: int = parameter(default=1, allowed=[POSITIVE_INTEGER])
    subsample: float = parameter(default=1.0, allowed=[SHARE])
    subsample_by: str = parameter(default="uniform", allowed=[StrOptions({"uniform", "gradient"})])
    drop_rate: float = parameter(default=0.0, allowed=[PROBABILITY])
    skip_drop: float = parameter(default=0.0, allowed=[PROBABILITY])
    drop_normalization: str = parameter(default="tree", allowed=[StrOptions({"tree", "forest"})])
    max_depth: int | str | None = parameter(default=AUTO, allowed=[*MAX_DEPTH, StrOptions({AUTO})])
    min_samples_leaf: int | float | str = parameter(default=AUTO, allowed=[*MIN_SAMPLES_LEAF, StrOptions({AUTO})])
    min_child_weight: float = parameter(default=0.001, allowed=[NOT_NEGATIVE])
    reg_lambda: float | str = parameter(default=AUTO, allowed=[NOT_NEGATIVE, StrOptions({AUTO})])
    split_shrinkage: float | str = parameter(default=AUTO, allowed=[NOT_NEGATIVE, StrOptions({AUTO})])
    reg_alpha: float = parameter(default=0.0, allowed=[NOT_NEGATIVE])
    max_features: int | float | str | None = parameter(default=AUTO, allowed=[*MAX_FEATURES, StrOptions({AUTO})])
    colsample_bytree: float = parameter(default=1.0, allowed=[SHARE])
    colsample_bylevel: float = parameter(default=1.0, allowed=[SHARE])
    max_leaf_nodes: int | str | None = parameter(default=AUTO, allowed=[*MAX_LEAF_NODES, StrOptions({AUTO})])
    min_split_gain: float = parameter(default=0.0, allowed=[NOT_NEGATIVE])
    criterion: str = parameter(default="newton", allowed=[StrOptions({"newton", "squared_error"})])
    init: Any = parameter(default=None, allowed=[StrOptions({"zero"}), HasMethods(["fit", "predict"]), None])
    validation_fraction: float | None = parameter(default=0.1, allowed=[INSIDE_ONE, None])
    n_iter_no_change: int | None = parameter(default=None, allowed=[POSITIVE_INTEGER, None])
    tol: float = parameter(default=1e-4, allowed=[NOT_NEGATIVE])
    scoring: Any = parameter(default="loss", allowed=[str, callable, None])
    early_stopping_rounds: int | None = parameter(default=None, allowed=[POSITIVE_INTEGER, None])
    eval_metric: Any = parameter(default=None, allowed=[str, callable, list, tuple, None])
    verbose: int = parameter(default=0, allowed=["verbose"])
    warm_start: bool = parameter(default=False, allowed=["boolean"])
