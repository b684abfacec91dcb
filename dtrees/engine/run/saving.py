"""Checkpoints of an unfinished fit, from before the first tree to after the last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dtrees.engine.plan.plans import BoostingPlan, Callback, Checkpoint, FitInterrupted, ForestPlan, ForestResult, Progress
from dtrees.split.policy import BATCH_GROWTH, FIRST_BATCH_TREES

Plan = TypeVar("Plan", ForestPlan, BoostingPlan)


class Saver:
    """Writes a checkpoint when the interval has passed.

    Parameters
    ----------
    checkpoint : Checkpoint or None
        With None, nothing is read or written.

    Attributes
    ----------
    found : ForestResult, BoostingResult or None
        The result of an earlier run of the same fit.
    """

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint
        self.found: Any = None if checkpoint is None else checkpoint.read()
        self._due = -1.0 if self.found is None else self._next()
        self._current = self.found is not None

    def _next(self) -> float:
        assert self._checkpoint is not None
        return time.monotonic() + self._checkpoint.interval

    def offer(self, result: Callable[[], Any], *, last: bool = False) -> None:
        """Write ``result()`` if the interval has passed, or if it is the ``last`` result and differs from the stored one."""
        if self._checkpoint is None:
            return
        self._current = self._current and last
        if not self._current and (last or time.monotonic() >= self._due):
            self._checkpoint.write(result())
            self._due = self._next()
            self._current = True


def without_checkpoint(plan: Plan) -> Plan:
    """Return the plan without its checkpoint, as sent to workers."""
    return replace(plan, checkpoint=None)


def grow_in_batches(
    grow: Callable[[int, int, Callback | None], ForestResult], plan: ForestPlan, first: int, last: int, callback: Callback | None
) -> ForestResult:
    """Grow a forest in batches; a batch takes about the interval of the plan's checkpoint.

    A tree does not depend on its batch, so the forest is the same as that of ``grow(first, last, callback)``.

    Parameters
    ----------
    grow : callable
        Grows the trees from the first number up to, and without, the second.
    plan : ForestPlan
        Without a checkpoint, there is one batch.
    first, last : int
        The trees are ``first`` to ``last - 1``.
    callback : callable or None
    """
    if plan.checkpoint is None:
        return grow(first, last, callback)
    saver, forest_began, stopped = Saver(plan.checkpoint), time.perf_counter(), False
    result = ForestResult([]) if saver.found is None else saver.found

    def progress(of_batch: Progress, before: int = 0) -> bool:
        """Convert a batch's progress to that of the forest, and pass it on."""
        nonlocal stopped
        seconds = time.perf_counter() - forest_began
        overall = replace(of_batch, done=before + of_batch.done, total=last - first, seconds=seconds)
        stopped = callback is not None and bool(callback(overall))
        return stopped

    n_wanted = next((i + 1 for i in range(len(result.trees)) if progress(Progress(i + 1, last - first, 0.0))), last - first)
    if n_wanted < len(result.trees):
        # The out-of-bag sums contain the trees to be left out, so the others are grown again.
        return grow(first, first + n_wanted, None) if plan.out_of_bag else ForestResult(result.trees[:n_wanted])
    if saver.found is None:
        saver.offer(lambda: result)
    size = FIRST_BATCH_TREES if plan.checkpoint.interval > 0 else 1
    while len(result.trees) < last - first and not stopped:
        begin = first + len(result.trees)
        began = time.perf_counter()
        try:
            result = result.followed_by(grow(begin, min(begin + size, last), partial(progress, before=len(result.trees))))
        except FitInterrupted as interrupted:
            raise FitInterrupted(result.followed_by(interrupted.result)) from interrupted
        saver.offer(lambda grown=result: grown)  # type: ignore[misc]
        seconds = max(time.perf_counter() - began, 1e-3)
        size = max(1, min(int(size * plan.checkpoint.interval / seconds), BATCH_GROWTH * size))
    saver.offer(lambda: result, last=True)
    return result
