"""The four forests: random forests and extra-trees, for regression and classification."""

from __future__ import annotations

from typing import ClassVar

from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.base_forest import ClassForestParameters, Forest
from dtrees.ensemble.estimators.base_kinds import AveragingClassifier, AveragingRegressor
from dtrees.ensemble.estimators.declaring import with_parameters
from dtrees.ensemble.estimators.single_tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor


@with_parameters
class RandomForestRegressor(AveragingRegressor, Forest):
    """A random forest regressor.

    Trees with exact splits, each grown on rows drawn with replacement and each node on columns drawn for it (Breiman, 2001),
    averaged.

    Attributes
    ----------
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

    max_features: int | float | str | None = 1.0
    bootstrap: bool = True


@with_parameters
class RandomForestClassifier(ClassForestParameters, AveragingClassifier, Forest):
    """A random forest classifier.

    Trees with exact splits, each grown on rows drawn with replacement and each node on columns drawn for it (Breiman, 2001),
    averaged.

    Attributes
    ----------
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

    max_features: int | float | str | None = "sqrt"


@with_parameters
class ExtraTreesRegressor(AveragingRegressor, Forest):
    """An extra-trees regressor.

    Trees grown on all rows, each split the best of one random threshold per column that the node considers (Geurts, Ernst and
    Wehenkel, 2006), averaged.

    Attributes
    ----------
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

    max_features: int | float | str | None = 1.0
    bootstrap: bool = False


@with_parameters
class ExtraTreesClassifier(ClassForestParameters, AveragingClassifier, Forest):
    """An extra-trees classifier.

    Trees grown on all rows, each split the best of one random threshold per column that the node considers (Geurts, Ernst and
    Wehenkel, 2006), averaged.

    Attributes
    ----------
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

    max_features: int | float | str | None = "sqrt"
    bootstrap: bool | str = False
