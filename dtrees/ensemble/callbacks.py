"""Callbacks, early stopping by evaluation sets, and progress bars: the arguments ``callbacks``, ``monitor`` and ``verbose``."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dtrees.engine.plan.plans import Callback, FitInterrupted, Progress, Stopping
from dtrees.ensemble.displays import Display, Lines, live_display, logs_are_handled
from dtrees.ensemble.input.warning import warn
from dtrees.ensemble.metrics import greater_is_better, metric_name

#: Called with the number of a round or tree from 0, an estimator, and a dict; returning True ends the fit there.
Monitor = Callable[[int, Any, dict[str, Any]], bool | None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class EarlyStopping:
    """Stop boosting when the score of an evaluation set no longer improves, and drop the rounds after the best one.

    Pass it in ``callbacks`` of ``fit``, together with ``eval_set``. It does the same as the parameter ``early_stopping_rounds``, for any
    set and metric.

    Parameters
    ----------
    rounds : int
        Number of rounds without an improvement that ends the fit.
    eval_name : str or None, default=None
        Name of the set that decides. None uses the last one.
    metric : str or None, default=None
        Name of the metric that decides. None uses the last one of ``eval_metric``.
    tol : float, default=0.0
        A change of at most ``tol`` does not count as an improvement.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import EarlyStopping, GradientBoostingRegressor
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(400, 3))
    >>> y = X[:, 0] + random.normal(size=400)
    >>> model = GradientBoostingRegressor(eval_metric=["mae", "rmse"])
    >>> stop = EarlyStopping(10, metric="mae")
    >>> model = model.fit(X[:200], y[:200], eval_set={"later": (X[200:], y[200:])}, callbacks=[stop])
    >>> errors = model.evals_result_["later"]["mae"]
    >>> int(errors.argmin()) == model.best_iteration_ == model.n_estimators_ - 1 == len(errors) - 11
    True
    """

    rounds: int
    eval_name: str | None = None
    metric: str | None = None
    tol: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds!r}; wants an integer of at least 1")
        if not self.tol >= 0:
            raise ValueError(f"tol is {self.tol!r}; wants a number of at least 0")

    def rule(self, sets: Sequence[str], metrics: Sequence[str | Callable[..., Any]]) -> Stopping:
        """Return the rule for a fit with these names of sets and these metrics.

        Raises
        ------
        ValueError
            If there is no set, or the named set or metric does not exist.
        """
        if not sets:
            raise ValueError(
                f"early_stopping_rounds={self.rounds} or EarlyStopping({self.rounds}) stops by an evaluation set, but eval_set is None or "
                "empty; pass eval_set to fit, or use n_iter_no_change, which holds out rows of X"
            )
        names = [metric_name(metric) for metric in metrics]
        for given, known, what in ((self.eval_name, sets, "eval_name"), (self.metric, names, "metric")):
            if given is not None and given not in known:
                raise ValueError(f"EarlyStopping has the {what} {given!r}; wants one of {', '.join(known)}")
        metric = len(names) - 1 if self.metric is None else names.index(self.metric)
        return Stopping(
            rounds=self.rounds,
            set=len(sets) - 1 if self.eval_name is None else list(sets).index(self.eval_name),
            metric=metric,
            tol=self.tol,
            greater_is_better=greater_is_better(metrics[metric]),
        )


@dataclass(frozen=True)
class KeepOnInterrupt:
    """Let Ctrl-C end a fit with the trees so far, instead of leaving the model as it was before.

    Pass it in ``callbacks`` of ``fit``, which then returns as usual, with a warning that says how many trees or rounds are finished. If
    none is finished, Ctrl-C raises KeyboardInterrupt. In this process, unfinished trees are discarded. On a cluster, the current tree is
    finished first, and a second Ctrl-C ends the fit without a model. An interrupted forest has no out-of-bag scores.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import GradientBoostingRegressor, KeepOnInterrupt
    >>> X = np.arange(20.0)[:, np.newaxis]
    >>> model = GradientBoostingRegressor(n_estimators=10).fit(X, X[:, 0], callbacks=[KeepOnInterrupt()])
    >>> model.n_estimators_
    10
    """

    def __call__(self, progress: Progress) -> None:
        """Do nothing; ``fit`` checks whether this callback is present."""


def keeps_on_interrupt(callbacks: Sequence[Any]) -> bool:
    """Return whether Ctrl-C preserves the trees grown so far."""
    return isinstance(callbacks, Sequence) and any(isinstance(callback, KeepOnInterrupt) for callback in callbacks)


def grow_interruptibly(grow: Callable[[], Result], callbacks: Sequence[Any], n_before: int = 0) -> Result:
    """Return the result of ``grow()`` or, if Ctrl-C ends it and a callback wants them, the trees so far.

    Parameters
    ----------
    grow : callable
    callbacks : sequence
        The user's callbacks.
    n_before : int
        Number of trees or rounds of a result that come from an earlier fit.

    Raises
    ------
    KeyboardInterrupt
        If there are no trees, or no callback wants them.
    """
    try:
        return grow()
    except FitInterrupted as interrupted:
        result: Any = interrupted.result
        origin = interrupted.origin
    n = len(getattr(result, "rounds", getattr(result, "trees", result)))
    if not keeps_on_interrupt(callbacks) or n <= n_before:
        raise origin
    warn_of_interrupt(n)
    return result


def warn_of_interrupt(n: int) -> None:
    """Warn of a model that has fewer trees than it should."""
    warn(f"the fit was interrupted, and KeepOnInterrupt keeps what was finished: n_estimators is {n}, in place of what was asked for")


def split_callbacks(
    callbacks: Sequence[Callback | EarlyStopping], early_stopping_rounds: int | None
) -> tuple[EarlyStopping | None, list[Callback]]:
    """Return the rule for early stopping, given by parameter or among the callbacks, and the other callbacks."""
    rules = [callback for callback in callbacks if isinstance(callback, EarlyStopping)]
    if early_stopping_rounds is not None:
        rules.append(EarlyStopping(int(early_stopping_rounds)))
    if len(rules) > 1:
        raise ValueError(f"early stopping is asked for {len(rules)} times, by early_stopping_rounds or in callbacks; wants one rule")
    return rules[0] if rules else None, [callback for callback in callbacks if not isinstance(callback, EarlyStopping)]


def with_monitor(callbacks: Sequence[Callback], monitor: Monitor | None, estimator: Any, *, keep: bool) -> Sequence[Callback]:
    """Return callbacks, and one that calls a monitor as scikit-learn's boosting does.

    Parameters
    ----------
    callbacks : sequence of callable
    monitor : callable or None
    estimator : object
        A copy of it is passed to the monitor.
    keep : bool
        Whether the fit continues from the trees of the estimator, whose scores then come first.

    Raises
    ------
    TypeError
        If the monitor cannot be called.
    """
    for callback in callbacks:
        if isinstance(callback, SklearnCallbacks):
            callback.under_way = estimator
    if monitor is None:
        return callbacks
    if not callable(monitor):
        raise TypeError(f"monitor is {monitor!r}; wants a function (i, estimator, variables), or None")
    shown: Any = None
    scores = list(getattr(estimator, "train_score_", ())) if keep else []

    def call(progress: Progress) -> bool | None:
        nonlocal shown
        if shown is None:  # by now, the estimator has its columns and classes
            shown = copy.copy(estimator)
        if progress.train_score is not None:
            scores.append(progress.train_score)
            shown.train_score_ = np.array(scores)
        return monitor(progress.done - 1, shown, {"progress": progress})

    return [*callbacks, call]


class ProgressBar:
    """Show the progress of a fit: as a live bar in a terminal or a notebook, as about ten lines on standard error elsewhere.

    Pass it in ``callbacks`` of ``fit``. It shows the number of finished trees or rounds, the elapsed and the remaining time, and losses.
    For a fit on a cluster, the bar appears where ``fit`` was called. ``verbose=1`` shows the same, but as log records if the logger
    "dtrees" has a handler for level INFO. For submitted fits, use :func:`dtrees.progress`.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import ProgressBar, RandomForestRegressor
    >>> X = np.arange(20.0)[:, np.newaxis]
    >>> forest = RandomForestRegressor(10).fit(X, X[:, 0], callbacks=[ProgressBar()])
    """

    _display = Display()
    _has_moved = False

    def begin(self, unit: str) -> None:
        """Begin the display of a fit; ``unit`` is "tree" or "round"."""
        self.end()
        self._has_moved = False
        self._display = self._display_of(unit)
        self._display.begin()

    def _display_of(self, unit: str) -> Display:
        return live_display(unit)

    def __call__(self, progress: Progress) -> None:
        """Show a finished tree or round."""
        self._has_moved = True
        self._display.update(progress)

    def compiling(self) -> None:
        """Show that kernels are being compiled, until the first tree or round is finished; may be called repeatedly."""
        if not self._has_moved:
            self._display.compiling()

    def note(self, line: str) -> None:
        """Show an unusual event, such as a lost worker."""
        self._display.note(line)

    def end(self) -> None:
        """End the display."""
        display, self._display = self._display, Display()
        display.end()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # the bar is shown in the process that created it


class SklearnCallbacks(ProgressBar):
    """Calls scikit-learn's callbacks (``set_callbacks``, version 1.9 or later) for each tree or round, wherever these grow.

    The callbacks receive the user's estimator and, if the fit runs in this process, a copy fitted with the trees so far.

    Parameters
    ----------
    model : object
        The estimator before the fit.
    n_before : int
        Number of its trees or rounds that remain in the model.
    data : dict
        The training data: "X", "y" and "metadata".
    """

    #: The estimator copy being fitted, and the function that returns its current result, if the fit runs in this process.
    under_way: Any = None
    watched: Callable[[], Any] | None = None

    def __init__(self, model: Any, n_before: int, data: dict[str, Any]) -> None:
        self._model, self._fit = model, {"estimator": model, **data}
        self._n_done, self._unit = n_before if model._GROUP_PER_OUTPUT else 0, model._UNIT
        self._task = model._init_callback_context(max_subtasks=max(0, getattr(model, "n_estimators", 1) - n_before))
        self._task.call_on_fit_task_begin(**self._fit)

    def _display_of(self, unit: str) -> Display:
        return Display()

    def watch(self, result: Callable[[], Any]) -> None:
        """Store the function that returns the current result of a fit in this process."""
        self.watched = result

    def __call__(self, progress: Progress) -> Any:
        """Record finished trees or rounds; return whether a callback ends the fit."""
        ends = False
        for number in range(self._n_done + 1, progress.done + 1):
            task = self._task.subcontext(task_name=self._unit)
            task.call_on_fit_task_begin(**self._fit)
            ends |= task.call_on_fit_task_end(**self._fit, reconstruction_attributes=self._so_far if number == progress.done else None)
        self._n_done = progress.done
        return ends

    def _so_far(self) -> dict[str, Any] | None:
        """Return the attributes of a model with the trees so far."""
        if self.watched is None or self.under_way is None:
            return None
        return {**vars(self.under_way), "_grown_by": (), **self.under_way._so_far(self.watched())}

    def ended_with(self, fitted: Any) -> None:
        """Record the end of the fit."""
        self._task.call_on_fit_task_end(**self._fit, reconstruction_attributes=lambda: vars(fitted))


class _Verbose(ProgressBar):
    """The display for ``verbose``."""

    def __init__(self, always: bool) -> None:
        self._always = always

    def _display_of(self, unit: str) -> Display:
        """Choose a display, depending on whether log records are handled and on the verbosity."""
        return Lines(unit, self._always) if self._always or logs_are_handled() else live_display(unit)


def with_bars(callbacks: Sequence[Any], verbose: int) -> tuple[Sequence[Any], list[ProgressBar]]:
    """Return the callbacks of a fit preceded by the display for ``verbose``, and all callbacks that are displays."""
    if not isinstance(callbacks, Sequence):
        raise TypeError(f"callbacks is {callbacks!r}; wants a sequence of functions of a Progress")
    if verbose:
        callbacks = [_Verbose(verbose > 1), *callbacks]
    return callbacks, [callback for callback in callbacks if isinstance(callback, ProgressBar)]


@contextlib.contextmanager
def shown(bars: Sequence[ProgressBar], unit: str) -> Iterator[None]:
    """Show displays of a fit within the block."""
    with contextlib.ExitStack() as stack:
        for bar in bars:
            stack.callback(bar.end)
            bar.begin(unit)
        yield


def called_together(callbacks: Sequence[Callback]) -> Callback | None:
    """Return one callback for all; None if there is nothing to call.

    Parameters
    ----------
    callbacks : sequence of callable
        Each is called with a :class:`~dtrees.engine.plan.plans.Progress` after each tree or round. If one returns True, the fit ends after
        the others have been called.
    """
    if not all(callable(callback) for callback in callbacks):
        hint = "; EarlyStopping is for boosting" if any(isinstance(callback, EarlyStopping) for callback in callbacks) else ""
        raise TypeError(f"callbacks is {callbacks!r}; wants a sequence of functions of a Progress{hint}")
    if not callbacks:
        return None

    def call(progress: Progress) -> bool:
        stops = [callback(progress) for callback in callbacks]
        return any(stops)

    for callback in callbacks:
        if isinstance(callback, SklearnCallbacks):
            call.watch = callback.watch  # type: ignore[attr-defined]
    return call
