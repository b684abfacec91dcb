"""Criteria of splits: scores, gains and leaf values, a file for each kind of criterion.

``criterion``
    what a criterion is, and the registry.
``statistics``
    the sums over rows that criteria are computed from.
``parts``
    the functions of a criterion that kernels call.
``squares``
    the formula that squared error, Newton's gain and Gini impurity share.
``several``
    criteria of several targets: the sum over targets.
``constraints``
    constraints on columns, and their data of a node.
``constrained``
    criteria under constraints.
"""

from dtrees.split.criteria import constrained as constrained  # registers its versions of parts
from dtrees.split.criteria.absolute_error import AbsoluteError, Quantile
from dtrees.split.criteria.criterion import register
from dtrees.split.criteria.entropy import Entropy
from dtrees.split.criteria.newton import Newton, NewtonL1
from dtrees.split.criteria.poisson import PoissonDeviance
from dtrees.split.criteria.squares import Gini, SquaredError

for _criterion in (SquaredError(), AbsoluteError(), Quantile(), PoissonDeviance(), Newton(), NewtonL1(), Gini(), Entropy()):
    register(_criterion)
