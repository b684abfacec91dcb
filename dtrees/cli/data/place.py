"""Where files are looked at: here, or, where they are not here, on a worker of a cluster, perhaps the only place that can read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dtrees.cli.data.tables import find_files
from dtrees.cli.terminal.errors import CommandError

T = TypeVar("T")


class Place:
    """Calls functions that look at files.

    Parameters
    ----------
    client : distributed.Client or None
        Of the cluster whose workers call them; None calls them in this process.
    """

    def __init__(self, client: Any = None) -> None:
        self._client = client

    def __call__(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return what a function returns, or raise what it raises.

        >>> HERE(sorted, [2, 1], reverse=True)
        [2, 1]
        """
        if self._client is None:
            return function(*arguments, **options)
        result: T = self._client.submit(_call, function, arguments, options, pure=False).result()
        return result


def _call(function: Callable[..., T], arguments: tuple[Any, ...], options: dict[str, Any]) -> T:
    """Call a function in a task, from which it may compute more on the same cluster."""
    from distributed import worker_client

    with worker_client():
        return function(*arguments, **options)


HERE = Place()


def place_of(data: str, client: Any) -> Place:
    """Return where the files that a DATA argument stands for are looked at: here if they are here, or there is no client."""
    if client is None:
        return HERE
    try:
        find_files(data)
    except (CommandError, OSError):
        return Place(client)
    return HERE
