"""Callbacks that run in the user's own process while the fit runs on a cluster.

The coordinator tells of its progress by an event on Dask's topic ``dtrees-progress``, and does not wait until it is heard: such a callback
cannot end the fit, nor slow it down. All fits share the topic, of which Dask keeps the last thousand events.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from distributed import Client, get_worker

from dtrees.cluster.reliability.liveness import default_client
from dtrees.cluster.transport.events import PROGRESS
from dtrees.engine.plan.plans import Progress

#: The functions to call in this process, by the names of their callbacks, and the client that hears for each.
_local: dict[str, tuple[Callable[[Progress], Any], Client | None]] = {}
_lock = threading.Lock()


class _Forwarding:
    """The callback that travels."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, progress: Progress) -> None:
        if self._name in _local:  # it has not travelled
            _local[self._name][0](progress)
        else:
            get_worker().log_event(PROGRESS, {"callback": self._name, "progress": asdict(progress)})


def _hear(event: tuple[float, dict[str, Any]]) -> None:
    _, facts = event
    called = _local.get(facts["callback"])
    if called is not None:
        called[0](Progress(**facts["progress"]))


@contextlib.contextmanager
def local_callback(function: Callable[[Progress], Any], client: Client | None = None) -> Iterator[Callable[[Progress], None]]:
    """Give a callback for ``fit`` that calls a function in this process, wherever the fit runs.

    Parameters
    ----------
    function : callable
        Given a :class:`~dtrees.engine.plan.plans.Progress`, in a thread of the Dask client; what it returns does not matter.
    client : distributed.Client, optional
        By default the current one, if there is one.

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
        _local[name] = function, client
        if client is not None:
            client.subscribe_topic(PROGRESS, _hear)
    try:
        yield _Forwarding(name)
    finally:
        with _lock:
            del _local[name]
            unheard = all(other is not client for _, other in _local.values())
            if client is not None and client.status == "running" and unheard:
                client.unsubscribe_topic(PROGRESS)
