"""Questions to the scheduler end with an answer or an error, whatever becomes of the event loop that they are asked in."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client

from dtrees.cluster.errors import SchedulerLost
from dtrees.cluster.transport.scheduler_rpc import ask, in_loop


def test_a_loop_that_ends() -> None:
    """As that of a process does which exits: no question waits on, nor is one left that nobody has run."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    client: Any = SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop), asynchronous=False)
    assert in_loop(client, asyncio.sleep, 0, "answer") == "answer"
    threading.Timer(0.3, loop.call_soon_threadsafe, [loop.stop]).start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(SchedulerLost, match="was closed"):
                in_loop(client, asyncio.sleep, 60)
        gc.collect()
    thread.join()
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
    loop.close()


def test_from_the_loop_itself(client: Client) -> None:
    """It would wait for itself."""

    async def ask_here() -> Any:
        return ask(client, client.scheduler.ncores)

    with pytest.raises(RuntimeError, match="event loop"):
        in_loop(client, ask_here)
