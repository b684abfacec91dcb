"""The record of each fit on the scheduler: state that must outlive the workers that grow the trees.

:class:`FitRegistry` is a scheduler plugin, registered by ``client.register_plugin`` whenever a fit is submitted. A submitted fit is a task
whose annotations describe it (:func:`described`). When its graph reaches the scheduler, the registry creates a record; when the scheduler
forgets the task, since its result is no longer wanted or it was cancelled, the record is removed.

What a record does
------------------
- It holds a detached fit, and the user's persisted data that the fit would need to start again.
- It stores the finished trees, pickled, for a coordinator that takes over from a lost one.
- It counts *turns*: each run of the coordinator, and of the task that grows the trees, takes a turn. Messages of a process that was
  suspended while another took its turn are refused. A run that the scheduler has given up gets no turn, however late it begins.
- It monitors workers while the fit runs (:class:`Heartbeats`). Tasks of the fit that wait on a silent worker, including its coordinator,
  run elsewhere; the worker and the data of others on it are not touched. When it is heard again, results that its new tasks need may have
  to be fetched again (:meth:`FitRegistry._fetch_again`).
- It has the state of the fit and its events for displays (:meth:`FitRegistry.fits`).

The requests of clients and workers are in :mod:`dtrees.cluster.reliability.fit`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed import SchedulerPlugin, Status

from dtrees.cluster.compat import NoDashboard, add_dashboard_page, tell_released
from dtrees.cluster.dashboard import PAGE, FitHistory, make_page
from dtrees.cluster.transport.clients import first_line
from dtrees.cluster.transport.events import PROGRESS, TOPIC

_SECONDS_BETWEEN_LOOKS = 2.0
#: Smallest number of looks that establish silence.
_LOOKS = 5
#: Patience is at least this multiple of the longest silence that a worker broke.
_TIMES_THE_LONGEST = 4.0
#: When workers become silent, patience grows by this factor, up to the given multiple of its initial value, so that after a false alarm the
#: next one takes longer.
_GROWTH, _MOST_GROWTH = 1.5, 3.0


class Heartbeats:
    """Which workers exist, and which of them are silent.

    Only time during which this object listens counts as silence: if this process was suspended itself, no worker is at fault.

    Parameters
    ----------
    patience : float
        Seconds without a sign of life until a worker counts as silent, initially. It grows if workers prove slow to report (on a busy
        machine).

    Attributes
    ----------
    patience : float
    silent : dict from str to float
        The seconds of silence of each silent worker.
    n_departed : int
        How often a worker left or became silent.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.silent: dict[str, float] = {}
        self.n_departed = 0
        self._most_patience = _MOST_GROWTH * patience
        self._last_seen: dict[str, float] = {}  # by the scheduler's clock
        self._silence: dict[str, float] = {}
        self._usable: set[str] = set()
        self._had_workers = False
        self._without_workers = 0.0
        self._last_note = time.monotonic()

    @property
    def seconds_between_looks(self) -> float:
        """The interval of calls of :meth:`note`."""
        return min(_SECONDS_BETWEEN_LOOKS, self.patience / _LOOKS)

    def note(self, last_seen: Mapping[str, float], own: str | None = None) -> None:
        """Record when the scheduler has last heard of each worker.

        Parameters
        ----------
        last_seen : mapping from str to float
        own : str, optional
            The worker of the calling process, which is not silent.
        """
        now = time.monotonic()
        listened = min(now - self._last_note, 1.5 * self.seconds_between_looks)
        self._last_note = now
        silence = {}
        for worker, when in last_seen.items():
            if self._last_seen.get(worker) == when and worker != own:
                silence[worker] = self._silence[worker] + listened
            else:
                silence[worker] = 0.0
                if worker not in self.silent:
                    self.patience = max(self.patience, _TIMES_THE_LONGEST * self._silence.get(worker, 0.0))
        silent = {worker: seconds for worker, seconds in silence.items() if seconds and (worker in self.silent or seconds > self.patience)}
        if silent.keys() - self.silent.keys():
            self.patience = max(self.patience, min(_GROWTH * self.patience, self._most_patience))
        usable = last_seen.keys() - silent.keys()
        self.n_departed += len(self._usable - usable)
        self._had_workers = self._had_workers or bool(last_seen)
        self._without_workers = 0.0 if usable else self._without_workers + listened
        self.silent, self._usable, self._silence, self._last_seen = silent, usable, silence, dict(last_seen)

    @property
    def state(self) -> dict[str, Any]:
        """The observations so far, for :meth:`take_over` elsewhere."""
        return {"last_seen": self._last_seen, "silence": self._silence, "silent": self.silent, "patience": self.patience}

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Continue from the observations of another process."""
        self._last_seen, self._silence = dict(state["last_seen"]), dict(state["silence"])
        self.silent, self.patience = dict(state["silent"]), state["patience"]
        self._usable = self._last_seen.keys() - self.silent.keys()

    @property
    def all_lost(self) -> bool:
        """Whether all workers have been lost or silent for longer than the patience; a first worker is waited for, as Dask does."""
        return self._had_workers and self._without_workers > self.patience

    @property
    def awaits_first(self) -> bool:
        """Whether there has been no worker yet."""
        return not self._had_workers


logger = logging.getLogger("dtrees.cluster")

#: The annotation key of tasks that belong to a fit.
ANNOTATION = "dtrees"
#: Requests of clients and workers, by ``client.scheduler.dtrees_...``.
_ASKED = ("take_turn", "keep_trees", "trees", "fits", "stop", "is_stopped")
#: Number of fits without records whose histories remain, for the page in Dask's dashboard.
_HISTORIES_KEPT = 20
#: Reasons for a missing dashboard page that this process has already logged.
_logged: set[str] = set()
#: Bytes of finished trees in an answer, which has at least one tree.
_BYTES_AT_ONCE = 32_000_000


def belonging(fit: str, turn: int = 0) -> dict[str, Any]:
    """Return the annotation of tasks that a turn of a fit's coordinator submits."""
    return {ANNOTATION: {"fit": fit, "turn": turn}}


