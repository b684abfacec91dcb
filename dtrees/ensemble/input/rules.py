"""The engine's rules for a table, derived from an estimator's parameters: splits, draws and class weights.

Invalid combinations of parameters, or of parameters and multi-output targets, raise errors with their names. Parameters without an effect
give warnings; scikit-learn's estimators ignore them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from dtrees.engine.plan.plans import ForestPlan, Rules
from dtrees.ensemble.input.by_size import is_auto, resolved_value
from dtrees.ensemble.input.named_columns import interaction_rule, monotonic_rule
from dtrees.ensemble.input.warning import warn

if TYPE_CHECKING:
    from dtrees.ensemble.backend import Table
    from dtrees.ensemble.input.target import TargetSummary

#: Other names of criteria. Friedman's orders splits as squared error does, and scikit-learn treats it in the same way.
CRITERION_ALIASES = {"log_loss": "entropy", "friedman_mse": "squared_error"}
#: Parameters of categories, with their defaults.
_OF_CATEGORIES = {"cat_smooth": 10.0, "min_samples_category": None, "max_cat_threshold": None}
#: Parameters that require another one (name, value that disables it, description), with their defaults.
_WITHOUT_EFFECT: tuple[tuple[str, Any, str, dict[str, Any]], ...] = (
    ("n_iter_no_change", None, "rows held out", {"validation_fraction": 0.1, "tol": 1e-4}),
    ("drop_rate", 0.0, "dropped rounds", {"skip_drop": 0.0, "drop_normalization": "tree"}),
)
#: Default of the seconds between checkpoints.
CHECKPOINT_INTERVAL = 60.0


def check_categories(estimator: Any, *, by_sums: bool) -> None:
    """Raise ValueError for parameters of category sets if no split uses such sets.

    Parameters
    ----------
    estimator : object
    by_sums : bool
        Whether its criterion orders categories; otherwise their numbers are treated as numbers.
    """
    given = [f"{name}={getattr(estimator, name)!r}" for name, default in _OF_CATEGORIES.items() if getattr(estimator, name) != default]
    if not given:
        return
    if estimator.categorical_features is None:
        why, wish = "categorical_features=None", "name the columns that hold categories"
    elif not by_sums:
        why, wish = f"criterion={estimator.criterion!r}", "use another criterion"
    else:
        return
    raise ValueError(
        f"{given[0]} is about splits by sets of categories, but {why} uses category numbers as numbers; {wish}, or pass no "
        f"{given[0].partition('=')[0]}"
    )


def check_smoothing(estimator: Any) -> None:
    """Raise ValueError for a smoothing of category means if sets are random and do not depend on means."""
    if (value := estimator.cat_smooth) != _OF_CATEGORIES["cat_smooth"]:
        who = f"splitter={estimator.splitter!r}" if hasattr(estimator, "splitter") else type(estimator).__name__
        raise ValueError(
            f"cat_smooth={value!r} is about the order of categories by their means, but {who} draws sets of categories at random; use "
            "trees of the best splits, or pass no cat_smooth"
        )


def check_checkpoint(checkpoint: Any, checkpoint_interval: Any) -> None:
    """Raise ValueError for a checkpoint interval without a checkpoint."""
    if checkpoint is None and checkpoint_interval != CHECKPOINT_INTERVAL:
        raise ValueError(
            f"checkpoint_interval={checkpoint_interval!r} says how often there is a checkpoint, but checkpoint is None; pass a place "
            "for it, or no checkpoint_interval"
        )


def warn_of_boosting(estimator: Any) -> None:
    """Warn of parameters of held-out rows or dropped rounds if there are none."""
    for decides, without, what, defaults in _WITHOUT_EFFECT:
        for name, default in defaults.items() if getattr(estimator, decides) == without else ():
            if (value := getattr(estimator, name)) != default:
                warn(f"{name}={value} has no effect: it is for {what}, but {decides} is {without}; pass that, or no {name}")


def check_targets(estimator: Any, table: Table) -> None:
    """Raise ValueError for parameters of a tree or forest that do not support multi-output targets, if the table has these."""
    n = table.n_targets
    if n == 1:
        return
    from dtrees.split.criteria.criterion import criterion_named  # imports Numba

    if estimator.monotonic_cst is not None:
        raise ValueError(
            f"monotonic_cst is given, and y has {n} targets. Monotonicity constraints are not supported with multiple outputs, of which "
            "not all need rise together; pass monotonic_cst=None, or fit a model of each target"
        )
    criterion = CRITERION_ALIASES.get(estimator.criterion, estimator.criterion)
    if criterion_named(criterion).for_targets() is None:
        raise ValueError(f"criterion={estimator.criterion!r} is for one target, but y has {n}; use another, or fit each target alone")
    if getattr(estimator, "bootstrap", None) == "balanced":
        raise ValueError(f"bootstrap='balanced' draws by the classes of one target, but y has {n}; set bootstrap=True")


def check_boosted_classes(estimator: Any, n: int, metrics: Sequence[str]) -> None:
    """Raise ValueError for parameters and metrics of boosting that do not support multi-output classification."""
    if callable(estimator.loss):
        raise ValueError(f"loss is a function, which is for one target of classes, but y has {n}; pass the name of a loss")
    if not (isinstance(estimator.scoring, str) and estimator.scoring == "loss"):
        raise ValueError(f"scoring={estimator.scoring!r} is for one target of classes, but y has {n}; pass scoring='loss'")
    asked = estimator.eval_metric if isinstance(estimator.eval_metric, list | tuple) else [estimator.eval_metric]
    for metric in asked:
        if metric is not None and (callable(metric) or metric not in metrics):
            raise ValueError(
                f"eval_metric has {metric!r}, but y has {n} targets of classes, over which only {', '.join(metrics)} are averaged; "
                "wants some of these"
            )


#: Largest 64-bit integer, and the largest that kernels take.
LARGEST_INTEGER = 2**63 - 1
#: Largest limit of trees, such that twice a limit and sums with it are 64-bit integers; larger than the number of rows of any table.
_LARGEST_LIMIT = 2**61 - 1
#: Numbers that are the same for the engine as for the user, 0 for estimators without the parameter.
_AS_GIVEN = ("min_weight_fraction_leaf", "min_child_weight", "min_impurity_decrease", "min_split_gain", "ccp_alpha", "cat_smooth")
#: Default of ``alpha`` for trees and for boosting.
ALPHA = 0.9
#: Largest L2 penalty for each unit of weight. With it, leaf values are below the precision of a float relative to the gradients.
_LARGEST_PENALTY = 1e15
#: The share of the gain of category sets by chance that is subtracted from their gains, by default (without ``min_samples_category``). For
#: classification, rows are usually drawn repeatedly. For regression trees, the variance of all rows is a poor estimate of the noise in a
#: node.
_CHANCE = {"boosting": 1.0, "classification": 1.5, "regression": 0.0}
#: A column with fewer rows than this for each of its categories has few.
_FEW_ROWS = 4
#: Largest number of rows that a tree or booster may draw: that of the largest table, for which drawing takes a minute.
_MOST_DRAWS = 2**32


def criteria_of(task: str) -> set[str]:
    """Return the names of the criteria that are registered for a task."""
    from dtrees.split.criteria.criterion import criteria_for  # imports Numba

    names = set(criteria_for(task))
    return names | {alias for alias, name in CRITERION_ALIASES.items() if name in names}


def rules_for(estimator: Any, criterion: str, n_rows: int, *, random_splits: bool = False, several: bool = False) -> Rules:
    """Return the splitting rules for a table of this shape, derived from an estimator's parameters.

    Fractions of rows are rounded up, as in scikit-learn; ``max_features`` refers to the columns of a tree. With ``several`` targets, gains
    of category sets are not corrected for chance.
    """
    columns_per_tree = max(1, int(getattr(estimator, "colsample_bytree", 1.0) * estimator.n_features_in_))
    by_node = not is_auto(estimator.max_features)
    max_features = resolve_max_features(resolved_value(estimator, "max_features"), columns_per_tree)
    bylevel = float(getattr(estimator, "colsample_bylevel", 1.0))
    if bylevel < 1.0:
        if by_node and max_features < columns_per_tree:
            raise ValueError(
                f"max_features={estimator.max_features!r} draws columns for each node, colsample_bylevel={bylevel} for each level; "
                "pass only one of them"
            )
        max_features = max(1, int(bylevel * columns_per_tree))
    if random_splits:
        check_smoothing(estimator)
    categorical = _categorical(estimator, criterion)
    n_categories = [len(estimator._schema.columns[j].categories) for j in categorical]
    criterion = CRITERION_ALIASES.get(criterion, criterion)
    _check_quantile(estimator, criterion)
    chance, fewest = _rare_categories(estimator, criterion, n_rows, n_categories, by_gain=not (random_splits or several))
    min_samples_leaf = _count(resolved_value(estimator, "min_samples_leaf"), n_rows)
    max_depth, max_leaf_nodes = resolved_value(estimator, "max_depth"), resolved_value(estimator, "max_leaf_nodes")
    interactions, most_columns = interaction_rule(estimator)
    as_given: Any = {name: float(getattr(estimator, name, 0.0)) for name in _AS_GIVEN}
    return replace(
        rules_of_values(estimator, criterion),
        max_features=max_features,
        columns_per_tree=columns_per_tree,
        random_splits=random_splits,
        max_depth=None if max_depth is None else _limit(max_depth),
        min_samples_split=max(2, _count(estimator.min_samples_split, n_rows), 2 * min_samples_leaf),
        min_samples_leaf=min_samples_leaf,
        max_leaf_nodes=None if max_leaf_nodes is None else _limit(max_leaf_nodes),
        by_level=bylevel < 1.0,
        categorical=categorical,
        min_samples_category=fewest,
        max_cat_threshold=_each(estimator.max_cat_threshold, [_most_categories(n_rows, n) for n in n_categories]),
        chance=chance,
        interactions=interactions,
        most_columns=most_columns,
        **as_given,
    )


def rules_of_values(estimator: Any, criterion: str) -> Rules:
    """Return the rules that affect node values, independent of splits."""
    return Rules(
        criterion=CRITERION_ALIASES.get(criterion, criterion),
        max_features=1,
        columns_per_tree=1,
        reg_lambda=float(getattr(estimator, "reg_lambda_", 0.0)),
        reg_alpha=float(getattr(estimator, "reg_alpha", 0.0)),
        split_shrinkage=float(getattr(estimator, "split_shrinkage_", 0.0)),
        monotonic=monotonic_rule(estimator),
        alpha=float(estimator.alpha) if criterion == "quantile" else 0.0,
    )


def forest_plan(
    estimator: Any, table: Table, class_weight: tuple[Any, ...] | None, seed: int, *, random_splits: bool, **draws: Any
) -> ForestPlan:
    """Return the plan of a tree or forest; ``draws`` has the fields about draws of rows."""
    n_rows, several = table.rows_that_count(class_weight), bool(table.targets)
    rules = rules_for(estimator, estimator.criterion, n_rows, random_splits=random_splits, several=several)
    return ForestPlan(rules, seed, table.n_classes, class_weight=class_weight, targets=table.targets, **draws)


def _check_quantile(estimator: Any, criterion: str) -> None:
    """Raise ValueError for an invalid quantile of a tree or forest; warn of a quantile without effect, as boosting does."""
    from dtrees.split.criteria.criterion import criterion_named  # imports Numba

    if criterion == "quantile":
        criterion_named(criterion).at(float(estimator.alpha))
    elif criterion_named(criterion).task == "regression" and estimator.alpha != ALPHA:
        warn(
            f"alpha={estimator.alpha} has no effect: it is for criterion='quantile', but criterion is {estimator.criterion!r}; pass that "
            "criterion, or no alpha"
        )


def _each(given: int | None, otherwise: list[int]) -> tuple[int, ...]:
    """Return a number for each categorical column: the given one, or its default."""
    return tuple(otherwise) if given is None else (_limit(given),) * len(otherwise)


def _rare_categories(
    estimator: Any, criterion: str, n_rows: int, n_categories: list[int], *, by_gain: bool
) -> tuple[float, tuple[int, ...]]:
    """Return the correction for gains by chance, and the smallest number of rows of a category that is not pooled."""
    from dtrees.split.criteria.criterion import criterion_named  # imports Numba

    if not by_gain or not n_categories or estimator.min_samples_category is not None:
        return 0.0, _each(estimator.min_samples_category, [_fewest_rows(n_rows, n) for n in n_categories])
    chance = _CHANCE[criterion_named(criterion).task]
    return chance, tuple(1 if chance and n_rows < _FEW_ROWS * n else 2 for n in n_categories)


def _fewest_rows(n_rows: int, n_categories: int) -> int:
    """Return the default of the smallest number of rows of a category that is not pooled.

    It is a fifth of the mean, at most 100, or half of it, at most 10, if that is larger. Held-out losses of boosting by a fifth alone, and
    by this rule: Adult with some of its columns crossed 0.337 and 0.312, California with squares of a grid 0.189 and 0.182. Synthetic
    tables of 1,000 categories: of 20 rows each 0.374 and 0.348; of 13 rows each without an effect 0.371 and 0.352; with mostly fewer than
    13 rows and hardly any noise, 0.354 and 0.400.
    """
    mean = n_rows / n_categories
    return min(max(int(mean / 5), min(int(mean / 2), 10), 1), 100)


def _most_categories(n_rows: int, n_categories: int) -> int:
    """Return the default of the largest number of categories on the smaller side of a split.

    It is twice the square root of the number of categories, or the square root if they have fewer than four rows on average; but at least
    32. Held-out losses of boosting: 1,000 categories of 20 rows each 0.335 with 64, 0.337 with 128 and with 400, the same with more noise
    2.76, 2.80 and 2.85; 10,000 categories of 4 rows each 0.79 with 64, 0.74 with 128 and 0.71 with 400, of 2.7 rows each 0.86 with 100 and
    0.89 with 200. Tables of fewer than 1,000 categories give the same losses with 32 as with 64, in less time.
    """
    return max(32, math.isqrt(n_categories) * (2 if n_rows >= _FEW_ROWS * n_categories else 1))


def _categorical(estimator: Any, criterion: str) -> tuple[int, ...]:
    """Return the columns that are split by sets of categories.

    Criteria based on the order of targets do not support such splits: category numbers are then treated as numbers, or refused.
    """
    from dtrees.split.criteria.criterion import criterion_named  # imports Numba

    by_sums = criterion_named(CRITERION_ALIASES.get(criterion, criterion)).by_sums
    check_categories(estimator, by_sums=by_sums)
    if not by_sums:
        text = [column.name for column in estimator._schema.columns if column.has_unordered_text]
        if text and isinstance(estimator.categorical_features, str):
            warn(
                f"criterion={criterion!r} cannot split by sets of categories: the text of X column {text[0]!r}"
                f"{f' and {len(text) - 1} more' if len(text) > 1 else ''} is used as numbers, in alphabetical order; use another "
                "criterion, an ordered dtype of categories, or categorical_features=None if that is meant"
            )
        if estimator.categorical_features is not None and not isinstance(estimator.categorical_features, str):
            raise ValueError(
                f"criterion={criterion!r} cannot be used with categorical_features={estimator.categorical_features!r:.60}: no order of "
                "categories gives its best split; use another criterion, or categorical_features=None to use category numbers as numbers"
            )
        return ()
    return tuple(np.flatnonzero(estimator.is_categorical_).tolist())


def resolve_max_features(max_features: Any, n_columns: int) -> int:
    """Return the number of columns to draw for each node.

    Examples
    --------
    >>> [resolve_max_features(value, 10) for value in (None, "sqrt", "log2", 0.5, 4, 40)]
    [10, 3, 3, 5, 4, 10]
    """
    if max_features is None:
        return n_columns
    if max_features == "sqrt":
        return max(1, int(math.sqrt(n_columns)))
    if max_features == "log2":
        return max(1, n_columns.bit_length() - 1)
    if isinstance(max_features, Integral):
        return min(int(max_features), n_columns)
    return max(1, int(max_features * n_columns))


def _count(value: Any, n_rows: int) -> int:
    """Convert a number or fraction of rows to a number."""
    return _limit(value) if isinstance(value, Integral) else math.ceil(value * n_rows)


def _limit(value: Any) -> int:
    return min(int(value), _LARGEST_LIMIT)


def draw_seed(random_state: Any) -> int:
    """Return the seed of a fit: the same for the same integer, a new one for None, a ``RandomState`` or a ``Generator``, which advance."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(np.iinfo(np.int32).max))
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def class_weights(class_weight: Any, table: TargetSummary, *, by_rows: bool) -> tuple[Any, ...] | None:
    """Return the factor of the weights of each class, for multi-output targets a tuple for each target; None if all factors are 1.

    Parameters
    ----------
    class_weight : dict, list of dicts, str or None
        A dict maps labels to factors (1 for missing labels); a preset gives n / (n_classes * count). For multi-output targets, a list has a
        dict for each.
    table : TargetSummary
    by_rows : bool
        Whether presets count rows (as for scikit-learn's trees) or sum sample weights (as for its forests).

    Raises
    ------
    ValueError
        If a dict has labels that are not in y, or negative factors.
    """
    if class_weight is None:
        return None
    n, given_list = table.n_targets, isinstance(class_weight, list)
    if n > 1 and isinstance(class_weight, dict):  # it is not known which target's classes it has
        raise ValueError(
            f"For multi-output, class_weight should be a list of dicts, or the string 'balanced': it is {class_weight!r:.60}, and y "
            f"has {n} targets"
        )
    if n == 1 and given_list:
        raise ValueError(f"class_weight is the list {class_weight!r:.60}, but y has one target; wants a dict or a preset")
    if given_list and (len(class_weight) != n or not all(isinstance(one, dict) for one in class_weight)):
        raise ValueError(
            f"For multi-output, number of elements in class_weight should match number of outputs: it is {class_weight!r:.60}; wants "
            f"{n} dicts, one for each target"
        )
    each = zip(class_weight if given_list else [class_weight] * n, table.by_target, strict=True)
    factors = tuple(_class_factors(one, known.labels, known.counts if by_rows else known.weights) for one, known in each)
    if n > 1:
        return factors
    if isinstance(class_weight, dict) and not np.any(table.by_target[0].weights * factors[0]):
        raise ValueError(f"class_weight is {class_weight}, which leaves no row with a weight above 0; wants a class above 0 that has one")
    return factors[0]


