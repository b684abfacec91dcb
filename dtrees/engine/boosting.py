"""Rounds of trees, each on the gradients of a loss at the predictions so far."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.executor import Executor
from dtrees.engine.plans import BoostingPlan, BoostingResult, Callback, Progress
from dtrees.engine.recovery import LastingFit, TreeLog
from dtrees.tree.tree import Tree


def boost(
    executor: Executor,
    plan: BoostingPlan,
    previous: Sequence[Sequence[Tree]] = (),
    initial: NDArray[np.float64] | None = None,
    callback: Callback | None = None,
    log: TreeLog | None = None,
) -> BoostingResult:
    """Boost until there are ``plan.n_rounds`` rounds, or the held-out loss no longer improves.

    Parameters
    ----------
    executor : Executor
        Closing it is left to the caller.
    plan : BoostingPlan
    previous : sequence of sequence of Tree, optional
        Rounds of an earlier fit to go on from.
    initial : ndarray of float64, shape (K,), optional
        The raw prediction that they started from.
    callback : callable, optional
        Called after every round; returning True ends the fit.
    log : TreeLog, optional
        Keeps trees, should the fit have to be run again.

    Returns
    -------
    BoostingResult
        All rounds, those of ``previous`` included; scores of the new ones only.
    """
    fit = LastingFit(executor, plan, initial, log)
    initial = fit.initial
    n_outputs = plan.loss.n_outputs
    rounds = [list(trees) for trees in previous]
    for trees in rounds:
        for output, tree in enumerate(trees):
            fit.replay_tree(tree, output)
    train: list[float] = []
    validation: list[float] = []
    began = time.perf_counter()
    for number in range(len(rounds), plan.n_rounds):
        grown = []
        for output in range(n_outputs):
            last = output == n_outputs - 1
            tree, scores = fit.grow_tree(number * n_outputs + output, output, plan.learning_rate, score=last)
            grown.append(tree)
        rounds.append(grown)
        train.append(scores.train)
        if plan.n_iter_no_change is not None:
            validation.append(scores.validation)
        progress = Progress(len(rounds), plan.n_rounds, time.perf_counter() - began, scores.train, validation[-1] if validation else None)
        if callback is not None and callback(progress):
            break
        if plan.n_iter_no_change is not None and _has_stalled(validation, plan.n_iter_no_change, plan.tol):
            break
    return BoostingResult(rounds, initial, np.array(train), np.array(validation))


def _has_stalled(scores: list[float], patience: int, tol: float) -> bool:
    """Tell whether none of the last ``patience`` scores is below all those before by more than ``tol``."""
    if len(scores) <= patience:
        return False
    return min(scores[-patience:]) > min(scores[:-patience]) - tol
