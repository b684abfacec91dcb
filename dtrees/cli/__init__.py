"""The command line: ``dtrees fit``, ``dtrees predict`` and others.

It is thin. Each module does one step and can be used, and is tested, without the others:

``main``
    commands and options; imports nothing slow, so that ``--help`` is fast.
``fit``, ``predict``, ``saved``, ``check``
    the commands: train; predict for a table and score; show, draw and export a model; check an installation.
``clusters``, ``models``
    the Dask cluster; the estimator and its parameters.
``tables``, ``target``
    CSV and Parquet as Dask DataFrames, and output files; the target column, the test rows, and scores compared with a trivial baseline.
``display``, ``errors``
    output: notes, live progress, tables, and every failure as one line that says what to do.
"""

from __future__ import annotations

from dtrees.cli.main import main

__all__ = ["main"]
