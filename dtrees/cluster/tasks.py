"""Tasks of a fit: named for the dashboard, and given up when the block that made them ends.

>>> from dask.utils import key_split
>>> {key_split(key) for key in task_keys("presort", 3)}
{'dtrees-presort'}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import uuid4

from distributed import Client, Future

from dtrees.cluster.holding import hold
from dtrees.cluster.watch import Watch


def task_keys(stage: str, n: int) -> list[str]:
    """Return ``n`` new keys that Dask's dashboard groups as ``dtrees-<stage>``."""
    token = f"0{uuid4().hex[:9]}"  # the digit keeps Dask from taking it for a word
    return [f"dtrees-{stage}-{token}-{i}" for i in range(n)]


class Tasks:
    """Makes tasks. Futures that are not kept are released at the end of the block, whether it ends well or in an error.

    Releasing explicitly matters after an error: its traceback refers to futures, and as long as somebody looks at the traceback, the
    cluster would keep what they stand for.

    Parameters
    ----------
    client : distributed.Client

    Attributes
    ----------
    client : distributed.Client
    watch : Watch
        To wait with.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.watch = Watch(client)
        self._futures: list[Future] = []

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *exc: object) -> None:
        release(self._futures)
        self._futures.clear()

    def submit(self, stage: str, function: Callable[..., Any], *args: Any, **options: Any) -> Future:
        """Return the future of one call; ``options`` are those of :meth:`distributed.Client.submit`."""
        future = self.client.submit(function, *args, key=task_keys(stage, 1)[0], **options)
        self._futures.append(future)
        return future

    def map(self, stage: str, function: Callable[..., Any], *sequences: Sequence[Any], **options: Any) -> list[Future]:
        """Return futures of a call for each element; ``options`` are those of :meth:`distributed.Client.map`."""
        futures = self.client.map(function, *sequences, key=task_keys(stage, len(sequences[0])), **options)
        self._futures += futures
        return list(futures)

    def compute(self, delayed: Sequence[Any]) -> list[Future]:
        """Return futures of Dask's delayed objects, computed in one graph so that what they share is computed once."""
        futures = self.client.compute(delayed)
        self._futures += futures
        return list(futures)

    def find(self, keys: Sequence[str]) -> list[Future]:
        """Return futures of tasks that the cluster knows already."""
        hold(self.client, self.client.id, keys)
        futures = [Future(key, self.client) for key in keys]
        self._futures += futures
        return futures

    def keep(self, *futures: Future) -> None:
        """Leave it to the caller to release some futures."""
        kept = set(map(id, futures))
        self._futures = [future for future in self._futures if id(future) not in kept]


def release(futures: Iterable[Future | None]) -> None:
    """Give up futures; the cluster frees what nobody else wants."""
    for future in futures:
        if future is not None:
            future.release()
