"""The progress of a fit, for the user to watch: ``verbose``, and the callback :class:`ProgressBar`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from dtrees.engine.plan.plans import Callback, Progress
from dtrees.ensemble.evaluation.callbacks import EarlyStopping
from dtrees.ensemble.evaluation.displays import Display, Lines, live_display, somebody_listens


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

    def __init__(self) -> None:
        self._display: Display | None = None
        self._has_moved = False

    def begin(self, unit: str) -> None:
        """Be told that a fit begins, and what is counted, "tree" or "round"."""
        self.end()
        self._has_moved = False
        display = live_display(unit)
        display.begin()
        self._display = display

    def __call__(self, progress: Progress) -> None:
        """Take in a finished tree or round."""
        self._has_moved = True
        if self._display is not None:
            self._display.update(progress)

    def compiling(self) -> None:
        """Be told, once or often, that kernels are being compiled; it is shown until the first tree or round is finished."""
        display = self._display
        if display is not None and not self._has_moved:
            display.compiling()

    def note(self, line: str) -> None:
        """Be told of something unusual, such as a lost worker."""
        if self._display is not None:
            self._display.note(line)

    def end(self) -> None:
        """Be told that the fit has ended."""
        display, self._display = self._display, None
        if display is not None:
            display.end()

    def __getstate__(self) -> dict[str, Any]:
        return {"_display": None, "_has_moved": False}  # it is shown where it was made


class _Verbose(ProgressBar):
    """What ``verbose`` asks for."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self._always = always

    def begin(self, unit: str) -> None:
        """Choose by whether somebody listens to log records, and how much is wanted."""
        if self._always or somebody_listens():
            self._has_moved = False
            self._display = Lines(unit, self._always)
        else:
            super().begin(unit)


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
