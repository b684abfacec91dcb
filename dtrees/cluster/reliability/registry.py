"""A record of each fit on the scheduler: what has to outlive the workers that grow the trees.

:class:`FitRegistry` is a scheduler plugin, registered with ``client.register_plugin`` whenever a fit is submitted. A submitted fit is a
task whose annotations describe it (:func:`described`). When its graph reaches the scheduler, the registry makes a record of it; when the
scheduler forgets the task, since nobody wants its result or it was cancelled, the record goes.

What a record does
------------------
- It keeps a detached fit, and the user's persisted data that a fit would need again if it had to start anew.
- It keeps the finished trees, pickled. A coordinator that takes over from a lost one finds them there.
- It counts *turns*: each run of the coordinator, and of the task that grows the trees, takes a turn. What a process says that stood still
  while another took its turn is refused. A run that the scheduler has given up gets no turn, however late it begins.
- It listens to workers for as long as the fit runs (:class:`Heartbeats`). Tasks of the fit that wait on a silent worker, its coordinator
  among them, run elsewhere; the worker, and what others have there, is left alone. When it is heard again, results that its new tasks need
  may have to be fetched again (:meth:`FitRegistry._fetch_again`).
- It knows the state of the fit and the events that it sent, for whoever wants to show that (:meth:`FitRegistry.fits`).

The other side, what clients and workers ask of it, is :mod:`dtrees.cluster.reliability.fit`.
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
#: Silence is established by several looks at least.
_LOOKS = 5
#: Patience is at least so many times the longest silence that a worker broke.
_TIMES_THE_LONGEST = 4.0
#: When workers have fallen silent, patience grows by this factor, up to so many times what it was to begin with: if it was a false alarm,
#: the next one takes longer.
_GROWTH, _MOST_GROWTH = 1.5, 3.0


class Heartbeats:
    """Which workers there are, and which of them are silent.

    Silence is counted while somebody listens: if this process itself stood still (a suspended machine), no worker is to blame.

    Parameters
    ----------
    patience : float
        Seconds without a sign of life until a worker counts as silent, to begin with. Where workers are found to be slow at reporting (a
        busy machine), it grows.

    Attributes
    ----------
    patience : float
    silent : dict from str to float
        The seconds of silence of each silent worker.
    n_departed : int
        How often a worker went away, or fell silent.
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
        """How often to call :meth:`note`."""
        return min(_SECONDS_BETWEEN_LOOKS, self.patience / _LOOKS)

    def note(self, last_seen: Mapping[str, float], own: str | None = None) -> None:
        """Take in when the scheduler has last heard of each worker.

        Parameters
        ----------
        last_seen : mapping from str to float
        own : str, optional
            The worker that listens: it is not silent.
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
        """What has been heard so far, for :meth:`take_over` elsewhere."""
        return {"last_seen": self._last_seen, "silence": self._silence, "silent": self.silent, "patience": self.patience}

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Go on from what others have heard."""
        self._last_seen, self._silence = dict(state["last_seen"]), dict(state["silence"])
        self.silent, self.patience = dict(state["silent"]), state["patience"]
        self._usable = self._last_seen.keys() - self.silent.keys()

    @property
    def all_lost(self) -> bool:
        """Whether there has been no worker, but silent ones, for longer than the patience; the first one is waited for, as Dask does."""
        return self._had_workers and self._without_workers > self.patience

    @property
    def awaits_first(self) -> bool:
        """Whether there has been no worker yet."""
        return not self._had_workers


logger = logging.getLogger("dtrees.cluster")

#: The annotation of tasks that belong to a fit.
ANNOTATION = "dtrees"
#: What clients and workers ask, by ``client.scheduler.dtrees_...``.
_ASKED = ("take_turn", "keep_trees", "trees", "fits", "stop", "is_stopped")
#: Of fits whose records are gone, for the page in Dask's dashboard.
_HISTORIES_KEPT = 20
#: Why there is no such page, as this process has logged already.
_said: set[str] = set()
#: Bytes of finished trees in an answer, at least one tree.
_BYTES_AT_ONCE = 32_000_000


