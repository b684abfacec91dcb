"""What a fit has told of itself: small and bounded, however long it goes on, so that the scheduler can keep it and show it.

It is made of the events of :mod:`dtrees.cluster.transport.events`, and of what the scheduler itself sees of the fit's workers.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from dtrees.engine.plan.plans import Progress
from dtrees.ensemble.callbacks import COMPILING, figures

#: Points of a curve; when there are more, every second one is left out.
_POINTS = 400
_CURVES, _LINES = 12, 20


@dataclass
class Curve:
    """A loss or score after rounds.

    Attributes
    ----------
    points : list of (int, float)
        Rounds, ascending, and values after them; not all, if there are many.
    """

    points: list[tuple[int, float]] = field(default_factory=list)
    _stride: int = 1
    _last: tuple[int, float] | None = None

    def add(self, done: int, value: float) -> None:
        """Take in a value. Rounds that are told of again, as another worker has taken over the fit, take the place of what they were."""
        while self.points and self.points[-1][0] >= done:
            self.points.pop()
        if done % self._stride == 0 or not self.points:
            self.points.append((done, value))
        self._last = done, value
        if len(self.points) > _POINTS:
            self.points = self.points[::2]
            self._stride *= 2

    def shown(self) -> list[tuple[int, float]]:
        """Return the points, with the last one that there is."""
        last = [] if self._last is None or (self.points and self.points[-1][0] >= self._last[0]) else [self._last]
        return [*self.points, *last]


@dataclass
class WorkerShare:
    """What a worker does for a fit.

    Attributes
    ----------
    columns, rows, bytes : int
        What it holds of the table, and the memory which that takes.
    scan, wait, communicate : float
        Seconds of its own work, of those that it waited for slower workers, and that messages took while it was there.
    sent, received : int
        Bytes of messages to it, and of its replies.
    trees : int
        Whole trees that it has grown.
    lost : bool
        Whether it is gone.
    """

    columns: int = 0
    rows: int = 0
    bytes: int = 0
    scan: float = 0.0
    wait: float = 0.0
    communicate: float = 0.0
    sent: int = 0
    received: int = 0
    trees: int = 0
    lost: bool = False


@dataclass
class FitHistory:
    """What a fit has told.

    Attributes
    ----------
    fit : str
        The key of its task.
    label : str
        What its user calls it.
    estimator, unit : str
        What is fitted, and what is counted: "tree" or "round".
    compiling : set of str
        The workers of the cluster that compile kernels just now, for this fit or for another one that needs the same.
    state : str
        Of the task, as Dask calls it.
    began : float
        When it was submitted (``time.time()``); ``ended`` is when it was over, or None.
    done, total : int
    seconds : float
        Since trees grow.
    latest : dict
        The fields of the last :class:`~dtrees.engine.plan.plans.Progress`.
    rows, columns : int
        Of the table.
    failure : str
        The error that it failed with.
    listeners : list of str
        Callbacks in its user's own process, which hear of lost workers and the like.
    hear : callable or None
        Given such a line when it happens.
    placement, reason : str
    workers : dict from str to WorkerShare
    communicate : float
        Seconds that messages took beyond the work of the slowest worker.
    curves : dict from str to Curve
        Losses and scores after rounds.
    pace : Curve
        Seconds after trees or rounds.
    lines : deque of (float, str)
        What happened besides, and when.
    unusual : deque of str
        Those about lost workers and the like, and ``n_unusual``, how many there were.
    n_lost, n_recovered : int
        Workers lost, and losses after which trees have grown again.
    """

    fit: str
    estimator: str = ""
    unit: str = "tree"
    compiling: Set[str] = frozenset()
    label: str = ""
    state: str = "waiting"
    began: float = field(default_factory=time.time)
    ended: float | None = None
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    latest: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    columns: int = 0
    placement: str = ""
    reason: str = ""
    workers: dict[str, WorkerShare] = field(default_factory=dict)
    communicate: float = 0.0
    curves: dict[str, Curve] = field(default_factory=dict)
    pace: Curve = field(default_factory=Curve)
    lines: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=_LINES))
    n_lost: int = 0
    n_recovered: int = 0
    failure: str = ""
    unusual: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    n_unusual: int = 0
    listeners: list[str] = field(default_factory=list)
    hear: Callable[[FitHistory, str], None] | None = None
    _first: tuple[int, float] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.ended is not None

    @property
    def remaining(self) -> float | None:
        """Seconds until it will be finished at its pace so far; None if nobody can tell."""
        if self._first is None or self.is_over or self.done <= self._first[0]:
            return None
        pace = (self.seconds - self._first[1]) / (self.done - self._first[0])
        return max(0.0, pace * (self.total - self.done))

    @property
    def outcome(self) -> str:
        """The state in words."""
        if self.is_over:
            return {"memory": "finished", "erred": "failed"}.get(self.state, "cancelled")
        if self.done:
            return "growing"
        if self.state == "processing":
            return COMPILING if self.compiling else "loading"
        return "waiting"

    def note_state(self, state: str, failure: str = "") -> None:
        """Take in the state of the fit's task, and the error that it failed with."""
        if self.is_over and state not in ("waiting", "processing"):
            return
        self.state, self.failure = state, failure
        if failure:
            self._note(f"failed: {failure}")
        self.ended = time.time() if state in ("memory", "erred", "forgotten") else None

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in an event; what cannot be read of it is left aside: anybody may send one."""
        handle = getattr(self, f"_take_{str(event.get('what')).replace(' ', '_')}", None)
        if handle is not None:
            with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
                handle(event)

    def lose(self, workers: Iterable[str]) -> None:
        """Take in that workers are gone, or fell silent."""
        gone = [worker for worker in workers if worker in self.workers and not self.workers[worker].lost]
        for worker in gone:
            self.workers[worker].lost = True
        if gone and not self.is_over:
            self.n_lost += len(gone)
            self.say(f"lost {', '.join(gone)}")

    def say(self, line: str) -> None:
        """Note that something unusual happened, and have whoever waits for the fit hear of it."""
        self._note(line)
        self.unusual.append(line)
        self.n_unusual += 1
        if self.hear is not None:
            self.hear(self, line)

    def _note(self, line: str) -> None:
        self.lines.append((time.time(), line))

    def snapshot(self) -> dict[str, Any]:
        """Return how far the fit has come, for :func:`dtrees.progress` and :func:`dtrees.fits`."""
        told = ("fit", "label", "estimator", "unit", "outcome", "failure", "is_over", "began", "done", "total", "n_unusual")
        return {name: getattr(self, name) for name in told} | {"progress": dict(self.latest), "unusual": list(self.unusual)}

    def _share(self, worker: str) -> WorkerShare:
        return self.workers.setdefault(worker, WorkerShare())

    def _take_began(self, event: Mapping[str, Any]) -> None:
        worker, self.listeners = event["worker"], list(event.get("listeners", ()))
        if event["turn"] == 1:
            self._note(f"coordinated by {worker}")
        else:
            self.say(f"taken over by {worker}")

    def _take_placed(self, event: Mapping[str, Any]) -> None:
        self.placement, self.reason = event["placement"], event["reason"]
        self._note(f"placed {self.placement}: {self.reason}")

    def _take_holding(self, event: Mapping[str, Any]) -> None:
        self.rows, self.columns, rows_of = event["rows"], event["columns"], event.get("rows_of", {})
        for share in self.workers.values():
            share.columns = share.rows = share.bytes = 0
        for worker, (columns, n_bytes) in event["workers"].items():
            share = self._share(worker)
            share.columns, share.rows, share.bytes, share.lost = columns, rows_of.get(worker, self.rows), n_bytes, False

    def _take_round(self, event: Mapping[str, Any]) -> None:
        self.latest = dict(event["progress"])
        progress = Progress(**self.latest)
        self.done, self.total, self.seconds = progress.done, progress.total, progress.seconds
        if self._first is None or self.done < self._first[0] or self.seconds < self._first[1]:
            self._first = self.done, self.seconds
        self.pace.add(self.done, self.seconds)
        for name, value in figures(progress).items():
            if name in self.curves or len(self.curves) < _CURVES:
                self.curves.setdefault(name, Curve()).add(self.done, value)
        self._share_messages(event.get("communicate", self.communicate), event.get("scan", {}))
        for name in ("scan", "wait", "sent", "received"):
            for worker, value in event.get(name, {}).items():
                setattr(self._share(worker), name, value)
        if self.n_recovered < self.n_lost:
            self.n_recovered = self.n_lost
            self.say(f"goes on from {self.unit} {self.done}")

    _take_tree = _take_round

    def _share_messages(self, total: float, workers: Iterable[str]) -> None:
        """Add what messages took since the last event to the workers that were there all the time: everybody waits for them."""
        spent = total - self.communicate if total >= self.communicate else total  # another coordinator counts anew
        for worker in workers:
            share = self._share(worker)
            if not share.lost and (share.scan or not self.communicate):
                share.communicate += spent
        self.communicate = total

    def _take_batch(self, event: Mapping[str, Any]) -> None:
        share = self._share(event["worker"])
        share.scan += event["seconds"]
        share.trees += event["trees"]

    def _take_shards_lost(self, event: Mapping[str, Any]) -> None:
        self.lose(event["workers"])

    def _take_shard_moved(self, event: Mapping[str, Any]) -> None:
        what = "rows" if self.placement == "rows" else "columns"
        self.say(f"{what} of a lost worker are loaded again on {event['to']}")
