"""Guards: who looks after the coordinator of a fit while it looks after everybody else.

A worker that dies is noticed by Dask; one that hangs is noticed by whoever waits for it (:mod:`dtrees.cluster.watch`). Nobody on the
cluster waits for the coordinator, and the client may be gone, or wait by means of Dask that know no deadline. So a
fit has a guard: a task on another worker that does nothing but listen for workers that are silent. If the coordinator's is, it is
struck off, and Dask runs the coordinator elsewhere. Should it be the guard's worker that hangs or dies, the coordinator is there to
notice, and Dask runs the guard again.

A guard that finds itself on the coordinator's own worker (there was no other) hands over to one elsewhere as soon as there is an elsewhere.
"""

from __future__ import annotations

import contextlib
import time
from uuid import uuid4

from distributed import Client, get_worker, secede

from dtrees.cluster.errors import ClusterError
from dtrees.cluster.fits import Fit, Settings, coordinating
from dtrees.cluster.holding import guards, hold, let_go, let_go_of_fit
from dtrees.cluster.questions import own_client, states, threads_of_workers
from dtrees.cluster.watch import Watch

#: Before whatever waits for a thread: it does not keep it.
_PRIORITY = 100
#: How often it looks at the cluster, and whether it is wanted itself: else workers would close before it ends, and complain.
_SLICE, _SECONDS_TO_HEAR = 0.5, 0.02


def start_guard(client: Client, fit: str, settings: Settings) -> None:
    """Start the guard of a fit, from the worker that coordinates it."""
    elsewhere = [worker for worker in threads_of_workers(client) if worker != get_worker().address]
    key = f"dtrees-guard-0{uuid4().hex[:9]}"
    where = {"workers": elsewhere, "allow_other_workers": True} if elsewhere else {}
    future = client.submit(_guard, fit, settings, key=key, priority=_PRIORITY, **where)
    hold(client, guards(fit), [key])
    future.release()


def _guard(fit: str, settings: Settings) -> None:
    """Listen until the fit is over, as a task."""
    secede()
    worker, client = get_worker(), own_client()
    # A guard that is not wanted any more hears of it as coordinators do; a cluster that breaks down is not its business.
    running = Fit(fit, settings)
    with contextlib.suppress(ClusterError), coordinating(running):
        watch = Watch(client)
        while True:
            watch.look()
            state = states(client, [fit])[fit]
            if state is None:  # given up while the coordinator could not hear of it
                return let_go_of_fit(client, fit)
            if state in ("memory", "erred"):
                return let_go(client, guards(fit))
            if fit in worker.state.tasks and len(threads_of_workers(client)) > 1:
                return start_guard(client, fit, settings)
            next_look = time.monotonic() + _SLICE
            while time.monotonic() < next_look:
                running.check()
                time.sleep(_SECONDS_TO_HEAR)
