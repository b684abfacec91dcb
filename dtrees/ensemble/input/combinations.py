"""Parameters that make no sense together, or with several targets: refused, by their names.

What a fit can do although one of its parameters has no effect, as with scikit-learn's estimators, is warned of. What makes no sense
with the columns is the business of their rules (:mod:`dtrees.ensemble.input.rules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtrees.ensemble.input.warning import warn

if TYPE_CHECKING:
    from dtrees.ensemble.backend import Table

#: Other names of criteria. Friedman's orders splits as squared error does: scikit-learn maps it likewise.
CRITERION_ALIASES = {"log_loss": "entropy", "friedman_mse": "squared_error"}
#: How categories are treated, and how if nothing is said.
_OF_CATEGORIES = {"cat_smooth": 10.0, "min_samples_category": None, "max_cat_threshold": None}
#: What rows are held out for, and how if nothing is said.
_OF_ROWS_HELD_OUT = {"validation_fraction": 0.1, "tol": 1e-4}
#: Seconds between checkpoints, if nothing is said.
CHECKPOINT_INTERVAL = 60.0


def check_categories(estimator: Any, *, by_sums: bool) -> None:
    """Raise ValueError for parameters about sets of categories where no split is by such a set.

    Parameters
    ----------
    estimator : object
    by_sums : bool
        Whether its criterion orders categories; otherwise their numbers are taken for numbers.
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
        f"{given[0]} is about splits by sets of categories, but {why} takes category numbers for numbers; {wish}, or pass no "
        f"{given[0].partition('=')[0]}"
    )


def check_smoothing(estimator: Any) -> None:
    """Raise ValueError for a smoothing of means of categories where sets are drawn at random, whatever the means."""
    if (value := estimator.cat_smooth) != _OF_CATEGORIES["cat_smooth"]:
        who = f"splitter={estimator.splitter!r}" if hasattr(estimator, "splitter") else type(estimator).__name__
        raise ValueError(
            f"cat_smooth={value!r} is about the order of categories by their means, but {who} draws sets of categories at random; use "
            "trees of the best splits, or pass no cat_smooth"
        )


def check_checkpoint(checkpoint: Any, checkpoint_interval: Any) -> None:
    """Raise ValueError for an interval of checkpoints where there are none."""
    if checkpoint is None and checkpoint_interval != CHECKPOINT_INTERVAL:
        raise ValueError(
            f"checkpoint_interval={checkpoint_interval!r} says how often there is a checkpoint, but checkpoint is None; pass a place "
            "for it, or no checkpoint_interval"
        )


def check_early_stopping(early_stopping_rounds: int | None, sets: Sequence[Any]) -> None:
    """Raise ValueError for early stopping by evaluation sets where there are none."""
    if early_stopping_rounds is not None and not sets:
        raise ValueError(
            f"early_stopping_rounds={early_stopping_rounds} is early stopping on an evaluation set, but eval_set is None or empty; pass "
            "eval_set to fit, or use n_iter_no_change, which holds out rows of X"
        )


def warn_of_rows_held_out(estimator: Any) -> None:
    """Warn of parameters about rows held out where none are."""
    if estimator.n_iter_no_change is None:
        for name, default in _OF_ROWS_HELD_OUT.items():
            if (value := getattr(estimator, name)) != default:
                warn(f"{name}={value} has no effect: it is for rows held out, but n_iter_no_change is None; pass that, or no {name}")


def check_targets(estimator: Any, table: Table) -> None:
    """Raise ValueError for parameters of a tree or forest that make no sense with the targets of its table; one target goes with all."""
    n = table.n_targets
    if n == 1:
        return
    from dtrees.split.criteria.criterion import criterion_named  # brings in the compiler

    if estimator.monotonic_cst is not None:
        raise ValueError(
            f"monotonic_cst is given, and y has {n} targets. Monotonicity constraints are not supported with multiple outputs, of which "
            "not all need rise together; pass monotonic_cst=None, or fit a model of each target"
        )
    criterion = CRITERION_ALIASES.get(estimator.criterion, estimator.criterion)
    if criterion_named(criterion).for_targets() is None:
        raise ValueError(
            f"criterion={estimator.criterion!r} is for one target, but y has {n}; use another one, or fit a model of each target"
        )
    if getattr(estimator, "bootstrap", None) == "balanced":
        raise ValueError(f"bootstrap='balanced' draws by the classes of one target, but y has {n}; set bootstrap=True")
    check_class_weight(getattr(estimator, "class_weight", None), n)


def check_class_weight(class_weight: Any, n: int) -> None:
    """Raise ValueError for a dict, which does not say whose classes it is about."""
    if isinstance(class_weight, dict):
        raise ValueError(
            f"For multi-output, class_weight should be a list of dicts, or the string 'balanced': it is {class_weight!r:.60}, and y "
            f"has {n} targets"
        )


def check_boosted_classes(estimator: Any, n: int, metrics: Sequence[str]) -> None:
    """Raise ValueError for parameters of boosting that make no sense with several targets of classes, which only some metrics go with."""
    check_class_weight(estimator.class_weight, n)
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
