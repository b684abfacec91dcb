"""Constraints on the splits of a tree, and what they say of a node.

Two kinds of constraints are known. A column may be *monotonic*: where it is higher, and nothing else differs, predictions must not be lower
(sign 1), or not be higher (sign -1). And *interactions* may be limited: only some sets of columns may stand together on a path.

A constrained criterion is the kernel value of another one, with constraints around it. So whatever searches for splits respects them: all
searches ask the criterion what a split is worth.

Terms
-----
value
    what a side of a split would predict: its mean g / h or quantile (:class:`InOrder`), or its Newton step (:class:`Clipped`).
bounds
    the lowest and highest value that a node may have. The children of a split on a monotonic column are kept apart by the middle of their
    values, one bounded from above, the other from below; those of other splits have the bounds of their parent. So no leaf on one side of a
    split on a monotonic column ever passes one on the other side.
words
    what constraints know of a node: numbers that follow its sums in their array, and go wherever these go. The bounds, as the bits of
    floats, then the columns on the path to it, or a bit for each set of columns that all of these belong to. The words that go with the
    sums of what a split sends left are its node's, until the node is split.

Trees and forests do as scikit-learn's trees: a split on a monotonic column counts only if the values of both sides are in order and within
the bounds; what it gains is what it always gains. Boosting does as XGBoost: the values of both sides are clipped by the bounds, they
must be in order then, and the gain is that of clipped values.

Files
-----
``kinds``
    constraints, and criteria with constraints around them.
``words``
    what is known of a node, and handed down to its children.
``order``
    which splits are ruled out by the values of both sides.
``constrained``
    what constrained criteria compute.
"""
