"""Submit a fit to a cluster as a task, wait for it, and find it again later.

An estimator and its data go to a worker as one object. There, ``fit`` runs inside a task, as it would anywhere, without blocking the
worker's other tasks (:mod:`dtrees.cluster.reliability.waiting`). So there is one way to fit: ``fit`` on Dask collections submits, waits,
and copies the fitted attributes back.

Where callbacks run
-------------------
Callbacks run on a worker, in the process of the coordinator. They are sent by cloudpickle, like all functions of the user; a callback that
cannot be pickled is refused before the fit starts. They can end the fit without a round trip, and continue after the user's session has
ended. They change copies of their variables on the worker, not the user's. A function that must run in the user's own process, to draw a
progress bar for example, is passed through :func:`dtrees.cluster.growing.watching.local_callback`.

Lifetime of results
-------------------
Dask releases a result to which nothing refers, and all data from which it was computed. The future that :func:`submit` returns refers to
the fitted model. If the fit is *detached*, so does its record on the scheduler, until ``attach(key, take_over=True)``. The record also
refers to the data that the coordinator needs again if its worker dies (the user's persisted partitions, the finished trees), until the
coordinator ends (:mod:`dtrees.cluster.reliability.registry`).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
import dask
import numpy as np
from distributed import Client, Future, futures_of, secede
from sklearn.utils import check_random_state

from dtrees.cluster.data.memory import check_processes
from dtrees.cluster.data.partitions import is_lazy
from dtrees.cluster.data.placement import check_placement
from dtrees.cluster.errors import SchedulerLost, exits_as_errors
from dtrees.cluster.growing.watching import listeners, local_callback
from dtrees.cluster.reliability.fit import Settings, StopAsked, WholeTables, adopted, coordinating_task, new_name, register, registered
from dtrees.cluster.reliability.registry import described
from dtrees.cluster.reliability.waiting import FutureWaiter, however_large, lost_data_named
from dtrees.cluster.transport.clients import ask, client_given, give_up, own_client
from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.callbacks import ProgressBar, keeps_on_interrupt, warn_of_interrupt
from dtrees.ensemble.checkpoint import absolute_path
from dtrees.ensemble.compat import check_parameters
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.input.by_size import draws_by_default_alone
from dtrees.ensemble.input.rules import draw_seed
from dtrees.ensemble.input.warning import collected_warnings, warn

logger = logging.getLogger("dtrees.cluster")

#: Time after which the scheduler knows all earlier submissions, and the interval of checks, in seconds.
_SECONDS_TO_BE_KNOWN, _SECONDS_BETWEEN_QUESTIONS = 1.0, 0.02
#: The attribute of the fitted model with warnings for the user, on its way back to ``fit``.
_WARNINGS = "_warnings"


def submit(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    client: Client | None = None,
    detached: bool = False,
    priority: int = 0,
    max_restarts: int | None = None,
    placement: str | None = None,
    label: str = "",
    **options: Any,
) -> Future:
    """Fit a model on a Dask cluster, without waiting for it.

    Parameters
    ----------
    model : estimator
        An estimator of dtrees. It is not changed; the future's result is a fitted copy.
    X : Dask DataFrame or Array, or array-like, of shape (n, n_features)
        Data in the memory of this process are sent to one worker, which fits by itself.
    y : Dask Series or Array, or array-like, of shape (n,)
    sample_weight : Dask Series or Array, or array-like, of shape (n,), or None, default=None
    client : distributed.Client, optional
        Client of the cluster, by default the current one. It may be asynchronous.
    detached : bool, default=False
        Whether the fit continues, and its result is stored, when this client is gone. A later session finds it by the future's key:
        ``dtrees.attach(key)``. Otherwise the fit ends with the last future that refers to it, like other tasks of Dask.
    priority : int, default=0
        Priority of the fit among other tasks of the cluster. Higher priorities run first.
    max_restarts : int, optional
        How many times the fit may replace lost workers. By default ``dtrees.max-restarts`` of Dask's configuration, or 10.
    placement : {"auto", "one-worker", "replicated", "sharded", "rows"}, optional
        Where the table is stored. With "one-worker", one worker holds all columns. With "replicated", each worker holds all columns and
        grows trees by itself (not for boosting, whose trees depend on each other). With "sharded", columns are spread over all workers,
        which grow each tree together. With "rows", each worker keeps the rows of its partitions, and all workers grow each tree together.
        "auto" decides by the size of the table and by the threads and free memory of workers. The model does not depend on the placement;
        ``placement_`` has the one that was used, and the predicted time of a tree of boosting. By default ``dtrees.placement`` of Dask's
        configuration, or "auto". Only for Dask collections.
    label : str, default=""
        Name of the fit in :func:`dtrees.fits` and in the dashboard.
    **options
        Other arguments of ``fit``. Callbacks run on the cluster.

    Returns
    -------
    distributed.Future
        Its result is the fitted model. ``future.cancel()`` ends the fit and frees its memory (``future.cancel(force=True)`` if it is
        detached).

    Raises
    ------
    TypeError
        If an argument cannot be sent to the cluster, or has a wrong type.
    ValueError
        If there is no client, or a parameter is wrong.
    NotEnoughMemory
        If the memory of workers is too small for any fit (not with an asynchronous client).
    SchedulerLost
        If the scheduler does not answer.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from dtrees import DecisionTreeRegressor, submit
    >>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    ...     X = da.arange(8, chunks=4)
    ...     future = submit(DecisionTreeRegressor(), X[:, None], X > 3)
    ...     future.result().get_depth()
    1
    """
    if not isinstance(label, str):
        raise TypeError(f"label is {label!r}; wants text")
    given = {"X": X, "y": y, "sample_weight": sample_weight, **options}
    return _submit(model, given, client, placement, detached=detached, priority=priority, max_restarts=max_restarts, label=label)


#: Options of ``fit`` that may be collections.
_DATA = ("X", "y", "sample_weight", "qid", "eval_set", "base_margin", "X_val", "y_val", "sample_weight_val")


def _submit(
    model: Any,
    given: dict[str, Any],
    client: Client | None,
    placement: str | None,
    max_restarts: int | None = None,
    waited_for: bool = False,
    **how: Any,
) -> Future:
    """Submit a fit with the arguments of ``fit``; with ``waited_for``, the waiting client shows its warnings.

    ``how`` are options of :func:`_submit_task`.
    """
    if not isinstance(model, TreeEstimator | Bagging):
        raise TypeError(f"model is {model!r}; wants one of dtrees' estimators, such as GradientBoostingRegressor()")
    client = client_given(client)
    check_parameters(model)
    _check_options(model, given)
    if _bars(given.get("callbacks")):
        raise TypeError("callbacks has a ProgressBar, but submit does not wait; leave it out, and watch the fit by dtrees.progress(future)")
    if getattr(model, "_skl_callbacks", None):
        raise TypeError("model has callbacks of scikit-learn (set_callbacks), but submit does not wait; take them off, or call fit")
    settings, X = Settings.read(max_restarts=max_restarts, placement=placement), given["X"]
    if is_lazy(X):
        check_placement(settings.placement, () if settings.placement == "auto" else model._wants())
    elif placement not in (None, "auto", "one-worker"):
        raise ValueError(
            f"placement is {placement!r}, but X is a {type(X).__name__} in memory, which one worker fits by itself; wants a Dask DataFrame "
            "or Array (dask.dataframe.from_pandas, dask.array.from_array), or no placement"
        )
    if given.get("checkpoint") is not None:  # workers may have another working directory
        given = {**given, "checkpoint": _seen_by_all(absolute_path(given["checkpoint"]), client)}
    pickled = {part: _pickle(part, value) for part, value in {"model": _to_send(model), **given}.items()}
    data, lazy = [given.get(part) for part in _DATA], is_lazy(X) or is_lazy(given["y"])
    return _submit_task(client, model, data, settings, _coordinate, pickled, lazy, waited_for, **how)


def _submit_task(
    client: Client,
    model: Any,
    data: Sequence[Any],
    settings: Settings,
    task: Callable[..., Any],
    *arguments: Any,
    detached: bool = False,
    priority: int = 0,
    label: str = "",
) -> Future:
    """Submit a task, called with a name, the settings and ``arguments``; its record on the scheduler holds the user's data."""
    name, needs = new_name(), [future.key for future in futures_of(list(data))]
    registering = register(client)
    if not client.asynchronous:
        check_processes(client)
    what = {"estimator": type(model).__name__, "unit": model._UNIT, "label": label}
    with however_large(), dask.annotate(**described(name, patience=settings.patience, detached=detached, needs=needs, **what)):
        future = client.submit(task, name, settings, *arguments, key=name, pure=False, priority=priority)
    if registering is not None:  # until then, only this future holds a detached fit
        registering.add_done_callback(functools.partial(_keep, future))
    return future


