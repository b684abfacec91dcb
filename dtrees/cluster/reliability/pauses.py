"""Workers that Dask has paused, as they use too much of their memory, while a fit waits for what they are to do.

A paused worker goes on with the tasks that it runs, and begins no others until it uses less (by default, less than 80 % of its limit). Nor
does Dask give it up. So what only such workers can do would be waited for without end, and without a word. Here that is said after a fit's
patience, and after some times as long the fit ends. Shards that are there already are called past all this: paused or not, they go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from dask.utils import format_bytes

from dtrees.cluster.errors import NotEnoughMemory
from dtrees.cluster.reliability.fit_context import Fit, is_coordinating
from dtrees.cluster.transport.events import tell

logger = logging.getLogger("dtrees.cluster")

#: A fit is given up after so many times its patience.
_TIMES_PATIENCE = 9.0
#: Between two notes so many seconds count at most: in longer ones, this process stood still, or waited for something else.
_MOST_LISTENED = 5.0
#: What tasks do on a worker that is at work, as its counts of them call it: run, and fetch what they need.
_AT_WORK = ("executing", "flight")
_WAY_OUT = "Give workers more memory (dask worker --memory-limit), or have more of them, and run it again"


class Pauses:
    """How long a fit has been held up by paused workers.

    Parameters
    ----------
    fit : Fit
    """

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._held = 0.0
        self._told = False
        self._last_note = time.monotonic()
        self._before: Any = None

    def note(self, workers: Mapping[str, Mapping[str, Any]], patience: float, awaited: object, needed: Iterable[str] | None = None) -> None:
        """Take in what the scheduler knows of workers, while something is waited for.

        Parameters
        ----------
        workers : mapping from str to mapping
        patience : float
            Seconds until it is said.
        awaited : object
            What is waited for: where it is another than before, the fit goes on.
        needed : iterable of str, optional
            The workers that alone can do it; by default, any can.

        Raises
        ------
        NotEnoughMemory
            If it has taken too long.
        """
        now = time.monotonic()
        listened, self._last_note = min(now - self._last_note, _MOST_LISTENED), now
        able = dict(workers) if needed is None else {worker: workers[worker] for worker in needed if worker in workers}
        paused = sorted(worker for worker, facts in able.items() if facts["status"] == "paused")
        state = awaited, [(worker, _written(workers[worker])) for worker in paused]
        goes_on, self._before = state != self._before, state
        if not paused or goes_on or any(map(_is_at_work, able.values())):
            if self._told:
                logger.info("%s goes on", self._fit.name)
            self._held, self._told = 0.0, False
            return
        self._held += listened
        if self._held > patience and not self._told:
            self._told = True
            logger.warning("%s has waited %.0f s for workers that Dask has paused: %s", self._fit.name, self._held, _said(workers, paused))
            tell(self._fit.name, "workers paused", workers=paused, seconds=self._held)
        if self._held > _TIMES_PATIENCE * patience:
            raise NotEnoughMemory(
                f"The fit has waited {self._held:.0f} s for {len(paused)} of {len(workers)} workers of the Dask cluster. Dask has paused "
                f"them, as they use too much of their memory: {_said(workers, paused)}. {_WAY_OUT}."
            )


def _said(workers: Mapping[str, Mapping[str, Any]], paused: Iterable[str]) -> str:
    """Say what workers use, a few of them."""
    some = [
        f"{worker} uses {format_bytes(workers[worker]['metrics'].get('memory', 0))} of {format_bytes(workers[worker]['memory_limit'])}"
        for worker in list(paused)[:3]
    ]
    return "; ".join([*some, *(["and so on"] if len(list(paused)) > 3 else [])])


def _is_at_work(facts: Mapping[str, Any]) -> bool:
    """Tell whether a worker runs tasks, or fetches what they need; the coordinator, which waits, does not count where it asks itself."""
    counts = facts["metrics"].get("task_counts", {})
    return any(counts.get(state, 0) for state in (*_AT_WORK, *(() if is_coordinating() else ("long-running",))))


def _written(facts: Mapping[str, Any]) -> int:
    """Return how many bytes a worker has on disk: one that writes more there does something about its memory."""
    return int(facts["metrics"].get("spilled_bytes", {}).get("disk", 0))
