"""The parts of a criterion that kernels call, each specialised by the criterion's kernel type.

A criterion gives kernels a *kernel value*: a named tuple of its parameters, whose type selects the code. Required parts are declared
here without a default; a kernel type that lacks one does not compile. The docstring of an optional part states the default.

The statistic of a node is one of :mod:`dtrees.split.criteria.statistics`. Sums are in fixed point, and so are scores and gains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.specialised import optional, specialised
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, Moments


@specialised
def node_statistic(criterion: Any, sums: Any, n: Any) -> Any:
    """Return the statistic of a node of ``n`` rows from its array of sums: by :func:`moments_of` or another version below."""


def moments_of(criterion, sums, n):
    """Return the moments of a node: the version of :func:`node_statistic` for criteria of moments."""
    return Moments(sums[0], sums[1], n)


def classes_of(criterion, sums, n):
    """Return the weights of classes in a node: the version of :func:`node_statistic` for criteria of classes."""
    return Classes(sums, sums.sum(), n)


def amounts_of(criterion, sums, n):
    """Return the sums of several targets in a node: the version of :func:`node_statistic` for several numeric targets."""
    n_targets = sums.shape[0] - 1
    return AmountsOfTargets(criterion.rows, sums[:n_targets], sums[n_targets], n)


def classes_of_targets(criterion, sums, n):
    """Return the weights of classes of several targets: the version of :func:`node_statistic` for several class targets."""
    n_classes = sums.shape[0] - 1
    return ClassesOfTargets(criterion.rows, criterion.first, sums[:n_classes], sums[n_classes], n)


def kinds_of(criterion: Any) -> tuple[type, ...]:
    """Return the types that decide the code compiled for a kernel value: its own, and those of the nested kernel values."""
    inner = getattr(criterion, "criterion", None)
    return (type(criterion),) if inner is None else (type(criterion), *kinds_of(inner))


def without_words(criterion: Any, n_sums: int) -> int:
    """Return how many of a node's numbers are sums; the others are words of constraints."""
    constraints = getattr(criterion, "constraints", None)
    return n_sums if constraints is None else n_sums - int(constraints.n_words)


def _statistic_of(criterion: Any, n_sums: int) -> tuple[Any, int]:
    """Return the version of :func:`node_statistic` for nodes without words of constraints, and its number of sums."""
    inner = criterion.criterion if hasattr(criterion, "constraints") else criterion
    return node_statistic.versions[type(inner)], without_words(criterion, n_sums)


def n_class_sums(criterion: Any, n_sums: int) -> int:
    """Return the number of sums of classes, or of several targets, of nodes with ``n_sums`` sums; 0 for moments."""
    version, n_sums = _statistic_of(criterion, n_sums)
    return {classes_of: n_sums, amounts_of: n_sums - 1, classes_of_targets: n_sums - 1}.get(version, 0)


def weight_sums(criterion: Any, n_sums: int) -> tuple[int, int]:
    """Return the range of a node's numbers that add up to its weight: its start and stop."""
    version, n_sums = _statistic_of(criterion, n_sums)
    of_several = (n_sums - 1, n_sums)
    bounds = {classes_of: (0, n_sums), amounts_of: of_several, classes_of_targets: of_several}
    return bounds.get(version, (1, 2))


def node_weights(criterion: Any, sums: NDArray[np.int64]) -> Any:
    """Return the weight of a node, given its sums, or of many nodes, given an array of shape (n, n_sums)."""
    first, last = weight_sums(criterion, sums.shape[-1])
    return sums[..., first:last].sum(axis=-1)


def take_from_inside(kinds: Sequence[type], parts: Sequence[Any]) -> None:
    """Let criteria of some kinds, which wrap another criterion, use parts of the wrapped one."""
    for part in parts:
        part.of(*kinds)(_of_inside(part))


def _of_inside(part: Any) -> Any:
    def version(criterion, *rest):
        return part(criterion.criterion, *rest)

    return version


@specialised
def score(criterion: Any, g: Any, h: Any, other_g: Any, other_h: Any) -> Any:
    """Return the part of the gain that orders the splits of one node, -1.0 if it is undefined (criteria of moments).

    ``g``, ``h`` and ``other_g``, ``other_h`` are the moments of the two sides, floats. The result must be the same with the sides
    swapped, to the last bit, and is non-negative if it is defined.
    """


@specialised
def class_term(criterion: Any, left: Any, right: Any, h: Any, other_h: Any) -> Any:
    """Return the term of one class in the score of a split (criteria of classes).

    ``left`` and ``right`` are its weights on the two sides, ``h`` and ``other_h`` the weights of all classes there, positive floats.
    """


@specialised
def score_of_terms(criterion: Any, terms: Any, h: Any, other_h: Any, h_all: Any, n_classes: Any) -> Any:
    """Return the score of a split from the sum of the classes' terms, like :func:`score`; ``h_all`` is the node's weight."""


