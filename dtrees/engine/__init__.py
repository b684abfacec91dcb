"""Growing: one engine for this process and for a cluster.

``plan``
    what is to be grown, and the limits that follow from it.
``protocol``
    what the coordinator and the shards say to each other, all of it, and executors, which carry it.
``outcome``
    what a grown tree comes to: values of nodes, what they are measured by, mean losses.
``coordinator``
    decides about nodes (``grower``, which does no I/O), tells the shards, and makes trees of the results (``tree``). ``delegation`` has
    small nodes grown by one shard each; ``fit`` brings shards that are new up to date.
``shard``
    some presorted columns, and a replica of the row partition of the tree under way. It answers messages.
``run``
    whole fits: rounds of boosting and independent trees, in this process (``local_executor``), or over shards, which they outlast
    (``lasting``); checkpoints.
``threads``
    the pool of threads that kernels run on.

A tree is grown level by level, in two round trips a level::

    Start                        -> sums of the root, best split of each shard
    Evaluate(winners)            owners of the winning columns -> one bit a row
    Advance(winners, bits)       everyone updates the row partition, and searches the next level
    Finish(leaf values)          everyone updates the predictions (boosting)
"""
