"""Errors of fits on a cluster that cannot occur in one process.

Errors in the data, or in the user's own lazy collections, are not among them; they reach the user unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dtrees.engine.plan.plans import FitInterrupted


class ClusterError(RuntimeError):
    """A fit that ended because of the cluster rather than the data.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier
    >>> from dtrees.errors import ClusterError
    >>> try:
    ...     tree = DecisionTreeClassifier().fit([[0.0], [1.0]], ["a", "b"])
    ... except ClusterError:
    ...     print("nothing is wrong with the table")
    """


class WorkerLost(ClusterError):
    """A worker died or stopped answering, and data that only it held are lost.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier, WorkerLost
    >>> try:
    ...     tree = DecisionTreeClassifier().fit([[0.0], [1.0]], ["a", "b"])
    ... except WorkerLost as lost:
    ...     print("more memory, or more workers:", lost)
    """


class SchedulerLost(ClusterError):
    """The connection to the scheduler broke, so nothing on the cluster can be reached.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier, SchedulerLost
    >>> try:
    ...     tree = DecisionTreeClassifier().fit([[0.0], [1.0]], ["a", "b"])
    ... except SchedulerLost:
    ...     print("run it again with the same checkpoint")
    """


class FitCancelled(ClusterError):
    """The fit was cancelled: its future was cancelled or released, or its client is gone.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier
    >>> from dtrees.errors import FitCancelled
    >>> try:
    ...     tree = DecisionTreeClassifier().fit([[0.0], [1.0]], ["a", "b"])
    ... except FitCancelled:
    ...     print("somebody has cancelled it")
    """


class NotEnoughMemory(ClusterError, MemoryError):
    """The workers have too little memory for a fit, which has not begun; or Dask has paused workers, and they do not resume.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier, NotEnoughMemory
    >>> try:
    ...     tree = DecisionTreeClassifier().fit([[0.0], [1.0]], ["a", "b"])
    ... except NotEnoughMemory as lacking:
    ...     print(lacking)
    """


@contextlib.contextmanager
def exits_as_errors() -> Iterator[None]:
    """Turn an exception that ends the process, raised by a user's function, into an error of the fit; Dask would lose worker after worker.

    Raises
    ------
    RuntimeError

    Examples
    --------
    >>> with exits_as_errors():
    ...     raise SystemExit(3)
    Traceback (most recent call last):
    ...
    RuntimeError: a callback or metric raised SystemExit(3), which would end its worker; return True to end a fit
    """
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        origin = error.origin if isinstance(error, FitInterrupted) else error
        raise RuntimeError(f"a callback or metric raised {origin!r}, which would end its worker; return True to end a fit") from error
