"""Lines about the progress of a fit, for ``verbose``.

They are log records of the logger "dtrees" at level INFO. Where nobody listens to these, as in a session without any logging set up, they
are written to standard error instead, so that ``verbose=1`` always shows something, and never twice.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from dtrees.engine.plan.plans import Callback, Progress

logger = logging.getLogger("dtrees")


class _StandardError(logging.Handler):
    """Writes records to what standard error is at the time: notebooks and tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, if there is anything to write to."""
        if sys.stderr is not None:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


_STANDARD_ERROR = _StandardError()


def progress_callback(callbacks: Sequence[Callback], verbose: int, what: str) -> Callback | None:
    """Return one callback for all, which also tells of the progress; None if there is nothing to call.

    Parameters
    ----------
    callbacks : sequence of callable
        Each is given a :class:`~dtrees.engine.plan.plans.Progress` after each tree or round. One that returns True ends the fit, after the
        others have been called too.
    verbose : int
        0 tells nothing, 1 about ten times a fit, 2 every time.
    what : str
        "tree" or "round".
    """
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise TypeError(f"callbacks is {callbacks!r}; wants a sequence of functions of a Progress")
    if not callbacks and not verbose:
        return None

    def call(progress: Progress) -> bool:
        if verbose > 1 or (verbose and (progress.done % max(1, progress.total // 10) == 0 or progress.done == progress.total)):
            _tell(f"{what} {progress.done} of {progress.total} after {progress.seconds:.1f} s{_scores(progress)}")
        stops = [callback(progress) for callback in callbacks]
        return any(stops)

    return call


def _tell(line: str) -> None:
    if logger.hasHandlers() and logger.isEnabledFor(logging.INFO):
        logger.info("%s", line)
    else:
        _STANDARD_ERROR.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, line, (), None))


def _scores(progress: Progress) -> str:
    figures = [("train loss", progress.train_score), (f"validation {'score' if progress.by_scorer else 'loss'}", progress.validation_score)]
    figures += [(f"{name} {metric}", value) for name, metrics in progress.evaluation.items() for metric, value in metrics.items()]
    return "".join(f", {name} {value:.6g}" for name, value in figures if value is not None)