def described(
    fit: str, *, patience: float, detached: bool, needs: Collection[Any], estimator: str = "", unit: str = "tree", label: str = ""
) -> dict[str, Any]:
    """Return the annotation of the task of a fit.

    Parameters
    ----------
    fit : str
        The key of the fit.
    patience : float
        Seconds without a sign of life after which the fit continues without a worker.
    detached : bool
        Whether it continues without a client that wants it.
    needs : collection of keys
        Tasks whose results are held until the fit ends.
    estimator, unit : str
        The class of the model, and the unit of progress: "tree" or "round".
    label : str
        The label given by its user.
    """
    what = {"estimator": estimator, "unit": unit, "label": label}
    return {ANNOTATION: {"fit": fit, "patience": patience, "detached": detached, "needs": list(needs), **what}}


def adopting(keys: Collection[Any], detached: bool = True) -> dict[str, Any]:
    """Return the annotation of a task that makes its client hold other tasks, which the scheduler knows already.

    If ``detached`` is False, fits among them belong only to that client from then on.

    Messages of a client, graphs included, reach the scheduler in order. A separate request might overtake an earlier message that the
    client no longer wants these tasks.
    """
    return {ANNOTATION: {"adopted": list(keys), "detached": detached}}


@dataclass
class FitRecord:
    """The registry's data about a fit.

    Attributes
    ----------
    fit : str
        The key of its task.
    heartbeats : Heartbeats
    history : FitHistory
        The states of its task, and the summary of the events that it has sent.
    turns : dict from str to int
        Number of turns of each role, "coordinator" and "trees".
    trees : list of bytes
        The finished trees, pickled, in order.
    stopped : bool
        Whether its user has asked it to end with its current trees.
    lacking : set of tuple of str and key
        At the last look: workers with tasks of the fit, and results that these need and the worker lacked.
    """

    fit: str
    heartbeats: Heartbeats
    history: FitHistory
    turns: dict[str, int] = field(default_factory=dict)
    trees: list[bytes] = field(default_factory=list)
    stopped: bool = False
    lacking: set[tuple[str, Any]] = field(default_factory=set)

    @property
    def needs_holder(self) -> str:
        """The client name under which the data of the fit is held."""
        return f"{self.fit}-needs"


