"""Tree growing: one engine for a single process and for a cluster.

``plan``
    the description of a fit, and the limits that follow from it.
``protocol``
    messages between the coordinator and the shards, exchanges between shards, and the interface of executors, which carry them.
``outcome``
    the finished tree: node values, statistics measured on rows, mean losses.
``shard``
    a shard of presorted columns, with its own copy of the row partition of the current tree. It answers messages: ``tree`` has the steps of
    a tree, ``grower`` decides about its nodes.
``rows``
    shards of rows, and how trees are grown over them.
``run``
    whole fits: rounds of boosting and independent trees, in this process (``local_executor``) or over shards that may be lost
    (``lasting``); checkpoints.
``threads``
    the pool of threads that kernels run on.
"""
