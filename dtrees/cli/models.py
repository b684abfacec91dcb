"""The estimator of a command, and its parameters."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import dtrees
from dtrees.cli.errors import CommandError

#: What ``--model`` names, as the first part of the class name.
FAMILIES = {"tree": "DecisionTree", "forest": "RandomForest", "extra-trees": "ExtraTrees", "boosting": "GradientBoosting"}

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
    model : {"tree", "forest", "extra-trees", "boosting"}
    task : {"regression", "classification"}
    parameters : mapping from str
    seed : int
        Becomes ``random_state``.

    Raises
    ------
    CommandError
        If the estimator does not have such a parameter for this task.
    """
    estimator_class = _estimator_class(model, "Classifier" if task == "classification" else "Regressor")
    known = estimator_class().get_params(deep=False)
    for parameter in parameters:
        if parameter not in known:
            raise CommandError(f"{parameter!r} is not a parameter of --model {model} for {task}; leave it out.")
    return estimator_class(**parameters, random_state=seed)


def check_parameters(model: str, parameters: Mapping[str, Any]) -> None:
    """Raise what :func:`build` and fitting would raise for either task; needs no data."""
    for parameter, advice in _SET_ELSEWHERE.items():
        if parameter in parameters:
            raise CommandError(f"{parameter} is not set with -p: {advice}")
    known = {name for task in ("Classifier", "Regressor") for name in _estimator_class(model, task)().get_params(deep=False)}
    for parameter in parameters:
        if parameter not in known:
            from dtrees.ensemble.estimators.parameters import suggestion  # imports scikit-learn

            raise CommandError(
                f"--model {model} has no parameter {parameter!r}. {suggestion(parameter, sorted(known - set(_SET_ELSEWHERE)))}"
            )
    problems = [problem for task in ("Classifier", "Regressor") if (problem := _problem(_estimator_class(model, task), parameters))]
    if len(problems) > 1:
        raise CommandError(problems[-1])


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


def _estimator_class(model: str, task: str) -> Any:
    return getattr(dtrees, FAMILIES[model] + task)


def _parse_value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a word, such as max_features=sqrt
        return text
