"""Measurements of dtrees beside other libraries: ``python -m benchmarks``.

Terms
-----
benchmark
    a function registered under a name (:mod:`benchmarks.registry`), which yields rows of the table and points of plots. They are in
    :mod:`benchmarks.works`, one file a subject.
contender
    a function that does the work once: dtrees', or a peer's. Contenders take turns, and the fastest of each are compared.
scale
    ``full`` is what targets are stated for, ``small`` a quick look, ``tiny`` a test that everything runs; ratios mean nothing there.

To add a benchmark, write a function in a file of :mod:`benchmarks.works`::

    @benchmark("stumps")
    def stumps(run):
        X, y = synthetic(run.size(tiny=200, small=10_000, full=100_000))
        yield from run.fits("stump", X, y, {"dtrees": ..., "scikit-learn": ...}, targets={"scikit-learn": 2.0})
"""
