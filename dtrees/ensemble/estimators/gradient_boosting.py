"""The two boosting estimators, for regression and for classification."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Any, ClassVar, cast

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.backend import Output, Table
from dtrees.ensemble.compat import Hidden, Interval, StrOptions
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.estimators.base_kinds import TreeClassifier, TreeRegressor
from dtrees.ensemble.estimators.documentation import described
from dtrees.ensemble.estimators.starting import BY_LOSS
from dtrees.ensemble.evaluation.metrics import CLASSIFICATION
from dtrees.ensemble.input import parameters, several_targets
from dtrees.ensemble.input.parameters import BOOSTING_DEFAULTS
from dtrees.ensemble.objective import registry
from dtrees.ensemble.objective.losses.custom import NAME
from dtrees.ensemble.objective.losses.several_targets import naming_target
from dtrees.ensemble.prediction import Step, by_target, first_column


@described
class GradientBoostingRegressor(TreeRegressor, Boosting):
    """Gradient boosting for regression, with exact splits.

    Trees are added one after the other, each fitted to the gradients of the loss at the predictions so far: one tree a round, or, where y
    has several columns, one for each of these targets.

    {input}

    Parameters
    ----------
    loss : str or callable, default="squared_error"
        What is minimised. "squared_error" is for means. "absolute_error", "quantile" (the pinball loss of ``alpha``) and "huber" (squared
        error of residuals up to the ``alpha``-quantile of their sizes, absolute error of larger ones) are for medians, quantiles, and means
        that outliers hardly move: splits are found by gradients, each with a hessian of 1, and leaves hold exact weighted medians or
        quantiles of residuals (inner nodes, steps along gradients), so that ``reg_lambda`` matters for splits only [1]_. "poisson", "gamma"
        and "tweedie" (of ``tweedie_variance_power``) are deviances, for counts and amounts: trees add up to the logarithms of
        predictions; targets must not be negative, for "gamma" they must be positive. Gradients are those of half the squared error, or
        half the deviance; scores are the whole. Of several targets, each has the loss, and scores are means over them. A function
        ``objective(y, raw, weight)`` returns gradient and hessian, each of shape (n,), weights included, of all rows in their order, those
        held out too; ``raw`` are raw predictions, which here are the predictions and start from zero, ``weight`` may be None. Of k targets,
        ``y``, ``raw``, gradient and hessian have the shape (n, k). The function travels by cloudpickle; a model file keeps the trees, and
        calls the loss "custom".
    alpha : float, default=0.9
        For "quantile", which quantile is predicted; for "huber", which share of the residuals counts as small.
    tweedie_variance_power : float, default=1.5
        For "tweedie": the variance grows with this power of the mean, between 1 (Poisson) and 2 (gamma), both excluded.
    {boosting}
    {boosting_stop}
    {eval_metric_regression}
    {boosting_control}
    {constraints}

    Attributes
    ----------
    {fitted_boosting}

    References
    ----------
    .. [1] J. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29(5), 2001, algorithms 3 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import GradientBoostingRegressor
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> y = np.where(X[:, 0] < 10, 1.0, 3.0)
    >>> GradientBoostingRegressor().fit(X, y).predict([[2.0], [15.0]]).round(1)
    array([1., 3.])
    >>> y[::4] = 100.0
    >>> GradientBoostingRegressor(loss="absolute_error").fit(np.where(X < 10, 0, 1), y).predict([[0.0], [1.0]]).round(1)
    array([1., 3.])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **parameters.BOOSTING,
        "loss": [StrOptions(registry.REGRESSION), callable, Hidden(StrOptions({NAME}))],
        "alpha": [Interval(Real, 0.0, 1.0, closed="neither")],
        "tweedie_variance_power": [Interval(Real, 1.0, 2.0, closed="neither")],
    }
    _PARAMETERS_OF_LOSSES: ClassVar[tuple[str, ...]] = ("alpha", "tweedie_variance_power")

    def __init__(
        self,
        *,
        loss: Any = "squared_error",
        alpha: float = 0.9,
        tweedie_variance_power: float = 1.5,
        learning_rate: float | str = BOOSTING_DEFAULTS["learning_rate"],
        n_estimators: int = BOOSTING_DEFAULTS["n_estimators"],
        subsample: float = BOOSTING_DEFAULTS["subsample"],
        max_depth: int | str | None = BOOSTING_DEFAULTS["max_depth"],
        min_samples_split: int | float = 2,
        min_samples_leaf: int | float | str = BOOSTING_DEFAULTS["min_samples_leaf"],
        min_child_weight: float = BOOSTING_DEFAULTS["min_child_weight"],
        min_weight_fraction_leaf: float = 0.0,
        reg_lambda: float | str = BOOSTING_DEFAULTS["reg_lambda"],
        reg_alpha: float = 0.0,
        max_features: int | float | str | None = BOOSTING_DEFAULTS["max_features"],
        colsample_bytree: float = BOOSTING_DEFAULTS["colsample_bytree"],
        colsample_bylevel: float = 1.0,
        max_leaf_nodes: int | str | None = BOOSTING_DEFAULTS["max_leaf_nodes"],
        min_impurity_decrease: float = 0.0,
        min_split_gain: float = 0.0,
        criterion: str = "newton",
        init: Any = None,
        ccp_alpha: float = 0.0,
        categorical_features: Any = "from_dtype",
        cat_smooth: float = 10.0,
        min_samples_category: int | None = None,
        max_cat_threshold: int | None = None,
        validation_fraction: float | None = 0.1,
        n_iter_no_change: int | None = None,
        tol: float = 1e-4,
        scoring: Any = "loss",
        early_stopping_rounds: int | None = None,
        eval_metric: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        importance_type: str = "gain",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
    ) -> None:
        self._keep_parameters(locals())

    @property
    def init_(self) -> Any:
        """What boosting started from: an estimator that does not look at X, the fitted ``init``, or "zero" (also with ``base_margin``)."""
        check_is_fitted(self)
        if self._starts != BY_LOSS:
            return self._init_estimator or "zero"
        assert self._trees.initial is not None
        value = self._fitted_loss.predictions(self._trees.initial[np.newaxis])
        return DummyRegressor().fit(np.zeros((1, self.n_features_in_)), value)

    def _value_steps(self) -> tuple[Step, ...]:
        return (self._fitted_loss.predictions,)

    def predict(self, X: Any, base_margin: Any = None) -> Any:
        """Predict the target, or targets.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Where the model was fitted with ``base_margin``: that of these rows.

        Returns
        -------
        ndarray of float64 of shape (n,), or (n, n_outputs_) where y had several columns
            A Dask collection, not computed yet, if X is one: of several targets, an Array of that shape, or a DataFrame with the columns
            0, 1 and so on.
        """
        return TreeRegressor.predict(self._starting_from(X, base_margin), X)

    def staged_predict(self, X: Any, base_margin: Any = None) -> Iterator[Any]:
        """Predict the target after each round.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Where the model was fitted with ``base_margin``: that of these rows.

        Yields
        ------
        ndarray of float64 of shape (n,), or (n, n_outputs_) where y had several columns
            A Dask collection, not computed yet, if X is one.
        """
        check_is_fitted(self)
        return self._starting_from(X, base_margin)._staged(X, self._value_steps(), self._value_output())


