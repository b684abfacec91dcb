"""The events of a fit on Dask's topics ``dtrees`` and, message by message, ``dtrees-exchange``.

``client.get_events("dtrees")`` returns the latest (Dask keeps a thousand of a topic), ``client.subscribe_topic("dtrees", handler)`` calls a
handler for each. An event is a dict with the ``fit`` (the key of its task), its ``worker``, ``what`` happened, and more by what that is.

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
    a round of boosting is finished, or a tree of a forest (not each has one): ``round`` or ``tree``, the number, ``total``, ``seconds``
    since the fit began, and the ``progress`` that callbacks see, as a dict; also ``scan`` (seconds of work by worker) where trees grow
    on one worker, and over shards also ``wait``, ``sent``, ``received``, ``exchanged`` and ``communicate`` (see
    :class:`Timings`), all since the fit began.
``batch``
    a worker has grown ``trees`` whole trees of a forest, in so many ``seconds``.
``shards lost``, ``shard moved``
    recovery: ``shards`` and ``workers``; ``shard`` and where ``to``.
``workers paused``
    the fit waits for ``workers`` that Dask has paused, as they use too much of their memory, and has for so many ``seconds``.

On ``dtrees-exchange``:

``exchange``
    a message went to shards and all replies came: ``message`` (``Open``, ``GrowTree``, ``GrowTrees``, ...: see
    :mod:`dtrees.engine.protocol.messages`; what shards send one another meanwhile is not counted),
    ``n_shards``, ``seconds``, of them those of the ``slowest`` shard's own work; and the bytes ``sent`` to all shards together and
    ``received`` from them. These are sent several at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distributed import Worker

from dtrees.cluster.compat import own_worker

TOPIC = "dtrees"
EXCHANGES = "dtrees-exchange"
#: Progress for callbacks in users' own processes; and from the scheduler, which workers are ``compiling``, a list of them, and a ``line``
#: about lost workers and the like, for the callbacks named in ``listeners`` (:mod:`dtrees.cluster.growing.watching`).
PROGRESS = "dtrees-progress"


#: Exchanges are sent no more often than this.
_SECONDS_BETWEEN_EXCHANGES = 0.25


def publish(fit: str, what: str, **facts: Any) -> None:
    """Log an event; only workers do."""
    if (worker := own_worker()) is not None:
        worker.log_event(TOPIC, {"fit": fit, "what": what, **facts})


class Account(NamedTuple):
    """Seconds that a shard worked on a message, and waited for others; and bytes that it sent to these."""

    worked: float
    waiting: float = 0.0
    sent: int = 0


@dataclass
class Timings:
    """Where the time of exchanges with shards goes: seconds by worker.

    Attributes
    ----------
    scan : dict from str to float
        Its own work.
    wait : dict from str to float
        For slower workers to be done with a step of the same message.
    sent, received : dict from str to int
        Bytes of the messages to it, and of its replies.
    exchanged : dict from str to int
        Bytes that it sent to other workers.
    communicate : float
        What exchanges took beyond the slowest worker's work: messages on their way, and the coordinator's own part of sending them.

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
        """Add an exchange of so many seconds, in which each worker did what its account says."""
        for worker, (worked, waited, sent) in accounts:
            self.scan[worker] = self.scan.get(worker, 0.0) + worked
            self.wait[worker] = self.wait.get(worker, 0.0) + waited
            self.exchanged[worker] = self.exchanged.get(worker, 0) + sent
        self.communicate += max(0.0, seconds - max(account.worked + account.waiting for _, account in accounts))


class Exchanges:
    """Sends events of a fit's exchanges, some at a time.

    To send one wakes the worker's event loop, which would take the interpreter from the coordinator just when all shards wait for
    its next message: a millisecond for each exchange.

    Parameters
    ----------
    fit : str
    """

    def __init__(self, fit: str) -> None:
        self._fit = fit
        self._unsent: list[dict[str, Any]] = []
        self._next = 0.0

    def note(self, **facts: Any) -> None:
        """Note an exchange, to be sent together with the next ones."""
        self._unsent.append({"fit": self._fit, "what": "exchange", **facts})
        if time.monotonic() > self._next:
            self.publish()

    def publish(self) -> None:
        """Send what has not been sent."""
        unsent, self._unsent = self._unsent, []
        self._next = time.monotonic() + _SECONDS_BETWEEN_EXCHANGES
        if (worker := own_worker()) is not None:
            worker.loop.add_callback(_log, worker, unsent)


def _log(worker: Worker, events: list[dict[str, Any]]) -> None:
    for event in events:
        worker.log_event(EXCHANGES, event)
