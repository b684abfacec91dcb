"""What can go wrong on a cluster that cannot go wrong in one process.

Errors in the data itself, or in the user's own lazy collections, are not among them: those reach the user as they were raised.
"""

from __future__ import annotations


class ClusterError(RuntimeError):
    """A fit that ended because of the cluster rather than the data."""


class WorkerLost(ClusterError):
    """A worker died, or stopped answering, with something that only it held."""


class SchedulerLost(ClusterError):
    """The connection to the scheduler broke: nothing that is on the cluster can be reached."""


class FitCancelled(ClusterError):
    """Nobody wants the fit any more: its future was cancelled or released, or its client is gone."""


class NotEnoughMemory(ClusterError, MemoryError):
    """The workers do not have the memory that a fit would need; it has not begun."""
