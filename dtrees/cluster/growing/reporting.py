"""What a fit on a cluster tells after each tree or round, and who is asked then whether anybody still wants it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dtrees.cluster.reliability.fit_context import Fit
from dtrees.cluster.transport.events import tell
from dtrees.engine.plan.plans import Callback, Progress

#: Trees may take less than a millisecond; they are told of no more often than this.
_SECONDS_BETWEEN_TREES = 0.2


class Account(NamedTuple):
    """Seconds that a shard worked on a message and, if it knows, waited for others; and bytes that it sent to these."""

    worked: float
    waiting: float | None = None
    sent: int = 0


@dataclass
class Timings:
    """Where the time of exchanges with shards goes: seconds by worker.

    Attributes
    ----------
    scan : dict from str to float
        Its own work.
    wait : dict from str to float
        For slower workers to be done with the same message, or, where workers keep rows, with a step of it.
    sent, received : dict from str to int
        Bytes of the messages to it, and of its replies.
    exchanged : dict from str to int
        Bytes that it sent to other workers, where they keep rows.
    communicate : float
        What exchanges took beyond the slowest worker's work: messages on their way, and the coordinator's own part of sending them. Where
        one exchange is under way while workers do the work of another, nothing.

    Examples
    --------
    >>> timings = Timings()
    >>> timings.add(0.75, [("a", Account(0.25)), ("b", Account(0.5))])
    >>> timings.scan, timings.wait, timings.communicate
    ({'a': 0.25, 'b': 0.5}, {'a': 0.25, 'b': 0.0}, 0.25)
    """

    scan: dict[str, float] = field(default_factory=dict)
    wait: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    exchanged: dict[str, int] = field(default_factory=dict)
    communicate: float = 0.0

    def add(self, seconds: float, accounts: Sequence[tuple[str, Account]]) -> None:
        """Add an exchange of so many seconds, in which each worker did what its account says."""
        slowest, longest = max(account.worked for _, account in accounts), 0.0
        for worker, account in accounts:
            waited = slowest - account.worked if account.waiting is None else account.waiting
            longest = max(longest, account.worked + waited)
            self.scan[worker] = self.scan.get(worker, 0.0) + account.worked
            self.wait[worker] = self.wait.get(worker, 0.0) + waited
            if account.waiting is not None:
                self.exchanged[worker] = self.exchanged.get(worker, 0) + account.sent
        self.communicate += max(0.0, seconds - longest)


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
