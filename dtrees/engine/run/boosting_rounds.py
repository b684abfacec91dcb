"""Rounds of trees, each on the gradients of a loss at the predictions so far.

After every round, in this order: its scores, the checkpoint, the callback, early stopping. Rounds that a checkpoint brings back are told to
the callback too: whatever it decides by, it has seen the same when the fit goes on as in a fit that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.tree_by_tree import TreeByTree, TreeLog
from dtrees.engine.plan.early_stopping import has_stalled
from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Callback, FitInterrupted, Progress
from dtrees.engine.protocol.executor import Executor
from dtrees.engine.protocol.messages import Scores
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.engine.rows.fit import RowsFit
from dtrees.engine.run.recovery import LastingFit
from dtrees.engine.run.saving import Saver, without_checkpoint
from dtrees.tree.tree import Tree

Rounds = Sequence[Sequence[Tree]]


class Evaluation(Protocol):
    """Evaluation sets, wherever their rows are, and what is measured on them.

    Attributes
    ----------
    sets, metrics : tuple of str
        Their names.
    """

    sets: tuple[str, ...]
    metrics: tuple[str, ...]

    def score(self, rounds: Rounds, initial: NDArray[np.float64], first: int) -> NDArray[np.float64]:
        """Return the metrics after each of the rounds from ``first`` on, shape (n_rounds - first, n_sets, n_metrics)."""


def boost(
    executor: Executor | RowsExecutor,
    plan: BoostingPlan,
    previous: Rounds = (),
    initial: NDArray[np.float64] | None = None,
    callback: Callback | None = None,
    log: TreeLog | None = None,
    evaluation: Evaluation | None = None,
) -> BoostingResult:
    """Boost until there are ``plan.n_rounds`` rounds, or scores no longer improve.

    Parameters
    ----------
    executor : Executor
        Closing it is left to the caller.
    plan : BoostingPlan
    previous : sequence of sequence of Tree, optional
        Rounds of an earlier fit to go on from.
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The raw prediction to start from, of all rows or of each; by default the loss chooses.
    callback : callable, optional
        Called after every round; returning True ends the fit.
    log : TreeLog, optional
        Keeps trees, should the fit have to be run again; not together with a checkpoint, which brings trees back too.
    evaluation : Evaluation, optional
        Asked after every round; closing it is left to the caller.

    Returns
    -------
    BoostingResult
        All rounds, those of ``previous`` included; training and validation scores of the new ones only.

    Raises
    ------
    FitInterrupted
        On Ctrl-C.
    """
    saver = Saver(plan.checkpoint)
    found: BoostingResult | None = saver.found
    by_row = initial is not None and initial.ndim == 2
    start = initial if found is None or by_row else found.initial
    fit = (
        RowsFit(executor, without_checkpoint(plan), start, log)
        if executor.places_rows
        else LastingFit(executor, without_checkpoint(plan), start, log)
    )
    initial = fit.initial
    rounds = [list(trees) for trees in previous]
    for trees in rounds:
        _replay(fit, trees)
    n_known = 0 if found is None else len(found.rounds)
    train: list[float] = []
    validation: list[float] = []
    out_of_bag: list[tuple[float, float]] = []
    evaluated = np.empty((0, 0, 0)) if evaluation is None else evaluation.score(rounds, initial, 0)

    def result() -> BoostingResult:
        outside = np.array(out_of_bag).reshape(-1, 2)
        return BoostingResult(rounds, initial, np.array(train), np.array(validation), outside, evaluated)

    if found is None:
        saver.offer(result)
    began = time.perf_counter()
    n_complete = len(rounds)
    try:
        for number in range(len(rounds), plan.n_rounds):
            round_began = time.perf_counter()
            if found is not None and number < n_known:
                rounds.append(found.rounds[number])
                _replay(fit, rounds[-1])
                held_out = found.validation_score[len(train)] if plan.n_iter_no_change is not None else np.nan
                outside = found.out_of_bag[len(train)].tolist() if plan.subsample < 1.0 else []
                scores = Scores(float(found.train_score[len(train)]), float(held_out), *outside)
            else:
                scores = _grow(fit, plan, number, rounds)
                _check_converges([*train[:1], scores.train], plan, initial, (len(previous) + 1, number + 1))
            train.append(scores.train)
            if plan.n_iter_no_change is not None:
                validation.append(scores.validation if plan.holds_out or plan.scoring is not None else scores.train)
            if plan.subsample < 1.0:
                out_of_bag.append((scores.out_of_bag, scores.before))
            if evaluation is not None:
                evaluated = np.concatenate([evaluated, evaluation.score(rounds, initial, number)])
            n_complete = len(rounds)
            if number >= n_known:
                saver.offer(result)
            if callback is not None:
                now = time.perf_counter()
                progress = Progress(
                    done=len(rounds),
                    total=plan.n_rounds,
                    seconds=now - began,
                    train_score=None if plan.loss.takes_all_rows else scores.train,
                    validation_score=validation[-1] if validation else None,
                    evaluation={} if evaluation is None else _by_name(evaluation, evaluated[-1]),
                    tree_seconds=now - round_began,
                    by_scorer=plan.scoring is not None,
                )
                if callback(progress):
                    break
            if plan.n_iter_no_change is not None and _has_stalled(validation, plan):
                break
            if plan.stopping is not None and plan.stopping.ends(evaluated[:, plan.stopping.set, plan.stopping.metric].tolist()):
                break
    except KeyboardInterrupt as error:
        del rounds[n_complete:], train[n_complete - len(previous) :], validation[n_complete - len(previous) :]
        del out_of_bag[n_complete - len(previous) :]
        evaluated = evaluated[:n_complete]
        raise FitInterrupted(result()) from error
    saver.offer(result, last=True)
    return result()


def _check_converges(losses: Sequence[float], plan: BoostingPlan, initial: NDArray[np.float64], rounds: tuple[int, int]) -> None:
    """Raise a ValueError if the mean loss of the training rows, after the first and the last round, is infinite or has doubled."""
    advice = f"wants a smaller learning_rate than {plan.learning_rate}"
    if not math.isfinite(losses[-1]):
        raise ValueError(
            f"boosting has diverged: after round {rounds[1]} the mean loss of the training rows is {losses[-1]}, and gradients are no "
            f"finite numbers any more; {advice}, or y and sample_weight divided by a constant if they are huge"
        )
    # Where rows are drawn for each round, losses are those of other rows each time.
    if plan.subsample < 1.0 or losses[-1] - losses[0] <= abs(losses[0]):
        return
    if losses[-1] > plan.loss.negligible(initial if initial.ndim == 1 else initial.mean(axis=1)):
        raise ValueError(
            f"boosting has diverged: the mean loss of the training rows was {losses[0]:g} after round {rounds[0]} and is {losses[-1]:g} "
            f"after round {rounds[1]}; {advice}, or a larger reg_lambda"
        )


def _has_stalled(validation: Sequence[float], plan: BoostingPlan) -> bool:
    assert plan.n_iter_no_change is not None
    scores = [*plan.scores_before, *validation]
    losses = scores if plan.scoring is None else [-score for score in scores]
    return has_stalled(losses, plan.n_iter_no_change, plan.tol)


def _replay(fit: TreeByTree[Any], trees: Sequence[Tree]) -> None:
    for output, tree in enumerate(trees):
        fit.replay_tree(tree, output)


def _grow(fit: TreeByTree[Any], plan: BoostingPlan, number: int, rounds: list[list[Tree]]) -> Scores:
    """Add a round; return its scores."""
    n_outputs = plan.loss.n_outputs
    grown = []
    for output in range(n_outputs):
        last = output == n_outputs - 1
        tree, scores = fit.grow_tree(number * n_outputs + output, output, plan.learning_rate, score=last)
        grown.append(tree)
    rounds.append(grown)
    return scores


def _by_name(evaluation: Evaluation, scores: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    return {name: dict(zip(evaluation.metrics, row, strict=True)) for name, row in zip(evaluation.sets, scores.tolist(), strict=True)}