def _class_factors(class_weight: Any, classes: Any, totals: Any) -> tuple[float, ...]:
    """Return the class factors of one target, given the number or weight of rows of each class in ``totals``."""
    if isinstance(class_weight, dict):
        if any(not np.isfinite(factor) or factor < 0 for factor in class_weight.values()):
            raise ValueError(f"class_weight is {class_weight}; wants finite factors of at least 0")
        labels = classes.tolist()
        unknown = [label for label in class_weight if label not in labels]
        if unknown and not all(label in class_weight for label in labels):
            raise ValueError(f"class_weight has {unknown}, but the classes are {labels}; wants factors of these, each 1 if it is left out")
        return tuple(float(class_weight.get(label, 1.0)) for label in labels)
    totals = np.asarray(totals, dtype=np.float64)
    # The factor of a class without weight is irrelevant.
    return tuple(float(factor) for factor in totals.sum() / (np.count_nonzero(totals) * np.where(totals > 0, totals, np.inf)))


def check_penalty(reg_lambda: float, total_weight: float) -> None:
    """Raise if an L2 penalty is so large that no leaf would change a prediction, and sums of hessians vanish in rounding."""
    if reg_lambda > _LARGEST_PENALTY * total_weight:
        raise ValueError(
            f"reg_lambda is {reg_lambda:g}, but all rows together weigh {total_weight:g}: no leaf would move a prediction; wants at most "
            f"{_LARGEST_PENALTY:g} times the weight of all rows"
        )


def number_of_draws(max_samples: Any, table: Table, factors: tuple[Any, ...] | None) -> int:
    """Return the number of rows drawn for each tree of a forest, or booster of a bag.

    A float is a share of the rows with a positive weight, regardless of their weights; ``factors`` are class factors.

    Raises
    ------
    ValueError
        If the number is too large for a tree to finish.
    """
    if isinstance(max_samples, Integral):
        n_draws = int(max_samples)
    else:
        n_rows = table.rows_that_count(factors)
        n_draws = n_rows if max_samples is None else max(1, int(max_samples * n_rows))
        if max_samples is not None and n_draws < max(10, n_rows ** (1 / 3)):
            warn(
                f"max_samples={max_samples} of {n_rows} rows of a weight above 0 draws only {n_draws} of them; pass max_samples as an "
                "integer to set the number of rows",
            )
    if n_draws > _MOST_DRAWS:
        raise ValueError(f"max_samples={max_samples} draws {n_draws:,} rows; wants at most {_MOST_DRAWS:,}")
    return n_draws