class FitRegistry(SchedulerPlugin):
    """The records of all fits on a cluster.

    Attributes
    ----------
    compiling : set of str
        The workers that compile kernels; set by :class:`~dtrees.cluster.growing.kernel_shipping.KernelStore`.
    """

    name = "dtrees-fits"
    idempotent = True

    def __init__(self) -> None:
        self.compiling: set[str] = set()
        self._scheduler: Any = None
        self._records: dict[str, FitRecord] = {}
        self._past: deque[FitHistory] = deque(maxlen=_HISTORIES_KEPT)
        self._listening: asyncio.Task[None] | None = None

    async def start(self, scheduler: Any) -> None:
        """Start, with the fits that an asynchronous client has submitted before."""
        self._scheduler = scheduler
        scheduler.handlers |= {f"dtrees_{name}": getattr(self, name) for name in _ASKED}
        self._add_page(scheduler)
        self._add([(key, task.annotations[ANNOTATION]) for key, task in scheduler.tasks.items() if ANNOTATION in (task.annotations or {})])

    async def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()

    # Notifications of the scheduler

    def update_graph(self, scheduler: Any, *, client: str, annotations: Mapping[str, Mapping[str, Any]], **kwargs: Any) -> None:
        """Create records of the fits among new tasks, and have a client hold the tasks that it adopts."""
        annotated = annotations.get(ANNOTATION, {})
        self._add(annotated.items())
        for facts in annotated.values():
            known = [key for key in facts.get("adopted", ()) if key in scheduler.tasks]
            if known:
                scheduler.client_desires_keys(keys=known, client=client)
                for key in known if not facts["detached"] else ():
                    asyncio.get_running_loop().call_soon(self._let_go, key)

    def transition(self, key: str, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Record the states of fits, and correct the scheduler's lists of actors."""
        if start == "processing" and finish == "released":
            self._discard_actor(key)
        record = self._records.get(key)
        if record is None:
            return
        failed = self._scheduler.tasks.get(key) if finish == "erred" else None
        record.history.note_state(finish, first_line(failed.exception_text) if failed is not None and failed.exception_text else "")
        if finish == "forgotten":
            del self._records[key]
            self._past.append(record.history)
            # Not now: the scheduler is in the middle of its transitions.
            asyncio.get_running_loop().call_soon(self._clear, record)
        elif record.history.is_over:
            record.trees.clear()
            asyncio.get_running_loop().call_soon(self._let_go, record.needs_holder)

    def log_event(self, topic: str, msg: Any) -> None:
        """Store the latest events of fits."""
        fit = msg.get("fit") if topic == TOPIC and isinstance(msg, Mapping) else None
        record = self._records.get(fit) if isinstance(fit, str) else None
        if record is not None:
            record.history.take(msg)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Notify the fits of a lost worker."""
        for record in self._records.values():
            record.history.lose([worker])

    def restart(self, scheduler: Any) -> None:
        """Discard all records, as the scheduler has discarded its tasks."""
        records, self._records = self._records, {}
        self._past.extend(record.history for record in records.values())
        for record in records.values():
            self._clear(record)

    # Requests of fits

    def take_turn(self, fit: str, role: str, worker: str | None = None, task: str | None = None) -> tuple[int, dict[str, Any]] | None:
        """Return the number of a new turn of a role, and the state of heartbeats; None if it is refused.

        It is refused if the fit is unknown or has ended, or if the requesting task of a worker has been given to another worker in the
        meantime: the run with the wanted result would otherwise be displaced.
        """
        record = self._running(fit)
        if record is None or (worker is not None and not self._runs(worker, task)):
            return None
        turn = record.turns[role] = record.turns.get(role, 0) + 1
        if role == "coordinator" and turn > 1:  # cleans up after a suspended earlier one
            self._release_tasks(fit, before=turn)
        return turn, record.heartbeats.state

    def keep_trees(self, fit: str, turn: int, first: int, trees: list[bytes]) -> bool:
        """Store trees from number ``first`` on; return whether the turn is the current one."""
        record = self._running(fit)
        if record is None or record.turns.get("trees") != turn:
            return False
        record.trees[first:] = trees
        return True

    def trees(self, fit: str, first: int) -> list[bytes]:
        """Return finished trees from a number on: at least one, unless there are no more."""
        record = self._records.get(fit)
        found: list[bytes] = []
        n_bytes = 0
        for tree in [] if record is None else record.trees[first:]:
            n_bytes += len(tree)
            if found and n_bytes > _BYTES_AT_ONCE:
                break
            found.append(tree)
        return found

    def _add_page(self, scheduler: Any) -> None:
        """Add the page with the fits to the dashboard; fits continue if that fails."""
        try:
            add_dashboard_page(scheduler, PAGE, functools.partial(make_page, self.histories, scheduler))
        except NoDashboard as error:
            if str(error) not in _logged:
                _logged.add(str(error))
                logger.warning("There is no page of dtrees in Dask's dashboard, since %s; fits go on without.", error)

    def histories(self) -> list[FitHistory]:
        """Return the histories of running and recent fits, the latest first."""
        return [record.history for record in reversed(self._records.values())] + list(reversed(self._past))

    def fits(self, fit: str | None = None) -> list[dict[str, Any]]:
        """Return the progress of each fit (:meth:`~dtrees.cluster.dashboard.FitHistory.snapshot`), or of one fit.

        These are running and recent fits, the latest first.
        """
        return [history.snapshot() for history in self.histories() if fit in (None, history.fit)]

    def stop(self, fit: str) -> bool:
        """Request that a fit end with its current trees; return whether it is running."""
        if (record := self._running(fit)) is not None:
            record.stopped = True
        return record is not None

    def is_stopped(self, fit: str) -> bool:
        """Return whether a fit was asked to end."""
        record = self._records.get(fit)
        return record is not None and record.stopped

    # Implementation

    def _running(self, fit: str) -> FitRecord | None:
        """Return the record of a fit that has not ended."""
        record = self._records.get(fit)
        return None if record is None or record.history.is_over else record

    def _add(self, annotated: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        for key, facts in annotated:
            if "needs" not in facts or key in self._records:
                continue
            history = FitHistory(key, facts["estimator"], facts["unit"], self.compiling, facts["label"], hear=self._forward)
            record = self._records[key] = FitRecord(key, Heartbeats(facts["patience"]), history)
            if facts["detached"]:
                self._scheduler.client_desires_keys(keys=[key], client=key)
            known = [needed for needed in facts["needs"] if needed in self._scheduler.tasks]
            if known:
                self._scheduler.client_desires_keys(keys=known, client=record.needs_holder)
        if self._records and (self._listening is None or self._listening.done()):
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    def _forward(self, history: FitHistory, line: str) -> None:
        """Forward a notice about a fit to its listeners."""
        if history.listeners:
            self._scheduler.log_event(PROGRESS, {"listeners": history.listeners, "line": line})

    def _clear(self, record: FitRecord) -> None:
        """Release all data held for a fit, and tasks that it has not released itself."""
        self._let_go(record.fit)
        self._let_go(record.needs_holder)
        self._release_tasks(record.fit)

    def _runs(self, worker: str, key: str | None) -> bool:
        """Return whether the scheduler currently assigns a task to a given worker."""
        task = self._scheduler.tasks.get(key)
        return task is not None and task.processing_on is not None and task.processing_on.address == worker

    def _let_go(self, holder: str) -> None:
        """Release the data held under a client name."""
        if holder in self._scheduler.clients:
            self._scheduler.remove_client(holder)

    def _release_tasks(self, fit: str, before: int | None = None) -> None:
        """Release the tasks of a fit, or only those of turns before ``before``.

        They may include partitions of the user's collections that a coordinator was the first to compute; results that others want remain.
        """
        wanted: dict[str, list[Any]] = {}
        for key, task in self._scheduler.tasks.items():
            if key != fit and _belongs(task, fit) and (before is None or task.annotations[ANNOTATION]["turn"] < before):
                for client in task.who_wants or ():
                    if not str(key).startswith("dtrees-") and "-worker-" not in client.client_key:
                        continue
                    wanted.setdefault(client.client_key, []).append(key)
        for client, keys in wanted.items():
            self._scheduler.client_releases_keys(keys=keys, client=client)

    async def _listen(self) -> None:
        """Monitor workers as long as there are fits."""
        while self._records:
            await asyncio.sleep(min(record.heartbeats.seconds_between_looks for record in self._records.values()))
            last_seen = {address: worker.last_seen for address, worker in self._scheduler.workers.items()}
            for record in list(self._records.values()):
                heard, before = record.heartbeats, record.heartbeats.silent
                heard.note(last_seen)
                record.history.lose(heard.silent.keys() - before.keys())
                for worker in heard.silent.keys() - before.keys():
                    logger.warning("%s does without worker %s, silent for %.0f s", record.fit, worker, heard.silent[worker])
                with contextlib.suppress(KeyError):  # removed while another one was handled
                    self._move(record, heard.silent)
                self._fetch_again(record)

    def _move(self, record: FitRecord, silent: Collection[str]) -> None:
        """Move tasks and data that a fit needs away from silent workers, if there are other workers."""
        scheduler, fit = self._scheduler, record.fit
        others = [address for address, worker in scheduler.workers.items() if address not in silent and worker.status == Status.running]
        if not others:
            return
        stimulus = f"{fit}-moved"
        for address in silent:
            worker = scheduler.workers[address]
            running = [task for task in worker.processing if _belongs(task, fit) and _may_move(task)]
            missed = [task for task in worker.has_what if _is_missed(task, fit, silent)]
            superfluous = [
                task.key
                for task in worker.has_what
                if _belongs(task, fit) and _is_elsewhere(task, silent) and not _is_used(task, worker, running)
            ]
            # A worker closes if it is told to drop data that a task it runs needs, so it is first told that the task was released. Tasks
            # are moved last, so that their new workers do not request data from the silent one.
            tell_released(scheduler, address, [task.key for task in running], stimulus)
            scheduler.request_remove_replicas(address, superfluous, stimulus_id=stimulus)
            for task in (*running, *missed):
                scheduler.set_restrictions({task.key: others})
                task.loose_restrictions = True
            scheduler.transitions({task.key: "released" for task in (*running, *missed)}, stimulus_id=stimulus)

    def _fetch_again(self, record: FitRecord) -> None:
        """Have workers fetch results that tasks of a fit already lacked at the last look; workers that are fetching them ignore this.

        A worker that is heard again may finish a task that was moved. The scheduler tells it to forget the result. If it has in the
        meantime been given a task that needs this result from elsewhere, it stops fetching it, and its task would never run.
        """
        lacking = {
            (address, needed.key)
            for address, worker in self._scheduler.workers.items()
            if address not in record.heartbeats.silent
            for task in worker.processing
            if _belongs(task, record.fit)
            for needed in task.dependencies
            if needed.who_has and worker not in needed.who_has
        }
        for address, key in lacking & record.lacking:
            self._scheduler.request_acquire_replicas(address, [key], stimulus_id=f"{record.fit}-fetched-again")
        record.lacking = lacking

    def _discard_actor(self, key: str) -> None:
        """Remove an actor that was given up before it was created from its worker's list, where Dask leaves it."""
        task = self._scheduler.tasks[key]
        if task.actor and ANNOTATION in (task.annotations or {}):
            for worker in self._scheduler.workers.values():
                worker.actors.discard(task)


def _belongs(task: Any, fit: str) -> bool:
    """Return whether a task is a fit, or was submitted by its coordinator."""
    return bool((task.annotations or {}).get(ANNOTATION, {}).get("fit") == fit)


def _may_move(task: Any) -> bool:
    """Return whether a task may run on other workers, which excludes actors and tasks restricted by the user."""
    return not task.actor and (not (task.worker_restrictions or task.host_restrictions) or bool(task.loose_restrictions))


def _is_elsewhere(task: Any, silent: Collection[str]) -> bool:
    """Return whether another worker has a result too, so that the silent one need not be asked."""
    return any(worker.address not in silent for worker in task.who_has)


def _is_used(task: Any, worker: Any, moved: Collection[Any]) -> bool:
    """Return whether a worker runs tasks that need a result, other than tasks that are moved away from it."""
    return any(other.processing_on is worker and other not in moved for other in task.waiters or ())


def _is_missed(task: Any, fit: str, silent: Collection[str]) -> bool:
    """Return whether a fit needs a result that only silent workers have, and that can be made again without disturbing others.

    If it were made again while tasks of other users on silent workers depend on it, Dask would consider these lost.
    """
    if not task.run_spec or not _may_move(task) or _is_elsewhere(task, silent):
        return False
    waiting = task.waiters or ()
    return (_belongs(task, fit) or any(_belongs(other, fit) for other in waiting)) and all(
        _belongs(other, fit) for other in waiting if other.state == "processing"
    )
