"""The split core: finds the exact best split of a node, and nothing else.

Read in this order:

``columns``
    a table as *codes*: each column's sorted distinct values, and for every row the index of its value among them.
``fixed_point``
    gradients, hessians and weights as 64-bit integers, so that sums are the same in any order.
``hashing``
    random draws as functions of the identity of what is drawn.
``criteria``
    the gain of a split from integer sums.
``group``, ``sweep``
    one node and one column: sums per distinct value, then the gain between every two neighbours.
``search``
    many nodes and columns at once.
``partition``
    the rows of a tree under way, node by node, and how a split divides them.
``subtree``
    a node grown to its end in one kernel.

Kernels are free functions compiled by Numba without the interpreter lock; they know nothing of threads, Dask or scikit-learn.
"""
