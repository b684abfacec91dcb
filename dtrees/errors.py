"""Exceptions of clusters that a user may want to catch.

All are a :class:`ClusterError`. Bad data and parameters are a ValueError or TypeError, wherever a fit runs.

>>> from dtrees.errors import ClusterError, NotEnoughMemory, SchedulerLost, WorkerLost
>>> issubclass(WorkerLost, ClusterError), issubclass(NotEnoughMemory, MemoryError)
(True, True)
"""

from __future__ import annotations

from dtrees.cluster.errors import ClusterError, FitCancelled, NotEnoughMemory, SchedulerLost, WorkerLost

__all__ = ["ClusterError", "FitCancelled", "NotEnoughMemory", "SchedulerLost", "WorkerLost"]
