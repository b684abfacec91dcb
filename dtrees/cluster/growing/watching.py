"""List the fits of a cluster, show the progress of a fit, and run callbacks in the user's own process.

For such a callback, the coordinator sends its progress as an event on Dask's topic ``dtrees-progress`` and does not wait for an answer: the
callback can neither end the fit nor slow it down. All fits share the topic, of which Dask stores the last thousand events. On this topic,
the scheduler also reports that workers compile kernels (:mod:`dtrees.cluster.growing.kernel_shipping`), which may delay the first tree of
a fit, and that a fit loses or replaces workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from distributed import Client, Future, get_worker

from dtrees.cluster.reliability.fit import register, registered
from dtrees.cluster.transport.clients import ask, asked, client_given, default_client
from dtrees.cluster.transport.events import PROGRESS
from dtrees.engine.plan.plans import Progress
from dtrees.ensemble.displays import COMPILING, Display, live_display

_SECONDS_BETWEEN_QUESTIONS = 0.25
#: Seconds after which a fit that was just submitted is known to the scheduler.
_SECONDS_TO_BE_KNOWN = 5.0
#: Descriptions of fits that ended without a result.
_ENDINGS = {"failed": "failed", "cancelled": "was cancelled"}


def progress(fit: Future | str, *, client: Client | None = None) -> Any:
    """Show the progress of a submitted fit until it ends: as a live bar in a terminal or a notebook, as about ten lines elsewhere.

    Ctrl-C ends this function, and not the fit. The function also reports lost workers and a failure or cancellation of the fit. It does not
    raise the error of the fit; the future does.

    Parameters
    ----------
    fit : distributed.Future or str
        Future that :func:`dtrees.submit` or :func:`dtrees.attach` returned, or its key, for example from another session.
    client : distributed.Client, optional
        Client of the cluster, by default that of the future, or else the current one.

    Returns
    -------
    None
        An awaitable if the client is asynchronous.

    Raises
    ------
    KeyError
        If the cluster does not know the fit.
    SchedulerLost
        If the scheduler does not answer.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from dtrees import RandomForestRegressor, progress, submit
    >>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    ...     X = da.arange(8, chunks=4)
    ...     future = submit(RandomForestRegressor(10), X[:, None], X)
    ...     progress(future)
    ...     future.status
    'finished'
    """
    if not isinstance(fit, Future | str):
        raise TypeError(f"fit is {fit!r}; wants a future of dtrees.submit or dtrees.attach, or its key")
    key = fit if isinstance(fit, str) else str(fit.key)
    client = client_given(client or (None if isinstance(fit, str) else fit.client))
    watching = _Watching(key)
    if client.asynchronous:
        return _watch(watching, client)
    try:
        register(client)
        while watching.goes_on(ask(client, lambda: client.scheduler.dtrees_fits(fit=key))):
            time.sleep(_SECONDS_BETWEEN_QUESTIONS)
    finally:
        watching.end()
    return None


@dataclass(frozen=True)
class FitStatus:
    """A fit on a cluster, as :func:`fits` returns it.

    Attributes
    ----------
    key : str
        Key of the fit for :func:`dtrees.attach` and :func:`dtrees.progress`.
    label : str
        Label that was passed to :func:`dtrees.submit`.
    estimator : str
        Class of the estimator.
    state : str
        "waiting", "loading", "growing", "finished", "failed", "cancelled", or a text that says that kernels are compiled.
    done, total : int
        Finished and planned trees or rounds; 0 while they are unknown.
    submitted : datetime.datetime
        Time at which it was submitted, in this process's time zone.
    failure : str
        Error of a failed fit; otherwise empty.
    """

    key: str
    label: str
    estimator: str
    state: str
    done: int
    total: int
    submitted: datetime.datetime
    failure: str


def fits(client: Client | None = None) -> Any:
    """Return the fits of a cluster, from all clients: running and detached fits, and the last twenty others.

    Parameters
    ----------
    client : distributed.Client, optional
        Client of the cluster, by default the current one.

    Returns
    -------
    list of FitStatus
        Latest fit first. An awaitable of the list if the client is asynchronous.

    Raises
    ------
    ValueError
        If there is no client.
    SchedulerLost
        If the scheduler does not answer.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from dtrees import DecisionTreeRegressor, fits, submit
    >>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    ...     X = da.arange(8, chunks=4)
    ...     model = submit(DecisionTreeRegressor(), X[:, None], X, label="a trial").result()
    ...     [(fit.label, fit.estimator, fit.state) for fit in fits()]
    [('a trial', 'DecisionTreeRegressor', 'finished')]
    """
    client = client_given(client)
    return client.sync(_fits, client)


async def _fits(client: Client) -> list[FitStatus]:
    await registered(client)
    return [_status(record) for record in await asked(client.scheduler.dtrees_fits)]


def _status(fit: dict[str, Any]) -> FitStatus:
    submitted = datetime.datetime.fromtimestamp(fit["began"]).astimezone()
    return FitStatus(fit["fit"], fit["label"], fit["estimator"], fit["outcome"], fit["done"], fit["total"], submitted, fit["failure"])


async def _watch(watching: _Watching, client: Client) -> None:
    try:
        await registered(client)
        while watching.goes_on(await asked(lambda: client.scheduler.dtrees_fits(fit=watching.key))):
            await asyncio.sleep(_SECONDS_BETWEEN_QUESTIONS)
    finally:
        watching.end()


class _Watching:
    """Displays the progress of a fit as the scheduler knows it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._display: Display | None = None
        self._deadline = time.monotonic() + _SECONDS_TO_BE_KNOWN
        self._done = self._n_unusual = 0

    def goes_on(self, found: list[dict[str, Any]]) -> bool:
        """Show the progress of the fit; return whether it continues."""
        if not found:
            if time.monotonic() > self._deadline:
                raise KeyError(f"the cluster has no fit {self.key!r}; it may have been cancelled long ago, or the scheduler restarted")
            return True
        (record,) = found
        if self._display is None:
            self._display = live_display(record["unit"])
            self._display.begin()
        latest = record["progress"]
        if record["outcome"] == COMPILING and not latest:
            self._display.compiling()
        if latest and latest["done"] != self._done:
            self._done = latest["done"]
            self._display.update(Progress(**latest))
        new = record["n_unusual"] - self._n_unusual
        self._n_unusual = record["n_unusual"]
        for line in record["unusual"][-new:] if new else ():
            self._display.note(line)
        if record["is_over"] and record["outcome"] != "finished":
            self._display.note(f"the fit {self.key} {_ENDINGS[record['outcome']]}{record['failure'] and ': '}{record['failure']}")
        return not record["is_over"]

    def end(self) -> None:
        """Finish the display."""
        if self._display is not None:
            self._display.end()


