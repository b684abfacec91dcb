"""Order statistics: the best split of one node in one column by absolute error or a quantile, in linear time once the rows are sorted.

The gain of a split is the node's sum of weighted deviations from its (weighted) quantile less those of the two children, so a search needs
the deviation of every prefix and of every suffix of the node's rows in the order of the column. A quantile is hard to follow while rows
come, and easy while they go: put the rows in a doubly linked list in the order of the target and *remove* them in reverse column order.
Each removal moves the pointer to the quantile by about a step, and the sum of deviations with it. One pass gives the prefixes, another
the suffixes; missing values are left in the list or taken out before.

Terms
-----
line
    the node's in-sample rows in the order of the target, as a linked list: elements 1 to n, 0 is both ends.
level
    a target in fixed point. A tree's ``a`` are *numbers* of targets (0 for the lowest of the table), ``levels`` gives their values.
quantile
    of a set of rows, the target up to which they weigh ``above / (above + below)`` of all; the median where both are 1.
deviation
    sum of weight * abs(level - quantile), times ``above`` or ``below``, an exact integer in two parts
    (:mod:`dtrees.split.search.order_statistics.deviations`). Gains are exact too, and splits that gain the same tie.

Weights may be so uneven that the pointer walks far at every removal. Such a pass is given up after a while and done with a Fenwick tree, in
log(n) a row.
"""
