"""What clients and workers ask of the registry of fits (:mod:`dtrees.cluster.reliability.fit_registry`), each with a deadline."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Future

from dtrees.cluster.compat import future_of
from dtrees.cluster.reliability.fit_registry import FitRegistry, adopting
from dtrees.cluster.transport.scheduler_rpc import SCHEDULER_PATIENCE, answer, ask, own_client

#: A fit that may be stopped asks so often.
_SECONDS_BETWEEN_QUESTIONS = 0.5
#: Strong references: an event loop has weak ones of what runs in it.
_registering: set[asyncio.Future[Any]] = set()


def register(client: Client) -> asyncio.Future[Any] | None:
    """Have the scheduler keep records of fits; return what an asynchronous client has to wait for.

    Fits that it submits meanwhile are taken up then, if somebody still wants them.
    """
    if not client.asynchronous:
        ask(client, lambda: client.register_plugin(FitRegistry()))
        return None
    registering = asyncio.ensure_future(client.register_plugin(FitRegistry()))
    _registering.add(registering)
    registering.add_done_callback(_registering.discard)
    return registering


def take_turn(client: Client, fit: str, role: str, worker: str | None, task: str | None) -> tuple[int, dict[str, Any]] | None:
    """Return the number of a new turn, and what was heard of workers; None if there is none.

    That is if nobody wants the fit any more, or if the task that takes the turn is not to run on this worker any more (None: on none).

    Raises
    ------
    SchedulerLost
        If there is no answer.
    """
    return ask(client, lambda: client.scheduler.dtrees_take_turn(fit=fit, role=role, worker=worker, task=task))


def stop(client: Client, fit: str) -> bool:
    """Have a fit that asks (:class:`StopAsked`) end after the tree under way; tell whether there is such a fit."""
    return ask(client, lambda: client.scheduler.dtrees_stop(fit=fit))


class StopAsked:
    """The callback that ends a fit when its user has asked for that; it asks the scheduler now and then.

    Parameters
    ----------
    fit : str
    """

    def __init__(self, fit: str) -> None:
        self._fit = fit
        self._next = 0.0

    def __call__(self, progress: object) -> bool:
        """Tell whether the fit is to end."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _SECONDS_BETWEEN_QUESTIONS
        client = own_client()
        return ask(client, lambda: client.scheduler.dtrees_is_stopped(fit=self._fit))

    def __getstate__(self) -> dict[str, Any]:
        return {"_fit": self._fit, "_next": 0.0}  # clocks of other machines differ


async def keep_trees(client: Client, fit: str, turn: int, first: int, trees: list[bytes]) -> bool:
    """Have trees kept, the number ``first`` and those that follow; tell whether the turn is still the last one.

    Raises
    ------
    OSError
        If there is no answer.
    """
    return await answer(client.scheduler.dtrees_keep_trees(fit=fit, turn=turn, first=first, trees=trees), SCHEDULER_PATIENCE)


def kept_trees(client: Client, fit: str) -> list[Any]:
    """Return all trees that are kept. Raises SchedulerLost if there is no answer."""
    found: list[bytes] = []
    while more := ask(client, lambda: client.scheduler.dtrees_trees(fit=fit, first=len(found))):  # noqa: B023 - used at once
        found += more
    return [pickle.loads(tree) for tree in found]


def adopted(client: Client, keys: Sequence[Any], detached: bool = True) -> list[Future]:
    """Return futures of tasks that the scheduler knows; does not wait.

    Where ``detached`` is False, fits among them are kept by this client only from now on.
    """
    futures = [future_of(client, key) for key in keys]  # before the scheduler tells of them
    with dask.annotate(**adopting(keys, detached)):
        client.submit(_nothing, key=f"dtrees-adopt-0{uuid4().hex[:9]}").release()
    return futures


def _nothing() -> None:
    """Be the task whose annotation the scheduler reads."""


def summary(client: Client) -> dict[str, dict[str, Any]]:
    """Return what is known of each fit on the cluster: its state, its turns, how many trees are kept, and its last events."""
    return ask(client, client.scheduler.dtrees_summary)
