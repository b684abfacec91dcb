"""Descriptions that several estimators share, written once and filled into their docstrings.

``@described`` replaces a line ``{name}`` of a class docstring by the description of that name, at the line's indentation. Descriptions may
name others in the same way.
"""

from __future__ import annotations

import re
from textwrap import dedent, indent
from typing import TypeVar

from dtrees.ensemble.input.parameters import BOOSTING_DEFAULTS

C = TypeVar("C", bound=type)

_DESCRIPTIONS = {
    "colsample_bytree": """
        colsample_bytree : float, default=%s
            Share of the columns drawn once for each tree; nodes draw from these.
        """,
    "max_leaf_nodes": """
        max_leaf_nodes : int or None, default=None
            Split the node that gains most next, until there are this many leaves. None splits all.
        """,
    "categories": """
        categorical_features : "from_dtype", array-like or None, default="from_dtype"
            Columns that hold categories, which are split by sets of them, not by an order: those of text or of a category dtype, or those
            listed (by name, by position, or by a mask), also of numbers; "from_dtype" in a list adds those of text or of a category dtype.
            None takes category numbers for numbers; they are in the order of an ordered dtype, otherwise sorted. Missing values are a
            category of their own; categories that no row in a node has go right there, and those not seen at fit where missing values go.
        cat_smooth : float, default=10.0
            Weight by which the mean of a category is moved towards that of its node before categories are put in order. With 0, the order
            is the one among whose splits the best of all sets is, but for more than two classes of a tree or forest.
        min_samples_category : int or None, default=None
            Categories of fewer rows in a node are taken together there. None is half of the mean number of rows of a category of the
            column (rows of weight 0 do not count), but at most 10, or a fifth of it, but at most 100, whichever is more.
        max_cat_threshold : int or None, default=None
            The side of a split that has fewer categories has at most so many. None is twice the square root of the number of categories of
            the column (that itself, if they have fewer than four rows on average), but at least 32.
        """,
    "importance_type": """
        importance_type : {"gain", "split", "cover"}, default="gain"
            What ``feature_importances_`` adds up for each column: the gains of its splits, their number, or the weight of the rows
            that they divide (of boosted trees, the sum of hessians). It may be set after the fit.
        """,
    "verbose": """
        verbose : int, default=0
            Tell of the progress in lines: from 1 on about ten times, from 2 on after every %s. They go to standard error, or, where
            the logger "dtrees" is listened to at level INFO, there.
        """,
    "constraints": """
        monotonic_cst : array-like of int of shape (n_features,), dict or None, default=None
            Columns that predictions must rise with, or at least not fall (1), or fall with (-1); 0 for others. A dict has the names of
            columns, and means 0 for those it leaves out. Predictions are then monotonic to the last bit; of a classifier, for two classes
            only, the probability of the second one. Rows that miss the value may be told anything.
        interaction_cst : {"pairwise", "no_interactions"}, list of lists, tuples or sets, or None, default=None
            Which columns may stand together on a path from the root to a leaf: the sets of them, by number or name; columns that are in
            none are one more set. "pairwise" lets any two, "no_interactions" has every path use a single column. In a node, columns that
            may not be used count as constant.
        """,
    "bag": """
        estimator : %s or None, default=None
            The booster; None has its defaults. Its ``random_state`` is replaced by one for each booster. What wants more than rows that are
            drawn is refused: an estimator as ``init``, and ``early_stopping_rounds`` (``n_iter_no_change`` is none such).
        n_estimators : int, default=10
            Number of boosters.
        max_samples : int or float, default=1.0
            Rows drawn for each booster: a number, or a share of the number of rows of a weight above 0, whatever they weigh.
        bootstrap : bool, default=True
            Draw rows with replacement, with probability in proportion to their weight; a row that is drawn twice counts as one of twice the
            weight. Otherwise without, and rows keep their weight.
        oob_score : bool or callable, default=False
            Also predict each row by the boosters that did not draw it, and score that: as ``score`` does, or by the callable
            ``metric(y_true, y_pred)``, which is given class codes (positions in ``classes_``) for classification. Needs ``bootstrap``.
        n_jobs : int or None, default=None
            Threads to fit and predict with; None is as the estimator says. The result does not depend on it. On a cluster, the workers' own
            number of threads counts.
        random_state : int, RandomState, Generator or None, default=None
            Decides rows, and the ``random_state`` of each booster. Pass an int for the same bag every time.
        verbose : int, default=0
            Tell of the progress, in lines, from booster to booster.
        """,
    "fitted_bag": """
        estimators_ : list of %s
            The boosters, fitted.
        estimators_samples_ : list of ndarray of int
            The rows that each booster was fitted to, as often as it drew them.
        n_features_in_ : int
            Number of columns at fit.
        feature_names_in_ : ndarray of str of shape (n_features_in_,)
            Names of the columns; only where they all had names that are strings.
        placement_ : dtrees.ensemble.backend.Placement
            Where the columns were during the fit, and why. Not part of a saved model.
        oob_score_ : float
            Score of the out-of-bag predictions; only with ``oob_score``.
        """,
    "fitted_columns": """
        n_features_in_ : int
            Number of columns at fit.
        feature_names_in_ : ndarray of str of shape (n_features_in_,)
            Names of the columns; only where they all had names that are strings.
        is_categorical_ : ndarray of bool of shape (n_features_in_,)
            Which columns were split by sets of categories, but for criteria that know no sets.
        max_features_ : int
            Columns drawn for each node.
        placement_ : dtrees.ensemble.backend.Placement
            Where the columns were during the fit, and why: of ``kind`` "local", or on a cluster "one-worker", "replicated" or "sharded".
            Not part of a saved model.
        """,
    "regression_criterion": """
        criterion : {"squared_error", "absolute_error", "quantile", "poisson", "friedman_mse"}, default="squared_error"
            What a split is to lower: the mean squared distance of the target from its mean in the children, which leaves then predict
            ("friedman_mse" is another name); the mean absolute distance from the weighted median, which is less swayed by outliers and
            takes some times longer; the mean pinball loss about the weighted quantile of ``alpha``, likewise; or half the Poisson deviance
            from the mean, for targets that are not negative, such as counts. Missing values are allowed with all. For absolute error,
            weights that are not whole numbers are rounded to a 2**40th of their sum; for quantiles, to as much times the denominator of
            ``alpha``.
        alpha : float, default=0.9
            Which quantile the criterion "quantile" is for, from 0.0001 to 0.9999; of more than four decimals, the nearest fraction with a
            denominator of at most 10,000 is taken. Without effect with other criteria.
        """,
    "classification_criterion": """
        criterion : {"gini", "entropy", "log_loss"}, default="gini"
            What a split is to lower: the Gini impurity, or the entropy (of which "log_loss" is another name).
        """,
    "growth": """
        max_depth : int or None, default=None
            Depth at which nodes are not split any more. None grows until leaves are pure or too small to split.
        min_samples_split : int or float, default=2
            Fewest rows of a node to be split; a float is a fraction of all rows (of a weight above 0), rounded up.
        min_samples_leaf : int or float, default=1
            Fewest rows of a leaf; a float is a fraction of all rows (of a weight above 0), rounded up.
        min_weight_fraction_leaf : float, default=0.0
            Smallest weight of a leaf, as a fraction of all weight.
        """,
    "max_features": """
        max_features : int, float, {"sqrt", "log2"} or None, default=%s
            Columns drawn for each node to look for a split in: a number, a share, the square root or base-2 logarithm of the number
            of columns that the tree sees; None takes all. Columns without a possible split do not count.
        """,
    "growth_end": """
        {max_leaf_nodes}
        min_impurity_decrease : float, default=0.0
            Split only where impurity decreases by at least this much, weighted by the node's share of all weight.
        ccp_alpha : float, default=0.0
            Prune the finished tree: as long as a subtree lowers impurity, weighted by the share of all weight, by at most this much for
            each leaf that it has more than one, the one that lowers it least becomes a leaf (minimal cost-complexity pruning).
        {categories}
        """,
    "random_state_tree": """
        random_state : int, RandomState, Generator or None, default=None
            Decides which columns nodes draw (with ``max_features``) and random thresholds. Pass an int for the same tree every time.
        """,
    "class_weight_tree": """
        class_weight : dict, list of dicts, "balanced" or None, default=None
            Factors for the weights of rows by class. "balanced" gives every class the same weight in all. Of several targets, a list has a
            dict for each, and factors are multiplied.
        """,
    "class_weight_forest": """
        class_weight : dict, list of dicts, {"balanced", "balanced_subsample"} or None, default=None
            Factors for the weights of rows by class. "balanced" gives every class the same weight in all, "balanced_subsample" among
            the rows of each tree. Of several targets, a list has a dict for each, and factors are multiplied.
        """,
    "n_jobs": """
        n_jobs : int or None, default=None
            Threads to fit and predict with. None is 1, -1 all cores. The result does not depend on it. On a cluster, the workers'
            own number of threads counts.
        """,
    "n_estimators": """
        n_estimators : int, default=100
            Number of trees.
        """,
    "bootstrap": """
        bootstrap : bool, default=%s
            Grow each tree on rows drawn with replacement, with probability in proportion to their weight. Otherwise on all rows.
        """,
    "bootstrap_of_classes": """
        bootstrap : bool or "balanced", default=%s
            Grow each tree on rows drawn with replacement, with probability in proportion to their weight. Otherwise on all rows.
            "balanced" draws as many rows of each class as the smallest one has (Chen, Liaw and Breiman, 2004, "Using random forest to learn
            imbalanced data"; imbalanced-learn's ``BalancedRandomForestClassifier``), for classes of which some are rare.
        """,
    "forest": """
        oob_score : bool or callable, default=False
            Also predict each row by the trees that did not draw it, and score that: as ``score`` does, or by the callable
            ``metric(y_true, y_pred)``, which is given class codes (positions in ``classes_``) for classification. Needs ``bootstrap``.
        {n_jobs}
        random_state : int, RandomState, Generator or None, default=None
            Decides rows and columns drawn, and random thresholds. Pass an int for the same forest every time.
        {verbose: tree}
        warm_start : bool, default=False
            Keep the trees of the previous fit, and add as many as ``n_estimators`` has grown by.
        """,
    "max_samples": """
        max_samples : int, float or None, default=None
            With ``bootstrap``, rows drawn for each tree: a number, or a share of the number of rows of a weight above 0, whatever they
            weigh. None draws as many as these are.
        {colsample_bytree: 1.0}
        {importance_type}
        """,
    "boosting": """
        learning_rate : float or "auto", default="%(learning_rate)s"
            Factor that each tree's step is shortened by. Fewer, longer steps fit faster and generalise worse. "auto" follows from the
            number n of rows of a weight above 0: 0.03 * (n / 300) ** 0.4, but at least 0.03 and at most 0.15 for regression, 0.05 and 0.1
            for two classes; for more classes it is 0.1; where ``max_leaf_nodes`` is "auto" and came to 31, it is 0.07. That is for 200
            rounds; for many more, or far fewer, pass a number. What it came to is ``learning_rate_``.
        n_estimators : int, default=%(n_estimators)s
            Rounds: trees, or trees per class for more than two classes, or per target.
        subsample : float, default=%(subsample)s
            Share of the rows drawn, without replacement, for each round.
        max_depth : int, "auto" or None, default="%(max_depth)s"
            Depth at which nodes are not split any more; None sets no bound. "auto" is 6, and None where the number of leaves is limited.
            What it came to is ``max_depth_``.
        min_samples_split : int or float, default=2
            Fewest rows of a node to be split; a float is a fraction of all rows (of a weight above 0), rounded up.
        min_samples_leaf : int, float or "auto", default="%(min_samples_leaf)s"
            Fewest rows of a leaf; a float is a fraction of all rows (of a weight above 0), rounded up. "auto" is a tenth of
            these, but at least 1 and at most 20, and 1 for 10,000 of them and more. What it came to is ``min_samples_leaf_``.
        min_child_weight : float, default=%(min_child_weight)s
            Smallest sum of hessians of a leaf. For squared error that is its weight, or number of rows; for log loss it shrinks as
            predictions become sure.
        min_weight_fraction_leaf : float, default=0.0
            Smallest sum of hessians of a leaf, as a fraction of that of all rows in the tree's sample: a fraction of the weight where each
            row's hessian is its weight, as for squared error, and with ``criterion="squared_error"``.
        reg_lambda : float or "auto", default="%(reg_lambda)s"
            L2 penalty on leaf values, before shrinkage. "auto" is 5, and 1 for more than two classes. What it came to is ``reg_lambda_``.
        reg_alpha : float, default=0.0
            L1 penalty on leaf values, before shrinkage, as in XGBoost: sums of gradients are moved towards zero by it, and no further, both
            in leaf values and in gains.
        max_features : int, float, {"sqrt", "log2", "auto"} or None, default="%(max_features)s"
            Columns drawn for each node to look for a split in: a number, a share, the square root or base-2 logarithm of the number
            of columns that the tree sees; None takes all. Columns without a possible split do not count. "auto" is None for 10,000 rows of
            a weight above 0 and more, or with ``colsample_bylevel``, and otherwise 0.5, or "sqrt" for classification. What it came to is
            ``max_features_``.
        {colsample_bytree: %(colsample_bytree)s}
        colsample_bylevel : float, default=1.0
            Share of these drawn once for each level of a tree, in place of ``max_features`` for each node. A node in which none of them
            can be split draws others.
        max_leaf_nodes : int, "auto" or None, default="%(max_leaf_nodes)s"
            Split the node that gains most next, until there are this many leaves. None splits all. "auto" is 31 for two classes and 10,000
            rows of a weight above 0 and more, but fewer than 100,000, unless ``max_depth`` is passed; otherwise None. What it came to is
            ``max_leaf_nodes_``.
        min_impurity_decrease : float, default=0.0
            Split only where the gain is at least this much for each unit of the tree's sum of hessians.
        min_split_gain : float, default=0.0
            Split only where the gain is at least this much, absolute: LightGBM's parameter of this name, and XGBoost's ``gamma``.
        criterion : {"newton", "squared_error"}, default="newton"
            What a split is to improve: the second-order model of the loss (gradients and hessians), or the squared error of the gradients
            alone, as in scikit-learn's gradient boosting, and the L2 score functions of CatBoost. A row then counts by its weight; leaves
            still hold Newton steps. The same where hessians are 1, as for squared error.
        init : estimator, "zero" or None, default=None
            What trees start from: None is the best constant, "zero" zero, an estimator is cloned and fitted to the rows that are not held
            out, and its predictions (probabilities) become the raw predictions that trees are added to. On a cluster, all rows are brought
            to the process that coordinates the fit for that. A model file cannot hold the model. For raw scores of each row, pass
            ``base_margin`` to fit.
        ccp_alpha : float, default=0.0
            Prune each finished tree before its step is taken: as long as a subtree gains at most this much, for each unit of the tree's
            sum of hessians and each leaf that it has more than one, the one that gains least becomes a leaf.
        {categories}
        """,
    "boosting_stop": """
        validation_fraction : float or None, default=0.1
            With ``n_iter_no_change``, share of the rows (of each class) that is held out. None holds out none: the rows trained on decide.
        n_iter_no_change : int or None, default=None
            Stop when the loss of the held-out rows has not become smaller, or their score larger, by ``tol`` in this many rounds. With
            ``warm_start``, the rounds of earlier fits count where these scored the same rows by the same ``scoring``.
        tol : float, default=1e-4
            See ``n_iter_no_change``.
        scoring : str, callable or None, default="loss"
            With ``n_iter_no_change``, what held-out rows are scored by: the loss, a scorer of scikit-learn by its name, or one made by
            :func:`sklearn.metrics.make_scorer`; None is R2 or accuracy. Scorers of labels are given class codes (positions in
            ``classes_``). Any other callable is called as ``scoring(estimator, X, y)``, with ``sample_weight`` if there are weights, and
            returns a number, the larger the better; ``y`` are labels, ``X`` stands for the rows without their columns, and the methods
            ``predict``, ``predict_proba`` and ``decision_function`` of ``estimator`` take it, or ``X[rows]``.
        early_stopping_rounds : int or None, default=None
            Stop when the last metric of ``eval_metric`` has not improved on the last evaluation set for this many rounds, and leave out the
            rounds after the best one. For another set or metric see :class:`dtrees.EarlyStopping`. Wants an ``eval_set`` at fit.
        """,
    "eval_metric_regression": """
        eval_metric : str, callable, list of them, or None, default=None
            What to compute on evaluation sets, by scikit-learn's formulas: "rmse", "mse", "mae", "r2", "loss" (the one that is minimised;
            not for "huber", which is another one in each round) or a function ``(y_true, y_pred, weight) -> float`` of all rows of a set,
            where ``weight`` may be None; also a function of :mod:`sklearn.metrics`, or a scorer, or the name of one. A function that is to
            decide about early stopping says by its attribute ``greater_is_better``, True or False, what is better; scikit-learn's say it by
            their names. None means "rmse" for "squared_error" and functions, "mae" for "absolute_error" and "huber", and otherwise "loss".
            Of several targets, it is the mean over them; functions and scorers are given arrays of shape (n, k).
        """,
    "eval_metric_classification": """
        eval_metric : str, callable, list of them, or None, default=None
            What to compute on evaluation sets, by scikit-learn's formulas: "logloss", "loss" (the one that is minimised), "error",
            "accuracy", "auc" (of more than two classes: of each against the others, weighted by frequency) or a function
            ``(y_true, y_pred, weight) -> float`` of all rows of a set. It is given class codes (positions in ``classes_``) and
            probabilities: of the second class where there are two, else of all, shape (n, n_classes); ``weight`` may be None. Also a
            function of :mod:`sklearn.metrics`, or a scorer, or the name of one: those that compare labels are given class codes. A function
            that is to decide about early stopping says by its attribute ``greater_is_better``, True or False, what is better;
            scikit-learn's say it by their names. None means "logloss", or "loss" for the exponential loss.
        """,
    "boosting_control": """
        random_state : int, RandomState, Generator or None, default=None
            Decides rows and columns drawn. Pass an int for the same model every time. None draws anew in each fit, but where columns are
            drawn because ``max_features`` is "auto" and nothing else is: then every fit draws the same.
        {n_jobs}
        {verbose: round}
        warm_start : bool, default=False
            Keep the rounds of the previous fit, and add as many as ``n_estimators`` has grown by.
        {importance_type}
        """,
    "fitted_boosting": """
        estimators_ : ndarray of DecisionTreeRegressor of shape (n_estimators_, n_outputs)
            The trees, each as a fitted estimator of the steps that it adds, read-only. Raw predictions are those of ``init_`` plus
            ``learning_rate_`` times the sum of theirs. Their parameters are the present ones of this estimator, also with ``warm_start``.
        init_ : estimator or "zero"
            What boosting started from: an estimator of the weighted mean of the target (median, quantile), or of the shares of the classes;
            the fitted ``init``; or "zero", also with ``base_margin``.
        learning_rate_ : float
            The learning rate of the trees: with ``warm_start``, "auto" is what it was for those that there were.
        max_leaf_nodes_ : int or None
            The most leaves that they may have; None for no limit.
        max_depth_ : int or None
            How deep they may be; None for no limit.
        min_samples_leaf_ : int
            The fewest rows of their leaves.
        reg_lambda_ : float
            The penalty on these leaves' values.
        n_estimators_ : int
            Rounds; fewer than ``n_estimators`` if the fit was stopped early.
        train_score_ : ndarray of float64 of shape (n_estimators_,)
            Mean loss on the rows trained on, after each round: squared or absolute error, pinball loss, deviance, log loss. NaN where
            ``loss`` is a function.
        validation_score_ : ndarray of float64
            Mean loss on the rows held out (with ``validation_fraction=None``, on those trained on), after each round, or their score by
            ``scoring`` (the larger the better); only with ``n_iter_no_change``.
        oob_scores_, oob_improvement_ : ndarray of float64 of shape (n_estimators_,)
            With ``subsample`` below 1: the mean loss, after each round, of the rows trained on that the round did not draw, and by how much
            it is below that of the round before (of the rows that this one did not draw); in the first round, below that of what it started
            from.
        oob_score_ : float
            The last of ``oob_scores_``.
        evals_result_ : dict of dict of ndarray of float64
            For each evaluation set, by name, and each metric, by name, its value after each round, those that early stopping left out
            included; only with an ``eval_set``.
        best_iteration_, best_score_ : int, float
            The best round (from 0; the last of the model), and its score; only with early stopping on an evaluation set.
        {fitted_columns}
        feature_importances_ : ndarray of float64 of shape (n_features_in_,)
            The share each column has in what ``importance_type`` counts of all splits, by default their gain; sums to 1.
        """,
    "fitted": """
        {fitted_columns}
        feature_importances_ : ndarray of float64 of shape (n_features_in_,)
            The share each column has in what ``importance_type`` counts of a tree's splits, by default the decrease of impurity, averaged
            over trees; sums to 1.
        """,
    "fitted_classes": """
        classes_ : ndarray of shape (n_classes_,)
            The labels, sorted; of several targets a list of those of each.
        n_classes_ : int
            Number of labels; of several targets a list.
        """,
    "fitted_tree": """
        tree_ : dtrees.ensemble.estimators.inspection.FittedTree
            The tree as arrays of nodes, in scikit-learn's shapes, read-only.
        """,
    "input": """
        X may be a NumPy array (or what makes one) of numbers, a pandas or polars frame, or a Dask array or frame, which is fitted on
        the cluster. Text and category columns of frames hold categories; unseen ones count as missing at prediction.
        Missing values (NaN) are allowed: each split sends them to the side that gains more.
        """,
}


_LINE = re.compile(r"^(?P<indent> *)\{(?P<name>\w+)(?:: (?P<text>.+))?\}$", flags=re.MULTILINE)


def described(cls: C) -> C:
    """Fill the shared descriptions into a class docstring; ``{name: text}`` also fills ``text`` into the description."""
    if cls.__doc__:
        cls.__doc__ = _LINE.sub(_description, cls.__doc__)
    return cls


def _description(match: re.Match[str]) -> str:
    """Return what stands for a line, with the descriptions that it names in turn."""
    text = dedent(_DESCRIPTIONS[match["name"]]).strip("\n")
    if match["text"]:
        text %= match["text"]
    elif match["name"] == "boosting":
        text %= BOOSTING_DEFAULTS
    return indent(_LINE.sub(_description, text), match["indent"])