def _keep(future: Future, registered: object) -> None:
    """Hold a reference to a future for as long as this partial function exists."""


def _seen_by_all(path: str, client: Client) -> str:
    """Return the address of a checkpoint, unless it is in the memory of one process."""
    if path.startswith("memory://") and not str(client.scheduler.address).startswith("inproc://"):
        raise ValueError(f"checkpoint is {path!r}, in the memory of one worker; wants a file, or an address, that all of them can read")
    return path


def attach(key: str, *, client: Client | None = None, take_over: bool = False) -> Any:
    """Return the future of a submitted fit. By default, the fit continues and its result is stored when this client is gone.

    Parameters
    ----------
    key : str
        Key of the future that :func:`submit` returned.
    client : distributed.Client, optional
        Client of the cluster, by default the current one.
    take_over : bool, default=False
        Whether the fit is no longer detached: it ends, and its result is released, with the last future that refers to it.

    Returns
    -------
    distributed.Future
        An awaitable of the future if the client is asynchronous.

    Raises
    ------
    KeyError
        If the cluster has no fit of this key.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from dtrees import DecisionTreeRegressor, attach, submit
    >>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    ...     X = da.arange(8, chunks=4)
    ...     key = submit(DecisionTreeRegressor(), X[:, None], X > 3, detached=True).key
    ...     attach(key).result().get_depth()
    1
    """
    if not isinstance(key, str):
        raise TypeError(f"key is {key!r}; wants the text that a future of dtrees.submit has as its .key")
    client = client_given(client)
    return client.sync(_attach, client, key, take_over)


