"""dtrees on Dask: where tables live on a cluster, and how messages travel. It grows nothing itself; that is the engine's work.

Terms
-----
partition
    a range of a collection's rows, held by some worker. The order of rows is the order of partitions.
block
    whole columns, presorted: what partitions become when a table is loaded (:mod:`~dtrees.cluster.data.loading`).
placement
    which columns are on which workers: all on one, all on each, or some on each.
shard
    the columns that one worker searches while trees grow over several (:mod:`~dtrees.cluster.growing.shards`).
silent
    a worker of which nobody has heard for a while: a fit does without it (:mod:`~dtrees.cluster.reliability.registry`).
record
    what the scheduler keeps of a fit, so that it outlives workers (:mod:`~dtrees.cluster.reliability.registry`).

Use
---
Estimators find :class:`~dtrees.cluster.backend.DaskBackend` by themselves when ``X`` is a Dask DataFrame or Array. The fit then runs on
the cluster, coordinated by a task (:mod:`~dtrees.cluster.growing.submission`); ``dtrees.submit`` starts one without waiting for it.

Where the columns go is decided once, when their sizes are known (:mod:`~dtrees.cluster.data.placement`): to one worker, to all of them (a
forest then grows by tasks, each of them a few trees), or a share to each (the coordinator then talks to shards, which grow each tree
together). The model is the same, byte for byte, as the one fitted in one process on the same rows in the same order, whatever workers are
lost on the way.

Tasks carry the names of their stages, as the dashboard shows them::

    dtrees-count    rows of each partition           dtrees-trees   a batch of a forest's trees
    dtrees-check    schema and target of each        dtrees-oob     sums over batches for the rows out of bag
    dtrees-encode   partitions to numbers            dtrees-shard   an actor with the columns of one worker
    dtrees-presort  partitions to presorted blocks   dtrees-boost   boosting with all columns on one worker
    dtrees-columns  blocks side by side              dtrees-split   a chunk of an encoded partition
    dtrees-fit      the coordinator of a fit         dtrees-adopt   tells the scheduler who wants a fit, or data, from now on
    dtrees-digest   digests of training sets         dtrees-evaluate  an actor with rows of evaluation sets
    dtrees-moved    a block, on another worker
"""
