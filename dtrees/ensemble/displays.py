"""Displays of the progress of a fit: a live bar in a terminal or a notebook, or plain lines.

A display begins with a fit, receives a :class:`~dtrees.engine.plan.plans.Progress` after each tree or round, and ends with the fit, whether
it succeeds or not.
"""

from __future__ import annotations

import html
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dtrees.engine.plan.plans import Progress
from dtrees.engine.threads import dask_worker

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger("dtrees")

#: Number of times a second that a bar is redrawn. Each time takes the interpreter, which kernels do not need, a millisecond or two.
_REFRESHES = 3
_SECONDS_BETWEEN_UPDATES = 0.3


#: The activity of a fit that waits for kernels.
COMPILING = "compiling kernels (first use)"


class Display:
    """Displays the progress of one fit; the methods of this base class show nothing.

    Examples
    --------
    >>> display = Display()
    >>> display.remaining(Progress(3, 10, 60.0)), display.remaining(Progress(5, 10, 64.0))
    (None, 10.0)
    """

    _first: Progress | None = None

    def begin(self) -> None:
        """Show the start of a fit."""

    def compiling(self) -> None:
        """Show that kernels are being compiled, before the first tree or round; may be called repeatedly."""

    def update(self, progress: Progress) -> None:
        """Show a finished tree or round."""

    def note(self, line: str) -> None:
        """Show an unusual event."""

    def end(self) -> None:
        """Show the final state of the fit."""

    def remaining(self, progress: Progress) -> float | None:
        """Return an estimate of the remaining seconds; None while they are unknown.

        Time is measured from the first tree or round for which it is called: the fit may continue from earlier trees, and the first one may
        include the compilation of kernels.
        """
        if self._first is None:
            self._first = progress
        done = progress.done - self._first.done
        return (progress.seconds - self._first.seconds) / done * (progress.total - progress.done) if done > 0 else None


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
    """Return a duration in the format of a clock.

    Examples
    --------
    >>> duration(5), duration(125.3), duration(36e3)
    ('0:05', '2:05', '10:00:00')
    """
    whole = int(seconds + 0.5)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def logs_are_handled() -> bool:
    """Return whether records of the logger "dtrees" at level INFO are handled."""
    return logger.hasHandlers() and logger.isEnabledFor(logging.INFO)


class Lines(Display):
    """Displays progress as plain lines: log records if these are handled, otherwise on standard error.

    Parameters
    ----------
    unit : str
        "tree" or "round".
    always : bool
        Whether to write a line for each tree or round, instead of about ten in all.
    """

    def __init__(self, unit: str, always: bool = False) -> None:
        self._unit = unit
        self._always = always
        self._compiles = False

    def compiling(self) -> None:
        """Write a line, once."""
        if not self._compiles:
            self._compiles = True
            _write(COMPILING)

    def update(self, progress: Progress) -> None:
        """Write a line when it is due."""
        left = self.remaining(progress)
        if self._always or progress.done % max(1, progress.total // 10) == 0 or progress.done == progress.total:
            line = f"{self._unit} {progress.done} of {progress.total} after {progress.seconds:.1f} s"
            if left is not None and progress.done < progress.total:
                line += f", {left:.1f} s left"
            scores = in_words(figures(progress))
            _write(f"{line}, {scores}" if scores else line)

    def note(self, line: str) -> None:
        """Write the line."""
        _write(line)


def _write(line: str) -> None:
    if logs_are_handled():
        logger.info("%s", line)
    elif sys.stderr is not None:  # replaced by notebooks and tests
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class TerminalBar(Display):
    """A live bar in a terminal.

    Parameters
    ----------
    unit : str
        "tree" or "round".
    console : rich.console.Console, optional
        By default, one on standard error.
    transient : bool, default=False
        Whether the bar is removed at the end.
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
        self._task = self._bar.add_task("Preparing the columns", total=None, scores="")

    def begin(self) -> None:
        """Show the bar at its initial position."""
        self._bar.start()

    def compiling(self) -> None:
        """Show a note beside the bar."""
        self._bar.update(self._task, description=COMPILING.capitalize())

    def update(self, progress: Progress) -> None:
        """Store the progress; the bar is redrawn at intervals."""
        scores = in_words({name: float(f"{value:.4g}") for name, value in figures(progress).items()})
        self._bar.update(self._task, description=f"{self._unit}s", total=progress.total, completed=progress.done, scores=scores)

    def note(self, line: str) -> None:
        """Write the line above the bar."""
        self._bar.console.print(line, markup=False, highlight=False)

    def end(self) -> None:
        """Leave the bar in its final state, or remove it."""
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
        self._latest: Callable[[], None] | None = None
        self._began, self._next = time.monotonic(), 0.0

    def begin(self) -> None:
        """Show the bar at its initial position."""
        from IPython.display import display

        self._handle = display(_waiting("Preparing the columns"), display_id=True)

    def compiling(self) -> None:
        """Show a note beside the bar."""
        self._handle.update(_waiting(COMPILING.capitalize()))

    def update(self, progress: Progress) -> None:
        """Redraw the bar when it is due."""
        self._latest = partial(self._draw, progress, self.remaining(progress))
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_UPDATES
            self._latest()

    def end(self) -> None:
        """Leave the bar in its final state."""
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
        self._handle.update(_Shown(text, f"{bar} {html.escape(text)}"))

    def note(self, line: str) -> None:
        """Write the line below the bar."""
        from IPython.display import display

        display(_Shown(line, html.escape(line)))


class _Shown:
    """The output of a notebook cell, and its text if it cannot be displayed."""

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
    """Return a live display if there is a terminal or a notebook, otherwise lines."""
    if dask_worker() is not None:  # workers write logs
        return Lines(unit)
    # In a notebook, IPython is imported already.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ in ("ZMQInteractiveShell", "Shell"):
        return NotebookBar(unit)
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalBar(unit)
    return Lines(unit)
