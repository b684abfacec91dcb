"""Search for parameters with Optuna, on one presorted table.

A trial is a set of parameters, scored by cross-validation. Boosting is scored by the best mean of its curves, which also gives the number
of rounds; other estimators are scored by the mean score. Trials are pruned after folds: after each fold, Optuna gets the mean score so far.
So learning rates are compared by their final scores, not by those of the first rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from dtrees.engine.threads import effective_n_jobs
from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.estimators.forests import Forest
from dtrees.ensemble.in_process import backend_for
from dtrees.ensemble.metrics import greater_is_better, metric_name
from dtrees.selection.cross_validation import (
    FoldResult,
    Validation,
    check_estimator,
    curves_of,
    groups_of,
    learns_from_queries,
)
from dtrees.version import needed

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

Space = Mapping[str, "BaseDistribution"] | Callable[["optuna.Trial"], dict[str, Any]]

#: Names of attributes of trials and of studies.
_ROUNDS, _AS_GIVEN, _SCORES, _JUDGED_BY = "n_estimators", "as_given", "scores", "judged_by"
#: A fold of boosting ends when its curve has not improved for this share of its rounds, and at least this number.
_PATIENCE, _LEAST_PATIENCE = 0.1, 10


class Tuned(NamedTuple):
    """Result of :func:`tune`.

    Attributes
    ----------
    study : optuna.Study
        Study with all trials. Each trial has the user attribute "scores" with the score of each fold and, for boosting, "n_estimators", the
        number of rounds with the best mean.
    estimator : estimator
        A clone with the best parameters, fitted to all rows.
    """

    study: optuna.Study
    estimator: Any


def default_space(estimator: Any, n_rows: int) -> dict[str, BaseDistribution]:
    """Return the default search space of :func:`tune` for a table of ``n_rows`` rows.

    Examples
    --------
    >>> from dtrees import RandomForestRegressor
    >>> sorted(default_space(RandomForestRegressor(), 1000))
    ['max_features', 'max_samples', 'min_samples_leaf']
    """
    from_optuna = needed("optuna", "tune").distributions
    real, whole = from_optuna.FloatDistribution, from_optuna.IntDistribution
    leaves = whole(1, max(1, min(100, n_rows // 50)), log=True)
    if isinstance(estimator, Bagging):
        booster = estimator.estimator or estimator._BOOSTER()
        return {f"estimator__{name}": values for name, values in default_space(booster, n_rows).items()}
    if isinstance(estimator, Boosting):
        return {
            "learning_rate": real(0.02, 0.3, log=True),
            "max_depth": whole(2, 10),
            "min_samples_leaf": leaves,
            "max_features": real(0.2, 1.0),
            "subsample": real(0.5, 1.0),
            "reg_lambda": real(0.1, 100.0, log=True),
            "split_shrinkage": real(0.0, 6.0),
        }
    if not isinstance(estimator, Forest):
        return {"max_depth": whole(2, 30, log=True), "min_samples_leaf": leaves}
    space = {"max_features": real(0.1, 1.0), "min_samples_leaf": leaves}
    return space | ({"max_samples": real(0.3, 1.0)} if estimator.bootstrap is True else {})


def tune(
    estimator: Any,
    X: Any,
    y: Any,
    space: Space | None = None,
    *,
    n_trials: int | None = 30,
    timeout: float | None = None,
    cv: Any = 5,
    scoring: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    qid: Any = None,
    n_jobs: int | None = None,
    random_state: int | None = None,
    study: optuna.Study | None = None,
    storage: Any = None,
    study_name: str | None = None,
    sampler: optuna.samplers.BaseSampler | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
    callbacks: Sequence[Callable[[optuna.Study, Any], None]] = (),
) -> Tuned:
    """Search for the best parameters by cross-validation with Optuna, and fit a model with them to all rows.

    The table is presorted once for all trials. The first trial has the parameters of the given estimator, so the cross-validated score of
    the result is not worse. After each fold, the mean score so far is reported to Optuna, which prunes trials that fall behind others.

    The number of rounds of boosting is not searched, unless the space contains it. ``n_estimators`` of the estimator is the maximum. A fold
    ends when its curve has not improved for ``early_stopping_rounds`` (by default a tenth of the maximum, and at least 10). The number of
    rounds with the best mean gives the score of the trial, and is used in the final fit.

    Parameters
    ----------
    estimator : estimator of dtrees
        Estimator to tune. Parameters that are not in the space keep their values.
    X, y, cv, sample_weight, groups, qid
        As in :func:`cross_validate`.
    space : dict, callable or None, default=None
        Search space: a dict from names of parameters to distributions of Optuna (``optuna.distributions``), or a function that takes a
        trial and returns a dict of parameters. None uses the default space of the estimator, which the guide lists.
    n_trials : int or None, default=30
        Maximum number of trials, not counting those that a study already has. None lets ``timeout`` decide.
    timeout : float or None, default=None
        Seconds after which no new trial begins. A running trial is finished.
    scoring : str, callable or None, default=None
        Score of a trial. For boosting, any value of ``eval_metric``, including a scorer of scikit-learn; None uses the last metric of the
        estimator. For other estimators, a scorer; None uses their ``score``.
    n_jobs : int or None, default=None
        Number of trials that run at the same time, each with ``n_jobs`` threads of the estimator; None means 1. Use it for small tables,
        which occupy hardly more than one thread. Trials are reproducible by ``random_state`` only if one runs at a time.
    random_state : int or None, default=None
        Seed of Optuna's sampler, and of the estimator if its ``random_state`` is None.
    study : optuna.Study or None, default=None
        Study to continue, instead of ``storage``, ``study_name``, ``sampler`` and ``pruner``.
    storage : str, optuna storage or None, default=None
        Where the study is stored, such as ``"sqlite:///study.db"``. Optuna's dashboard can show it, and another call with the same
        ``study_name`` continues it.
    study_name : str or None, default=None
    sampler, pruner : of Optuna, or None, default=None
        None uses a tree-structured Parzen estimator and a median pruner.
    callbacks : sequence of callable, default=()
        Functions that are called with the study and each finished trial.

    Returns
    -------
    Tuned
        The study and the fitted estimator: ``study, model = dtrees.tune(...)``.

    Raises
    ------
    ImportError
        If Optuna is not installed.
    TypeError
        If ``estimator`` is not an estimator of dtrees, only some of the data is in memory, or ``space`` is neither a dict nor a function.
    ValueError
        If a parameter or the data cannot be used. Errors of fits are also raised.

    Examples
    --------
    >>> import numpy as np, optuna
    >>> from dtrees import GradientBoostingRegressor, tune
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=300)
    >>> space = {"max_depth": optuna.distributions.IntDistribution(1, 6)}
    >>> study, model = tune(GradientBoostingRegressor(n_estimators=50), X, y, space, n_trials=5, cv=3, random_state=0)
    >>> len(study.trials), model.n_estimators == study.best_trial.user_attrs["n_estimators"]
    (5, True)
    """
    needed("optuna", "tune")
    check_estimator(estimator)
    if isinstance(scoring, list | tuple | set | Mapping):
        raise ValueError(f"scoring is {scoring!r:.60}; wants one scorer, by which trials are compared")
    given = {"storage": storage, "study_name": study_name, "sampler": sampler, "pruner": pruner}
    if study is not None and any(value is not None for value in given.values()):
        raise ValueError(f"study is given beside {', '.join(name for name in given if given[name] is not None)}; wants one or the other")
    limits = {"n_trials": n_trials, "timeout": timeout, "n_jobs": n_jobs, "callbacks": list(callbacks)}
    search = {"space": space, "scoring": scoring, "random_state": random_state}
    run = partial(_tune, cv=cv, search=search, study=study, given=given, limits=limits)
    groups = groups_of(estimator, groups, qid, None if isinstance(estimator, Boosting) else scoring)
    return backend_for(X).coordinate(run, estimator, X, y, sample_weight, groups, label="tune")


def _tune(
    estimator: Any, X: Any, y: Any, sample_weight: Any, groups: Any, *, cv: Any, search: dict[str, Any], study: Any, given: dict[str, Any],
    limits: dict[str, Any],
) -> Tuned:  # fmt: skip
    """Search in the process, or on the cluster, that holds the data."""
    optuna, scoring = needed("optuna", "tune"), None if isinstance(estimator, Boosting) else search["scoring"]
    validation = backend_for(X).validation(Validation, estimator, X, y, cv, scoring, sample_weight, groups)
    trials = _Search(estimator, validation, **search)
    if study is None:
        given["sampler"] = given["sampler"] or optuna.samplers.TPESampler(seed=search["random_state"])
        study = optuna.create_study(direction=trials.direction, load_if_exists=True, **given)
    trials.check(study)
    if not study.trials:
        study.enqueue_trial({}, user_attrs={_AS_GIVEN: True})
    study.optimize(trials, **limits | {"n_jobs": effective_n_jobs(validation.check_jobs(limits["n_jobs"]))})
    more = {"qid": groups} if learns_from_queries(estimator) else {}
    return Tuned(study, trials.best(study).fit(X, y, sample_weight, **more))


class _Search:
    """The objective of a study: a function from a trial to its score.

    Attributes
    ----------
    estimator : estimator
        The estimator whose parameters trials set.
    boosts : bool
        Whether trials are scored by curves.
    direction : {"minimize", "maximize"}
    """

    def __init__(self, estimator: Any, validation: Validation, space: Space | None, scoring: Any, random_state: int | None) -> None:
        self.boosts, self._validation = isinstance(estimator, Boosting), validation
        defaults: dict[str, Any] = {}
        if random_state is not None and estimator.random_state is None:
            defaults["random_state"] = random_state
        if isinstance(estimator, Bagging) and estimator.estimator is None:
            defaults["estimator"] = estimator._BOOSTER()
        if self.boosts and scoring is not None:
            defaults["eval_metric"] = scoring
        self.estimator = clone(estimator).set_params(**defaults)
        chosen: Any = default_space(estimator, validation.n_rows) if space is None else space
        self._is_dict, self._space = not callable(chosen), chosen
        if self._is_dict:
            _check_space(chosen, self.estimator)
            self._space = partial(_suggest, space=chosen)
        metric = self.estimator._metrics_asked()[-1] if self.boosts else "score" if scoring is None else scoring
        self._judged_by = metric_name(metric)
        self._folds = [fold for fold in validation.folds if not self.boosts or validation.has_curve(estimator, fold)]
        if not self._folds:
            raise ValueError("each fold's held-out rows have a label that no other rows have; wants another cv, such as StratifiedKFold()")
        self.direction = "maximize" if not self.boosts or greater_is_better(metric) else "minimize"

    def check(self, study: optuna.Study) -> None:
        """Raise ValueError for a study whose trials have another kind of score."""
        said = study.user_attrs.get(_JUDGED_BY, self._judged_by)
        directions = [direction.name.lower() for direction in study.directions]
        if directions != [self.direction] or said != self._judged_by:
            raise ValueError(
                f"the study {study.study_name!r} is to {' and '.join(directions)} {said!r}; wants one to {self.direction} "
                f"{self._judged_by!r}: pass another study_name, or the scoring of that study"
            )
        study.set_user_attr(_JUDGED_BY, self._judged_by)

    def __call__(self, trial: optuna.Trial) -> float:
        """Return the score of a trial; raise TrialPruned if it falls behind."""
        estimator, folds = self._set(trial), []
        if self.boosts and estimator.early_stopping_rounds is None:
            estimator.early_stopping_rounds = max(_LEAST_PATIENCE, int(_PATIENCE * estimator.n_estimators))
        value = np.nan
        for number, fold in enumerate(self._folds):
            done = self._validation.fit(clone(estimator), fold, score=not self.boosts)
            folds.append(replace(done, estimator=None))
            value = self._judge(estimator, folds, trial)
            trial.report(value, number)
            if number + 1 < len(self._folds) and trial.should_prune():
                raise needed("optuna", "tune").TrialPruned
        return value

    def _judge(self, estimator: Any, folds: Sequence[FoldResult], trial: optuna.Trial) -> float:
        """Return the score of some folds, and store the details in the trial."""
        if not self.boosts:
            scores = [fold.scores["score"] for fold in folds]
            trial.set_user_attr(_SCORES, scores)
            return float(np.mean(scores))
        curve = list(curves_of(estimator, folds).values())[-1]
        trial.set_user_attr(_ROUNDS, curve.best_n_estimators)
        trial.set_user_attr(_SCORES, curve.by_fold[:, curve.best_n_estimators - 1].tolist())
        return curve.best_score

    def _set(self, trial: Any) -> Any:
        """Return an estimator with the parameters of a running or finished trial."""
        if trial.user_attrs.get(_AS_GIVEN):
            return clone(self.estimator)
        return clone(self.estimator).set_params(**self._space(trial))

    def best(self, study: optuna.Study) -> Any:
        """Return an estimator with the parameters of the best trial, and its number of rounds."""
        trial = study.best_trial
        # The study may have had another space before.
        estimator = clone(self.estimator).set_params(**trial.params) if self._is_dict else self._set(trial)
        if self.boosts:
            estimator.set_params(n_estimators=trial.user_attrs[_ROUNDS], early_stopping_rounds=None)
        return estimator


def _check_space(space: Any, estimator: Any) -> None:
    """Raise TypeError or ValueError for a space that is not a dict from parameters to distributions."""
    kind = needed("optuna", "tune").distributions.BaseDistribution
    if not isinstance(space, Mapping) or not all(isinstance(values, kind) for values in space.values()):
        raise TypeError(
            f"space is {space!r:.100}; wants a dict from names of parameters to distributions of Optuna, such as "
            "optuna.distributions.FloatDistribution(0.01, 0.3, log=True), or a function from a trial to a dict of parameters"
        )
    clone(estimator).set_params(**dict.fromkeys(space))  # its error suggests the correct name


def _suggest(trial: Any, space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's values of parameters."""
    asked = {}
    for name, values in space.items():
        if hasattr(values, "choices"):
            asked[name] = trial.suggest_categorical(name, values.choices)
        else:
            suggest = trial.suggest_int if type(values).__name__ == "IntDistribution" else trial.suggest_float
            asked[name] = suggest(name, values.low, values.high, step=values.step, log=values.log)
    return asked
