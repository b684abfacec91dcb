"""What a fit tells of itself while it runs: events on Dask's topics ``dtrees`` and, message by message, ``dtrees-exchange``.

``client.get_events("dtrees")`` returns the latest (Dask keeps a thousand of a topic), ``client.subscribe_topic("dtrees", handler)`` calls a
handler for each. An event is a dict with the ``fit`` (the key of its task), the ``worker`` that tells, ``what`` happened, and more by what
that is.

On ``dtrees``:

``placed``
    where the trees are to grow: ``placement`` (one-worker, replicated, sharded or rows), the ``reason`` for it, ``workers`` that will have
    columns, and the ``bytes`` that each of these will need at most.
``began``
    a coordinator has begun: its ``turn``, from 1; it is higher where it takes over from one that was lost. ``listeners`` are the names of
    callbacks in users' own processes.
``holding``
    what workers hold: the ``rows`` and ``columns`` of the table, and for each of the ``workers`` how many columns and the bytes they take;
    over shards, ``rows_of`` says how many rows each has.
``round``, ``tree``
    a round of boosting is finished, or a tree of a forest (not each is told of): ``round`` or ``tree``, the number, ``total``, ``seconds``
    since the fit began, and the ``progress`` that callbacks see, as a dict; also ``scan`` (seconds of work by worker) where trees grow
    on one worker, and over shards also ``wait``, ``sent``, ``received``, ``exchanged`` and ``communicate`` (see
    :class:`~dtrees.cluster.growing.reporting.Timings`), all since the fit began.
``batch``
    a worker has grown ``trees`` whole trees of a forest, in so many ``seconds``.
``shards lost``, ``shard moved``
    recovery: ``shards`` and ``workers``; ``shard`` and where ``to``.
``workers paused``
    the fit waits for ``workers`` that Dask has paused, as they use too much of their memory, and has for so many ``seconds``.
``no direct channel``
    messages to shards go by Dask's own way, since connections are of another ``kind`` than tcp (encrypted, ``tls``).

On ``dtrees-exchange``:

``exchange``
    a message went to shards and all replies came: ``message`` (``Start``, ``Advance``, ``Finish``, ...: see
    :mod:`dtrees.engine.coordinator.tree`; a level is a ``Start`` or an ``Advance``;
    where workers keep rows, a tree of boosting is a ``GrowTree``: see :mod:`dtrees.engine.rows.messages`),
    ``n_shards``, ``seconds``, of them those of the ``slowest`` shard's own work; and the bytes ``sent`` to all shards together and
    ``received`` from them. These are told several at a time.
"""

from __future__ import annotations

import time
from typing import Any

from distributed import Worker, get_worker

TOPIC = "dtrees"
EXCHANGES = "dtrees-exchange"
#: What callbacks in users' own processes are told, and by the scheduler that workers are ``compiling``, a list of them, and a ``line``
#: about lost workers and the like, for the callbacks named in ``listeners`` (:mod:`dtrees.cluster.growing.watching`).
PROGRESS = "dtrees-progress"


#: Exchanges are told no more often than this.
_SECONDS_BETWEEN_EXCHANGES = 0.25


def tell(fit: str, what: str, **facts: Any) -> None:
    """Log an event; only workers do."""
    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(TOPIC, {"fit": fit, "what": what, **facts})


class Exchanges:
    """Tells of a fit's exchanges, some at a time.

    To tell something wakes the worker's event loop, which would take the interpreter from the coordinator just when all shards wait for
    its next message: a millisecond for each exchange.

    Parameters
    ----------
    fit : str
    """

    def __init__(self, fit: str) -> None:
        self._fit = fit
        self._untold: list[dict[str, Any]] = []
        self._next = 0.0

    def note(self, **facts: Any) -> None:
        """Tell of an exchange, together with the next ones."""
        self._untold.append({"fit": self._fit, "what": "exchange", **facts})
        if time.monotonic() > self._next:
            self.tell()

    def tell(self) -> None:
        """Tell what has not been told."""
        untold, self._untold = self._untold, []
        self._next = time.monotonic() + _SECONDS_BETWEEN_EXCHANGES
        try:
            worker = get_worker()
        except ValueError:
            return
        worker.loop.add_callback(_log, worker, untold)


def _log(worker: Worker, events: list[dict[str, Any]]) -> None:
    for event in events:
        worker.log_event(EXCHANGES, event)
