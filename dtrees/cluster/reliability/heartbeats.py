"""How long each worker has been silent.

Workers report to the scheduler every half second to few seconds, from a thread of their own, however long their tasks compute. Only a
worker whose process stands still, or whose interpreter is held by a task that does not let go of it, is silent.

A fit stops using a worker that is silent for longer than its *patience*: it makes anew elsewhere what it had there. The worker itself is
left alone. Others may be using it, and it may be heard again; then the fit uses it again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

_SECONDS_BETWEEN_LOOKS = 2.0
#: Silence is established by several looks at least.
_LOOKS = 5
#: Patience is at least so many times the longest silence that a worker broke.
_TIMES_THE_LONGEST = 4.0
#: When workers have fallen silent, patience grows by this factor, up to so many times what it was to begin with: if it was a false alarm,
#: the next one takes longer.
_GROWTH, _MOST_GROWTH = 1.5, 3.0


class Heartbeats:
    """Which workers there are, and which of them are silent.

    Silence is counted while somebody listens: if this process itself stood still (a suspended machine), no worker is to blame.

    Parameters
    ----------
    patience : float
        Seconds without a sign of life until a worker counts as silent, to begin with. Where workers are found to be slow at reporting (a
        busy machine), it grows.

    Attributes
    ----------
    patience : float
    silent : dict from str to float
        The seconds of silence of each silent worker.
    n_departed : int
        How often a worker went away, or fell silent.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.silent: dict[str, float] = {}
        self.n_departed = 0
        self._most_patience = _MOST_GROWTH * patience
        self._last_seen: dict[str, float] = {}  # by the scheduler's clock
        self._silence: dict[str, float] = {}
        self._usable: set[str] = set()
        self._had_workers = False
        self._without_workers = 0.0
        self._last_note = time.monotonic()

    @property
    def seconds_between_looks(self) -> float:
        """How often to call :meth:`note`."""
        return min(_SECONDS_BETWEEN_LOOKS, self.patience / _LOOKS)

    def note(self, last_seen: Mapping[str, float], own: str | None = None) -> None:
        """Take in when the scheduler has last heard of each worker.

        Parameters
        ----------
        last_seen : mapping from str to float
        own : str, optional
            The worker that listens: it is not silent.
        """
        now = time.monotonic()
        listened = min(now - self._last_note, 1.5 * self.seconds_between_looks)
        self._last_note = now
        silence = {}
        for worker, when in last_seen.items():
            if self._last_seen.get(worker) == when and worker != own:
                silence[worker] = self._silence[worker] + listened
            else:
                silence[worker] = 0.0
                if worker not in self.silent:
                    self.patience = max(self.patience, _TIMES_THE_LONGEST * self._silence.get(worker, 0.0))
        silent = {worker: seconds for worker, seconds in silence.items() if seconds and (worker in self.silent or seconds > self.patience)}
        if silent.keys() - self.silent.keys():
            self.patience = max(self.patience, min(_GROWTH * self.patience, self._most_patience))
        usable = last_seen.keys() - silent.keys()
        self.n_departed += len(self._usable - usable)
        self._had_workers = self._had_workers or bool(last_seen)
        self._without_workers = 0.0 if usable else self._without_workers + listened
        self.silent, self._usable, self._silence, self._last_seen = silent, usable, silence, dict(last_seen)

    @property
    def state(self) -> dict[str, Any]:
        """What has been heard so far, for :meth:`take_over` elsewhere."""
        return {"last_seen": self._last_seen, "silence": self._silence, "silent": self.silent, "patience": self.patience}

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Go on from what others have heard."""
        self._last_seen, self._silence = dict(state["last_seen"]), dict(state["silence"])
        self.silent, self.patience = dict(state["silent"]), state["patience"]
        self._usable = self._last_seen.keys() - self.silent.keys()

    @property
    def all_lost(self) -> bool:
        """Whether there has been no worker, but silent ones, for longer than the patience; the first one is waited for, as Dask does."""
        return self._had_workers and self._without_workers > self.patience

    @property
    def awaits_first(self) -> bool:
        """Whether there has been no worker yet."""
        return not self._had_workers
