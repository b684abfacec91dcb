"""What other shards have sent to one, until it looks at it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dtrees.engine.rows.exchange import Arrays, Parcel, Step

_SLICE = 0.5


class Mailbox:
    """Parcels of the fit and the epoch under way, and of later ones; any thread may put some in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._fit: tuple[str, int] | None = None
        self._parcels: dict[tuple[str, int, int, str, int], Parcel] = {}

    def open(self, fit: str, epoch: int) -> None:
        """Begin an epoch: parcels of others are dropped."""
        with self._changed:
            self._fit = fit, epoch
            self._parcels = {key: parcel for key, parcel in self._parcels.items() if key[:2] == self._fit}

    def put(self, parcel: Parcel) -> None:
        """Keep a parcel; one of an earlier epoch is dropped."""
        with self._changed:
            if self._fit is None or self._fit[0] != parcel.fit or self._fit[1] <= parcel.epoch:
                self._parcels[parcel.key] = parcel
                self._changed.notify_all()

    def take(self, step: Step) -> list[Arrays] | None:
        """Take what a step awaits, in the order of its senders; return None if something is missing."""
        with self._changed:
            return self._take(step)

    def wait(self, step: Step, check: Callable[[], None]) -> list[Arrays]:
        """Wait for what a step awaits; ``check``, called now and then, raises if there is no point in it any longer."""
        with self._changed:
            while (taken := self._take(step)) is None:
                self._changed.wait(_SLICE)
                check()
            return taken

    def missing(self, step: Step) -> list[int]:
        """Return of whom nothing has come that a step awaits."""
        with self._changed:
            return [sender for sender, key in zip(step.senders, step.keys, strict=True) if key not in self._parcels]

    def wake(self) -> None:
        """Have who waits check at once."""
        with self._changed:
            self._changed.notify_all()

    def _take(self, step: Step) -> list[Arrays] | None:
        keys = step.keys
        if not all(key in self._parcels for key in keys):
            return None
        return [self._parcels.pop(key).arrays for key in keys]
