"""dtrees on Dask: where tables are stored on a cluster, and how messages are sent. Trees are grown by the engine, not here.

Terms
-----
partition
    a range of a collection's rows, on some worker. The order of rows is the order of partitions.
block
    presorted columns, or presorted rows of a worker, made from partitions when a table is loaded (:mod:`~dtrees.cluster.data.loading`).
placement
    which columns or rows are on which workers: all columns on one or on each, a share of the columns on each, or rows on each.
shard
    the columns or rows of one worker, when trees grow over several workers (:mod:`~dtrees.cluster.growing.shards`).
silent
    a worker that has not reported for some time; a fit continues without it (:mod:`~dtrees.cluster.reliability.registry`).
record
    the scheduler's state of a fit, which outlives workers (:mod:`~dtrees.cluster.reliability.registry`).

Use
---
Estimators choose :class:`~dtrees.cluster.backend.DaskBackend` if ``X`` is a Dask DataFrame or Array. The fit then runs on the cluster,
coordinated by a task (:mod:`~dtrees.cluster.growing.submission`); ``dtrees.submit`` starts one without waiting for it.

The placement is decided once, when the sizes of columns are known (:mod:`~dtrees.cluster.data.placement`): on one worker, on all of them (a
forest then grows by tasks of a few trees each), or a share of the columns or rows on each (the coordinator then sends messages to shards,
which grow each tree together). The model is the same, byte for byte, as the model fitted in one process on the same rows in the same order,
even if workers are lost.

Tasks have the names of their stages, as shown by the dashboard::

    dtrees-count    rows of each partition           dtrees-trees   a batch of a forest's trees
    dtrees-check    schema and target of each        dtrees-oob     sums over batches for the rows out of bag
    dtrees-encode   partitions to numbers            dtrees-shard   an actor with the columns of one worker
    dtrees-presort  partitions to presorted blocks   dtrees-boost   boosting with all columns on one worker
    dtrees-columns  blocks side by side              dtrees-split   a chunk of an encoded partition
    dtrees-fit      the coordinator of a fit         dtrees-adopt   tells the scheduler who wants a fit, or data, from now on
    dtrees-digest   digests of training sets         dtrees-evaluate  an actor with rows of evaluation sets
    dtrees-moved    a block, on another worker
"""
