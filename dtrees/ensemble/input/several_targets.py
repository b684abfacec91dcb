"""What several targets, which trees learn together, do not go with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtrees.ensemble.input.parameters import CRITERION_ALIASES

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
    class_weight = getattr(estimator, "class_weight", None)
    if isinstance(class_weight, dict):
        raise ValueError(
            f"For multi-output, class_weight should be a list of dicts, or the string 'balanced': it is {class_weight!r:.60}, and y "
            f"has {n} targets"
        )
