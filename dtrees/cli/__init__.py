"""The command line: ``dtrees fit``, ``dtrees predict`` and others.

It is thin. Each module does one step and can be used, and is tested, without the others:

``main``
    commands and options; imports nothing heavy, so that ``--help`` is there at once.
``commands``
    what the commands do: a module each, and one for those that look at a saved model.
``clusters``, ``models``
    which Dask cluster; which estimator, with which parameters.
``data``
    CSV and Parquet as Dask DataFrames; what the target column is, which rows are for the test, where to write.
``terminal``
    what is printed: notes, live progress, tables, every failure as one line that says what to do.
``scores``
    how good predictions are, beside a trivial baseline.
"""

from __future__ import annotations

from dtrees.cli.main import main

__all__ = ["main"]
