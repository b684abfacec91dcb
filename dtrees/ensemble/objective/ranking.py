"""LambdaMART: boosting for rankings of the rows of each query by relevance.

A target has two rows of numbers: relevances, and the query of each row. A raw prediction is a score, which is only compared within a query.
The gradients are those of LightGBM's "lambdarank" (Burges, "From RankNet to LambdaRank to LambdaMART", 2010): the weight of a pair of rows
is the change of NDCG if they were swapped.

Metrics of a ranking are means over queries, weighted by the mean weight of their rows; rows of weight 0 count as absent. Rows with equal
scores are ranked in table order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import Floats, OfAllRows, Target, kernels
from dtrees.ensemble.objective.regression import Identity

#: Largest relevance for which gains of powers of two are integers.
MOST_RELEVANT = 31


class Ranks(NamedTuple):
    """The rows with a positive weight, by query, the highest score first.

    Attributes
    ----------
    order : ndarray of int64, shape (n,)
        The row numbers.
    start : ndarray of int64, shape (n_queries + 1,)
        The start of each query, and the end of the last one.
    query, position : ndarray of int64, shape (n,)
        The number of each row's query, and its position in the query.
    """

    order: NDArray[np.int64]
    start: NDArray[np.int64]
    query: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, qid: Floats, score: Floats, weight: Floats | None) -> Ranks:
        """Return the ranks of rows."""
        rows = np.arange(qid.shape[0]) if weight is None else np.flatnonzero(weight)
        order = rows[np.lexsort((-score[rows], qid[rows]))]
        start = np.flatnonzero(np.diff(qid[order], prepend=np.nan, append=np.nan) != 0.0)
        query = np.repeat(np.arange(start.shape[0] - 1), np.diff(start))
        return cls(order, start, query, np.arange(order.shape[0]) - start[query])

    def sums(self, values: Floats) -> Floats:
        """Return the sum of values over each query, shape (n_queries,)."""
        return np.bincount(self.query, values, self.start.shape[0] - 1).astype(np.float64, copy=False)


@dataclass(frozen=True)
class LambdaRank(OfAllRows, Identity):
    """LambdaMART by NDCG; the raw prediction is the score.

    Parameters
    ----------
    lambdarank_truncation_level : int
        Pairs count if one of their rows is among this many first ones of its query; NDCG is truncated at this rank.
    ndcg_exp_gain : bool
        Whether a relevance r has the gain 2**r - 1, instead of r.
    """

    lambdarank_truncation_level: int = 30
    ndcg_exp_gain: bool = True

    def check(self, target: Target) -> None:
        """Raise a ValueError for relevances without a gain."""
        relevance = target[0]
        whole = "whole numbers from 0 to 31 where ndcg_exp_gain is True" if self.ndcg_exp_gain else "numbers of at least 0"
        wrong = relevance < 0.0
        if self.ndcg_exp_gain:
            wrong |= (relevance > MOST_RELEVANT) | (relevance != np.trunc(relevance))
        if wrong.any():
            raise ValueError(f"y has the relevance {relevance[int(np.argmax(wrong))]}; wants {whole}")

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return zero, shape (1,), as only differences of scores count."""
        return np.zeros(1)

    def gains(self, relevance: Floats) -> Floats:
        """Return the gains of relevances."""
        return np.ldexp(1.0, relevance.astype(np.int64)) - 1.0 if self.ndcg_exp_gain else relevance

    def _dcg(self, ranks: Ranks, relevance: Floats, first: float) -> Floats:
        """Return the discounted cumulative gain of each query's ``first`` rows."""
        return ranks.sums(self.gains(relevance[ranks.order]) * discounts(ranks)[ranks.position] * (ranks.position < first))

    def derive(self, target: Target, raw: Floats, weight: Floats | None) -> Floats:
        """Return the derivatives, multiplied by row weights."""
        (relevance, qid), truncation = target, self.lambdarank_truncation_level
        ranks = Ranks.of(qid, raw[0], weight)
        best = self._dcg(Ranks.of(qid, relevance, weight), relevance, truncation)
        scale = np.divide(1.0, best, out=np.zeros_like(best), where=best > 0.0)
        found = np.zeros((2, raw.shape[1]))
        score, gain = np.ascontiguousarray(raw[0]), self.gains(relevance)
        kernels().rank_gradients(ranks.order, ranks.start, gain, scale, discounts(ranks), score, truncation, *found)
        return (found if weight is None else found * weight)[:, np.newaxis]

    def measure(self, name: str, target: Target, raw: Floats, weight: Floats | None) -> float:
        """Return "ndcg" or "map" of all rows of a query or, as in "ndcg@5", of the first ones.

        It is the mean over queries, weighted by the mean weight of their rows; 1 for a query without relevant rows.
        """
        self.check(target)
        relevance, qid = target
        kind, _, k = name.partition("@")
        first = float(k) if k else math.inf
        ranks = Ranks.of(qid, raw[0], weight)
        if kind == "ndcg":
            found, best = self._dcg(ranks, relevance, first), self._dcg(Ranks.of(qid, relevance, weight), relevance, first)
        else:
            relevant = (relevance[ranks.order] > 0.0).astype(np.float64)
            before = np.append(0.0, relevant.cumsum())
            precision = (before[1:] - before[ranks.start][ranks.query]) / (ranks.position + 1)
            found, best = ranks.sums(relevant * precision * (ranks.position < first)), np.minimum(ranks.sums(relevant), first)
        return _mean_over_queries(ranks, found, best, weight)

    def expected(self, target: Target, first: float, weight: Floats | None) -> float:
        """Return the expected NDCG of the first rows of queries in random order, in which each row has the mean gain of its query."""
        relevance, qid = target
        ranks = Ranks.of(qid, relevance, weight)
        mean = ranks.sums(self.gains(relevance)[ranks.order]) / np.diff(ranks.start)
        found = mean * ranks.sums(discounts(ranks)[ranks.position] * (ranks.position < first))
        return _mean_over_queries(ranks, found, self._dcg(ranks, relevance, first), weight)


def _mean_over_queries(ranks: Ranks, found: Floats, best: Floats, weight: Floats | None) -> float:
    """Return the mean of shares of the best, each of the mean weight of its rows; 1 where there is no best."""
    each = np.divide(found, best, out=np.ones_like(found), where=best > 0.0)
    of_queries = 1.0 if weight is None else ranks.sums(weight[ranks.order]) / np.diff(ranks.start)
    return float(kernels().weighted_mean(each, of_queries * np.ones_like(each)))


def discounts(ranks: Ranks) -> Floats:
    """Return the factor of gains at each position."""
    from dtrees.split.numbers.elementary import log2  # imports Numba

    return 1.0 / log2(np.arange(int(np.diff(ranks.start).max(initial=0))) + 2.0)
