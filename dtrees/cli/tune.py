"""``dtrees tune``: from a table to the best parameters of a cross-validated search, and a scored model with these."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import click

import dtrees
from dtrees.cli.display import Display, plural
from dtrees.cli.fit import Inputs, check, conclude, train_and_score
from dtrees.cli.models import FAMILIES
from dtrees.engine.threads import available_cores
from dtrees.ensemble.input.target import OUTLIERS
from dtrees.version import needed

#: Options of ``dtrees fit`` that the search does not have.
_NO_OPTION = dict.fromkeys(("validation", "checkpoint", "checkpoint_interval", "scheduler", "intervals"))
#: The most rounds of boosting, unless ``n_estimators`` is set: trials end when they do not improve.
_MOST_ROUNDS = 1000


def tune(**given: Any) -> None:
    """Run the command with its options as arguments."""
    options = SimpleNamespace(**given, **_NO_OPTION)
    if (options.storage is None) != (options.study is None):
        raise click.UsageError("--storage and --study go together: where studies are kept, and which one this is")
    if FAMILIES[options.model].kind == OUTLIERS:
        raise click.UsageError(f"tune scores trials by a target, but --model {options.model} learns none; use dtrees fit")
    optuna = needed("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    display = Display(as_json=options.as_json)
    parameters = check(options)
    if FAMILIES[options.model].boosts:
        parameters = {"n_estimators": _MOST_ROUNDS} | parameters
    inputs = Inputs(options, display)
    inputs.find(None)
    with display.warnings():
        found = train_and_score(inputs, parameters, options, display, None, _search)
    conclude(found, options, display)


def _search(estimator: Any, X: Any, y: Any, beside: Any, options: Any, display: Display) -> tuple[Any, dict[str, Any]]:
    """Search for parameters, and print trials as they end; return the fitted estimator, and the results."""
    import dask

    X, y, beside = dask.compute(X, y, beside)
    estimator.n_jobs = max(1, available_cores() // options.jobs)
    start = time.monotonic()

    def tell(study: Any, trial: Any) -> None:
        value = "pruned" if trial.value is None or trial.state.name == "PRUNED" else f"{trial.value:.5g}"
        best = "" if trial.number != study.best_trial.number else ", the best so far"
        asked = ", ".join(f"{name}={_short(value)}" for name, value in trial.params.items())
        display.note(f"Trial {trial.number + 1}: {value}{best} ({asked or 'the model as it is'})")

    study, model = dtrees.tune(
        estimator, X, y, n_trials=options.trials, timeout=options.timeout, cv=options.folds, scoring=options.scoring, n_jobs=options.jobs,
        random_state=options.seed, storage=options.storage, study_name=options.study, callbacks=[tell], **beside,
    )  # fmt: skip
    model.n_jobs = None  # as in dtrees fit
    display.note(f"Tuning: {plural(len(study.trials), 'trial')} in {time.monotonic() - start:.1f} s")
    best = study.best_trial
    parameters = {**best.params} | ({"n_estimators": model.n_estimators} if FAMILIES[options.model].boosts else {})
    judged_by = study.user_attrs["judged_by"]
    display.result(f"Best mean {judged_by} of {options.folds} folds: {best.value:.5g} (trial {best.number + 1}), with these parameters:")
    display.result(" ".join(f"-p {name}={_short(value)}" for name, value in parameters.items()) or "those of the model as it is")
    return model, {"parameters": parameters, "judged_by": judged_by, "best": best.value, "n_trials": len(study.trials)}


def _short(value: Any) -> str:
    """Return a value of a parameter as short text.

    >>> _short(0.123456789), _short(7), _short("sqrt")
    ('0.12346', '7', 'sqrt')
    """
    return f"{value:.5g}" if isinstance(value, float) else str(value)
