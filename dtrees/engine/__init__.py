"""Growing: one engine for this process and for a cluster.

``plans``
    what is to be grown.
``messages``
    what the coordinator and the shards say to each other, all of it.
``targets``
    what the rows of a tree are to be split on: its integers, its draws.
``scoring``
    the mean losses of boosting, added up by blocks of rows.
``shard``, ``one_tree``
    some presorted columns and what trees leave behind for the next ones; a tree under way, with a replica of the row partition.
    Between them they answer messages.
``node_search``
    the search for the best splits of a tree's nodes in a shard's columns.
``executor``
    carries messages to shards; here to one in this process.
``grower``
    decides about nodes: frontier, stopping rules, winners. No I/O.
``grow``, ``forest``, ``boosting``
    one tree, many independent ones, rounds of them.
``lockstep``, ``slots``
    a forest over several shards, many trees side by side: at the coordinator's end, and on a shard.
``recovery``
    going on when shards are lost.

A tree is grown level by level, in two round trips a level::

    Start                        -> sums of the root, best split of each shard
    Evaluate(winners)            owners of the winning columns -> one bit a row
    Advance(winners, bits)       everyone updates the row partition, and searches the next level
    Finish(leaf values)          everyone updates the predictions (boosting)
"""
