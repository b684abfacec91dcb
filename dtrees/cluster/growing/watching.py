"""The progress of a submitted fit, shown wherever its user is."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from distributed import Client, Future

from dtrees.cluster.growing.submission import client_given
from dtrees.cluster.reliability.fit_record import register
from dtrees.cluster.transport.scheduler_rpc import SCHEDULER_PATIENCE, answer, ask, explained
from dtrees.engine.plan.plans import Progress
from dtrees.ensemble.evaluation.displays import COMPILING, Display, live_display

_SECONDS_BETWEEN_QUESTIONS = 0.25
#: A fit that was submitted a moment ago may not be known yet.
_SECONDS_TO_BE_KNOWN = 5.0


def progress(fit: Future | str, *, client: Client | None = None) -> Any:
    """Watch a submitted fit until it has ended: a live bar in a terminal or a notebook, about ten lines elsewhere.

    Ctrl-C ends the watching, and not the fit. How the fit ended is for its future to say: errors are not raised here.

    Parameters
    ----------
    fit : distributed.Future or str
        What :func:`dtrees.submit` or :func:`dtrees.attach` returned, or its key, from another session say.
    client : distributed.Client, optional
        By default that of the future, or else the current one.

    Returns
    -------
    None
        An awaitable of it where the client is asynchronous.

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
        while watching.goes_on(ask(client, lambda: client.scheduler.dtrees_progress(fit=key))):
            time.sleep(_SECONDS_BETWEEN_QUESTIONS)
    finally:
        watching.end()
    return None


async def _watch(watching: _Watching, client: Client) -> None:
    try:
        registering = register(client)
        if registering is not None:
            await registering
        while True:
            with explained():
                told = await answer(client.scheduler.dtrees_progress(fit=watching.key), SCHEDULER_PATIENCE)
            if not watching.goes_on(told):
                return
            await asyncio.sleep(_SECONDS_BETWEEN_QUESTIONS)
    finally:
        watching.end()


class _Watching:
    """Shows what the scheduler tells of a fit."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._display: Display | None = None
        self._deadline = time.monotonic() + _SECONDS_TO_BE_KNOWN
        self._done = 0

    def goes_on(self, told: dict[str, Any] | None) -> bool:
        """Show how far the fit has come; tell whether it goes on."""
        if told is None:
            if time.monotonic() > self._deadline:
                raise KeyError(f"the cluster has no fit {self.key!r}; it may have been cancelled long ago, or the scheduler restarted")
            return True
        if self._display is None:
            self._display = live_display(told["unit"])
            self._display.begin()
        latest = told["progress"]
        if told["outcome"] == COMPILING and not latest:
            self._display.compiling()
        if latest and latest["done"] != self._done:
            self._done = latest["done"]
            self._display.update(Progress(**latest))
        return not told["is_over"]

    def end(self) -> None:
        """Leave what is shown as it is."""
        if self._display is not None:
            self._display.end()
