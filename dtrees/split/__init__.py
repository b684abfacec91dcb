"""The split core: find the exact best split of a node, and nothing else.

Read in this order:

``table``
    a table as *codes* (each column's sorted distinct values, and for every row the index of its value among them), and the map of its
    zones.
``numbers``
    gradients, hessians and weights as 64-bit integers, so that sums are the same in any order; random draws as functions of the identity of
    what is drawn.
``criteria``
    what a split improves: a file for each kind of criterion.
``node``
    the rows of a tree by node, and how a split divides them; candidate splits, limits, node records.
``search``
    the best split of one node in one column.
``zones``
    the best splits of large nodes in all columns at once: sums by zone, bounds on the splits inside a zone, and the rows of zones that may
    hold a better split.
``grow``
    grow trees: level by level, or from a node to its leaves in one kernel, by one thread or several.
``policy``
    the sizes at which a method pays.
``compile``
    how kernels are compiled and cached.

Kernels are free functions compiled by Numba without the interpreter lock; they know nothing of threads, Dask or scikit-learn.
"""
