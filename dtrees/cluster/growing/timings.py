"""Where the time of exchanges with shards goes, worker by worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Timings:
    """Seconds by worker.

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
    >>> timings.add(0.75, [("a", 0.25), ("b", 0.5)])
    >>> timings.scan, timings.wait, timings.communicate
    ({'a': 0.25, 'b': 0.5}, {'a': 0.25, 'b': 0.0}, 0.25)
    """

    scan: dict[str, float] = field(default_factory=dict)
    wait: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    exchanged: dict[str, int] = field(default_factory=dict)
    communicate: float = 0.0

    def add(self, seconds: float, spent: Sequence[tuple[str, float]], waited: Sequence[float] | None = None) -> None:
        """Add an exchange of so many seconds, in which each worker spent so many on its work.

        ``waited`` is how long each waited for others while it carried out the message, if it knows.
        """
        slowest = max(own for _, own in spent)
        if waited is None:
            waited = [slowest - own for _, own in spent]
        for (worker, own), idle in zip(spent, waited, strict=True):
            self.scan[worker] = self.scan.get(worker, 0.0) + own
            self.wait[worker] = self.wait.get(worker, 0.0) + idle
        self.communicate += max(0.0, seconds - max(own + idle for (_, own), idle in zip(spent, waited, strict=True)))
