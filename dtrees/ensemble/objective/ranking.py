"""LambdaMART: trees that put the rows of each query in the order of their relevance.

A target is two rows of numbers: relevances, and the query that each row belongs to. A raw prediction is a score, by which the rows of a
query are compared with one another only. The gradients are those of LightGBM's "lambdarank" (Burges, "From RankNet to LambdaRank to
LambdaMART", 2010): a pair of rows pulls at its rows by as much as NDCG would change if they changed places.

Measures of a ranking are means over queries, each of the mean weight of its rows; rows of weight 0 are as good as absent. Rows of equal
scores are taken in the order of the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import Floats, OfAllRows, Target, kernels
from dtrees.ensemble.objective.regression import Identity

#: Relevances whose gains are powers of two are whole numbers up to this.
MOST_RELEVANT = 31


class Ranks(NamedTuple):
    """The rows of some weight, query by query, the highest score first.

    Attributes
    ----------
    order : ndarray of int64, shape (n,)
        Their numbers.
    start : ndarray of int64, shape (n_queries + 1,)
        Where each query begins, and where the last one ends.
    query, position : ndarray of int64, shape (n,)
        The query of each, by its number, and how many rows of it are before.
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
        Pairs count one of whose rows is among so many first ones of its query, and NDCG is taken at this rank.
    ndcg_exp_gain : bool
        Whether a relevance r gains 2**r - 1, rather than r.
    """

    lambdarank_truncation_level: int = 30
    ndcg_exp_gain: bool = True

    n_outputs = 1

    def check(self, target: Target) -> None:
        """Raise a ValueError for relevances that have no gain."""
        relevance = target[0]
        whole = "whole numbers from 0 to 31 where ndcg_exp_gain is True" if self.ndcg_exp_gain else "numbers of at least 0"
        wrong = relevance < 0.0
        if self.ndcg_exp_gain:
            wrong |= (relevance > MOST_RELEVANT) | (relevance != np.trunc(relevance))
        if wrong.any():
            raise ValueError(f"y has the relevance {relevance[int(np.argmax(wrong))]}; wants {whole}")

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return zero, shape (1,): only differences of scores count."""
        return np.zeros(1)

    def gains(self, relevance: Floats) -> Floats:
        """Return what relevances are worth."""
        return np.ldexp(1.0, relevance.astype(np.int64)) - 1.0 if self.ndcg_exp_gain else relevance

    def _dcg(self, ranks: Ranks, relevance: Floats, first: float) -> Floats:
        """Return the discounted gain of each query's rows, of which the ``first`` count."""
        return ranks.sums(self.gains(relevance[ranks.order]) * discounts(ranks)[ranks.position] * (ranks.position < first))

    def derive(self, target: Target, raw: Floats, weight: Floats | None) -> Floats:
        """Return the derivatives, those of each row times its weight."""
        from dtrees.ensemble.objective.pairs import rank_gradients  # imports Numba

        (relevance, qid), truncation = target, self.lambdarank_truncation_level
        ranks = Ranks.of(qid, raw[0], weight)
        best = self._dcg(Ranks.of(qid, relevance, weight), relevance, truncation)
        scale = np.divide(1.0, best, out=np.zeros_like(best), where=best > 0.0)
        found = np.zeros((2, raw.shape[1]))
        score, gain = np.ascontiguousarray(raw[0]), self.gains(relevance)
        rank_gradients(ranks.order, ranks.start, gain, scale, discounts(ranks), score, truncation, *found)
        return (found if weight is None else found * weight)[:, np.newaxis]

    def measure(self, name: str, target: Target, raw: Floats, weight: Floats | None) -> float:
        """Return "ndcg" or "map", of all rows of a query or, as in "ndcg@5", of the first ones.

        They are means over queries, each of the mean weight of its rows. A query without a relevant row has 1.
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
        each = np.divide(found, best, out=np.ones_like(found), where=best > 0.0)
        of_queries = 1.0 if weight is None else ranks.sums(weight[ranks.order]) / np.diff(ranks.start)
        return float(kernels().weighted_mean(each, of_queries * np.ones_like(each)))


def discounts(ranks: Ranks) -> Floats:
    """Return what gains are multiplied by at each position."""
    from dtrees.split.numbers.elementary import log2  # imports Numba

    return 1.0 / log2(np.arange(int(np.diff(ranks.start).max(initial=0))) + 2.0)
