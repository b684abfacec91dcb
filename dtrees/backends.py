"""Who fits and predicts which kind of collection.

Estimators know no cluster. A package that serves another kind of collection than arrays and frames in this process registers itself here,
by a test of the collection and a loader, and is not imported until such a collection turns up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_registered: list[tuple[Callable[[Any], bool], Callable[[], Any]]] = []


def register_backend(matches: Callable[[Any], bool], load_backend: Callable[[], Any]) -> None:
    """Have ``load_backend()`` serve every ``X`` for which ``matches(X)`` is true.

    Parameters
    ----------
    matches : callable
        Given the user's X; must be cheap and import nothing.
    load_backend : callable
        Imports and returns the backend (:class:`dtrees.ensemble.in_process.Backend`); called once for each fit or prediction, so it should
        keep what it made.
    """
    _registered.append((matches, load_backend))


def registered_backend(X: Any) -> Any | None:
    """Return the first registered backend that claims the collection ``X``, or None."""
    return next((load_backend() for matches, load_backend in _registered if matches(X)), None)
