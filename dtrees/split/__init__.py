"""The split core: finds the exact best split of a node, and nothing else.

Read in this order:

``table``
    a table as *codes* (each column's sorted distinct values, and for every row the index of its value among them), and the map of its
    zones.
``numbers``
    gradients, hessians and weights as 64-bit integers, so that sums are the same in any order; random draws as functions of the identity of
    what is drawn.
``criteria``
    what a split is to improve: a file for each kind of criterion.
``node``
    the rows of a tree by node, and how a split divides them; candidates, limits, the nodes of a tree.
``search``
    one node and one column.
``zones``
    large nodes, all columns at once: sums by zone, bounds of what zones hide, and the rows of those that may hide something.
``grow``
    trees: level by level, or a node to its end in one kernel, by one thread or several.
``policy``
    from what size on what pays.
``compile``
    how kernels are compiled and kept.

Kernels are free functions compiled by Numba without the interpreter lock; they know nothing of threads, Dask or scikit-learn.
"""