def belonging(fit: str, turn: int = 0) -> dict[str, Any]:
    """Return the annotation of tasks that a turn of a fit's coordinator submits."""
    return {ANNOTATION: {"fit": fit, "turn": turn}}


def described(
    fit: str, *, patience: float, detached: bool, needs: Collection[Any], estimator: str = "", unit: str = "tree", label: str = ""
) -> dict[str, Any]:
    """Return the annotation of the task that is a fit.

    Parameters
    ----------
    fit : str
        Its key.
    patience : float
        Seconds without a sign of life until it does without a worker.
    detached : bool
        Whether it goes on without a client that wants it.
    needs : collection of keys
        Tasks whose results are held until the fit ends.
    estimator, unit : str
        What is fitted, and what is counted: "tree" or "round".
    label : str
        What its user calls it.
    """
    what = {"estimator": estimator, "unit": unit, "label": label}
    return {ANNOTATION: {"fit": fit, "patience": patience, "detached": detached, "needs": list(needs), **what}}


def adopting(keys: Collection[Any], detached: bool = True) -> dict[str, Any]:
    """Return the annotation of a task whose client wants other tasks from then on, which the scheduler knows already.

    Where ``detached`` is False, fits among them belong to that client only, then.

    A client's messages reach the scheduler in order, and graphs are among them. A question of its own might overtake an earlier message
    that the client does not want these tasks any more.
    """
    return {ANNOTATION: {"adopted": list(keys), "detached": detached}}


@dataclass
class FitRecord:
    """What the registry knows of a fit.

    Attributes
    ----------
    fit : str
        The key of its task.
    heartbeats : Heartbeats
    history : FitHistory
        The events that it has sent, summed up.
    state : str
        Of its task, as the scheduler calls it: "waiting", "processing", "memory", "erred" and so on.
    turns : dict from str to int
        How many turns there were of each role, "coordinator" and "trees".
    trees : list of bytes
        The finished trees, pickled, in order.
    stopped : bool
        Whether its user wants it to end with the trees that there are.
    lacking : set of tuple of str and key
        At the last look, workers with tasks of the fit, and results that these need and the worker did not have.
    """

    fit: str
    heartbeats: Heartbeats
    history: FitHistory
    state: str = "waiting"
    turns: dict[str, int] = field(default_factory=dict)
    trees: list[bytes] = field(default_factory=list)
    stopped: bool = False
    lacking: set[tuple[str, Any]] = field(default_factory=set)

    @property
    def needs_holder(self) -> str:
        """The name under which the data is held that the fit needs."""
        return f"{self.fit}-needs"

    @property
    def is_over(self) -> bool:
        """Whether the fit has ended, well or not."""
        return self.state in ("memory", "erred")