@optional
def may_exceed(criterion: Any, g: Any, h: Any, other_g: Any, other_h: Any, bar: Any) -> Any:
    """Return whether a score may exceed the bar, faster than by computing it; false only if it does not. Optional."""
    return True


@specialised
def gain(criterion: Any, score: Any, node: Any) -> Any:
    """Return the gain of a split from its score and its node's statistic: the decrease of the weighted impurity, or of the loss."""


@optional
def per_gain(criterion: Any, node: Any) -> Any:
    """Return the ratio of scores to gains of a node's splits (without the factor of a kind of criterion). Optional: 1."""
    return 1.0


@optional
def is_worthwhile(criterion: Any, gain: Any) -> Any:
    """Return whether a split of this gain is allowed, whatever the least gain. Optional: it is."""
    return True


@optional
def is_arithmetic(criterion: Any) -> Any:
    """Return whether a score consists of additions, multiplications and divisions only. Optional: it does not.

    Scores of this kind are computed for several rows or columns at a time, including those that are not needed.
    """
    return False


@optional
def has_convex_terms(criterion: Any) -> Any:
    """Return whether scores of single classes are bounded by those at the corners of a zone. Optional: they are not.

    This requires two things. :func:`score_of_terms` of the term of one class is convex in its weight on the left and the weight of all
    classes there, for given weights of the node. And a score is the sum of these over classes and of the score of zero terms.
    """
    return False


@optional
def most_in_box(criterion: Any, low: Any, high: Any, whole: Any, weights: Any) -> Any:
    """Return an upper bound of what one of several numeric targets adds to a score. Optional: infinity.

    Parameters
    ----------
    criterion : named tuple
    low, high : float
        Bounds of its sum on the left, up to rounding errors of sums over the whole tree.
    whole : float
        Its sum in the node.
    weights : tuple of float
        Weights of the left and the right side: where the left one is lightest, then where it is heaviest.
    """
    return math.inf


@optional
def is_bounded(criterion: Any) -> Any:
    """Return whether a score that is not arithmetic has a bound that is: :func:`upper_bound`. Optional: it has not."""
    return False


@optional
def upper_bound(criterion: Any, g: Any, h: Any, other_g: Any, other_h: Any, whole: Any) -> Any:
    """Return an upper bound of a computed score, -1.0 if it is undefined. Optional: the score itself.

    Arguments are those of :func:`score`, and a pair of ``g`` and ``h`` of the node. Only splits with a bound above the bar are scored.
    """
    return score(criterion, g, h, other_g, other_h)


@optional
def flag_zones_by_bound(
    criterion: Any, sums: Any, add: Any, node: Any, bar: Any, order: Any, slope: Any, slack: Any, total: Any, flags: Any
) -> Any:
    """Set the flag of each zone in which a split may score above the bar (criteria of moments). Optional: all zones.

    Parameters
    ----------
    criterion : named tuple
    sums : ndarray of int64
        Rows G0 to SIZE of :mod:`dtrees.split.criteria.statistics`, a column for each zone; about a centre, if the criterion has one.
    add, node : Moments
        What to add to the left side (missing rows, or nothing), and the whole node, in floats.
    bar : float
    order : float
        Only splits whose left side has no less (1.0), or no more (-1.0), g for its weight than the right one, penalties included, have
        to be flagged; 0.0 for all.
    slope : float
        The largest ``abs(g) / h`` of a row.
    slack : float
        The rounding error of the squared quantity, beyond that of these sums.
    total : float
        The node's ``g``, not centred.
    flags : ndarray of uint8
        Flags of other zones are not changed.
    """
    flags[:] = 1


@optional
def flag_zones_roughly(criterion: Any, sums: Any, add: Any, node: Any, bar: Any, order: Any, slack: Any, total: Any, flags: Any) -> Any:
    """Flag zones by a looser bound that takes less time; parameters are those of :func:`flag_zones_by_bound`. Optional."""
    flags[:] = 1


@optional
def most_between_groups(criterion: Any, node: Any, squares: Any) -> Any:
    """Return an upper bound of the score of a split that divides no group of rows (criteria of moments). Optional: infinity.

    ``squares`` is the sum over groups of ``(g - mean * h)**2 / h``, with the mean of the node.
    """
    return math.inf


@optional
def spread(criterion: Any, y: Any, mean: Any) -> Any:
    """Return the impurity that a row with this target adds to a leaf of this mean, for each unit of its weight.

    For criteria whose values are measured on leaves. Optional: the squared distance from the mean.
    """
    d = y - mean
    return d * d


@optional
def is_centred(criterion: Any) -> Any:
    """Return whether bounds hold for centred sums: every ``a`` minus a constant times its row's weight. Optional: they do not.

    Bounds are then sharper about a node's mean. If centring changes the score, the bounds allow for it.
    """
    return False
