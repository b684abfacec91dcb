"""Benchmarks of dtrees and other libraries: ``python -m benchmarks``.

Terms
-----
benchmark
        a function registered under a name (:mod:`benchmarks.run`), which yields rows of a table. They are in
        :mod:`benchmarks.works`, one file for each subject.
contender
    a function that does the work once, with dtrees or a peer. Contenders take turns, and the fastest run of each is compared.
scale
    ``full`` is what targets refer to, ``small`` gives a quick impression, ``tiny`` tests that everything runs; its ratios mean nothing.

To add a benchmark, write a function in a file of :mod:`benchmarks.works`::

    @benchmark("stumps")
    def stumps(run):
        X, y = synthetic(run.size(tiny=200, small=10_000, full=100_000))
        yield from run.fits("stump", X, y, {"dtrees": ..., "scikit-learn": ...}, targets={"scikit-learn": 2.0})
"""
