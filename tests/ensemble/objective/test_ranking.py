"""LambdaMART and ranking metrics, compared with plain implementations, scikit-learn and LightGBM."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import average_precision_score, ndcg_score

from dtrees.ensemble.objective.ranking import LambdaRank


def queries(n=80, n_queries=6, seed=0, together=False):
    """Relevances and queries, whose rows are scattered or ``together``."""
    rng = np.random.default_rng(seed)
    qid = rng.integers(0, n_queries, n).astype(float)
    return np.stack([rng.integers(0, 4, n).astype(float), np.sort(qid) if together else qid]), np.round(rng.normal(size=n), 1)


def naive_derivatives(loss, target, raw, weight):
    (relevance, qid), g, h = target, np.zeros(len(raw)), np.zeros(len(raw))
    gain = 2.0**relevance - 1.0 if loss.ndcg_exp_gain else relevance
    for query in np.unique(qid):
        rows = [i for i in range(len(raw)) if qid[i] == query and weight[i] > 0]
        rows.sort(key=lambda i: -raw[i])
        best = sum(x / math.log2(k + 2) for k, x in enumerate(sorted(gain[rows])[::-1][: loss.lambdarank_truncation_level]))
        slopes, total = np.zeros((2, len(raw))), 0.0
        for k, i in enumerate(rows):
            for m, j in enumerate(rows):
                if gain[i] > gain[j] and min(k, m) < loss.lambdarank_truncation_level:
                    change = (gain[i] - gain[j]) * abs(1 / math.log2(k + 2) - 1 / math.log2(m + 2)) / best
                    if raw[rows[0]] != raw[rows[-1]]:
                        change /= 0.01 + abs(raw[i] - raw[j])
                    p = 1 / (1 + math.exp(raw[i] - raw[j]))
                    slopes[0, i] -= change * p
                    slopes[0, j] += change * p
                    slopes[1, [i, j]] += change * p * (1 - p)
                    total += 2 * change * p
        if total > 0.0:
            slopes *= math.log2(1 + total) / total
        g += slopes[0] * weight
        h += slopes[1] * weight
    return np.array([g, h])


@pytest.mark.parametrize("loss", [LambdaRank(), LambdaRank(3), LambdaRank(1, ndcg_exp_gain=False)], ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_derivatives_are_those_of_all_pairs(loss, weighted):
    for seed in range(3):
        target, raw = queries(seed=seed)
        weight = np.random.default_rng(seed).integers(0, 3, 80).astype(float)
        found = loss.derive(target, raw[np.newaxis], weight if weighted else None)[:, 0]
        assert_allclose(found, naive_derivatives(loss, target, raw, weight if weighted else np.ones(80)), rtol=1e-10, atol=1e-13)
    equal = loss.derive(target, np.zeros((1, 80)), None)[:, 0]
    assert_allclose(equal, naive_derivatives(loss, target, np.zeros(80), np.ones(80)), rtol=1e-10, atol=1e-13)
    wild = loss.derive(target, 1e300 * raw[np.newaxis], None)
    assert np.isfinite(wild).all()


@pytest.mark.parametrize("truncation", [30, 3])
def test_derivatives_are_lightgbms(truncation):
    """Leaves are negative gradients over hessians of their rows, up to LightGBM's use of a table."""
    lightgbm = pytest.importorskip("lightgbm")
    target, raw = queries(together=True)
    loss = LambdaRank(truncation)
    g, h = loss.derive(target, raw[np.newaxis], None)[:, 0]
    column = np.argsort(np.argsort(-g / (h + 1.0)))[:, np.newaxis].astype(float)
    limits = {"num_leaves": 16, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 1e-6, "min_data_in_bin": 1, "verbose": -1}
    settings = {"objective": "lambdarank", "lambdarank_truncation_level": truncation, "learning_rate": 1.0, "lambda_l2": 1.0}
    data = lightgbm.Dataset(column, target[0], group=np.unique(target[1], return_counts=True)[1], init_score=raw, params=limits)
    model = lightgbm.train({**settings, **limits, "num_threads": 1}, data, 1)
    leaf = model.predict(column, pred_leaf=True).astype(int).ravel()
    assert len(np.unique(leaf)) > 2
    wanted = -np.bincount(leaf, g) / (np.bincount(leaf, h) + 1.0)
    assert_allclose(model.predict(column), wanted[leaf], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [None, 1, 5])
def test_ndcg_is_scikit_learns(k, weighted):
    target, _ = queries()
    rng = np.random.default_rng(3)
    raw, weight = rng.normal(size=80), rng.integers(0, 3, 80).astype(float)
    found, of_queries = [], []
    for query in np.unique(target[1]):
        rows = (target[1] == query) & ((weight > 0) | (not weighted))
        found.append(ndcg_score([2 ** target[0, rows] - 1], [raw[rows]], k=k))
        of_queries.append(weight[rows].mean() if weighted else 1.0)
    name = "ndcg" if k is None else f"ndcg@{k}"
    assert_allclose(
        LambdaRank().measure(name, target, raw[np.newaxis], weight if weighted else None), np.average(found, weights=of_queries)
    )


def test_map():
    target, raw = queries()
    raw = raw + np.arange(80) / 1e6
    each = [average_precision_score(target[0, rows] > 0, raw[rows]) for rows in (target[1] == query for query in np.unique(target[1]))]
    assert_allclose(LambdaRank().measure("map", target, raw[np.newaxis], None), np.mean(each))
    # By hand: hits at 1 and 3 of 3 relevant rows, two of which could be among the first 2.
    target, raw = np.array([[1.0, 0.0, 2.0, 1.0], [7.0] * 4]), -np.arange(4.0)
    assert_allclose(LambdaRank().measure("map@2", target, raw[np.newaxis], None), 1 / 2)
    assert_allclose(LambdaRank().measure("map@3", target, raw[np.newaxis], None), (1 + 2 / 3) / 3)
    nothing = np.array([[0.0, 0.0], [1.0, 1.0]])
    for name in ("ndcg", "map@1"):
        assert LambdaRank().measure(name, nothing, np.zeros((1, 2)), None) == 1.0


def test_what_has_no_gain():
    for relevance, message in ((-1.0, "the relevance -1.0"), (0.5, "whole numbers from 0 to 31"), (32.0, "32.0")):
        with pytest.raises(ValueError, match=message):
            LambdaRank().check(np.array([[1.0, relevance], [0.0, 0.0]]))
    LambdaRank(ndcg_exp_gain=False).check(np.array([[1.0, 0.5, 1e6], [0.0, 0.0, 1.0]]))
