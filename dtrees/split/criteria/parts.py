"""The parts of a criterion that kernels call, each specialised by the criterion's kernel type.

A criterion gives kernels a *kernel value*: a named tuple of its parameters, whose type selects the code. The parts that every criterion
has to have are declared here without a version for all; a kernel type that lacks one does not compile. Optional parts say what holds
where a criterion has none.

The statistic of a node is one of :mod:`dtrees.split.criteria.statistics`. Sums are in fixed point, so scores and gains are, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtrees.split.compile.specialised import optional, specialised
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, Moments


@specialised
def node_statistic(criterion: Any, sums: Any, n: Any) -> Any:
    """Return the statistic of a node of ``n`` rows from its sums, an array: by :func:`moments_of` or another of the versions below."""


def moments_of(criterion, sums, n):
    """Return the moments of a node: the version of :func:`node_statistic` of criteria made of moments."""
    return Moments(sums[0], sums[1], n)


def classes_of(criterion, sums, n):
    """Return the weights of classes in a node: the version of :func:`node_statistic` of criteria made of classes."""
    return Classes(sums, sums.sum(), n)


def amounts_of(criterion, sums, n):
    """Return the sums of several targets in a node: the version of :func:`node_statistic` of criteria of several amounts."""
    n_targets = sums.shape[0] - 1
    return AmountsOfTargets(criterion.rows, sums[:n_targets], sums[n_targets], n)


def classes_of_targets(criterion, sums, n):
    """Return the weights of classes of several targets in a node, where a criterion has several lists of classes."""
    n_classes = sums.shape[0] - 1
    return ClassesOfTargets(criterion.rows, criterion.first, sums[:n_classes], sums[n_classes], n)


def kinds_of(criterion: Any) -> tuple[type, ...]:
    """Return the types that decide what is compiled for a kernel value: its own, and those of the values inside, one in the other."""
    inner = getattr(criterion, "criterion", None)
    return (type(criterion),) if inner is None else (type(criterion), *kinds_of(inner))


def without_words(criterion: Any, n_sums: int) -> int:
    """Return how many of a node's numbers are sums, rather than words of constraints."""
    constraints = getattr(criterion, "constraints", None)
    return n_sums if constraints is None else n_sums - int(constraints.n_words)


def _statistic_of(criterion: Any, n_sums: int) -> tuple[Any, int]:
    """Return the version of :func:`node_statistic` that nodes have, without words of constraints, and how many sums it has."""
    inner = criterion.criterion if hasattr(criterion, "constraints") else criterion
    return node_statistic.versions[type(inner)], without_words(criterion, n_sums)


def n_class_sums(criterion: Any, n_sums: int) -> int:
    """Return how many sums a criterion keeps side by side, of nodes with so many: classes, or those of targets; 0 if it sums moments."""
    version, n_sums = _statistic_of(criterion, n_sums)
    return {classes_of: n_sums, amounts_of: n_sums - 1, classes_of_targets: n_sums - 1}.get(version, 0)


def weight_sums(criterion: Any, n_sums: int) -> tuple[int, int]:
    """Return which of a node's numbers add up to its weight: the first, and where they end."""
    version, n_sums = _statistic_of(criterion, n_sums)
    of_several = (n_sums - 1, n_sums)
    bounds = {classes_of: (0, n_sums), amounts_of: of_several, classes_of_targets: of_several}
    return bounds.get(version, (1, 2))


def take_from_inside(kinds: Sequence[type], parts: Sequence[Any]) -> None:
    """Have criteria of some kinds, which have another one inside, take parts from that one."""
    for part in parts:
        part.of(*kinds)(_of_inside(part))


def _of_inside(part: Any) -> Any:
    def version(criterion, *rest):
        return part(criterion.criterion, *rest)

    return version


@specialised
def score(criterion: Any, g: Any, h: Any, other_g: Any, other_h: Any) -> Any:
    """Return the part of the gain by which the splits of one node are ordered, -1.0 where it is not defined (criteria of moments).

    ``g``, ``h`` and ``other_g``, ``other_h`` are the moments of both sides, floats. The result must be the same with the sides swapped, to
    the last bit, and is never negative where it is defined.
    """


@specialised
def class_term(criterion: Any, left: Any, right: Any, h: Any, other_h: Any) -> Any:
    """Return what one class adds to the score of a split (criteria of classes).

    ``left`` and ``right`` are its weights on both sides, ``h`` and ``other_h`` the weights of all classes there, positive floats.
    """


@specialised
def score_of_terms(criterion: Any, terms: Any, h: Any, other_h: Any, h_all: Any, n_classes: Any) -> Any:
    """Return the score of a split from the sum of the classes' terms, as :func:`score` does; ``h_all`` is the node's weight."""


