"""Data that the cluster cannot make again: what ``client.scatter`` put there is gone with the last worker that holds it.

Dask then cancels whatever needs it, without a word of the reason. So a fit that ends that way looks for the reason here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from distributed import Client, futures_of

from dtrees.cluster.errors import ClusterError, FitCancelled, SchedulerLost, WorkerLost
from dtrees.cluster.transport.scheduler_rpc import states


@contextlib.contextmanager
def lost_data_named(client: Client, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Say so if an error of the cluster in the block comes of lost data.

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
            n_pieces, n_lost = _count(client, given)
            if n_lost:
                raise WorkerLost(
                    f"{name} is lost in part: {n_lost} of the {n_pieces} futures that it is made of were data of client.scatter. They went "
                    "with the worker that held them, and cannot be computed again. Scatter them anew, with broadcast=True to have them on "
                    f"several workers, or make {name} of what can be read again (dask.dataframe.read_parquet, dask.array.from_array). "
                    "Then run the fit again."
                ) from error
        raise


def _count(client: Client, given: Any) -> tuple[int, int]:
    """Return how many futures there are in something, and how many of them the cluster does not know any more."""
    keys = [future.key for future in futures_of([given])]
    known: Mapping[Any, Any] = {}
    with contextlib.suppress(SchedulerLost, RuntimeError):  # without a scheduler there is no telling
        known = states(client, keys) if keys else {}
    return len(keys), sum(state is None for state in known.values())