@described
class GradientBoostingClassifier(TreeClassifier, Boosting):
    """Gradient boosting for classification, with exact splits.

    Trees are added one after the other, each fitted to the gradients of the loss at the predictions so far: one tree a round for two
    classes, one for each class for more; where y has several columns (labels of 0 and 1 of a multilabel task, or of any classes), so for
    each of these targets.

    {input}

    Parameters
    ----------
    loss : {"log_loss", "exponential"} or callable, default="log_loss"
        What is minimised: the negative log likelihood of the labels, or, for two classes, the exponential loss of AdaBoost. A function
        ``objective(y, raw, weight)`` returns gradient and hessian, each of the shape of ``raw``, weights included, of all rows in their
        order, those held out too. ``y`` are class codes; ``raw``, which starts from zero, has shape (n,) for two classes, and stands for
        log odds, or (n, n_classes), for log probabilities up to a constant; ``weight`` may be None. It travels by cloudpickle; a model
        file keeps the trees, and calls the loss "custom".
    {boosting}
    class_weight : dict, list of dicts, "balanced" or None, default=None
        Factors for the weights of rows by class. "balanced" gives every class the same weight in all. Of several targets, a list has a
        dict for each, and factors are multiplied.
    {boosting_stop}
    {eval_metric_classification}
    {boosting_control}
    {constraints}

    Attributes
    ----------
    {fitted_classes}
    {fitted_boosting}

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import GradientBoostingClassifier
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> y = np.where(X[:, 0] < 10, "low", "high")
    >>> GradientBoostingClassifier().fit(X, y).predict([[2.0], [15.0]]).tolist()
    ['low', 'high']
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **parameters.BOOSTING,
        **parameters.class_weight_options("balanced"),
        "loss": [StrOptions(registry.CLASSIFICATION), callable, Hidden(StrOptions({NAME}))],
    }

    def __init__(
        self,
        *,
        loss: Any = "log_loss",
        learning_rate: float | str = BOOSTING_DEFAULTS["learning_rate"],
        n_estimators: int = BOOSTING_DEFAULTS["n_estimators"],
        subsample: float = BOOSTING_DEFAULTS["subsample"],
        max_depth: int | str | None = BOOSTING_DEFAULTS["max_depth"],
        min_samples_split: int | float = 2,
        min_samples_leaf: int | float | str = BOOSTING_DEFAULTS["min_samples_leaf"],
        min_child_weight: float = BOOSTING_DEFAULTS["min_child_weight"],
        min_weight_fraction_leaf: float = 0.0,
        reg_lambda: float | str = BOOSTING_DEFAULTS["reg_lambda"],
        reg_alpha: float = 0.0,
        max_features: int | float | str | None = BOOSTING_DEFAULTS["max_features"],
        colsample_bytree: float = BOOSTING_DEFAULTS["colsample_bytree"],
        colsample_bylevel: float = 1.0,
        max_leaf_nodes: int | str | None = BOOSTING_DEFAULTS["max_leaf_nodes"],
        min_impurity_decrease: float = 0.0,
        min_split_gain: float = 0.0,
        criterion: str = "newton",
        init: Any = None,
        ccp_alpha: float = 0.0,
        categorical_features: Any = "from_dtype",
        cat_smooth: float = 10.0,
        min_samples_category: int | None = None,
        max_cat_threshold: int | None = None,
        class_weight: Any = None,
        validation_fraction: float | None = 0.1,
        n_iter_no_change: int | None = None,
        tol: float = 1e-4,
        scoring: Any = "loss",
        early_stopping_rounds: int | None = None,
        eval_metric: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        importance_type: str = "gain",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
    ) -> None:
        self._keep_parameters(locals())

    def _check_classes(self, table: Table) -> None:
        factors: Any = parameters.class_weights(self.class_weight, table, by_rows=False)
        if not isinstance(table.classes, list):
            _check_two_classes(table.classes, table.class_weights, factors)
            return
        several_targets.check_boosted_classes(self, table.n_targets, CLASSIFICATION)
        each = zip(table.classes, cast(list[Any], table.class_weights), factors or [None] * table.n_targets, strict=True)
        for k, known in enumerate(each):
            with naming_target(k):
                _check_two_classes(*known)

    @property
    def init_(self) -> Any:
        """What boosting started from: the weighted shares of the classes, the fitted ``init``, or "zero" (also with ``base_margin``).

        Of several targets, shares of classes are a list of estimators, one for each.
        """
        check_is_fitted(self)
        if self._starts != BY_LOSS:
            return self._init_estimator or "zero"
        assert self._trees.initial is not None
        shares = self._by_target(self._fitted_loss.predictions(self._trees.initial[np.newaxis]))
        each = shares if isinstance(shares, list) else [shares]
        priors = [
            DummyClassifier(strategy="prior").fit(np.zeros((len(labels), self.n_features_in_)), labels, mine[0])
            for labels, mine in zip(by_target(self.classes_), each, strict=True)
        ]
        return priors if isinstance(shares, list) else priors[0]

    def _probability_steps(self) -> tuple[Step, ...]:
        return (self._fitted_loss.predictions,)

    def _decision(self) -> tuple[tuple[Step, ...], Output]:
        name = "decision_function"
        if self._fitted_loss.n_outputs == 1:
            return (first_column,), Output(np.dtype(np.float64), None, name)
        if self._n_targets > 1:
            return (), Output(np.dtype(np.float64), self._fitted_loss.n_outputs, name)
        return (), self._probability_output(name)

    def predict(self, X: Any, base_margin: Any = None) -> Any:
        """Predict the class: the one of the highest probability, the first one of equals.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Where the model was fitted with ``base_margin``: that of these rows.

        Returns
        -------
        ndarray of shape (n,), or (n, n_outputs_) where y had several columns
            Labels. A Dask collection, not computed yet, if X is one.
        """
        return TreeClassifier.predict(self._starting_from(X, base_margin), X)

    def predict_proba(self, X: Any, base_margin: Any = None) -> Any:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Where the model was fitted with ``base_margin``: that of these rows.

        Returns
        -------
        ndarray of float64 of shape (n, n_classes_), or list of n_outputs_ such arrays where y had several columns
            In the order of ``classes_``. A Dask collection, not computed yet, if X is one.
        """
        return TreeClassifier.predict_proba(self._starting_from(X, base_margin), X)

    def decision_function(self, X: Any, base_margin: Any = None) -> Any:
        """Return raw predictions.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Where the model was fitted with ``base_margin``: that of these rows.

        Returns
        -------
        ndarray of float64 of shape (n,) or (n, n_classes_)
            Log odds of the second class for two classes (half of them for the exponential loss), log probabilities up to a constant a row
            for more; of several targets these side by side. A Dask collection, not computed yet, if X is one.
        """
        check_is_fitted(self)
        steps, output = self._decision()
        model = self._starting_from(X, base_margin)
        return model._map(X, model._predictor(*steps), output)

    def staged_decision_function(self, X: Any, base_margin: Any = None) -> Iterator[Any]:
        """Return raw predictions after each round.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Where the model was fitted with ``base_margin``: that of these rows.

        Yields
        ------
        ndarray of float64 of shape (n,) or (n, n_classes_)
            See :meth:`decision_function`.
        """
        check_is_fitted(self)
        return self._starting_from(X, base_margin)._staged(X, *self._decision())

    def staged_predict(self, X: Any, base_margin: Any = None) -> Iterator[Any]:
        """Predict the class after each round.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Where the model was fitted with ``base_margin``: that of these rows.

        Yields
        ------
        ndarray of shape (n,) or (n, n_outputs_)
            See :meth:`predict`.
        """
        check_is_fitted(self)
        return self._starting_from(X, base_margin)._staged(X, self._label_steps(), self._label_output())

    def staged_predict_proba(self, X: Any, base_margin: Any = None) -> Iterator[Any]:
        """Predict the probability of each class after each round.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Where the model was fitted with ``base_margin``: that of these rows.

        Yields
        ------
        ndarray of float64 of shape (n, n_classes_), or list of such arrays
            See :meth:`predict_proba`.
        """
        check_is_fitted(self)
        staged = self._starting_from(X, base_margin)._staged(X, self._probability_steps(), self._probability_output("predict_proba"))
        return map(self._by_target, staged)


def _check_two_classes(classes: Any, weights: Any, factors: Any) -> None:
    """Raise ValueError unless two classes of a target have a weight above zero, by factors where there are any."""
    n_weighted = np.count_nonzero(weights if factors is None else weights * np.array(factors))
    if n_weighted < 2:
        raise ValueError(
            f"y contains {n_weighted} class(es) with a weight above zero (of {classes.tolist()}); "
            "boosting wants rows of at least two classes"
        )
