"""The command line: ``dtrees fit``, ``dtrees predict`` and ``dtrees demo``.

It is thin. Each module does one step and can be used, and is tested, without the others:

``main``
    commands and options; imports nothing heavy, so that ``--help`` is there at once.
``errors``
    every failure as one line that says what to do.
``display``
    what is printed: notes, live progress, tables.
``tables``, ``csv_types``
    CSV and Parquet as Dask DataFrames, and predictions written to a file.
``target``
    what the target column is, and so which task.
``holdout``
    which rows are for training and which for testing.
``destinations``
    where a command writes: nothing that is read, nothing twice.
``models``
    which estimator, with which parameters.
``scores``
    how good the predictions are, beside a trivial baseline.
``fit``, ``predict``, ``demo``
    the commands, as a sequence of those steps.
"""

from __future__ import annotations

from dtrees.cli.main import main

__all__ = ["main"]
