"""The command line: ``dtrees fit``, ``dtrees predict`` and others.

It is thin. Each module does one step and can be used, and is tested, without the others:

``main``
    commands and options; imports nothing heavy, so that ``--help`` is there at once.
``fit``, ``predict``, ``saved``, ``check``
    what the commands do: train; predict for a table and score; show, draw and export a model; look at an installation.
``clusters``, ``models``
    which Dask cluster; which estimator, with which parameters.
``tables``, ``target``
    CSV and Parquet as Dask DataFrames, and where to write; what the target column is, which rows are for the test, and how good
    predictions of it are beside a trivial baseline.
``display``, ``errors``
    what is printed: notes, live progress, tables, every failure as one line that says what to do.
"""

from __future__ import annotations

from dtrees.cli.main import main

__all__ = ["main"]
