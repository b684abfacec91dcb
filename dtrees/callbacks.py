"""Callbacks and monitors of ``fit``, and the progress that they receive.

A callback is a function that is called with a :class:`Progress` after each tree or round. If it returns True, the fit ends:

>>> import numpy as np
>>> from dtrees import GradientBoostingRegressor
>>> def good_enough(progress):
...     return progress.train_score < 1.0
>>> X = np.arange(20.0)[:, np.newaxis]
>>> GradientBoostingRegressor().fit(X, X[:, 0], callbacks=[good_enough]).n_estimators_ < 200
True

:class:`EarlyStopping`, :class:`ProgressBar` and :class:`KeepOnInterrupt` are ready-made callbacks. :data:`Callback` and :data:`Monitor` are
types for annotations. On a cluster, callbacks run on a worker, next to the coordinator of the fit; :func:`local_callback` makes one that
runs in the user's own process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtrees.engine.plan.plans import Callback, Progress
from dtrees.ensemble.callbacks import EarlyStopping, KeepOnInterrupt, Monitor, ProgressBar

if TYPE_CHECKING:
    from dtrees.cluster.growing.watching import local_callback

__all__ = ["Callback", "EarlyStopping", "KeepOnInterrupt", "Monitor", "Progress", "ProgressBar", "local_callback"]

if not TYPE_CHECKING:  # type checkers would accept any name of the module

    def __getattr__(name: str) -> Any:
        if name != "local_callback":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from dtrees.cluster.growing.watching import local_callback  # imports Dask

        return local_callback


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