async def _attach(client: Client, key: str, take_over: bool) -> Future:
    await registered(client)
    # The scheduler may not know yet what this client submitted a moment ago.
    deadline = time.monotonic() + _SECONDS_TO_BE_KNOWN
    while (await client.scheduler.get_task_status(keys=[key]))[key] is None:
        if time.monotonic() > deadline:
            raise KeyError(f"the cluster at {client.scheduler.address} has no fit {key!r}; was it cancelled, or the scheduler restarted?")
        await asyncio.sleep(_SECONDS_BETWEEN_QUESTIONS)
    (future,) = adopted(client, [key], detached=not take_over)
    return future


def fit(model: Any, X: Any, y: Any, sample_weight: Any, options: dict[str, Any], client: Client, placement: str | None = None) -> Any:
    """Submit a fit, and wait for the fitted model; see :func:`submit`. If the wait is interrupted, the fit ends."""
    with contextlib.ExitStack() as stack:
        callbacks = options.get("callbacks", ())
        if bars := _bars(callbacks):
            here = {bar: stack.enter_context(local_callback(bar, client, bar.compiling, bar.note)) for bar in bars}
            options = options | {"callbacks": [here.get(callback, callback) for callback in callbacks]}
        if getattr(model, "verbose", 0):  # the coordinator's log is elsewhere and need not repeat this
            model = copy.copy(model)
            model.verbose = 0
        future = _submit(model, {"X": X, "y": y, "sample_weight": sample_weight, **options}, client, placement, waited_for=True)
        with _ended_together(future, client):
            fitted = _wait(future, client, keeps_on_interrupt(callbacks))
    for warning in fitted.__dict__.pop(_WARNINGS, ()):
        warn(str(warning), type(warning))
    return fitted


def coordinate(function: Callable[..., Any], data: Sequence[Any], client: Client, label: str) -> Any:
    """Run a function with many fits in a task, like a fit; return its result. If the wait is interrupted, the task ends."""
    pickled = _pickle("what is to be fitted", function), _pickle("the data", tuple(data))
    future = _submit_task(client, data[0], data, Settings.read(), _call, *pickled, label=label)
    with _ended_together(future, client):
        found, messages = FutureWaiter(client).gather([future])[0]
    for message in messages:
        warn(str(message), type(message))
    return found


