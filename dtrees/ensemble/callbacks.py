"""What users pass as ``callbacks``, ``monitor`` and ``verbose``: functions, the rule by which an evaluation set ends a fit, progress bars.

The progress of a fit is shown by a display: a live bar in a terminal or a notebook, or plain lines. It is begun when a fit begins, is shown
a :class:`~dtrees.engine.plan.plans.Progress` after each tree or round, and is ended with the fit, however that ends.
"""

from __future__ import annotations

import contextlib
import copy
import html
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dtrees.engine.plan.plans import Callback, FitInterrupted, Progress, Stopping
from dtrees.ensemble.input.warning import warn
from dtrees.ensemble.metrics import greater_is_better, metric_name

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger("dtrees")

#: A bar is drawn anew so often a second. Each time takes a millisecond or two of the interpreter, which kernels do not need.
_REFRESHES = 3
_SECONDS_BETWEEN_UPDATES = 0.3


#: What a fit is at that waits for kernels.
COMPILING = "compiling kernels (first use)"


class Display:
    """Shows the progress of one fit: nothing, as far as a method is not overridden."""

    def begin(self) -> None:
        """Show that a fit has begun."""

    def compiling(self) -> None:
        """Show that kernels are being compiled, before the first tree or round; to be called once or often."""

    def update(self, progress: Progress) -> None:
        """Show that a tree or round is finished."""

    def note(self, line: str) -> None:
        """Show that something unusual has happened."""

    def end(self) -> None:
        """Show how far the fit has come; nothing changes any more."""


def figures(progress: Progress) -> dict[str, float]:
    """Return the losses and scores of a round by name.

    Examples
    --------
    >>> figures(Progress(1, 2, 0.5, train_score=0.25, evaluation={"new": {"mae": 0.5}}))
    {'train loss': 0.25, 'new mae': 0.5}
    """
    known = {"train loss": progress.train_score, f"validation {'score' if progress.by_scorer else 'loss'}": progress.validation_score}
    known |= {f"{name} {metric}": value for name, metrics in progress.evaluation.items() for metric, value in metrics.items()}
    return {name: value for name, value in known.items() if value is not None}


def in_words(scores: dict[str, float]) -> str:
    """Return losses and scores as text.

    Examples
    --------
    >>> in_words({"train loss": 0.25, "new mae": 12.0})
    'train loss 0.25, new mae 12'
    """
    return ", ".join(f"{name} {value:.6g}" for name, value in scores.items())


def duration(seconds: float) -> str:
    """Return a duration as a clock shows it.

    Examples
    --------
    >>> duration(5), duration(125.3), duration(36e3)
    ('0:05', '2:05', '10:00:00')
    """
    whole = int(seconds + 0.5)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


class Pace:
    """How long trees take, and from that how long those take that are left.

    The first tree, or round, that it is called for says where the fit began: it may go on from earlier ones, and the first of all may have
    waited for kernels to be compiled.

    Examples
    --------
    >>> pace = Pace()
    >>> pace.remaining(Progress(3, 10, 60.0)), pace.remaining(Progress(5, 10, 64.0))
    (None, 10.0)
    """

    def __init__(self) -> None:
        self._first: Progress | None = None

    def remaining(self, progress: Progress) -> float | None:
        """Return the seconds that are left; None while nobody can tell."""
        if self._first is None:
            self._first = progress
        done = progress.done - self._first.done
        return (progress.seconds - self._first.seconds) / done * (progress.total - progress.done) if done > 0 else None


def somebody_listens() -> bool:
    """Return whether records of the logger "dtrees" at level INFO are heard."""
    return logger.hasHandlers() and logger.isEnabledFor(logging.INFO)


