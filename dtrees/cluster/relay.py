"""Callbacks that run in the user's own process while the fit runs on a cluster.

The coordinator tells of its progress by an event of Dask's, and does not wait until it is heard: such a callback cannot end the fit, nor
slow it down.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from distributed import Client, get_worker

from dtrees.cluster.watch import default_client

_heard_here: dict[str, Callable[[Any], Any]] = {}


class _Relayed:
    """The callback that travels."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __call__(self, progress: Any) -> None:
        function = _heard_here.get(self._topic)
        if function is not None:  # it has not travelled
            function(progress)
        else:
            get_worker().log_event(self._topic, pickle.dumps(progress))


@contextlib.contextmanager
def here(function: Callable[[Any], Any], client: Client | None = None) -> Iterator[Callable[[Any], None]]:
    """Give a callback for ``fit`` that calls a function in this process, wherever the fit runs.

    Parameters
    ----------
    function : callable
        Given a :class:`~dtrees.engine.plans.Progress`, in a thread of the Dask client; what it returns does not matter.
    client : distributed.Client, optional
        By default the current one, if there is one.

    Yields
    ------
    callable

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import RandomForestRegressor
    >>> with here(lambda progress: print(progress.done)) as callback:
    ...     model = RandomForestRegressor(2).fit(np.eye(3), [1, 2, 3], callbacks=[callback])
    1
    2
    """
    client = client or default_client()
    topic = f"dtrees-relay-{uuid4().hex}"
    _heard_here[topic] = function
    try:
        if client is not None:
            client.subscribe_topic(topic, lambda event: function(pickle.loads(event[1])))
        yield _Relayed(topic)
    finally:
        del _heard_here[topic]
        if client is not None and client.status == "running":
            client.unsubscribe_topic(topic)
