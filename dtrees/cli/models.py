"""The estimator of a command, and its parameters."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dtrees
from dtrees.cli.errors import CommandError
from dtrees.ensemble.input.target import BOUNDS, OUTLIERS, QUERIES, VALUES


@dataclass(frozen=True)
class Family:
    """What ``--model`` names.

    Attributes
    ----------
    classes : dict of str
        The names of estimators by task.
    kind : str
        Of target; see :class:`~dtrees.cli.target_columns.TargetColumns`.
    parameters : dict
        Set unless others are given.
    """

    classes: dict[str, str]
    kind: str = VALUES
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def boosts(self) -> bool:
        """Whether it is trained round by round."""
        return all(name.startswith("GradientBoosting") for name in self.classes.values())

    @property
    def estimators(self) -> list[Any]:
        """The classes."""
        return [getattr(dtrees, name) for name in self.classes.values()]


def _by_task(name: str) -> Family:
    return Family({"classification": f"{name}Classifier", "regression": f"{name}Regressor"})


FAMILIES = {
    "tree": _by_task("DecisionTree"),
    "forest": _by_task("RandomForest"),
    "extra-trees": _by_task("ExtraTrees"),
    "boosting": _by_task("GradientBoosting"),
    "ranking": Family({"ranking": "GradientBoostingRanker"}, QUERIES),
    "survival": Family({"survival": "GradientBoostingRegressor"}, BOUNDS, {"loss": "cox"}),
    "isolation": Family({"outliers": "IsolationForest"}, OUTLIERS),
}

#: Parameters with an option of their own.
_SET_ELSEWHERE = {
    "random_state": "use --seed, on which the rows held out for the test depend too.",
    "n_jobs": "the workers' threads are used; use --threads-per-worker.",
}

_WORDS = {"none": None, "null": None, "true": True, "false": False}


def build(model: str, task: str, parameters: Mapping[str, Any], seed: int) -> Any:
    """Return the unfitted estimator that the options describe.

    Parameters
    ----------
    model : str
        One of :data:`FAMILIES`.
    task : str
        One of its tasks.
    parameters : mapping from str
    seed : int
        Becomes ``random_state``.

    Raises
    ------
    CommandError
        If the estimator does not have such a parameter for this task.
    """
    estimator_class = getattr(dtrees, FAMILIES[model].classes[task])
    known = estimator_class().get_params(deep=False)
    for parameter in parameters:
        if parameter not in known:
            raise CommandError(f"{parameter!r} is not a parameter of --model {model} for {task}; leave it out.")
    return estimator_class(**parameters, random_state=seed)


def checked_parameters(model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model, given those that are set; raise what :func:`build` and fitting would for any task, without data."""
    for parameter, advice in _SET_ELSEWHERE.items():
        if parameter in parameters:
            raise CommandError(f"{parameter} is not set with -p: {advice}")
    family = FAMILIES[model]
    known = {name for estimator in family.estimators for name in estimator().get_params(deep=False)}
    for parameter in parameters:
        if parameter not in known:
            from dtrees.ensemble.estimators.parameters import suggestion  # imports scikit-learn

            raise CommandError(
                f"--model {model} has no parameter {parameter!r}. {suggestion(parameter, sorted(known - set(_SET_ELSEWHERE)))}"
            )
    parameters = family.parameters | dict(parameters)
    problems = [_problem(estimator, parameters) for estimator in family.estimators]
    if all(problems):
        raise CommandError(str(problems[-1]))
    if "loss" in parameters and family.kind in (VALUES, BOUNDS):
        from dtrees.ensemble.objective.registry import columns_of

        if (columns_of(parameters["loss"]) == BOUNDS) != (family.kind == BOUNDS):
            raise CommandError(f"--model {model} does not take loss={parameters['loss']!r}; cox and aft are those of --model survival.")
    return parameters


def _problem(estimator_class: Any, parameters: Mapping[str, Any]) -> str | None:
    """Return the problem with the values of an estimator's parameters, if any."""
    estimator = estimator_class()
    known = estimator.get_params(deep=False)
    try:
        estimator.set_params(**{name: value for name, value in parameters.items() if name in known})._validate_params()
    except ValueError as error:
        return str(error)
    return None


def read_parameters(path: str | None, settings: Sequence[str]) -> dict[str, Any]:
    """Return the parameters in a TOML file, if any, and those of ``"name=value"`` settings, which have priority.

    Raises
    ------
    CommandError
        If the file is not a valid TOML file of parameters.
    """
    if path is None:
        return parse_settings(settings)
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"--params: {path!r} is not a TOML file ({error}); it has lines such as: max_depth = 8") from None
    # TOML has no value for None.
    given = {
        name.replace("-", "_"): _WORDS.get(value.lower(), value) if isinstance(value, str) else value for name, value in content.items()
    }
    return given | parse_settings(settings)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Return ``"name=value"`` settings as a dict; numbers, None, booleans and literals are read as such.

    >>> parse_settings(["max_depth=8", "max_features=sqrt", "bootstrap=false", "class_weight={'yes': 2}"])
    {'max_depth': 8, 'max_features': 'sqrt', 'bootstrap': False, 'class_weight': {'yes': 2}}
    """
    parameters: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise CommandError(f"--set {setting!r} is not of the form NAME=VALUE, for example: -p max_depth=8")
        if name in parameters:
            raise CommandError(f"--set {name} is given twice; give it once.")
        parameters[name] = _parse_value(value.strip())
    return parameters


def load_trees(path: str) -> Any:
    """Return a model from a file, in order to show its trees.

    Raises
    ------
    CommandError
        If it is a bag, whose boosters have the trees.
    """
    model = dtrees.load(path)
    if not hasattr(model, "_trees"):
        raise CommandError(
            f"{path!r} holds a {type(model).__name__} of {len(model.estimators_)} boosters, and this command shows the trees of one model; "
            "save one of its estimators_ and pass that file."
        )
    return model


def _parse_value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a word, such as max_features=sqrt
        return text