class _Local(NamedTuple):
    """The functions to call in this process, and the client that receives their events."""

    receive: Callable[[Progress], Any]
    compiling: Callable[[], Any] | None
    note: Callable[[str], Any] | None
    client: Client | None


#: By callback name.
_local: dict[str, _Local] = {}
_lock = threading.Lock()


class _Forwarding:
    """The callback that is sent to the coordinator."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, progress: Progress) -> None:
        if self.name in _local:  # it was not sent to another process
            _local[self.name].receive(progress)
        else:
            get_worker().log_event(PROGRESS, {"callback": self.name, "progress": asdict(progress)})


def _hear(client: Client, event: tuple[float, dict[str, Any]]) -> None:
    _, facts = event
    with _lock:
        local = dict(_local)
    if "compiling" in facts:
        for one in local.values():
            if one.client is client and one.compiling is not None:
                one.compiling()
    elif "line" in facts:
        for name in local.keys() & set(facts["listeners"]):
            if (note := local[name].note) is not None:
                note(facts["line"])
    elif facts["callback"] in local:
        local[facts["callback"]].receive(Progress(**facts["progress"]))


def listeners(callbacks: Any) -> list[str]:
    """Return the names of a fit's callbacks that call functions in a user's process."""
    return [callback.name for callback in callbacks if isinstance(callback, _Forwarding)] if isinstance(callbacks, Sequence) else []


@contextlib.contextmanager
def local_callback(
    function: Callable[[Progress], Any],
    client: Client | None = None,
    compiling: Callable[[], Any] | None = None,
    note: Callable[[str], Any] | None = None,
) -> Iterator[Callable[[Progress], None]]:
    """Yield a callback for ``fit`` that calls a function in this process, wherever the fit runs.

    Parameters
    ----------
    function : callable
        Called with a :class:`~dtrees.engine.plan.plans.Progress`, in a thread of the Dask client. Its result is ignored.
    client : distributed.Client, optional
        Client of the cluster, by default the current one, if any.
    compiling : callable, optional
        Called one or more times while workers of the cluster compile kernels, for any fit.
    note : callable, optional
        Called with a line of text when the fit on the cluster loses workers, or recovers.

    Yields
    ------
    callable

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import RandomForestRegressor
    >>> with local_callback(lambda progress: print(progress.done)) as callback:
    ...     model = RandomForestRegressor(2).fit(np.eye(3), [1, 2, 3], callbacks=[callback])
    1
    2
    """
    client = client or default_client()
    name = uuid4().hex
    with _lock:
        _local[name] = _Local(function, compiling, note, client)
        if client is not None:
            client.subscribe_topic(PROGRESS, partial(_hear, client))
    try:
        yield _Forwarding(name)
    finally:
        with _lock:
            del _local[name]
            unheard = all(other.client is not client for other in _local.values())
            if client is not None and client.status == "running" and unheard:
                client.unsubscribe_topic(PROGRESS)
