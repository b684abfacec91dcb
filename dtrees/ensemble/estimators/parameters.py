"""The parameters of the estimators: what each means, what it may be, and its default.

Parameters are declared once: of what a class annotates are made ``__init__``, the checks of a fit, and the documentation. A class declares
them as a dataclass does its fields, and describes them in its docstring, without their defaults::

    @with_parameters
    class Depth:
        max_depth: int | None = parameter(default=None, allowed=[POSITIVE_INTEGER, None])

An estimator has the parameters of its bases, with other defaults where it gives others. Its docstring gets their descriptions, and those
of attributes and the notes of its bases. (It is no dataclass: Dask would take equal parameters for equal models.)

Values are checked as scikit-learn checks those of its own estimators, by constraints in its notation. Of names of parameters that there are
not, errors say what may be meant, also where another library has them.
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


C = TypeVar("C", bound=type)


class _Declared(NamedTuple):
    """A parameter: its default, what it may be in scikit-learn's notation, and whether it is passed by name only."""

    default: Any
    allowed: list[Any] | None
    kw_only: bool
    annotation: str = "Any"


#: What each class declares itself.
_declared: dict[type, dict[str, _Declared]] = {}


def parameter(*, default: Any, allowed: list[Any] | None = None, kw_only: bool = True) -> Any:
    """Return the declaration of a parameter; ``allowed`` are constraints in scikit-learn's notation, by default those of a base."""
    return _Declared(default, allowed, kw_only)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter,))
def with_parameters(cls: C) -> C:
    """Decorate a class that declares parameters; one that is an estimator gets ``__init__``, constraints and documentation."""
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
    """Set what follows from the parameters of a class and its bases, but for those ``_WITHOUT``; an inherited one keeps its place."""
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
    if cls.__doc__:  # Python may leave docstrings out
        cls.__doc__ = _description(cls, {name: known.default for name, known in found.items()})


