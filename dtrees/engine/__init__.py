"""Growing: one engine for this process and for a cluster.

``plan``
    what is to be grown, and the limits that follow from it.
``protocol``
    what the coordinator and the shards say to each other, and shards to one another, step by step; executors, which carry it.
``outcome``
    what a grown tree comes to: values of nodes, what they are measured by, mean losses.
``shard``
    some presorted columns, and a replica of the row partition of the tree under way. It answers messages: ``tree`` is how a tree is
    grown, ``grower`` decides about its nodes, ``fit`` is what the coordinator asks, and brings shards that are new up to date.
``rows``
    shards that have some rows, and their trees.
``run``
    whole fits: rounds of boosting and independent trees, in this process (``local_executor``), or over shards, which they outlast
    (``lasting``); checkpoints.
``threads``
    the pool of threads that kernels run on.
"""
