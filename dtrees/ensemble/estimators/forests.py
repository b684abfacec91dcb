"""The four forests: random forests and extra-trees, for regression and classification."""

from __future__ import annotations

from typing import Any, ClassVar

from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.base_forest import ForestClassifier, ForestRegressor
from dtrees.ensemble.estimators.documentation import described
from dtrees.ensemble.estimators.single_tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor


@described
class RandomForestRegressor(ForestRegressor):
    """A random forest regressor.

    Trees with exact splits, each grown on rows drawn with replacement and each node on columns drawn for it (Breiman, 2001),
    averaged.

    {input}

    Parameters
    ----------
    {n_estimators}
    {regression_criterion}
    {growth}
    {max_features: 1.0}
    {growth_end}
    {bootstrap: True}
    {forest}
    {max_samples}
    {constraints}

    Attributes
    ----------
    estimators_ : tuple
        The trees, each as a fitted :class:`DecisionTreeRegressor` with the present parameters of the forest, also with
        ``warm_start``. Some of them can be assigned, to keep only these.
    {fitted}
    oob_score_ : float
        Score of the out-of-bag predictions; only with ``oob_score``.
    oob_prediction_ : ndarray of float64 of shape (n,) or (n, n_outputs_)
        Out-of-bag prediction of each row, 0 for a row that every tree drew; only with ``oob_score``.

    Examples
    --------
    >>> from dtrees import RandomForestRegressor
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], [5.0, 5.0, 9.0, 9.0]
    >>> forest = RandomForestRegressor(n_estimators=20, bootstrap=False, random_state=0).fit(X, y)
    >>> forest.predict([[1.0], [9.0]])
    array([5., 9.])
    """

    _TREE: ClassVar[type[TreeEstimator]] = DecisionTreeRegressor

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "squared_error",
        alpha: float = 0.9,
        max_depth: int | None = None,
        min_samples_split: int | float = 2,
        min_samples_leaf: int | float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: int | float | str | None = 1.0,
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        ccp_alpha: float = 0.0,
        categorical_features: Any = "from_dtype",
        cat_smooth: float = 10.0,
        min_samples_category: int | None = None,
        max_cat_threshold: int | None = None,
        bootstrap: bool = True,
        oob_score: Any = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        max_samples: int | float | None = None,
        colsample_bytree: float = 1.0,
        importance_type: str = "gain",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
    ) -> None:
        self._keep_parameters(locals())


@described
class RandomForestClassifier(ForestClassifier):
    """A random forest classifier.

    Trees with exact splits, each grown on rows drawn with replacement and each node on columns drawn for it (Breiman, 2001),
    averaged.

    {input}

    Parameters
    ----------
    {n_estimators}
    {classification_criterion}
    {growth}
    {max_features: "sqrt"}
    {growth_end}
    {bootstrap_of_classes: True}
    {forest}
    {class_weight_forest}
    {max_samples}
    {constraints}

    Attributes
    ----------
    estimators_ : tuple
        The trees, each as a fitted :class:`DecisionTreeClassifier` with the present parameters of the forest, also with
        ``warm_start``. Some of them can be assigned, to keep only these.
    {fitted_classes}
    {fitted}
    oob_score_ : float
        Score of the out-of-bag predictions; only with ``oob_score``.
    oob_decision_function_ : ndarray of float64 of shape (n, n_classes_), or (n, most classes, n_outputs_) for several targets
        Out-of-bag class probabilities of each row, 0 for a row that every tree drew; only with ``oob_score``.

    Examples
    --------
    >>> from dtrees import RandomForestClassifier
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]
    >>> forest = RandomForestClassifier(n_estimators=20, bootstrap=False, random_state=0).fit(X, y)
    >>> forest.predict([[1.0], [9.0]]).tolist()
    ['no', 'yes']
    """

    _TREE: ClassVar[type[TreeEstimator]] = DecisionTreeClassifier

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "gini",
        max_depth: int | None = None,
        min_samples_split: int | float = 2,
        min_samples_leaf: int | float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: int | float | str | None = "sqrt",
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        ccp_alpha: float = 0.0,
        categorical_features: Any = "from_dtype",
        cat_smooth: float = 10.0,
        min_samples_category: int | None = None,
        max_cat_threshold: int | None = None,
        bootstrap: bool | str = True,
        oob_score: Any = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        class_weight: Any = None,
        max_samples: int | float | None = None,
        colsample_bytree: float = 1.0,
        importance_type: str = "gain",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
    ) -> None:
        self._keep_parameters(locals())


