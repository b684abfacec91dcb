"""Whole trees compared with those of scikit-learn and of XGBoost's exact method."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.run.boosting_rounds import boost
from dtrees.ensemble.compat import SKLEARN_VERSION
from dtrees.ensemble.objective.classification import log_loss_for
from dtrees.ensemble.objective.regression import SquaredError
from dtrees.tree.packing import pack
from dtrees.tree.predict import sum_values
from dtrees.tree.tree import Tree
from tests.engine.shards import grow_here, local, rules
from tests.slow import KERNELS_OF_THEIR_OWN, one_of_each, slow_for

# --- whole trees compared with scikit-learn's: the same splits without ties, and an equally good fit with ties ---


N = 3000
CASES = [
    ("squared_error", 0),
    ("absolute_error", 0),
    ("poisson", 0),
    ("gini", 2),
    ("gini", 3),
    ("entropy", 2),
    ("entropy", 4),
]


def continuous(seed: int, n_columns: int = 5, n: int = N) -> NDArray[np.float32]:
    """Columns without ties, exact in float32, whose values differ by more than scikit-learn's smallest difference."""
    rng = np.random.default_rng(seed)
    return np.stack([(rng.permutation(n) - n // 3) / np.float32(64) for _ in range(n_columns)], axis=1).astype(np.float32)


def target_of(X: NDArray[Any], n_classes: int, seed: int, criterion: str) -> NDArray[Any]:
    rng = np.random.default_rng(seed + 100)
    scaled = np.nan_to_num(X, nan=20.0) / 10
    signal = np.sin(scaled[:, 0]) + (scaled[:, 1] > 1) * scaled[:, 2] / 3 + rng.normal(size=len(X))
    if n_classes == 0:
        return np.exp(signal) if criterion == "poisson" else signal
    classes = np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes))
    # Strong noise: counts of classes in nearly pure nodes are small, and gains of small counts tie.
    return np.where(rng.random(len(X)) < 0.4, rng.integers(0, n_classes, len(X)), classes)


def untying_weight(criterion: str) -> NDArray[np.float64] | None:
    """Return weights if splits tie without: a row between the medians of both sides may go to either."""
    return np.random.default_rng(7).uniform(0.5, 2.0, N) if criterion == "absolute_error" else None


def theirs(X: NDArray[Any], y: NDArray[Any], criterion: str, weight: Any = None, **parameters: Any) -> Any:
    kind = DecisionTreeRegressor if criterion in ("squared_error", "absolute_error", "poisson") else DecisionTreeClassifier
    return kind(criterion=criterion, random_state=0, **parameters).fit(X, y, sample_weight=weight).tree_


def ours(X: NDArray[Any], y: NDArray[Any], criterion: str, n_classes: int, weight: Any = None, **parameters: Any) -> Tree:
    plan = ForestPlan(rules(criterion, X.shape[1], **parameters), seed=0, n_classes=n_classes)
    return grow_here(list(X.T), y, weight, plan)[0]


def assert_same_structure(tree: Tree, other: Any) -> None:
    """Compare nodes from the root on; below a node with two equal gains (which counts of classes have) all may differ."""
    gains = [impurity_decrease(t) for t in (tree, other)]
    waiting, n_compared, n_tied = [(0, 0)], 0, 0
    while waiting:
        i, j = waiting.pop()
        n_compared += 1
        assert tree.n_node_samples[i] == other.n_node_samples[j]
        assert tree.weighted_n_node_samples[i] == pytest.approx(other.weighted_n_node_samples[j])
        assert tree.impurity[i] == pytest.approx(other.impurity[j], rel=1e-6, abs=1e-9)
        assert tree.value[i] == pytest.approx(other.value[j, 0], rel=1e-9, abs=1e-12)
        split, their_split = ((t.feature[k], t.threshold[k], bool(t.missing_go_to_left[k])) for t, k in ((tree, i), (other, j)))
        if split == their_split:
            if split[0] >= 0:
                waiting += [(tree.children_left[i], other.children_left[j]), (tree.children_right[i], other.children_right[j])]
        else:
            n_tied += 1
            assert gains[0][i] == pytest.approx(gains[1][j], rel=1e-9)
            assert min(split[0], their_split[0]) >= 0
    assert n_compared >= 5
    assert n_tied <= n_compared / 20
    if n_tied == 0:
        assert tree.children_left.tolist() == other.children_left.tolist()
        assert tree.children_right.tolist() == other.children_right.tolist()


def impurity_decrease(tree: Any) -> NDArray[np.float64]:
    total = np.asarray(tree.impurity) * tree.weighted_n_node_samples
    return np.where(tree.children_left < 0, 0.0, total - total[tree.children_left] - total[tree.children_right])


LIMITS: list[dict[str, Any]] = [
    {"min_samples_leaf": 60},
    {"min_samples_leaf": 25, "max_depth": 4},
    {"min_samples_leaf": 25, "min_samples_split": 200},
    {"min_weight_fraction_leaf": 0.03},
    {"min_samples_leaf": 25, "min_impurity_decrease": 2e-3},
]


@pytest.mark.parametrize(("criterion", "n_classes"), slow_for(KERNELS_OF_THEIR_OWN, CASES))
@pytest.mark.parametrize(
    ("seed", "table", "parameters"),
    [
        *((seed, "plain", parameters) for seed in (0, 1) for parameters in LIMITS),
        (2, "weighted", {"min_samples_leaf": 25, "min_weight_fraction_leaf": 0.01}),
        (3, "with gaps", {"min_samples_leaf": 60}),
    ],
    ids=str,
)
def test_structure(criterion: str, n_classes: int, seed: int, table: str, parameters: dict[str, Any]) -> None:
    X, weight = continuous(seed), untying_weight(criterion)
    if table == "weighted":
        weight = np.random.default_rng(2).uniform(0.1, 3.0, N)
    if table == "with gaps":
        if criterion == "absolute_error" or SKLEARN_VERSION < (1, 8):
            pytest.skip("scikit-learn takes no missing values with it; 1.7 finds other splits, most of them worse")
        X[np.random.default_rng(3).random(X.shape) < 0.15] = np.nan
    y = target_of(X, n_classes, seed, criterion)
    tree = ours(X, y, criterion, n_classes, weight, **parameters)
    assert tree.gain == pytest.approx(impurity_decrease(tree), abs=1e-9 * N)
    assert_same_structure(tree, theirs(X, y, criterion, weight, **parameters))


@pytest.mark.parametrize(("criterion", "n_classes"), slow_for(KERNELS_OF_THEIR_OWN, CASES))
def test_best_first(criterion: str, n_classes: int) -> None:
    """scikit-learn numbers these nodes in another order, but they are the same."""
    X = continuous(4)
    y = target_of(X, n_classes, 4, criterion)
    weight = untying_weight(criterion)
    tree = ours(X, y, criterion, n_classes, weight, min_samples_leaf=60, max_leaf_nodes=15)
    other = theirs(X, y, criterion, weight, min_samples_leaf=60, max_leaf_nodes=15)
    assert tree.n_leaves == other.n_leaves == 15
    key = lambda t: sorted(zip(t.feature.tolist(), t.threshold.tolist(), t.n_node_samples.tolist(), strict=True))  # noqa: E731
    assert key(tree) == key(other)


def fit_of(impurity: NDArray[Any], weight: NDArray[Any], leaf: NDArray[Any]) -> float:
    return float((impurity * weight)[leaf].sum())


@pytest.mark.parametrize(("criterion", "n_classes"), slow_for(KERNELS_OF_THEIR_OWN, CASES))
def test_with_ties_stumps_are_as_good(criterion: str, n_classes: int) -> None:
    """If gains tie the split may differ, but the impurity of a stump must not."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 60))
        X = rng.integers(0, int(rng.integers(1, 6)) + 1, (n, 3)).astype(np.float32)
        if seed % 2 and criterion != "absolute_error":  # scikit-learn does not support missing values with it
            X[rng.random(X.shape) < 0.2] = np.nan
        y = rng.integers(0, n_classes, n) if n_classes else rng.integers(0, 4, n).astype(float)
        if n_classes:
            y[:n_classes] = np.arange(n_classes)[:n]
            if len(np.unique(y)) < n_classes:
                continue
        tree = ours(X, y, criterion, n_classes, max_depth=1)
        other = theirs(X, y, criterion, max_depth=1)
        mine, reference = (fit_of(t.impurity, t.weighted_n_node_samples, t.children_left < 0) for t in (tree, other))
        assert mine <= reference + 1e-9 * n


@pytest.mark.parametrize(("criterion", "n_classes"), slow_for(KERNELS_OF_THEIR_OWN, CASES))
def test_with_ties_full_trees_fit_as_well(criterion: str, n_classes: int) -> None:
    """Grown to the leaves, both trees separate all rows that differ."""
    rng = np.random.default_rng(9)
    X = rng.integers(0, 4, (500, 4)).astype(np.float32)
    y = target_of(X * 10, n_classes, 9, criterion)
    tree, other = ours(X, y, criterion, n_classes), theirs(X, y, criterion)
    assert fit_of(tree.impurity, tree.weighted_n_node_samples, tree.children_left < 0) == pytest.approx(
        fit_of(other.impurity, other.weighted_n_node_samples, other.children_left < 0), rel=1e-9, abs=1e-9
    )


# --- boosted trees compared with XGBoost's exact method ---


xgboost = pytest.importorskip("xgboost")

N_BOOSTED, P_BOOSTED = 2000, 5


def nodes_in_preorder(node: dict[str, Any]) -> list[tuple[int, float, bool]]:
    """(feature, threshold, missing goes left) of every node, or (-2, value, False) of a leaf."""
    if "leaf" in node:
        return [(-2, node["leaf"], False)]
    left, right = (next(child for child in node["children"] if child["nodeid"] == node[side]) for side in ("yes", "no"))
    own = (int(node["split"][1:]), node["split_condition"], node["missing"] == node["yes"])
    return [own, *nodes_in_preorder(left), *nodes_in_preorder(right)]


OBJECTIVES = [("reg:squarederror", 1.0), ("binary:logistic", 1.0), ("reg:squarederror", 20.0), ("binary:logistic", 20.0)]


@pytest.mark.parametrize(("objective", "reg_lambda", "missing", "seed"), one_of_each(OBJECTIVES, [0.0, 0.2], [0, 1, 2]))
def test_against_the_exact_method(objective: str, reg_lambda: float, missing: float, seed: int) -> None:
    check_boosted(objective, reg_lambda, missing, seed)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic"])
@pytest.mark.parametrize("alpha", [3.0, 30.0])
@pytest.mark.slow
def test_with_an_l1_penalty(alpha: float, objective: str, missing: float, seed: int) -> None:
    check_boosted(objective, 1.0, missing, seed, alpha)


def check_boosted(objective: str, reg_lambda: float, missing: float, seed: int, alpha: float = 0.0) -> None:
    """Compare trees node by node, and predictions."""
    rng = np.random.default_rng(seed)
    X = np.stack([(rng.permutation(N_BOOSTED) - N_BOOSTED // 3) / np.float32(64) for _ in range(P_BOOSTED)], axis=1).astype(np.float32)
    y = np.sin(X[:, 0] / 5) + (X[:, 1] > 3) * X[:, 2] / 20 + rng.normal(size=N_BOOSTED) / 2
    X[rng.random(X.shape) < missing] = np.nan
    binary = objective == "binary:logistic"
    y = (y > 0).astype(np.int32) if binary else y.astype(np.float32).astype(np.float64)
    least = 10.0 if binary else 25.0
    booster = xgboost.train(
        {
            "objective": objective, "tree_method": "exact", "max_depth": 4, "eta": 0.3, "lambda": reg_lambda, "alpha": alpha,
            "gamma": 0.0, "min_child_weight": least, "base_score": 0.5, "nthread": 2,
        },
        xgboost.DMatrix(X, y, feature_names=[f"f{j}" for j in range(P_BOOSTED)]),
        num_boost_round=4,
    )  # fmt: skip
    some = rules("newton_l1" if alpha else "newton", P_BOOSTED, max_depth=4, reg_lambda=reg_lambda, reg_alpha=alpha, min_child_weight=least)
    plan = BoostingPlan(some, 0, log_loss_for(2) if binary else SquaredError(), n_rounds=4, n_classes=2 if binary else 0, learning_rate=0.3)
    with local(list(X.T), y) as executor:
        ours = boost(executor, plan, initial=np.array([0.0 if binary else 0.5]))
    for (tree,), dump in zip(ours.rounds, booster.get_dump(dump_format="json"), strict=True):
        theirs = nodes_in_preorder(json.loads(dump))
        assert tree.feature.tolist() == [feature for feature, _, _ in theirs]
        reached = {0: np.ones(N_BOOSTED, np.bool_)}
        for node, (feature, number, missing_left) in enumerate(theirs):
            if feature < 0:
                assert tree.value[node, 0] == pytest.approx(number, rel=1e-3, abs=1e-5)
                continue
            # Their rows with x < condition go left, ours with x <= threshold: both are between the same two values, in float32.
            assert tree.threshold[node] == pytest.approx(number, abs=1e-5) or (missing and np.isinf(tree.threshold[node]))
            x, to_left = X[:, feature], tree.missing_go_to_left[node]
            if np.isnan(x[reached[node]]).any():
                assert to_left == missing_left
            left = np.where(np.isnan(x), to_left, x <= tree.threshold[node])
            reached[tree.children_left[node]], reached[tree.children_right[node]] = reached[node] & left, reached[node] & ~left
    margin = booster.predict(xgboost.DMatrix(X, feature_names=[f"f{j}" for j in range(P_BOOSTED)]), output_margin=True)
    raw = ours.initial[0] + sum_values(pack([tree for (tree,) in ours.rounds]), X.astype(np.float64))[:, 0]
    assert raw == pytest.approx(margin, abs=1e-4)