class Lines(Display):
    """Plain lines: log records where somebody listens to these, else on standard error.

    Parameters
    ----------
    unit : str
        "tree" or "round".
    always : bool
        A line for each, rather than about ten in all.
    """

    def __init__(self, unit: str, always: bool = False) -> None:
        self._unit = unit
        self._always = always
        self._pace = Pace()
        self._compiles = False

    def compiling(self) -> None:
        """Write a line, once."""
        if not self._compiles:
            self._compiles = True
            _tell(COMPILING)

    def update(self, progress: Progress) -> None:
        """Write a line, if it is time."""
        left = self._pace.remaining(progress)
        if self._always or progress.done % max(1, progress.total // 10) == 0 or progress.done == progress.total:
            line = f"{self._unit} {progress.done} of {progress.total} after {progress.seconds:.1f} s"
            if left is not None and progress.done < progress.total:
                line += f", {left:.1f} s left"
            scores = in_words(figures(progress))
            _tell(f"{line}, {scores}" if scores else line)

    def note(self, line: str) -> None:
        """Write the line."""
        _tell(line)


def _tell(line: str) -> None:
    if somebody_listens():
        logger.info("%s", line)
    elif sys.stderr is not None:  # which notebooks and tests replace
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class TerminalBar(Display):
    """A live bar in a terminal.

    Parameters
    ----------
    unit : str
        "tree" or "round".
    console : rich.console.Console, optional
        By default one on standard error.
    transient : bool, default=False
        Whether the bar goes when it ends.
    """

    def __init__(self, unit: str, console: Console | None = None, transient: bool = False) -> None:
        from rich import progress as rich
        from rich.console import Console

        columns = (
            rich.SpinnerColumn(),
            rich.TextColumn("{task.description}"),
            rich.BarColumn(bar_width=30),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TimeRemainingColumn(),
            rich.TextColumn("{task.fields[scores]}"),
        )
        console = console or Console(stderr=True, highlight=False)
        self._unit = unit
        self._bar = rich.Progress(*columns, console=console, transient=transient, refresh_per_second=_REFRESHES)
        self._task: rich.TaskID | None = None

    def begin(self) -> None:
        """Show the bar, which does not move yet."""
        self._task = self._bar.add_task("Preparing the columns", total=None, scores="")
        self._bar.start()

    def compiling(self) -> None:
        """Say so beside the bar, which does not move yet."""
        if self._task is not None:
            self._bar.update(self._task, description=COMPILING.capitalize())

    def update(self, progress: Progress) -> None:
        """Note how far it is; the bar is drawn anew now and then."""
        if self._task is not None:
            scores = in_words({name: float(f"{value:.4g}") for name, value in figures(progress).items()})
            self._bar.update(self._task, description=f"{self._unit}s", total=progress.total, completed=progress.done, scores=scores)

    def note(self, line: str) -> None:
        """Write the line above the bar."""
        self._bar.console.print(line, markup=False, highlight=False)

    def end(self) -> None:
        """Leave the bar as it is, or take it away."""
        self._bar.stop()


class NotebookBar(Display):
    """A live bar in the output of a notebook's cell; it needs no widgets.

    Parameters
    ----------
    unit : str
        "tree" or "round".
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._pace = Pace()
        self._latest: Callable[[], None] | None = None
        self._began, self._next = time.monotonic(), 0.0
        self._handle: Any = None

    def begin(self) -> None:
        """Show the bar, which does not move yet."""
        from IPython.display import display

        self._handle = display(_waiting("Preparing the columns"), display_id=True)

    def compiling(self) -> None:
        """Say so beside the bar, which does not move yet."""
        if self._handle is not None:
            self._handle.update(_waiting(COMPILING.capitalize()))

    def update(self, progress: Progress) -> None:
        """Draw it anew, if it is time."""
        self._latest = partial(self._draw, progress, self._pace.remaining(progress))
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_UPDATES
            self._latest()

    def end(self) -> None:
        """Leave the bar as it is at the end."""
        if self._latest is not None:
            self._latest()

    def _draw(self, progress: Progress, left: float | None) -> None:
        elapsed = duration(time.monotonic() - self._began)
        text = f"{progress.done} of {progress.total} {self._unit}s, {elapsed}"
        if left is not None and progress.done < progress.total:
            text += f", {duration(left)} left"
        scores = in_words(figures(progress))
        if scores:
            text += f"; {scores}"
        bar = f'<progress max="{progress.total}" value="{progress.done}" style="width: 20em"></progress>'
        if self._handle is not None:
            self._handle.update(_Shown(text, f"{bar} {html.escape(text)}"))

    def note(self, line: str) -> None:
        """Write the line below the bar."""
        from IPython.display import display

        display(_Shown(line, html.escape(line)))


class _Shown:
    """What a notebook shows, and what it keeps where it cannot show that."""

    def __init__(self, text: str, markup: str) -> None:
        self._text = text
        self._markup = markup

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._markup


def _waiting(what: str) -> _Shown:
    return _Shown(what, f"<progress></progress> {what}")


def live_display(unit: str) -> Display:
    """Return a live display where there is a terminal or a notebook to show it in, and lines elsewhere."""
    if _in_task():  # what workers write is a log
        return Lines(unit)
    if _in_notebook():
        return NotebookBar(unit)
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalBar(unit)
    return Lines(unit)


def _in_task() -> bool:
    """Return whether this thread runs a task of Dask's."""
    worker = sys.modules.get("distributed.worker")
    if worker is None:
        return False
    try:
        worker.get_worker()
    except ValueError:
        return False
    return True


def _in_notebook() -> bool:
    """Return whether this is a session of a notebook: then IPython is there already."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and type(shell).__name__ in ("ZMQInteractiveShell", "Shell")


#: Called with the number of a round or tree from 0, an estimator, and a dict; returning True ends the fit there.
Monitor = Callable[[int, Any, dict[str, Any]], bool | None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class EarlyStopping:
    """Stop boosting when an evaluation set no longer improves, and leave out the rounds after the best one.

    Pass it among the ``callbacks`` of ``fit``, together with an ``eval_set``. It does what the parameter ``early_stopping_rounds`` does,
    for any set and metric.

    Parameters
    ----------
    rounds : int
        How many rounds without an improvement end the fit.
    eval_name : str or None, default=None
        The set that decides; None is the last one.
    metric : str or None, default=None
        The metric that decides, by its name; None is the last one of ``eval_metric``.
    tol : float, default=0.0
        Less than this, or as much, is no improvement.

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
        """Return the rule for a fit with these sets, by name, and metrics.

        Raises
        ------
        ValueError
            If there is no set, or none of that name, or no such metric.
        """
        if not sets:
            raise ValueError("early stopping on an evaluation set wants one; pass eval_set to fit, or use n_iter_no_change")
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
    """Have Ctrl-C end a fit with the trees so far, rather than leave the model as it was before.

    Pass it among the ``callbacks`` of ``fit``, which then returns as usual, with a warning that says how many trees or rounds there are. If
    none is finished, Ctrl-C raises KeyboardInterrupt as ever. In this process, the trees under way are given up; on a cluster, the one
    under way is finished first, and a second Ctrl-C ends the fit without a model. A forest that was cut short has no out-of-bag scores.

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
        """Do nothing: it is by being there that it counts."""


def keeps_on_interrupt(callbacks: Sequence[Any]) -> bool:
    """Return whether Ctrl-C is to keep the trees so far."""
    return isinstance(callbacks, Sequence) and any(isinstance(callback, KeepOnInterrupt) for callback in callbacks)


def grown_or_kept(grow: Callable[[], Result], callbacks: Sequence[Any], n_before: int = 0) -> Result:
    """Return what ``grow()`` does or, if Ctrl-C ends it and is to keep them, the trees so far.

    Parameters
    ----------
    grow : callable
    callbacks : sequence
        Those of the user.
    n_before : int
        Those trees or rounds of a result that are there from an earlier fit.

    Raises
    ------
    KeyboardInterrupt
        If there is nothing to keep, or nothing is to be kept.
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
    kept: Result = result
    return kept


def warn_of_interrupt(n: int) -> None:
    """Warn of a model that has fewer trees than it should."""
    warn(f"the fit was interrupted, and KeepOnInterrupt keeps what was finished: n_estimators is {n}, in place of what was asked for")


def split_callbacks(
    callbacks: Sequence[Callback | EarlyStopping], early_stopping_rounds: int | None
) -> tuple[EarlyStopping | None, list[Callback]]:
    """Return the rule for early stopping, by parameter or among the callbacks, and the functions."""
    if not isinstance(callbacks, Sequence):
        raise TypeError(f"callbacks is {callbacks!r}; wants a sequence of functions of a Progress")
    rules = [callback for callback in callbacks if isinstance(callback, EarlyStopping)]
    if early_stopping_rounds is not None:
        rules.append(EarlyStopping(int(early_stopping_rounds)))
    if len(rules) > 1:
        raise ValueError(f"early stopping is asked for {len(rules)} times, by early_stopping_rounds or in callbacks; wants one rule")
    return rules[0] if rules else None, [callback for callback in callbacks if not isinstance(callback, EarlyStopping)]


def with_monitor(callbacks: Sequence[Callback], monitor: Monitor | None, estimator: Any, *, keep: bool) -> Sequence[Callback]:
    """Return callbacks, and one that calls a monitor, as scikit-learn's boosting does.

    Parameters
    ----------
    callbacks : sequence of callable
    monitor : callable or None
    estimator : object
        A copy of it is what the monitor is shown.
    keep : bool
        Whether the fit goes on from the trees that the estimator has: then its scores come first.

    Raises
    ------
    TypeError
        If the monitor cannot be called.
    """
    if monitor is None:
        return callbacks
    if not callable(monitor):
        raise TypeError(f"monitor is {monitor!r}; wants a function (i, estimator, variables), or None")
    shown: Any = None
    scores = list(getattr(estimator, "train_score_", ())) if keep else []

    def call(progress: Progress) -> bool | None:
        nonlocal shown
        if shown is None:  # by now the estimator knows columns and classes
            shown = copy.copy(estimator)
        if progress.train_score is not None:
            scores.append(progress.train_score)
            shown.train_score_ = np.array(scores)
        return monitor(progress.done - 1, shown, {"progress": progress})

    return [*callbacks, call]


class ProgressBar:
    """Show how far a fit has come: a live bar in a terminal or a notebook, about ten lines on standard error elsewhere.

    Pass it among the ``callbacks`` of ``fit``. It shows trees or rounds finished, the time that has passed and is left, and losses.
    On a cluster it is shown where ``fit`` was called. ``verbose=1`` shows the same, but as log records where somebody listens to the logger
    "dtrees" at level INFO. Fits that were submitted are watched by :func:`dtrees.progress`.

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
        """Note that a fit begins, and what is counted, "tree" or "round"."""
        self.end()
        self._has_moved = False
        self._display = self._display_of(unit)
        self._display.begin()

    def _display_of(self, unit: str) -> Display:
        return live_display(unit)

    def __call__(self, progress: Progress) -> None:
        """Take in a finished tree or round."""
        self._has_moved = True
        self._display.update(progress)

    def compiling(self) -> None:
        """Note, once or often, that kernels are being compiled; it is shown until the first tree or round is finished."""
        if not self._has_moved:
            self._display.compiling()

    def note(self, line: str) -> None:
        """Show something unusual, such as a lost worker."""
        self._display.note(line)

    def end(self) -> None:
        """Note that the fit has ended."""
        display, self._display = self._display, Display()
        display.end()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # it is shown where it was made


class _Verbose(ProgressBar):
    """What ``verbose`` asks for."""

    def __init__(self, always: bool) -> None:
        self._always = always

    def _display_of(self, unit: str) -> Display:
        """Choose by whether somebody listens to log records, and how much is wanted."""
        return Lines(unit, self._always) if self._always or somebody_listens() else live_display(unit)


def with_bars(callbacks: Sequence[Any], verbose: int) -> tuple[Sequence[Any], list[ProgressBar]]:
    """Return the callbacks of a fit and, in front of them, what ``verbose`` asks for; and those of both that show the progress."""
    if not isinstance(callbacks, Sequence):
        return callbacks, []  # which fit does not take
    if verbose:
        callbacks = [_Verbose(verbose > 1), *callbacks]
    return callbacks, [callback for callback in callbacks if isinstance(callback, ProgressBar)]


@contextlib.contextmanager
def shown(bars: Sequence[ProgressBar], unit: str) -> Iterator[None]:
    """Have bars show a fit for as long as the block lasts."""
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
        Each is given a :class:`~dtrees.engine.plan.plans.Progress` after each tree or round. One that returns True ends the fit, after the
        others have been called too.
    """
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        stopping = isinstance(callbacks, Sequence) and any(isinstance(callback, EarlyStopping) for callback in callbacks)
        hint = "; EarlyStopping is for boosting" if stopping else ""
        raise TypeError(f"callbacks is {callbacks!r}; wants a sequence of functions of a Progress{hint}")
    if not callbacks:
        return None

    def call(progress: Progress) -> bool:
        stops = [callback(progress) for callback in callbacks]
        return any(stops)

    return call
