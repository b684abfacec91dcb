"""The gain of a split, from integer sums.

Terms
-----
sums
    what is known of a set of rows, as int64. In the *moment* layout ``(G, H)``: for squared error the sum of weighted (centred)
    targets and of weights, for Newton boosting the sum of gradients and of hessians, for two classes the weight of class 1 and of
    both. In the *class* layout (three classes and more) the weight of each class. Absolute error has the moment layout, but no sums
    tell its gain (:mod:`dtrees.split.absolute`): G is the sum of the numbers of the targets.
gain
    the decrease of the weighted impurity (of the loss, for Newton) by a split, in fixed-point units; never negative but for the
    penalty term below.

With L2 penalty r, left sums (x, a) and right sums (y, b), where a and b include r, the well-known gain
x^2/a + y^2/b - (x+y)^2/(a+b-r) (Chen and Guestrin 2016, eq. 7, without the factor 1/2) equals

    (x b - y a)^2 / (a b (a + b))  +  G^2/(H + 2r) - G^2/(H + r)

The first term alone decides between the splits of a node, and is free of the cancellation of the usual form; the rest is a constant
of the node, zero where r is. Gini impurity is the same first term, added over classes; for two classes both are equal. Every formula
here is symmetric in left and right to the last bit, so mirrored splits tie exactly.
"""

from __future__ import annotations

import math

from dtrees.split.kernel import inner_kernel, kernel

SQUARED_ERROR = 0
GINI = 1
ENTROPY = 2
NEWTON = 3
ABSOLUTE_ERROR = 4

_CAUTION = 1.0 - 2.0**-40


@kernel
def score_moments(criterion, left_g, left_h, right_g, right_h, penalty):
    """Return the part of the gain by which the splits of one node are ordered (moment layout); negative where undefined."""
    a = left_h + penalty
    b = right_h + penalty
    if a <= 0.0 or b <= 0.0:
        return -1.0
    if criterion == ENTROPY:
        return _negative_entropy(left_g, left_h) + _negative_entropy(right_g, right_h)
    return score_squares(left_g, a, right_g, b)


@kernel
def score_squares(left_g, a, right_g, b):
    """Return the same for all criteria but entropy; ``a`` and ``b`` include the penalty and are positive."""
    d = left_g * b - right_g * a
    return d * d / (a * b)


@kernel
def may_exceed(criterion, left_g, left_h, right_g, right_h, penalty, bar):
    """Tell, without a division, whether :func:`score_moments` may exceed the bar; false only if it does not."""
    if criterion == ENTROPY:
        return True
    a = left_h + penalty
    b = right_h + penalty
    d = left_g * b - right_g * a
    return d * d >= bar * _CAUTION * (a * b)


@inner_kernel
def _xlog2(x, total):
    return x * math.log2(x / total) if x > 0.0 else 0.0


@inner_kernel
def _negative_entropy(one, total):
    """Return total * (2 - entropy): what is left to gain, kept positive."""
    return (_xlog2(total - one, total) + _xlog2(one, total)) + 2.0 * total


@kernel
def gain_moments(criterion, score, g, h, penalty):
    """Return the gain of a split of a node with sums (g, h) from its score."""
    if criterion == ABSOLUTE_ERROR:
        return score
    if criterion == ENTROPY:
        return score - _negative_entropy(g, h)
    gain = score / (h + 2.0 * penalty)
    if criterion == GINI:
        return 2.0 * gain
    if penalty > 0.0:
        gain += g * g / (h + 2.0 * penalty) - g * g / (h + penalty)
    return gain


@kernel
def score_classes(criterion, left, total, left_weight, total_weight):
    """Return the same as :func:`score_moments` for the class layout.

    ``left`` and ``total`` hold the weight of each class, int64, shape (n_classes,).
    """
    a = float(left_weight)
    b = float(total_weight - left_weight)
    if a <= 0.0 or b <= 0.0:
        return -1.0
    score = 0.0
    if criterion == ENTROPY:
        for k in range(left.shape[0]):
            score += _xlog2(float(left[k]), a) + _xlog2(float(total[k] - left[k]), b)
        return score + total_weight * math.log2(left.shape[0])
    for k in range(left.shape[0]):
        d = left[k] * b - (total[k] - left[k]) * a
        score += d * d
    return score / (a * b)


@kernel
def gain_classes(criterion, score, total, total_weight):
    """Return the gain of a split of a node with class weights ``total`` from its score."""
    if criterion == ENTROPY:
        w = float(total_weight)
        own = 0.0
        for k in range(total.shape[0]):
            own += _xlog2(float(total[k]), w)
        return score - (own + total_weight * math.log2(total.shape[0]))
    return score / total_weight
