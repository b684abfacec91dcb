"""What a user may have to catch: what can go wrong on a cluster that cannot go wrong in one process.

All are a :class:`ClusterError`. Bad data and parameters are a ValueError or TypeError, wherever a fit runs.

>>> from dtrees.errors import ClusterError, NotEnoughMemory, SchedulerLost, WorkerLost
>>> issubclass(WorkerLost, ClusterError), issubclass(NotEnoughMemory, MemoryError)
(True, True)
"""

from __future__ import annotations

from dtrees.cluster.errors import ClusterError, FitCancelled, NotEnoughMemory, SchedulerLost, WorkerLost

__all__ = ["ClusterError", "FitCancelled", "NotEnoughMemory", "SchedulerLost", "WorkerLost"]