class FitRegistry(SchedulerPlugin):
    """The records of all fits on a cluster.

    Attributes
    ----------
    compiling : set of str
        The workers that compile kernels; set by whoever has them do so.
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
        """Take up work, and the fits that were submitted before by an asynchronous client."""
        self._scheduler = scheduler
        scheduler.handlers |= {f"dtrees_{name}": getattr(self, name) for name in _ASKED}
        self._add_page(scheduler)
        self._add([(key, task.annotations[ANNOTATION]) for key, task in scheduler.tasks.items() if ANNOTATION in (task.annotations or {})])

    async def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()

    # Notices of the scheduler

    def update_graph(self, scheduler: Any, *, client: str, annotations: Mapping[str, Mapping[str, Any]], **kwargs: Any) -> None:
        """Make records of the fits among new tasks, and have a client keep what it adopts."""
        annotated = annotations.get(ANNOTATION, {})
        self._add(annotated.items())
        for facts in annotated.values():
            known = [key for key in facts.get("adopted", ()) if key in scheduler.tasks]
            if known:
                scheduler.client_desires_keys(keys=known, client=client)
                for key in known if not facts["detached"] else ():
                    asyncio.get_running_loop().call_soon(self._let_go, key)

    def transition(self, key: str, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Follow the states of fits, and correct the scheduler's lists of actors."""
        if start == "processing" and finish == "released":
            self._discard_actor(key)
        record = self._records.get(key)
        if record is None:
            return
        record.state = finish
        failed = self._scheduler.tasks.get(key) if finish == "erred" else None
        record.history.note_state(finish, first_line(failed.exception_text) if failed is not None and failed.exception_text else "")
        if finish == "forgotten":
            del self._records[key]
            self._past.append(record.history)
            # Not now: the scheduler is in the middle of its transitions.
            asyncio.get_running_loop().call_soon(self._clear, record)
        elif record.is_over:
            record.trees.clear()
            asyncio.get_running_loop().call_soon(self._let_go, record.needs_holder)

    def log_event(self, topic: str, msg: Any) -> None:
        """Keep the last events of fits."""
        fit = msg.get("fit") if topic == TOPIC and isinstance(msg, Mapping) else None
        record = self._records.get(fit) if isinstance(fit, str) else None
        if record is not None:
            record.history.take(msg)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Let the fits know that a worker is gone."""
        for record in self._records.values():
            record.history.lose([worker])

    def restart(self, scheduler: Any) -> None:
        """Forget all: the scheduler has."""
        records, self._records = self._records, {}
        self._past.extend(record.history for record in records.values())
        for record in records.values():
            self._clear(record)

    # What fits ask for

    def take_turn(self, fit: str, role: str, worker: str | None = None, task: str | None = None) -> tuple[int, dict[str, Any]] | None:
        """Return the number of a new turn of a role, and what was heard of workers; None if there is none.

        That is if the fit is not known, or over, or if the task that asks, on a certain worker, has been given to another one meanwhile,
        which would otherwise have to yield to a run whose result nobody waits for.
        """
        record = self._records.get(fit)
        if record is None or record.is_over or (worker is not None and not self._runs(worker, task)):
            return None
        turn = record.turns[role] = record.turns.get(role, 0) + 1
        if role == "coordinator" and turn > 1:  # what an earlier one had made, and cannot give up while it stands still
            self._release_tasks(fit, before=turn)
        return turn, record.heartbeats.state

    def keep_trees(self, fit: str, turn: int, first: int, trees: list[bytes]) -> bool:
        """Store trees, the number ``first`` and those that follow it; return whether it was this turn's to say."""
        record = self._records.get(fit)
        if record is None or record.is_over or record.turns.get("trees") != turn:
            return False
        record.trees[first:] = trees
        return True

    def trees(self, fit: str, first: int) -> list[bytes]:
        """Return finished trees, from a number on: some of them, and none if there are no more."""
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
        """Have the dashboard show the fits, if it can; otherwise fits go on without."""
        try:
            add_dashboard_page(scheduler, PAGE, functools.partial(make_page, self.histories, scheduler))
        except NoDashboard as error:
            if str(error) not in _said:
                _said.add(str(error))
                logger.warning("There is no page of dtrees in Dask's dashboard, since %s; fits go on without.", error)

    def histories(self) -> list[FitHistory]:
        """Return what is known of fits, those under way and the last that were, the latest first."""
        return [record.history for record in reversed(self._records.values())] + list(reversed(self._past))

    def fits(self, fit: str | None = None) -> list[dict[str, Any]]:
        """Return how far each fit has come (:meth:`~dtrees.cluster.dashboard.FitHistory.snapshot`), or a certain one.

        These are the fits under way and the last that were, the latest first.
        """
        return [history.snapshot() for history in self.histories() if fit in (None, history.fit)]

    def stop(self, fit: str) -> bool:
        """Note that a fit is to end with the trees it has; return whether it is there, and not over."""
        record = self._records.get(fit)
        if record is None or record.is_over:
            return False
        record.stopped = True
        return True

    def is_stopped(self, fit: str) -> bool:
        """Return whether a fit is to end."""
        record = self._records.get(fit)
        return record is not None and record.stopped

    # How it is done

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
        """Have whoever waits for a fit hear what happened to it."""
        if history.listeners:
            self._scheduler.log_event(PROGRESS, {"listeners": history.listeners, "line": line})

    def _clear(self, record: FitRecord) -> None:
        """Release all that is held for a fit, and what it has not given up itself."""
        self._let_go(record.fit)
        self._let_go(record.needs_holder)
        self._release_tasks(record.fit)

    def _runs(self, worker: str, key: str | None) -> bool:
        """Return whether the scheduler has a task run on a certain worker."""
        task = self._scheduler.tasks.get(key)
        return task is not None and task.processing_on is not None and task.processing_on.address == worker

    def _let_go(self, holder: str) -> None:
        """Release what is held under a name."""
        if holder in self._scheduler.clients:
            self._scheduler.remove_client(holder)

    def _release_tasks(self, fit: str, before: int | None = None) -> None:
        """Release the tasks of a fit, or those of turns before a certain one.

        Partitions of the user's collections are among them if a coordinator was the first to compute them: what others want of these stays.
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
        """Listen to workers, until there are no fits."""
        while self._records:
            await asyncio.sleep(min(record.heartbeats.seconds_between_looks for record in self._records.values()))
            last_seen = {address: worker.last_seen for address, worker in self._scheduler.workers.items()}
            for record in list(self._records.values()):
                heard, before = record.heartbeats, record.heartbeats.silent
                heard.note(last_seen)
                record.history.lose(heard.silent.keys() - before.keys())
                for worker in heard.silent.keys() - before.keys():
                    logger.warning("%s does without worker %s, silent for %.0f s", record.fit, worker, heard.silent[worker])
                with contextlib.suppress(KeyError):  # gone by what was done for another
                    self._move(record, heard.silent)
                self._fetch_again(record)

    def _move(self, record: FitRecord, silent: Collection[str]) -> None:
        """Have what a fit needs of silent workers done elsewhere, if there is an elsewhere."""
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
            # A worker ends that is to drop what a task needs which it runs: it hears first that it does not run that any more. And tasks
            # move last, so that where they go nobody asks the silent worker for what they need.
            tell_released(scheduler, address, [task.key for task in running], stimulus)
            scheduler.request_remove_replicas(address, superfluous, stimulus_id=stimulus)
            for task in (*running, *missed):
                scheduler.set_restrictions({task.key: others})
                task.loose_restrictions = True
            scheduler.transitions({task.key: "released" for task in (*running, *missed)}, stimulus_id=stimulus)

    def _fetch_again(self, record: FitRecord) -> None:
        """Have workers fetch results that tasks of a fit lacked at the last look already; a worker that fetches them takes no notice.

        A worker that is heard again may finish a task that was moved. The scheduler answers that it is to forget the result. If it has
        been given a task meanwhile that needs this result from elsewhere, it gives up fetching it, and its task would wait for ever.
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
        """Take an actor that was given up before it was made out of its worker's list, which Dask leaves it in."""
        task = self._scheduler.tasks[key]
        if task.actor and ANNOTATION in (task.annotations or {}):
            for worker in self._scheduler.workers.values():
                worker.actors.discard(task)


