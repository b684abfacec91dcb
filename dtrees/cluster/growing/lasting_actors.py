"""Actors that are replaced when they are lost, by new ones made of the same, on workers that have the memory for it."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from distributed import Client

from dtrees.cluster.data.memory import running
from dtrees.cluster.data.placement import nthreads
from dtrees.cluster.errors import WorkerLost
from dtrees.cluster.growing.actors import Actors, ActorsLost
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.transport.direct_channel import ActorBase

logger = logging.getLogger("dtrees.cluster")

_SECONDS_BETWEEN_TRIES = 0.5


class LastingActors(ABC):
    """Actors of a fit, one for each share of something; close it, or use it as a context manager, to free them.

    Parameters
    ----------
    client : distributed.Client
    stage : str
        For the names of tasks.
    make : callable
        Makes an actor on a worker.
    ends_at_failure : bool
        Whether actors wait for one another, so that calls made together are over when one fails.
    """

    def __init__(self, client: Client, stage: str, make: Callable[..., ActorBase], ends_at_failure: bool = False) -> None:
        self._client = client
        self._fit = current_fit()
        self._actors = Actors(client, stage, make, ends_at_failure)
        self._n_restarts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the actors."""
        self._actors.close()

    @abstractmethod
    def _arguments(self, i: int) -> tuple[Any, ...]:
        """Return what an actor is made of."""

    @abstractmethod
    def _describe(self, i: int) -> str:
        """Say what an actor holds."""

    def _needed(self, i: int) -> int:
        """Return the bytes that an actor needs."""
        return 0

    def _bring(self, i: int, worker: str) -> None:
        """Have what an actor is made of on another worker."""
        logger.info("%s: %s, lost or moved, will be on %s", self._fit.name, self._describe(i), worker)

    def _make_all(self, workers: Sequence[str]) -> None:
        """Make the actors, each on its worker; those whose workers are lost by now are made elsewhere."""
        there = nthreads(self._client)
        try:
            for i, worker in enumerate(workers):
                if worker not in there:
                    worker = min(there, key=lambda other: (workers.count(other), other))
                    self._bring(i, worker)
                self._actors.add(worker, self._arguments(i))
            self._await_made()
        except BaseException:
            self.close()
            raise

    def _await_made(self) -> None:
        while True:
            try:
                return self._actors.wait_until_made()
            except ActorsLost:
                self._note_loss()
                self._replace_lost()

    def _replace_lost(self) -> None:
        """Start making new actors in the place of those that are lost."""
        for i in sorted(self._actors.lost):
            worker = self._place_for(i)
            self._bring(i, worker)
            self._actors.replace(i, worker, self._arguments(i))

    def _note_loss(self) -> None:
        """Take in that actors are lost.

        Raises
        ------
        WorkerLost
            If that has happened too often.
        """
        self._actors.look()
        lost = ", ".join(f"{self._actors.workers[i]} (which held {self._describe(i)})" for i in sorted(self._actors.lost))
        logger.warning("lost %s", lost)
        self._n_restarts += 1
        if self._n_restarts > self._fit.settings.max_restarts:
            raise WorkerLost(
                f"Lost {lost}. Workers had been replaced {self._fit.settings.max_restarts} times already in this fit, "
                "which is max_restarts. If they run out of memory, give them more; the workers' logs say more. Then run it again."
            )

    def _place_for(self, i: int) -> str:
        """Return the worker to make an actor on, waiting for one with the memory for it if there is none."""
        patience = self._fit.settings.patience
        deadline = time.monotonic() + patience
        while True:
            capacities = running(self._actors.look())
            load = dict.fromkeys(capacities, (0.0, 0))
            for other, worker in enumerate(self._actors.workers):
                if other not in self._actors.lost and worker in load:
                    held, n = load[worker]
                    load[worker] = held + self._needed(other) / capacities[worker].threads, n + 1
            able = [worker for worker, capacity in capacities.items() if capacity.free >= self._needed(i)]
            if able:
                return min(able, key=lambda worker: (load[worker], worker))
            if time.monotonic() > deadline:
                raise WorkerLost(
                    f"Lost {self._actors.workers[i]}, which held {self._describe(i)}, and none of the {len(capacities)} workers left "
                    f"has the memory for that (waited {patience:g} s). Add workers, or give them more memory, and run it again."
                )
            time.sleep(_SECONDS_BETWEEN_TRIES)
