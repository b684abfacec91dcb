"""Tasks of a fit: named for the dashboard, and given up when the block that made them ends.

>>> from dask.utils import key_split
>>> {key_split(key) for key in task_keys("presort", 3)}
{'dtrees-presort'}
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Future, futures_of

from dtrees.cluster.errors import ClusterError, FitCancelled, SchedulerLost, WorkerLost
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.fit_record import adopted
from dtrees.cluster.reliability.fit_registry import belonging
from dtrees.cluster.reliability.liveness import FutureWaiter
from dtrees.cluster.transport.clients import RUN_AGAIN, states


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
    waiter : FutureWaiter
        To wait with.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.waiter = FutureWaiter(client)
        fit = current_fit()
        self._annotations = belonging(fit.name, fit.turn)
        self._futures: list[Future] = []

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *exc: object) -> None:
        release(self._futures)
        self._futures.clear()

    def submit(self, stage: str, function: Callable[..., Any], *args: Any, **options: Any) -> Future:
        """Return the future of one call; ``options`` are those of :meth:`distributed.Client.submit`."""
        with dask.annotate(**self._annotations):
            future = self.client.submit(function, *args, key=task_keys(stage, 1)[0], **options)
        self._futures.append(future)
        return future

    def send(self, stage: str, value: Any, **there: Any) -> Future:
        """Return the future of a value, however large; ``there`` is of :meth:`submit`.

        It is what a task returns, not scattered data: the task is run again when the worker that held its result is lost.
        """
        with however_large():
            return self.submit(stage, partial(same, value), **there)

    def map(self, stage: str, function: Callable[..., Any], *sequences: Sequence[Any], **options: Any) -> list[Future]:
        """Return futures of a call for each element.

        ``workers`` and ``allow_other_workers`` are those of :meth:`distributed.Client.map`. All other options are passed to each call; they
        are sent as one task, as a table of many columns or categories has large ones, and Dask would make tasks of these by their names.
        """
        n_calls = len(sequences[0])
        there = {name: options.pop(name) for name in ("workers", "allow_other_workers") if name in options}
        if options and n_calls:
            sequences = ([self.send("options", options, **there)] * n_calls, *sequences)
            function = partial(_with_options, function)
        with dask.annotate(**self._annotations):
            futures = self.client.map(function, *sequences, key=task_keys(stage, n_calls), **there)
        self._futures += futures
        return list(futures)

    def compute(self, delayed: Sequence[Any]) -> list[Future]:
        """Return futures of Dask's delayed objects, computed in one graph so that what they share is computed once."""
        with dask.annotate(**self._annotations):
            futures = self.client.compute(delayed)
        self._futures += futures
        return list(futures)

    def find(self, keys: Sequence[str]) -> list[Future]:
        """Return futures of tasks that the scheduler knows already.

        Raises
        ------
        SchedulerLost
            If it does not know some of them any more, or does not answer.
        """
        unknown = [key for key, state in states(self.client, keys).items() if state is None]
        if unknown:
            raise SchedulerLost(f"The Dask scheduler does not know {len(unknown)} of {len(keys)} tasks of this fit any more. {RUN_AGAIN}.")
        futures = adopted(self.client, keys)
        self._futures += futures
        return futures

    def keep(self, *futures: Future) -> None:
        """Leave it to the caller to release some futures."""
        kept = set(map(id, futures))
        self._futures = [future for future in self._futures if id(future) not in kept]


@contextlib.contextmanager
def however_large() -> Iterator[None]:
    """Have Dask send what is meant to be sent without its warning of large graphs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield


def same(value: Any) -> Any:
    """Return the argument."""
    return value


def _with_options(function: Callable[..., Any], options: dict[str, Any], *args: Any) -> Any:
    return function(*args, **options)


def release(futures: Iterable[Future | None]) -> None:
    """Give up futures; the cluster frees what nobody else wants."""
    for future in futures:
        if future is not None:
            future.release()


@contextlib.contextmanager
def lost_data_named(client: Client, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Say so if an error of the cluster in the block comes of lost data.

    What ``client.scatter`` put on the cluster is gone with the last worker that holds it. Dask then cancels whatever needs it, without a
    word of the reason.

    Parameters
    ----------
    client : distributed.Client
    arguments : mapping from str to Any
        What the user has given, by name.

    Raises
    ------
    WorkerLost
        In place of that error.
    """
    try:
        yield
    except FitCancelled:
        raise
    except ClusterError as error:
        for name, given in arguments.items():
            n_pieces, n_lost = _count_lost(client, given)
            if n_lost:
                raise WorkerLost(
                    f"{name} is lost in part: {n_lost} of the {n_pieces} futures that it is made of were data of client.scatter. They went "
                    "with the worker that held them, and cannot be computed again. Scatter them anew, with broadcast=True to have them on "
                    f"several workers, or make {name} of what can be read again (dask.dataframe.read_parquet, dask.array.from_array). "
                    "Then run the fit again."
                ) from error
        raise


def _count_lost(client: Client, given: Any) -> tuple[int, int]:
    """Return how many futures there are in something, and how many of them the cluster does not know any more."""
    keys = [future.key for future in futures_of([given])]
    known: Mapping[Any, Any] = {}
    with contextlib.suppress(SchedulerLost, RuntimeError):  # without a scheduler there is no telling
        known = states(client, keys) if keys else {}
    return len(keys), sum(state is None for state in known.values())