def _belongs(task: Any, fit: str) -> bool:
    """Return whether a task is a fit, or was submitted by its coordinator."""
    return bool((task.annotations or {}).get(ANNOTATION, {}).get("fit") == fit)


def _may_move(task: Any) -> bool:
    """Return whether a task may run on other workers: an actor may not, nor what its user has restricted."""
    return not task.actor and (not (task.worker_restrictions or task.host_restrictions) or bool(task.loose_restrictions))


def _is_elsewhere(task: Any, silent: Collection[str]) -> bool:
    """Return whether another worker has a result too: then nobody needs to ask the silent one for it."""
    return any(worker.address not in silent for worker in task.who_has)


def _is_used(task: Any, worker: Any, moved: Collection[Any]) -> bool:
    """Return whether a worker runs tasks that need a result, other than those which are moved away from it."""
    return any(other.processing_on is worker and other not in moved for other in task.waiters or ())


def _is_missed(task: Any, fit: str, silent: Collection[str]) -> bool:
    """Return whether a fit needs a result that only silent workers have, and that can be made again without disturbing others.

    If it were made again while tasks of others that are silent too depend on it, Dask would take these for lost.
    """
    if not task.run_spec or not _may_move(task) or _is_elsewhere(task, silent):
        return False
    waiting = task.waiters or ()
    return (_belongs(task, fit) or any(_belongs(other, fit) for other in waiting)) and all(
        _belongs(other, fit) for other in waiting if other.state == "processing"
    )
