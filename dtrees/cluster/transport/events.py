"""The events of a fit on Dask's topics ``dtrees`` and, for single messages, ``dtrees-exchange``.

``client.get_events("dtrees")`` returns the latest events (Dask stores a thousand for each topic), ``client.subscribe_topic("dtrees",
handler)`` calls a handler for each. An event is a dict with the ``fit`` (the key of its task), its ``worker``, ``what`` happened, and
fields that depend on this.

On ``dtrees``:

``placed``
    the placement of trees: ``placement`` (one-worker, replicated, sharded or rows), its ``reason``, the ``workers`` that will hold data,
    and the ``bytes`` that each of these will need at most.
``began``
    a coordinator has begun: its ``turn``, from 1; larger if it takes over from a lost one. ``listeners`` are the names of callbacks in
    users' own processes.
``holding``
    the data of workers: the ``rows`` and ``columns`` of the table, and for each of the ``workers`` its number of columns and their bytes;
    over shards, ``rows_of`` has the number of rows of each.
``round``, ``tree``
    a round of boosting, or a tree of a forest (not every one), is finished: its number ``round`` or ``tree``, ``total``, ``seconds`` since
    the fit began, and the ``progress`` passed to callbacks, as a dict; also ``scan`` (seconds of work by worker) if trees grow on one
    worker, and over shards also ``wait``, ``sent``, ``received``, ``exchanged`` and ``communicate`` (see :class:`Timings`), all since the
    fit began.
``batch``
    a worker has grown ``trees`` whole trees of a forest, in ``seconds``.
``shards lost``, ``shard moved``
    recovery: ``shards`` and ``workers``; ``shard`` and where ``to``.
``workers paused``
    the fit waits for ``workers`` that Dask has paused because they use too much memory; it has waited for ``seconds``.

On ``dtrees-exchange``:

``exchange``
    a message was sent to shards and all replies have arrived: ``message`` (``Open``, ``GrowTree``, ``GrowTrees``, ...: see
    :mod:`dtrees.engine.protocol.messages`; payloads between shards are not counted), ``n_shards``, ``seconds``, the part of these in the
    ``slowest`` shard's own work, the bytes ``sent`` to all shards and ``received`` from them. Several of these events are sent at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distributed import Worker

from dtrees.engine.threads import dask_worker

TOPIC = "dtrees"
EXCHANGES = "dtrees-exchange"
#: Progress for callbacks in users' own processes. The scheduler sends a list of the workers that are ``compiling``, and a ``line`` about
#: lost workers and the like for the callbacks named in ``listeners`` (:mod:`dtrees.cluster.growing.watching`).
PROGRESS = "dtrees-progress"


#: Smallest interval between messages with exchanges, in seconds.
_SECONDS_BETWEEN_EXCHANGES = 0.25


def publish(fit: str, what: str, **facts: Any) -> None:
    """Log an event; only on workers."""
    if (worker := dask_worker()) is not None:
        worker.log_event(TOPIC, {"fit": fit, "what": what, **facts})


class Account(NamedTuple):
    """Seconds that a shard worked on a message and waited for others, and bytes that it sent to them."""

    worked: float
    waiting: float = 0.0
    sent: int = 0


@dataclass
class Timings:
    """The time of exchanges with shards, in seconds by worker.

    Attributes
    ----------
    scan : dict from str to float
        Own work of a worker.
    wait : dict from str to float
        Time in which it waited for slower workers within the same message.
    sent, received : dict from str to int
        Bytes of the messages to it, and of its replies.
    exchanged : dict from str to int
        Bytes that it sent to other workers.
    communicate : float
        Time of exchanges beyond the slowest worker's work: messages in transfer, and the coordinator's work of sending them.

    Examples
    --------
    >>> timings = Timings()
    >>> timings.add(0.75, [("a", Account(0.25, 0.25)), ("b", Account(0.5))])
    >>> timings.scan, timings.wait, timings.communicate
    ({'a': 0.25, 'b': 0.5}, {'a': 0.25, 'b': 0.0}, 0.25)
    """

    scan: dict[str, float] = field(default_factory=dict)
    wait: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    exchanged: dict[str, int] = field(default_factory=dict)
    communicate: float = 0.0

    def add(self, seconds: float, accounts: Sequence[tuple[str, Account]]) -> None:
        """Add an exchange of ``seconds`` with the accounts of the workers."""
        for worker, (worked, waited, sent) in accounts:
            self.scan[worker] = self.scan.get(worker, 0.0) + worked
            self.wait[worker] = self.wait.get(worker, 0.0) + waited
            self.exchanged[worker] = self.exchanged.get(worker, 0) + sent
        self.communicate += max(0.0, seconds - max(account.worked + account.waiting for _, account in accounts))


class Exchanges:
    """Sends the events of a fit's exchanges, several at a time.

    Sending an event wakes the worker's event loop, which would take the interpreter from the coordinator while all shards wait for its next
    message: a millisecond for each exchange.

    Parameters
    ----------
    fit : str
    """

    def __init__(self, fit: str) -> None:
        self._fit = fit
        self._unsent: list[dict[str, Any]] = []
        self._next = 0.0

    def note(self, **facts: Any) -> None:
        """Record an exchange, to be sent together with the next ones."""
        self._unsent.append({"fit": self._fit, "what": "exchange", **facts})
        if time.monotonic() > self._next:
            self.publish()

    def publish(self) -> None:
        """Send the recorded exchanges."""
        unsent, self._unsent = self._unsent, []
        self._next = time.monotonic() + _SECONDS_BETWEEN_EXCHANGES
        if (worker := dask_worker()) is not None:
            worker.loop.add_callback(_log, worker, unsent)


def _log(worker: Worker, events: list[dict[str, Any]]) -> None:
    for event in events:
        worker.log_event(EXCHANGES, event)
