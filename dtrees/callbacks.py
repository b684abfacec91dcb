"""What may be passed as ``callbacks`` and ``monitor`` of ``fit``, and what such functions are given.

A callback is a function of a :class:`Progress`, called after each tree or round; one that returns True ends the fit there:

>>> import numpy as np
>>> from dtrees import GradientBoostingRegressor
>>> def good_enough(progress):
...     return progress.train_score < 1.0
>>> X = np.arange(20.0)[:, np.newaxis]
>>> GradientBoostingRegressor().fit(X, X[:, 0], callbacks=[good_enough]).n_estimators_ < 200
True

Ready-made ones are :class:`EarlyStopping`, :class:`ProgressBar` and :class:`KeepOnInterrupt`. :data:`Callback` and :data:`Monitor` are the
types of functions, for annotations. On a cluster, callbacks run beside the coordinator of the fit, on a worker; :func:`local_callback` has
one run in the user's own process.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtrees.cluster.growing.watching import local_callback
    from dtrees.engine.plan.plans import Callback, Progress
    from dtrees.ensemble.callbacks import EarlyStopping, KeepOnInterrupt, Monitor, ProgressBar

__all__ = ["Callback", "EarlyStopping", "KeepOnInterrupt", "Monitor", "Progress", "ProgressBar", "local_callback"]

_MODULES = {
    "Callback": "dtrees.engine.plan.plans",
    "EarlyStopping": "dtrees.ensemble.callbacks",
    "KeepOnInterrupt": "dtrees.ensemble.callbacks",
    "Monitor": "dtrees.ensemble.callbacks",
    "Progress": "dtrees.engine.plan.plans",
    "ProgressBar": "dtrees.ensemble.callbacks",
    "local_callback": "dtrees.cluster.growing.watching",
}


if not TYPE_CHECKING:  # who checks types would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
