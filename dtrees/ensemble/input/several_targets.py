"""What several targets do not go with: those that trees learn together, and those of classes that boosting learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtrees.ensemble.input.rules import CRITERION_ALIASES

if TYPE_CHECKING:
    from dtrees.ensemble.backend import Table


def check(estimator: Any, table: Table) -> None:
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
