"""Exact decision-tree ensembles, on one machine or on a Dask cluster.

Eleven estimators with scikit-learn's interface (single trees, forests, extra-trees, gradient boosting, each as regressor and
classifier, and boosting for rankings), bags of boosters, isolation forests, and model files that are safe to load:

>>> import numpy as np
>>> from dtrees import DecisionTreeClassifier
>>> tree = DecisionTreeClassifier().fit(np.array([[0.0], [1.0], [2.0]]), ["low", "low", "high"])
>>> tree.predict(np.array([[1.4], [1.6]])).tolist()
['low', 'high']

Names are loaded when first used (PEP 562) from the modules listed in ``__init__.pyi``, so ``import dtrees`` is fast and imports neither
Numba nor Dask.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

with open(os.path.join(__path__[0], "__init__.pyi"), encoding="utf-8") as _stub:
    #: The modules of public names, from lines such as ``from dtrees.model_file import load as load``.
    _MODULES = {words[3]: words[1] for words in map(str.split, _stub) if words[:1] == ["from"]}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
