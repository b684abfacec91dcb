"""What a fit on a cluster tells after each tree or round, and who is asked then whether anybody still wants it."""

from __future__ import annotations

import time
from typing import Any

from dtrees.cluster.growing.timings import Timings
from dtrees.cluster.reliability.fit_context import Fit
from dtrees.cluster.transport.events import tell
from dtrees.engine.plan.plans import Callback, Progress

#: Trees may take less than a millisecond; they are told of no more often than this.
_SECONDS_BETWEEN_TREES = 0.2


class Reporting:
    """The callback that a fit is given: tells of trees or rounds, and ends a fit that nobody wants.

    Parameters
    ----------
    fit : Fit
    unit : {"tree", "round"}
        Every round is told of, and trees now and then.
    callback : callable or None
        The user's; called first.
    timings : Timings or None
        Of exchanges with shards. None where the trees grow here.
    """

    def __init__(self, fit: Fit, unit: str, callback: Callback | None = None, timings: Timings | None = None) -> None:
        self._fit = fit
        self._unit = unit
        self._callback = callback
        self._timings = timings
        self._next = 0.0

    def __call__(self, progress: Progress) -> bool:
        """Tell of a tree or round; tell whether the fit is to end."""
        self._fit.check()
        now = time.monotonic()
        if self._unit == "round" or now >= self._next or progress.done == progress.total:
            self._next = now + _SECONDS_BETWEEN_TREES
            self._tell(progress)
        return self._callback is not None and bool(self._callback(progress))

    def _tell(self, progress: Progress) -> None:
        # Not asdict, which copies all in depth: fifty microseconds, when a round of a small table takes some hundreds.
        facts: dict[str, Any] = {} if self._timings is None else vars(self._timings)
        told = {self._unit: progress.done, "total": progress.total, "seconds": progress.seconds, "progress": dict(vars(progress))}
        tell(self._fit.name, self._unit, **told, **facts)


class WholeTables(Reporting):
    """The same where a worker grows trees, or rounds, from a whole table: the time is its own."""

    def _tell(self, progress: Progress) -> None:
        self._timings = Timings(scan={} if self._fit.worker is None else {self._fit.worker: progress.seconds})
        super()._tell(progress)