@described
class ExtraTreesRegressor(ForestRegressor):
    """An extra-trees regressor.

    Trees grown on all rows, each split the best of one random threshold per column that the node considers (Geurts, Ernst and
    Wehenkel, 2006), averaged.

    {input}

    Parameters
    ----------
    {n_estimators}
    {regression_criterion}
    {growth}
    {max_features: 1.0}
    {growth_end}
    {bootstrap: False}
    {forest}
    {max_samples}
    {constraints}

    Attributes
    ----------
    estimators_ : tuple
        The trees, each as a fitted :class:`ExtraTreeRegressor` with the present parameters of the forest, also with
        ``warm_start``. Some of them can be assigned, to keep only these.
    {fitted}
    oob_score_ : float
        Score of the out-of-bag predictions; only with ``oob_score``.
    oob_prediction_ : ndarray of float64 of shape (n,) or (n, n_outputs_)
        Out-of-bag prediction of each row, 0 for a row that every tree drew; only with ``oob_score``.

    Examples
    --------
    >>> from dtrees import ExtraTreesRegressor
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], [5.0, 5.0, 9.0, 9.0]
    >>> forest = ExtraTreesRegressor(n_estimators=20, bootstrap=False, random_state=0).fit(X, y)
    >>> forest.predict([[1.0], [9.0]])
    array([5., 9.])
    """

    _TREE: ClassVar[type[TreeEstimator]] = ExtraTreeRegressor
    _RANDOM_SPLITS: ClassVar[bool] = True

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "squared_error",
        alpha: float = 0.9,
        max_depth: int | None = None,
        min_samples_split: int | float = 2,
        min_samples_leaf: int | float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: int | float | str | None = 1.0,
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        ccp_alpha: float = 0.0,
        categorical_features: Any = "from_dtype",
        cat_smooth: float = 10.0,
        min_samples_category: int | None = None,
        max_cat_threshold: int | None = None,
        bootstrap: bool = False,
        oob_score: Any = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        max_samples: int | float | None = None,
        colsample_bytree: float = 1.0,
        importance_type: str = "gain",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
    ) -> None:
        self._keep_parameters(locals())


@described
class ExtraTreesClassifier(ForestClassifier):
    """An extra-trees classifier.

    Trees grown on all rows, each split the best of one random threshold per column that the node considers (Geurts, Ernst and
    Wehenkel, 2006), averaged.

    {input}

    Parameters
    ----------
    {n_estimators}
    {classification_criterion}
    {growth}
    {max_features: "sqrt"}
    {growth_end}
    {bootstrap_of_classes: False}
    {forest}
    {class_weight_forest}
    {max_samples}
    {constraints}

    Attributes
    ----------
    estimators_ : tuple
        The trees, each as a fitted :class:`ExtraTreeClassifier` with the present parameters of the forest, also with
        ``warm_start``. Some of them can be assigned, to keep only these.
    {fitted_classes}
    {fitted}
    oob_score_ : float
        Score of the out-of-bag predictions; only with ``oob_score``.
    oob_decision_function_ : ndarray of float64 of shape (n, n_classes_), or (n, most classes, n_outputs_) for several targets
        Out-of-bag class probabilities of each row, 0 for a row that every tree drew; only with ``oob_score``.

    Examples
    --------
    >>> from dtrees import ExtraTreesClassifier
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]
    >>> forest = ExtraTreesClassifier(n_estimators=20, bootstrap=False, random_state=0).fit(X, y)
    >>> forest.predict([[1.0], [9.0]]).tolist()
    ['no', 'yes']
    """

    _TREE: ClassVar[type[TreeEstimator]] = ExtraTreeClassifier
    _RANDOM_SPLITS: ClassVar[bool] = True

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "gini",
        max_depth: int | None = None,
        min_samples_split: int | float = 2,
        min_samples_leaf: int | float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: int | float | str | None = "sqrt",
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        ccp_alpha: float = 0.0,
        categorical_features: Any = "from_dtype",
        cat_smooth: float = 10.0,
        min_samples_category: int | None = None,
        max_cat_threshold: int | None = None,
        bootstrap: bool | str = False,
        oob_score: Any = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        class_weight: Any = None,
        max_samples: int | float | None = None,
        colsample_bytree: float = 1.0,
        importance_type: str = "gain",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
    ) -> None:
        self._keep_parameters(locals())
