"""The best subset of categories: splits of a node in a column whose values have no order.

For criteria whose score is convex in the sums of one side (squared error, Newton's gain, Poisson deviance, and the impurities of two
classes), the best of all subsets is among those that come first when categories are ordered by their mean (Fisher 1958, "On grouping for
maximum homogeneity"; Breiman et al. 1984, theorem 4.5). So categories are ordered anew in each node, and the splits between neighbours are
scored. For more classes there is no such order: for each class, categories are ordered by its share, and the best of all these splits is
taken. It need not be the best of all subsets, but is the best of those that tell one class from the others. Nor is there one for several
targets: the orders of each are tried, and one of all together (:mod:`dtrees.split.search.categories.orders`).

Means of categories with few rows are mostly noise. Each is moved towards the mean of the node, as if ``smooth`` more weight had that mean,
and categories of fewer than ``least`` rows in the node are taken together, as one. With neither, the order is that of the theorem. Missing
values are a category like the others.

What is not listed goes right: categories that no in-sample row of the node has, and, if there are any, those taken together. A split is
turned round for that; where nothing is taken together, the smaller side is the left one. So the categories that go left are those of the
rows that go left, and a finished tree can read them off its rows (:func:`~dtrees.split.search.categories.marking.find_subsets`).

A split is kept as a number, in place of a threshold: how many categories from the lower end of the order go left or, if it is negative,
from its upper end; plus 2**32 times the number of the order. Whoever applies the split orders the node's categories once more.

Where the smaller side of a split may have but a few of the categories, only these few are put in order, at both ends.
"""
