"""Tasks that the scheduler itself holds on to, whichever clients come and go.

Dask keeps a result for as long as a client wants it. Published datasets, queues and ``fire_and_forget`` work by wanting tasks in the name
of a client that nobody is; so does this, under names of fits. Messages go the way of the client's other messages, in order, and nothing
waits: an asynchronous client may call these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from distributed import Client, Future
from distributed.comm import CommClosedError
from distributed.comm.tcp import TCP

from dtrees.cluster.questions import states


def hold(client: Client, holder: str, keys: Sequence[str]) -> None:
    """Keep tasks, in the name of ``holder``."""
    if keys:
        client._send_to_scheduler(_wish(holder, keys))


async def hold_at_once(client: Client, holder: str, keys: Sequence[str]) -> None:
    """Keep tasks that the scheduler knows, by a message that overtakes those which wait to be sent together."""
    comm = client.scheduler_comm.comm
    if not keys or not isinstance(comm, TCP):  # others send a message in several steps, between which another must not come
        return hold(client, holder, keys)
    with contextlib.suppress(CommClosedError):  # then nothing is kept
        await comm.write([_wish(holder, keys)])


def _wish(holder: str, keys: Sequence[str]) -> dict[str, Any]:
    return {"op": "client-desires-keys", "keys": list(keys), "client": holder}


def let_go(client: Client, holder: str) -> None:
    """Give up all tasks kept in the name of ``holder``."""
    with contextlib.suppress(Exception):  # without a connection there is nothing to give up
        client._send_to_scheduler({"op": "close-client", "client": holder})


class HeldFuture(Future):
    """The future of a task that is kept in the name of the task itself; to cancel it by force ends that too."""

    def cancel(self, *args: Any, force: bool = False, **options: Any) -> Any:
        """Cancel the task; see :meth:`distributed.Future.cancel`."""
        cancelled = super().cancel(*args, force=force, **options)
        if force:
            let_go(self.client, self.key)
        return cancelled


def let_go_if_cancelled(client: Client, fit: str) -> None:
    """Give up all that is kept in the name of a fit, unless it is running elsewhere.

    That is so on a worker that was given up, and woke up again: it finds its tasks cancelled, but the fit goes on without it.
    """
    if states(client, [fit])[fit] is None:
        let_go_of_fit(client, fit)


def let_go_of_fit(client: Client, fit: str) -> None:
    """Give up all that is kept in the name of a fit."""
    for holder in (fit, needs(fit), trees(fit), guards(fit)):
        let_go(client, holder)


def needs(fit: str) -> str:
    """Return the holder of the user's data that a fit would need again if its coordinator were lost."""
    return f"{fit}-needs"


def trees(fit: str) -> str:
    """Return the holder of a fit's finished trees. Who keeps them lets go of them: messages of two clients may overtake each other."""
    return f"{fit}-trees"


def guards(fit: str) -> str:
    """Return the holder of a fit's guard (:mod:`dtrees.cluster.guard`)."""
    return f"{fit}-guards"
