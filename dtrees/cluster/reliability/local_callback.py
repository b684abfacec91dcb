"""Callbacks that run in the user's own process while the fit runs on a cluster.

The coordinator tells of its progress by an event on Dask's topic ``dtrees-progress``, and does not wait until it is heard: such a callback
cannot end the fit, nor slow it down. All fits share the topic, of which Dask keeps the last thousand events. There the
scheduler also tells that workers compile kernels (:mod:`dtrees.cluster.growing.kernel_shipping`), for which fits without a tree may wait,
and what becomes of workers of a fit.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from distributed import Client, get_worker

from dtrees.cluster.reliability.liveness import default_client
from dtrees.cluster.transport.events import PROGRESS
from dtrees.engine.plan.plans import Progress


class _Local(NamedTuple):
    """The functions to call in this process, and the client that hears for them."""

    told: Callable[[Progress], Any]
    compiling: Callable[[], Any] | None
    note: Callable[[str], Any] | None
    client: Client | None


#: By the names of their callbacks.
_local: dict[str, _Local] = {}
_lock = threading.Lock()


class _Forwarding:
    """The callback that travels."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, progress: Progress) -> None:
        if self.name in _local:  # it has not travelled
            _local[self.name].told(progress)
        else:
            get_worker().log_event(PROGRESS, {"callback": self.name, "progress": asdict(progress)})


def _hear(client: Client, event: tuple[float, dict[str, Any]]) -> None:
    _, facts = event
    if "compiling" in facts:
        with _lock:
            waiting = [one.compiling for one in _local.values() if one.client is client and one.compiling is not None]
        for compiling in waiting:
            compiling()
        return
    if "line" in facts:
        for name in facts["listeners"]:
            listening = _local.get(name)
            if listening is not None and listening.note is not None:
                listening.note(facts["line"])
        return
    called = _local.get(facts["callback"])
    if called is not None:
        called.told(Progress(**facts["progress"]))


def listeners(callbacks: Any) -> list[str]:
    """Return the names of those callbacks of a fit that call functions in a user's process."""
    return [callback.name for callback in callbacks if isinstance(callback, _Forwarding)] if isinstance(callbacks, Sequence) else []


@contextlib.contextmanager
def local_callback(
    function: Callable[[Progress], Any],
    client: Client | None = None,
    compiling: Callable[[], Any] | None = None,
    note: Callable[[str], Any] | None = None,
) -> Iterator[Callable[[Progress], None]]:
    """Give a callback for ``fit`` that calls a function in this process, wherever the fit runs.

    Parameters
    ----------
    function : callable
        Given a :class:`~dtrees.engine.plan.plans.Progress`, in a thread of the Dask client; what it returns does not matter.
    client : distributed.Client, optional
        By default the current one, if there is one.
    compiling : callable, optional
        Called, once or often, while workers of the cluster compile kernels, whoever waits for these.
    note : callable, optional
        Given a line of text when the fit on the cluster loses workers, recovers, or moves data to workers that have joined.

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
