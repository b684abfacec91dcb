"""The loop of boosting: rounds of trees, each on the gradients of a loss at the predictions so far.

After every round, in this order: its scores, the checkpoint, the callback, early stopping. Rounds restored from a checkpoint are passed to
the callback too, so that a resumed fit calls it as often, with the same scores, as a fit that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Callback, FitInterrupted, Progress, has_stalled, watch
from dtrees.engine.protocol.messages import NO_SCORES, Executor, Scores
from dtrees.engine.run.lasting import LastingBoosting, TreeLog
from dtrees.engine.run.local_executor import LocalExecutor
from dtrees.engine.run.saving import Saver, without_checkpoint
from dtrees.engine.shard.targets.dropout import RoundWeights, weighted
from dtrees.tree.tree import Tree

Rounds = Sequence[Sequence[Tree]]
Fit = LocalExecutor | LastingBoosting


#: Number of rounds whose evaluation sets are scored together if no caller waits for the scores; their rows are then read once.
_ROUNDS_AT_ONCE = 16


class Evaluation(Protocol):
    """Evaluation sets, wherever their rows are, and the metrics computed on them.

    Attributes
    ----------
    sets, metrics : tuple of str
        Names of the evaluation sets and metrics.
    """

    sets: tuple[str, ...]
    metrics: tuple[str, ...]

    def score(self, rounds: Rounds, initial: NDArray[np.float64], first: int) -> NDArray[np.float64]:
        """Return the metrics after each of the rounds from ``first`` on, shape (n_rounds - first, n_sets, n_metrics).

        A round has the trees that it adds to raw predictions, output by output, with one or more trees for each output.
        """


def boost(
    executor: LocalExecutor | Executor,
    plan: BoostingPlan,
    previous: Rounds = (),
    initial: NDArray[np.float64] | None = None,
    callback: Callback | None = None,
    log: TreeLog | None = None,
    evaluation: Evaluation | None = None,
) -> BoostingResult:
    """Boost until there are ``plan.n_rounds`` rounds, or until scores no longer improve.

    Parameters
    ----------
    executor : LocalExecutor or Executor
        Not closed here.
    plan : BoostingPlan
    previous : sequence of sequence of Tree, optional
        Rounds of an earlier fit that this one continues.
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The initial raw prediction, for all rows or for each; by default, the loss chooses.
    callback : callable, optional
        Called after every round; returning True ends the fit.
    log : TreeLog, optional
        Stores trees in case the fit has to be run again; not to be combined with a checkpoint, which has the same purpose.
    evaluation : Evaluation, optional
        Evaluated after every round, or after several if no caller waits for the scores. Not closed here.

    Returns
    -------
    BoostingResult
        All rounds, including ``previous``; training and validation scores of the new ones only.

    Raises
    ------
    FitInterrupted
        On Ctrl-C.
    """
    saver = Saver(plan.checkpoint)
    found: BoostingResult | None = saver.found
    by_row = initial is not None and initial.ndim == 2
    start = initial if found is None or by_row else found.initial
    bare = without_checkpoint(plan)
    fit: Fit = executor.begin(bare, start) if isinstance(executor, LocalExecutor) else LastingBoosting(executor, bare, start)
    initial = fit.initial
    rounds = [list(trees) for trees in previous]
    for trees in rounds:
        for place, tree in enumerate(trees):
            fit.replay_tree(tree, place)
    n_known = 0 if found is None else len(found.rounds)
    recalled = (_trees_found(found, len(rounds)) if found is not None else [] if log is None else log.recall())[::-1]
    scores: list[Scores] = []  # of the new rounds
    decides = plan.n_iter_no_change is not None
    weights = None if plan.dropout is None or evaluation is None else RoundWeights(plan)
    added: list[list[Tree]] = rounds if weights is None else []  # the trees that each round adds to raw predictions
    evaluated = np.empty((0, 0, 0)) if evaluation is None else evaluation.score(added, initial, 0)
    may_wait = callback is None and plan.stopping is None and plan.checkpoint is None

    def evaluate() -> NDArray[np.float64]:
        """Return the scores of the evaluation sets after all rounds."""
        if evaluation is None or len(evaluated) == len(rounds):
            return evaluated
        return np.concatenate([evaluated, evaluation.score(added, initial, len(evaluated))])

    def result(as_grown: bool = False) -> BoostingResult:
        """Return the result, with rounds weighted as after the last retained one, or unweighted for checkpoints."""
        train, validation, *outside = np.array(scores, np.float64).reshape(-1, 4).T
        out_of_bag = np.stack(outside, axis=1)[: None if plan.scores_undrawn else 0]
        final = rounds if as_grown or plan.dropout is None else _weighted(plan, rounds, evaluated)
        return BoostingResult(final, initial, train.copy(), validation[: None if decides else 0].copy(), out_of_bag, evaluated)

    watch(callback, result)
    to_save = partial(result, as_grown=True)
    if found is None:
        saver.offer(to_save)
    began = time.perf_counter()
    n_complete = len(rounds)
    try:
        for number in range(len(rounds), plan.n_rounds):
            round_began = time.perf_counter()
            scores.append(_grow_round(fit, plan, number, rounds, log, recalled))
            _check_converges((scores[0].train, scores[-1].train), plan, initial, (len(previous) + 1, number + 1))
            if decides and not plan.holds_out and plan.scoring is None:
                scores[-1] = scores[-1]._replace(validation=scores[-1].train)
            if weights is not None:
                added.append(_changed(weights, rounds))
            if not may_wait or len(rounds) % _ROUNDS_AT_ONCE == 0:
                evaluated = evaluate()
            n_complete = len(rounds)
            if number >= n_known:
                saver.offer(to_save)
            if callback is not None:
                now = time.perf_counter()
                progress = Progress(
                    done=len(rounds),
                    total=plan.n_rounds,
                    seconds=now - began,
                    train_score=None if plan.loss.takes_all_rows else scores[-1].train,
                    validation_score=scores[-1].validation if decides else None,
                    evaluation={} if evaluation is None else _by_name(evaluation, evaluated[-1]),
                    tree_seconds=now - round_began,
                    by_scorer=plan.scoring is not None,
                )
                if callback(progress):
                    break
            if plan.n_iter_no_change is not None and has_stalled(_losses(scores, plan), plan.n_iter_no_change, plan.tol):
                break
            if plan.stopping is not None and plan.stopping.ends(plan.stopping.scores(evaluated)):
                break
    except KeyboardInterrupt as error:
        del rounds[n_complete:], scores[n_complete - len(previous) :]
        evaluated = evaluated[:n_complete]  # without the scores of an incomplete round
        raise FitInterrupted(result()) from error
    evaluated = evaluate()
    saver.offer(to_save, last=True)
    return result()


def _check_converges(losses: tuple[float, float], plan: BoostingPlan, initial: NDArray[np.float64], rounds: tuple[int, int]) -> None:
    """Raise a ValueError if the mean training loss, after the first and the last round, is infinite or has doubled."""
    before, now = losses
    is_finite = math.isfinite(now)
    # If rounds draw rows, successive losses are on different rows.
    if is_finite and (plan.subsample < 1.0 or now - before <= abs(before)):
        return
    advice = f"lower learning_rate (now {plan.learning_rate})"
    if not is_finite:
        raise ValueError(
            f"boosting has diverged: the mean loss of the training rows is {now} after round {rounds[1]}; {advice}, or divide y and "
            "sample_weight by a constant if they are huge"
        )
    if now > plan.loss.negligible(initial if initial.ndim == 1 else initial.mean(axis=1)):
        raise ValueError(
            f"boosting has diverged: the mean loss of the training rows was {before:g} after round {rounds[0]} and is {now:g} "
            f"after round {rounds[1]}; {advice}, or raise reg_lambda"
        )


def _losses(scores: Sequence[Scores], plan: BoostingPlan) -> list[float]:
    """Return the losses that decide about early stopping, including those of earlier fits; lower is better."""
    found = [*plan.scores_before, *(one.validation for one in scores)]
    return found if plan.scoring is None else [-score for score in found]


def _weighted(plan: BoostingPlan, rounds: Rounds, evaluated: NDArray[np.float64]) -> list[list[Tree]]:
    """Return rounds with their weights: after the best round if early stopping discards the later ones, otherwise after the last."""
    n = len(rounds)
    if plan.stopping is not None and len(evaluated):
        n = 1 + plan.stopping.best(plan.stopping.scores(evaluated))
    weights = [*RoundWeights.after(plan, n).weights, *[1.0] * (len(rounds) - n)]
    return [weighted(trees, weight) for trees, weight in zip(rounds, weights, strict=True)]


def _changed(weights: RoundWeights, rounds: Rounds) -> list[Tree]:
    """Add the last round to the weights; return its change of raw predictions: new trees, dropped trees times their change of weight."""
    dropped, before = weights.dropped, weights.weights.copy()
    weights.add()
    pairs = [(len(rounds) - 1, 0.0), *((round_, before[round_]) for round_ in dropped)]
    return [tree for round_, old in pairs for tree in weighted(rounds[round_], weights.weights[round_] - old)]


def _trees_found(found: BoostingResult, n_previous: int) -> list[tuple[Tree, Scores]]:
    """Return the trees restored from a checkpoint, without those of previous rounds, each with the scores of its round."""
    trees = []
    for number, (grown, train) in enumerate(zip(found.rounds[n_previous:], found.train_score.tolist(), strict=True)):
        validation = float(found.validation_score[number]) if found.validation_score.shape[0] else math.nan
        outside = found.out_of_bag[number].tolist() if found.out_of_bag.shape[0] else []
        trees += [(tree, Scores(train, validation, *outside)) for tree in grown]
    return trees


def _grow_round(
    fit: Fit, plan: BoostingPlan, number: int, rounds: list[list[Tree]], log: TreeLog | None, recalled: list[tuple[Tree, Scores]]
) -> Scores:
    """Add a round; return its scores. Restored trees (``recalled``, from last to first) are replayed instead of grown."""
    n_trees = plan.trees_per_round
    grown, scores = [], NO_SCORES
    for place in range(n_trees):
        if recalled:
            tree, scores = recalled.pop()
            fit.replay_tree(tree, place)
        else:
            tree, scores = fit.grow_tree(number * n_trees + place, place % plan.loss.n_outputs, plan.shrinkage, place == n_trees - 1)
            if log is not None:
                log.keep(tree, scores)
        grown.append(tree)
    rounds.append(grown)
    return scores


def _by_name(evaluation: Evaluation, scores: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    return {name: dict(zip(evaluation.metrics, row, strict=True)) for name, row in zip(evaluation.sets, scores.tolist(), strict=True)}