@optional
def may_exceed(criterion: Any, g: Any, h: Any, other_g: Any, other_h: Any, bar: Any) -> Any:
    """Tell, faster than by the score, whether a score may exceed the bar; false only if it does not. Optional."""
    return True


@specialised
def gain(criterion: Any, score: Any, node: Any) -> Any:
    """Return the gain of a split from its score and its node's statistic: the decrease of the weighted impurity, or of the loss."""


@optional
def per_gain(criterion: Any, node: Any) -> Any:
    """Return what a gain is multiplied by in the scores of a node's splits (but for the factor of a kind of criterion). Optional: 1."""
    return 1.0


@optional
def is_worthwhile(criterion: Any, gain: Any) -> Any:
    """Tell whether a split of this gain is one at all, whatever the least gain. Optional: it is."""
    return True


@optional
def is_arithmetic(criterion: Any) -> Any:
    """Tell whether a score is only additions, multiplications and divisions. Optional: it is not.

    Then scores are computed for several rows or columns at a time, also where they are not needed.
    """
    return False


@optional
def has_convex_terms(criterion: Any) -> Any:
    """Tell whether scores of single classes are bounded by those at the corners of a zone. Optional: they are not.

    That is, whether :func:`score_of_terms` of the term of one class is convex in its weight on the left and the weight of all classes
    there, the weights of the node being given; and whether it is the sum of these over classes, and of what it is where terms are 0.
    """
    return False


@optional
def most_in_box(criterion: Any, low: Any, high: Any, whole: Any, weights: Any) -> Any:
    """Return what one of several targets that are numbers adds at most to a score. Optional: infinity.

    Parameters
    ----------
    criterion : named tuple
    low, high : float
        What its sum on the left is at least and at most, but for rounding errors of sums of the size of all of a tree's.
    whole : float
        Its sum in the node.
    weights : tuple of float
        Of the left and the right side where the left one has the least, then where it has the most.
    """
    return math.inf


@optional
def is_bounded(criterion: Any) -> Any:
    """Tell whether a score that is not arithmetic has a bound that is: :func:`upper_bound`. Optional: it has not."""
    return False


@optional
def upper_bound(criterion: Any, g: Any, h: Any, other_g: Any, other_h: Any, whole: Any) -> Any:
    """Return what a computed score is at most, -1.0 where it is not defined: the score itself, if there is no such bound.

    Arguments are those of :func:`score`, and ``g`` and ``h`` of the node, a pair. Only splits of a bound above the bar have to be scored.
    """
    return score(criterion, g, h, other_g, other_h)


@optional
def flag_zones_by_bound(
    criterion: Any, sums: Any, add: Any, node: Any, bar: Any, order: Any, slope: Any, slack: Any, total: Any, flags: Any
) -> Any:
    """Set the flag of each zone in which a split may score above the bar (criteria of moments). Optional: all are.

    Parameters
    ----------
    criterion : named tuple
    sums : ndarray of int64
        Rows G0 to SIZE of :mod:`dtrees.split.criteria.statistics`, a column a zone; about a centre, if the criterion has one.
    add, node : Moments
        What to add to the left side (missing rows, or nothing), and the whole node; floats.
    bar : float
    order : float
        Only splits whose left side has no less (1.0), or no more (-1.0), g for its weight than the right one, penalties included, need be
        flagged; 0.0 for all.
    slope : float
        The largest ``abs(g) / h`` of a row.
    slack : float
        The rounding error of what is squared, beyond that of these sums.
    total : float
        The node's ``g``, about no centre.
    flags : ndarray of uint8
        Zones that may not are left as they are.
    """
    flags[:] = 1


@optional
def flag_zones_roughly(criterion: Any, sums: Any, add: Any, node: Any, bar: Any, order: Any, slack: Any, total: Any, flags: Any) -> Any:
    """Flag zones by a wider bound that takes less time; parameters are those of :func:`flag_zones_by_bound`. Optional."""
    flags[:] = 1


@optional
def most_between_groups(criterion: Any, node: Any, squares: Any) -> Any:
    """Return what the score of a split that keeps groups of rows together is at most (criteria of moments). Optional: infinity.

    ``squares`` are ``(g - mean * h)**2 / h`` of each group, with the mean of the node, added up.
    """
    return math.inf


@optional
def spread(criterion: Any, y: Any, mean: Any) -> Any:
    """Return what a row with this target adds to the impurity of a leaf of this mean, for each unit of its weight.

    Of criteria whose values are measured on leaves. Optional: the square of its distance from the mean.
    """
    d = y - mean
    return d * d


@optional
def is_centred(criterion: Any) -> Any:
    """Tell whether bounds hold for sums whose every ``a`` was moved by a constant times its row's weight. Optional: they do not.

    They are then sharper about a node's mean. Where the score is not the same as before, the bounds make up for it.
    """
    return False
