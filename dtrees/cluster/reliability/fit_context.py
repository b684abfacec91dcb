"""The fit that a thread coordinates: its name, its settings, and whether anybody still wants it.

A coordinator is a task on the cluster (:mod:`dtrees.cluster.growing.submission`), or whatever else runs ``fit`` there: a user's own task,
say. What it does passes many functions that have no business knowing; they ask :func:`current_fit`.

Terms
-----
settings
    what a user may set for fits on a cluster, by parameters of :func:`dtrees.submit` or in Dask's configuration, under ``dtrees``
    (:class:`Settings`). They are read where the fit is submitted, and travel with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import uuid4

import dask
from distributed import Future, Worker, get_worker

from dtrees.cluster.compat import is_wanted
from dtrees.cluster.errors import FitCancelled
from dtrees.cluster.reliability.heartbeats import Heartbeats

#: What they mean: :mod:`dtrees.cluster.data.placement`.
PLACEMENTS = ("auto", "one-worker", "replicated", "sharded", "rows")
STORAGES = ("auto", "memory", "disk")


@dataclass(frozen=True)
class Settings:
    """How fits behave on a cluster. Dask's configuration has each under its own name: ``dtrees.max-restarts`` and so on.

    Attributes
    ----------
    max_restarts : int
        How many times a fit may replace lost workers, until it gives up.
    patience : float
        Seconds without a sign of life until a worker counts as lost, to begin with: where workers are found to be slower, it grows.
    placement : {"auto", "one-worker", "replicated", "sharded", "rows"}
        Where columns are: all on one worker, all on each, or spread over all; or each worker keeps its rows.
    storage : {"auto", "memory", "disk"}
        Where workers that keep rows have the cells of these: "auto" has them on disk where nothing else fits the workers' memory; "disk"
        has rows stay where they are.

    Examples
    --------
    >>> Settings(patience=60.0)
    Settings(max_restarts=10, patience=60.0, placement='auto', storage='auto')
    """

    max_restarts: int = 10
    patience: float = 20.0
    placement: str = "auto"
    storage: str = "auto"

    @classmethod
    def read(cls, **given: Any) -> Settings:
        """Return the settings of Dask's configuration, but for those given (and not None).

        Examples
        --------
        >>> with dask.config.set({"dtrees.max-restarts": 3}):
        ...     Settings.read(patience=5.0)
        Settings(max_restarts=3, patience=5.0, placement='auto', storage='auto')
        """
        values = {field.name: dask.config.get(f"dtrees.{field.name}", field.default) for field in fields(cls)}
        settings = cls(**values | {name: value for name, value in given.items() if value is not None})
        if not isinstance(settings.max_restarts, int) or settings.max_restarts < 0:
            raise ValueError(f"max_restarts is {settings.max_restarts!r}; wants an integer of at least 0")
        if not isinstance(settings.patience, int | float) or not settings.patience > 0:
            raise ValueError(f"patience is {settings.patience!r}; wants a number of seconds above 0")
        if settings.placement not in PLACEMENTS:
            raise ValueError(f"placement is {settings.placement!r}; wants one of {', '.join(PLACEMENTS)}")
        if settings.storage not in STORAGES:
            raise ValueError(f"storage is {settings.storage!r}; wants one of {', '.join(STORAGES)}")
        if settings.storage == "disk" and settings.placement not in ("auto", "rows"):
            raise ValueError(
                f"storage is 'disk', and placement is {settings.placement!r}: cells are on disk only where rows stay; wants placement "
                "'rows', or 'auto', which is the same then"
            )
        return replace(settings, placement="rows") if settings.storage == "disk" else settings


class Fit:
    """A fit under way.

    Parameters
    ----------
    name : str
        The key of its task, where it is one of ours.
    settings : Settings
    turn : int
        Which run of its coordinator this is, from 1; 0 where it was not submitted: then Dask does not run it again if its worker is lost.

    Attributes
    ----------
    heartbeats : Heartbeats
        Of the workers, as heard by whoever waits for something of this fit here.
    task : str or None
        The key of the task that this runs in.
    next_closing : float
        When others are to close their connections to silent workers again (``time.monotonic()``).
    awaits_worker : bool
        Whether the log says that there was no worker to begin with.
    """

    def __init__(self, name: str, settings: Settings, turn: int = 0) -> None:
        self.name = name
        self.settings = settings
        self.turn = turn
        self.heartbeats = Heartbeats(settings.patience)
        self.next_closing = 0.0
        self.awaits_worker = False
        self._futures: list[Future | None] = []
        self._worker: Worker | None = None
        self.task: str | None = None
        with contextlib.suppress(ValueError, KeyError):  # not on a worker, not in a task
            worker = get_worker()
            self.task = worker.get_current_task()
            self._worker = worker

    @property
    def worker(self) -> str | None:
        """The address of the worker that this runs on."""
        return None if self._worker is None else str(self._worker.address)

    def note(self, workers: Container[str]) -> None:
        """Take in which workers the scheduler knows.

        Raises
        ------
        FitCancelled
            If that of this fit is not among them: the scheduler has given it up, and the fit is run elsewhere.
        """
        if self.worker is not None and self.worker not in workers:
            raise FitCancelled(f"The fit {self.name} was given up by the scheduler on {self.worker}, with all that runs there.")

    def own(self, *futures: Future | None) -> None:
        """Have futures released when the fit ends."""
        self._futures += futures

    def release(self) -> None:
        """Release what the fit owns, whatever still refers to it: tracebacks do, those of losses overcome too."""
        futures, self._futures = self._futures, []
        for future in futures:
            if future is not None:
                future.release()

    def check(self) -> None:
        """Raise if the task that runs the fit was cancelled. Dask cannot stop a thread: it has to ask.

        Raises
        ------
        FitCancelled
        """
        if self._worker is None:
            return
        if not is_wanted(self._worker, self.task):
            raise FitCancelled(f"The fit {self.name} was cancelled.")

    def check_after_tree(self, progress: object) -> bool:
        """Be a callback of trees grown in this task, which asks after each (:meth:`check`) and never ends the fit as a success."""
        self.check()
        return False


class _Current(threading.local):
    fit: Fit | None = None


_current = _Current()


def is_coordinating() -> bool:
    """Tell whether this thread coordinates a fit."""
    return _current.fit is not None


def current_fit() -> Fit:
    """Return the fit that this thread coordinates; a new one where there is none."""
    return _current.fit or Fit(new_name(), Settings.read())


def new_name() -> str:
    """Return a name for a fit, which is also a key that Dask's dashboard shows as ``dtrees-fit``."""
    return f"dtrees-fit-{uuid4().hex[:10]}"


@contextlib.contextmanager
def coordinating(fit: Fit) -> Iterator[None]:
    """Have this thread coordinate a fit for as long as the block lasts; at its end, what the fit owns is released."""
    before, _current.fit = _current.fit, fit
    try:
        yield
    finally:
        _current.fit = before
        fit.release()