def _description(cls: type, defaults: Mapping[str, Any]) -> str:
    """Return the docstring of an estimator with what its bases say."""
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
    """Return the sections of a docstring by their titles; what comes before them has none."""
    first, *rest = re.split(r"^(\w+)\n-+\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {"": first.strip(), **{title: text.strip() for title, text in zip(rest[::2], rest[1::2], strict=True)}}


def _entries(docstrings: list[dict[str, str]], title: str) -> dict[str, str]:
    """Return the entries of a section of docstrings by their names, each from the first that has it."""
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
#: Shares of all rows or columns, and those that are a number of them, as 1 is, if they are integers.
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
        Fewest rows of a node to be split; a float is a fraction of all rows (of a weight above 0), rounded up.
    min_weight_fraction_leaf : float
        Smallest weight of a leaf, as a fraction of all weight.
    min_impurity_decrease : float
        Split only where impurity decreases by at least this much, weighted by the node's share of all weight.
    ccp_alpha : float
        Prune the finished tree: as long as a subtree lowers impurity, weighted by the share of all weight, by at most this much for
        each leaf that it has more than one, the one that lowers it least becomes a leaf (minimal cost-complexity pruning).
    categorical_features : "from_dtype", array-like or None
        Columns that hold categories, which are split by sets of them, not by an order: those of text or of a category dtype, or those
        listed (by name, by position, or by a mask), also of numbers; "from_dtype" in a list adds those of text or of a category dtype.
        None uses category numbers as numbers; they are in the order of an ordered dtype, otherwise sorted. Missing values are a
        category of their own; categories that no row in a node has go right there, and those not seen at fit where missing values go.
    cat_smooth : float
        Weight by which the mean of a category is moved towards that of its node before categories are put in order. With 0, the order
        is the one among whose splits the best of all sets is, but for more than two classes of a tree or forest.
    min_samples_category : int or None
        Categories of fewer rows in a node are taken together there. None is 2, and corrects gains of sets for chance in boosting and for
        classification: of m categories that tell nothing, the best k together gain about
        ``v * (m log(m) - k log(k) - (m - k) log(m - k))``, v being the variance of gradients over hessians, or of belonging to a class.
        That, for classification 1.5 times it, is taken from the gain by which a set is chosen; in columns of fewer than four rows for
        each category, None is 1 then. Where thresholds are drawn, and for several targets, None is half of the mean number of rows of a
        category of the column (rows of weight 0 do not count), but at most 10, or a fifth of it, but at most 100, whichever is more.
    max_cat_threshold : int or None
        The side of a split that has fewer categories has at most so many. None is twice the square root of the number of categories of
        the column (that itself, if they have fewer than four rows on average), but at least 32.
    random_state : int, RandomState, Generator or None
        Decides which columns nodes draw (with ``max_features``) and random thresholds. Pass an int for the same tree every time.
    n_jobs : int or None
        Threads to fit and predict with. None is 1, -1 all cores. The result does not depend on it. On a cluster, the workers'
        own number of threads counts.
    monotonic_cst : array-like of int of shape (n_features,), dict or None
        Columns that predictions must rise with, or at least not fall (1), or fall with (-1); 0 for others. A dict has the names of
        columns, and means 0 for those it leaves out. Predictions are then monotonic to the last bit; of a classifier, for two classes
        only, the probability of the second one. Predictions for rows that miss the value may be anything.
    interaction_cst : {"pairwise", "no_interactions"}, list of lists, tuples or sets, or None
        Which columns may stand together on a path from the root to a leaf: the sets of them, by number or name; columns that are in
        none are one more set. "pairwise" lets any two, "no_interactions" has every path use a single column. In a node, columns that
        may not be used count as constant.
    importance_type : {"gain", "split", "cover"}
        What ``feature_importances_`` adds up for each column: the gains of its splits, their number, or the weight of the rows
        that they divide (of boosted trees, the sum of hessians). It may be set after the fit.
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
        Depth at which nodes are not split any more. None grows until leaves are pure or too small to split.
    min_samples_leaf : int or float
        Fewest rows of a leaf; a float is a fraction of all rows (of a weight above 0), rounded up.
    max_features : int, float, {"sqrt", "log2"} or None
        Columns drawn for each node to look for a split in: a number, a share, the square root or base-2 logarithm of the number
        of columns that the tree sees; None takes all. Columns without a possible split do not count.
    max_leaf_nodes : int or None
        Split the node that gains most next, until there are this many leaves. None splits all.
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
        What a split is to lower: the mean squared distance of the target from its mean in the children, which leaves then predict
        ("friedman_mse" is another name); the mean absolute distance from the weighted median, which is less swayed by outliers and
        takes some times longer; the mean pinball loss about the weighted quantile of ``alpha``, likewise; or half the Poisson deviance
        from the mean, for targets that are not negative, such as counts. Missing values are allowed with all. For absolute error,
        weights that are not whole numbers are rounded to a 2**40th of their sum; for quantiles, to as much times the denominator of
        ``alpha``.
    alpha : float
        Which quantile the criterion "quantile" is for, from 0.0001 to 0.9999; of more than four decimals, the nearest fraction with a
        denominator of at most 10,000 is taken. Without effect with other criteria.
    """

    criterion: str = parameter(default="squared_error", allowed=[NamesAtTheTime(partial(criteria_of, "regression"))])
    alpha: float = parameter(default=ALPHA, allowed=[INSIDE_ONE])


@with_parameters
class ClassWeight:
    """The weights of classes.

    Parameters
    ----------
    class_weight : dict, list of dicts, "balanced" or None
        Factors for the weights of rows by class. "balanced" gives every class the same weight in all. Of several targets, a list has a
        dict for each, and factors are multiplied.
    """

    class_weight: Any = parameter(default=None, allowed=[Options(str, {"balanced"}), dict, None, list])


@with_parameters
class ClassificationCriterion(ClassWeight):
    """Parameters of single trees and forests for classification.

    Parameters
    ----------
    criterion : {"gini", "entropy", "log_loss"}
        What a split is to lower: the Gini impurity, or the entropy (of which "log_loss" is another name).
    """

    criterion: str = parameter(default="gini", allowed=[NamesAtTheTime(partial(criteria_of, "classification"))])


@with_parameters
class ForestParameters(GrowthParameters):
    """Parameters of forests.

    Parameters
    ----------
    n_estimators : int
        Number of trees.
    bootstrap : bool
        Grow each tree on rows drawn with replacement, with probability in proportion to their weight. Otherwise on all rows.
    oob_score : bool or callable
        Also predict each row by the trees that did not draw it, and score that: as ``score`` does, or by the callable
        ``metric(y_true, y_pred)``, which is given class codes (positions in ``classes_``) for classification. Needs ``bootstrap``.
    max_samples : int, float or None
        With ``bootstrap``, rows drawn for each tree: a number, or a share of the number of rows of a weight above 0, whatever they
        weigh. None draws as many as these are.
    colsample_bytree : float
        Share of the columns drawn once for each tree; nodes draw from these.
    verbose : int
        Tell of the progress in lines: from 1 on about ten times, from 2 on after every tree. They go to standard error, or, where
        the logger "dtrees" is listened to at level INFO, there.
    warm_start : bool
        Keep the trees of the previous fit, and add as many as ``n_estimators`` has grown by.
    random_state : int, RandomState, Generator or None
        Decides rows and columns drawn, and random thresholds. Pass an int for the same forest every time.
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
    """Parameters of boosting. Defaults are not scikit-learn's; that of ``n_estimators`` does well on several tables, and is cheap.

    Parameters
    ----------
    learning_rate : float or "auto"
        Factor that each tree's step is shortened by. Fewer, longer steps fit faster and generalise worse. "auto" is 0.1, and for
        10,000 rows of a weight above 0 and more 0.15 for regression, and 0.07 where ``max_leaf_nodes`` is "auto" and came to 31. That is
        for 200 rounds; for many more, or far fewer, pass a number. What it came to is ``learning_rate_``.
    n_estimators : int
        Rounds: trees, or trees per class for more than two classes, or per target.
    n_parallel_trees : int
        Trees that a round grows for each output, all on the gradients at its beginning, each by its own draws of rows (``subsample``) and
        columns, and with ``learning_rate`` divided by their number: a boosted forest, as by XGBoost's ``num_parallel_tree``.
    subsample : float
        Share of the rows drawn, without replacement, for each round, and each of its ``n_parallel_trees``.
    subsample_by : {"uniform", "gradient"}
        Whether all rows are as likely to be drawn, or those with large gradients more so. "gradient" is minimal variance sampling
        (Ibragimov and Gusev 2019, with their lambda at 0): a row is drawn with the probability p = min(1, s / mu), where s is its
        absolute gradient (times its weight; the sum over outputs) and mu such that a share of ``subsample`` is expected; its gradients
        and hessians count 1 / p times. Sums then estimate those of all rows, where trees are otherwise exact. Not for losses whose
        leaves are quantiles ("absolute_error", "quantile", "huber"), nor with ``subsample=1``; there are no ``oob_scores_``.
    drop_rate : float
        Probability of each earlier round to be dropped while a round is grown: DART (Rashmi and Gilad-Bachrach 2015), with XGBoost's
        weights. With k dropped rounds, the values of the new one are multiplied by 1 / (k + learning_rate), those of the dropped ones by
        k / (k + learning_rate). Losses and scores after a round use the weights at that time, the fitted model and its staged predictions
        the last ones. Each row takes a byte of memory for each tree, two for trees of more than 256 nodes. Not in a fit that goes on
        from earlier rounds by ``warm_start``.
    skip_drop : float
        Probability of a round that drops none.
    drop_normalization : {"tree", "forest"}
        Whether the new round weighs as much as each dropped one ("tree"), or as all of them together ("forest"): new and dropped ones are
        then multiplied by 1 / (1 + learning_rate).
    max_depth : int, "auto" or None
        Depth at which nodes are not split any more; None sets no bound. "auto" is 6, and None where the number of leaves is limited.
        What it came to is ``max_depth_``.
    min_samples_leaf : int, float or "auto"
        Fewest rows of a leaf; a float is a fraction of all rows (of a weight above 0), rounded up. "auto" is a tenth of
        these, but at least 1 and at most 5, and 1 for 10,000 of them and more. What it came to is ``min_samples_leaf_``.
    min_child_weight : float
        Smallest sum of hessians of a leaf. For squared error that is its weight, or number of rows; for log loss it shrinks as
        predictions become sure.
    min_weight_fraction_leaf : float
        Smallest sum of hessians of a leaf, as a fraction of that of all rows in the tree's sample: a fraction of the weight where each
        row's hessian is its weight, as for squared error, and with ``criterion="squared_error"``.
    reg_lambda : float or "auto"
        L2 penalty on leaf values, before shrinkage. "auto" is 5, and 1 for more than two classes. What it came to is ``reg_lambda_``.
    split_shrinkage : float or "auto"
        How many times what a split gains by chance is taken from its effect: the values of its children, less its own, are multiplied
        by max(0, 1 - split_shrinkage * noise / gain), James and Stein's shrinkage, split by split as hierarchical shrinkage is (Agarwal
        et al. 2022). The noise is the variance of gradients over the mean hessian, in the rows of the tree. 0 is none. "auto" is, if
        ``min_samples_leaf`` is "auto", for n < 10,000 rows of a weight above 0, log10(n) for regression and log10(n / 10) for classes,
        but at least 0; otherwise 0. What it came to is ``split_shrinkage_``.
    reg_alpha : float
        L1 penalty on leaf values, before shrinkage, as in XGBoost: sums of gradients are moved towards zero by it, and no further, both
        in leaf values and in gains.
    max_features : int, float, {"sqrt", "log2", "auto"} or None
        Columns drawn for each node to look for a split in: a number, a share, the square root or base-2 logarithm of the number
        of columns that the tree sees; None takes all. Columns without a possible split do not count. "auto" is 0.5 for classification
        with fewer than 10,000 rows of a weight above 0 and without ``colsample_bylevel``, otherwise None. What it came to is
        ``max_features_``.
    colsample_bytree : float
        Share of the columns drawn once for each tree; nodes draw from these.
    colsample_bylevel : float
        Share of these drawn once for each level of a tree, in place of ``max_features`` for each node. A node in which none of them
        can be split draws others.
    max_leaf_nodes : int, "auto" or None
        Split the node that gains most next, until there are this many leaves. None splits all. "auto" is 31 for two classes and 10,000
        rows of a weight above 0 and more, but fewer than 100,000, unless ``max_depth`` is passed; otherwise None. What it came to is
        ``max_leaf_nodes_``.
    min_impurity_decrease : float
        Split only where the gain is at least this much for each unit of the tree's sum of hessians.
    min_split_gain : float
        Split only where the gain is at least this much, absolute: LightGBM's parameter of this name, and XGBoost's ``gamma``.
    criterion : {"newton", "squared_error"}
        What a split is to improve: the second-order model of the loss (gradients and hessians), or the squared error of the gradients
        alone, as in scikit-learn's gradient boosting, and the L2 score functions of CatBoost. A row then counts by its weight; leaves
        still hold Newton steps. The same where hessians are 1, as for squared error.
    init : estimator, "zero" or None
        What trees start from: None is the best constant, "zero" zero, an estimator is cloned and fitted to the rows that are not held
        out, and its predictions (probabilities) become the raw predictions that trees are added to. On a cluster, all rows are brought
        to the process that coordinates the fit for that. A model file cannot hold the model. For raw scores of each row, pass
        ``base_margin`` to fit.
    ccp_alpha : float
        Prune each finished tree before its step is taken: as long as a subtree gains at most this much, for each unit of the tree's
        sum of hessians and each leaf that it has more than one, the one that gains least becomes a leaf.
    validation_fraction : float or None
        With ``n_iter_no_change``, share of the rows (of each class) that is held out. None holds out none: the rows trained on decide.
        Nor are any where ``fit`` is given ``X_val``: these rows decide.
    n_iter_no_change : int or None
        Stop when the loss of the held-out rows has not become smaller, or their score larger, by ``tol`` in this many rounds. With
        ``warm_start``, the rounds of earlier fits count where these scored the same rows by the same ``scoring``.
    tol : float
        See ``n_iter_no_change``.
    scoring : str, callable or None
        With ``n_iter_no_change``, what held-out rows are scored by: the loss, a scorer of scikit-learn by its name, or one made by
        :func:`sklearn.metrics.make_scorer`; None is R2 or accuracy. Scorers of labels are given class codes (positions in
        ``classes_``). Any other callable is called as ``scoring(estimator, X, y)``, with ``sample_weight`` if there are weights, and
        returns a number, the larger the better; ``y`` are labels, ``X`` stands for the rows without their columns, and the methods
        ``predict``, ``predict_proba`` and ``decision_function`` of ``estimator`` take it, or ``X[rows]``.
    early_stopping_rounds : int or None
        Stop when the last metric of ``eval_metric`` has not improved on the last evaluation set for this many rounds, and leave out the
        rounds after the best one. For another set or metric see :class:`dtrees.EarlyStopping`. Wants an ``eval_set`` at fit.
    verbose : int
        Tell of the progress in lines: from 1 on about ten times, from 2 on after every round. They go to standard error, or, where
        the logger "dtrees" is listened to at level INFO, there.
    warm_start : bool
        Keep the rounds of the previous fit, and add as many as ``n_estimators`` has grown by.
    random_state : int, RandomState, Generator or None
        Decides rows and columns drawn. Pass an int for the same model every time. None draws anew in each fit, but where columns are
        drawn because ``max_features`` is "auto" and nothing else is: then every fit draws the same.
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