@contextlib.contextmanager
def _ended_together(future: Future, client: Client) -> Iterator[None]:
    """Wait for a task in this block: if the wait is interrupted, the task ends."""
    try:
        yield
    except BaseException:
        if client.status == "running":
            with contextlib.suppress(SchedulerLost):
                give_up(client, [future])
        raise
    finally:
        future.release()


def _call(name: str, settings: Settings, function: bytes, data: bytes) -> tuple[Any, list[Warning]]:
    """Call a pickled function as a task on a worker; return its result and warnings."""
    secede()
    with coordinating_task(name, settings, is_logged=False), collected_warnings() as messages, exits_as_errors():
        return cloudpickle.loads(function)(*cloudpickle.loads(data)), messages


def _wait(future: Future, client: Client, keep: bool) -> Any:
    """Wait for a fitted model; with ``keep``, a first Ctrl-C ends the fit after the current tree."""
    waiter = FutureWaiter(client)
    try:
        return waiter.gather([future])[0]
    except KeyboardInterrupt:
        if not keep or not ask(client, lambda: client.scheduler.dtrees_stop(fit=future.key)):
            raise
    (fitted,) = waiter.gather([future])
    warn_of_interrupt(len(fitted.estimators_))
    return fitted


def _coordinate(name: str, settings: Settings, pickled: dict[str, bytes], lazy: bool, waited_for: bool) -> Any:
    """Run a fit as a task on a worker. Its warnings are shown by a waiting client, otherwise logged."""
    if lazy:
        secede()  # permanently: the thread only waits, possibly for tasks that need its place
    parts = {part: cloudpickle.loads(value) for part, value in pickled.items()}
    model, callbacks = parts.pop("model"), parts.get("callbacks", ())
    with coordinating_task(name, settings, listeners(callbacks)) as running, collected_warnings() as messages, exits_as_errors():
        if keeps_on_interrupt(callbacks):
            callbacks = [*callbacks, StopAsked(name)]
        if not lazy and isinstance(callbacks, Sequence):  # trees are grown here, so this must ask and report
            callbacks = [*callbacks, WholeTables(running, "round" if model._GROUP_PER_OUTPUT else "tree")]
        with lost_data_named(own_client(), parts):
            fitted = model.fit(**parts | {"callbacks": callbacks})
    if not waited_for:
        for message in messages:
            logger.warning("%s: %s", name, message)
    setattr(fitted, _WARNINGS, messages)
    if isinstance(fitted, TreeEstimator):
        fitted.send_times()
    return fitted


def _check_options(model: TreeEstimator | Bagging, given: Mapping[str, Any]) -> None:
    known = [name for name, given in inspect.signature(type(model).fit).parameters.items() if given.kind == given.KEYWORD_ONLY]
    for name in given:
        if name not in ("X", "y", "sample_weight", *known):
            raise TypeError(f"fit has no option {name!r} for a {type(model).__name__}; wants some of {', '.join(known)}")


def _bars(callbacks: Any) -> list[ProgressBar]:
    return [bar for bar in callbacks if isinstance(bar, ProgressBar)] if isinstance(callbacks, Sequence) else []


def _to_send(model: Any) -> Any:
    """Return the model with a random state that gives the same draws; the state of the original model advances by these draws.

    If the fit is run again after the loss of its worker, the result is therefore the same.
    """
    state = getattr(model, "random_state", 0)
    if isinstance(state, int | np.integer) or draws_by_default_alone(model):
        return model
    generator = state if isinstance(state, np.random.Generator) else check_random_state(state)
    sent = copy.copy(model)
    sent.random_state = copy.deepcopy(generator)
    if not (getattr(model, "warm_start", False) and model.__sklearn_is_fitted__()):
        draw_seed(generator)
    return sent


def _pickle(name: str, value: Any) -> bytes:
    """Pickle an argument for the cluster; name it in the error if that fails."""
    if name == "callbacks" and isinstance(value, Sequence):
        for i, callback in enumerate(value):
            _pickle(f"callbacks[{i}]", callback)
    if name == "model":
        for parameter, given in value.get_params(deep=False).items():
            _pickle(parameter, given)
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise TypeError(
            f"{name} cannot be sent to the cluster, since it cannot be pickled ({error}); leave out what belongs to this process only"
        ) from error
