"""Data that trees are grown on: integers, rows in sample, held out, out of bag."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dtrees.engine.outcome import scoring
from dtrees.engine.outcome.scoring import scores_of, shares_of
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.shard.targets import boosting_target as boosting
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget, OutOfBag
from dtrees.engine.threads import Threads
from dtrees.ensemble.objective.classification import log_loss_for
from dtrees.ensemble.objective.regression import SquaredError
from dtrees.split.numbers import hashing
from tests import naive
from tests.engine.shards import rules, wild_weight

RNG = np.random.default_rng(0)
N = 200
Y = RNG.normal(size=N)
CLASSES = RNG.integers(0, 3, N)
WEIGHT = wild_weight(N, 0)


def forest_plan(n_classes: int = 0, **changes: Any) -> ForestPlan:
    criterion = "gini" if n_classes else "squared_error"
    return ForestPlan(rules(criterion, 1), seed=5, n_classes=n_classes, **changes)


def boosting_target(loss: Any, y: Any, weight: Any = None, initial: Any = None, n_threads: int = 1, **changes: Any) -> BoostingTarget:
    plan = BoostingPlan(rules("newton", 1), seed=5, loss=loss, n_rounds=3, **changes)
    return BoostingTarget.of_table(plan, y, weight, initial, Threads(n_threads))


def unscaled(prepared: Any) -> tuple[Any, Any]:
    a = np.ldexp(prepared.g.astype(float), -prepared.exponents[0])
    b = np.ldexp(prepared.h.astype(float), -prepared.exponents[1]) if prepared.h.shape[0] else np.ones(a.shape[0])
    return a, b


@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e9, 1e9).map(lambda y: y if abs(y) > 1e-60 else 0.0)))
def test_regression_is_centred_and_precise(y: NDArray[np.float64]) -> None:
    a, b = unscaled(ForestTarget.of_table(forest_plan(), y, None).start(0, 0))
    centred = y - y.mean()
    assert a == pytest.approx(centred, abs=1e-13 * max(np.abs(y).max(), 1e-300))
    assert b.tolist() == [1.0] * len(y)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("n_draws", [None, N])
@pytest.mark.parametrize("weighted", [False, True])
def test_what_is_spent_belongs_to_one_tree(n_classes: int, n_draws: int | None, weighted: bool) -> None:
    y, weight = (CLASSES % n_classes if n_classes else Y), (WEIGHT if weighted else None)
    target = ForestTarget.of_table(forest_plan(n_classes, n_draws=n_draws), y, weight)
    first = target.start(4, 0)
    kept = [first.g.copy(), first.h.copy()]
    if first.spent:
        first.g[:] = first.h[:] = -7
    again = target.start(4, 0)
    assert np.array_equal(again.g, kept[0])
    assert np.array_equal(again.h, kept[1])


@pytest.mark.parametrize("n_draws", [1, N, 5 * N])
@pytest.mark.parametrize("weighted", [False, True])
def test_bootstrap_counts_are_weights(n_draws: int, weighted: bool) -> None:
    weight = WEIGHT if weighted else None
    target = ForestTarget.of_table(forest_plan(n_draws=n_draws), Y, weight)
    prepared = target.start(2, 0)
    counts = prepared.h
    assert counts.sum() == n_draws
    assert np.array_equal(prepared.in_sample, counts > 0)
    a, _ = unscaled(prepared)
    center = Y[WEIGHT > 0].mean() if weighted else Y.mean()
    assert a == pytest.approx(counts * (Y - center), abs=1e-12)
    assert np.abs(prepared.g.astype(object)).sum() < 2**62
    if weighted:
        assert not counts[WEIGHT == 0].any()
    assert prepared.h.tolist() == target.start(2, 0).h.tolist()
    if n_draws > 1:
        assert prepared.h.tolist() != target.start(3, 0).h.tolist()


def test_balanced_subsample() -> None:
    y = (np.arange(N) < 20).astype(int)
    plan = forest_plan(2, n_draws=N, balanced_subsample=True)
    prepared = ForestTarget.of_table(plan, y, None).start(1, 0)
    counts = ForestTarget.of_table(forest_plan(2, n_draws=N), y, None).start(1, 0).h
    of_ones, weight = unscaled(prepared)
    assert np.array_equal(prepared.in_sample, counts > 0)
    assert of_ones.sum() == pytest.approx(N / 2)
    assert weight.sum() == pytest.approx(N)
    ones = (y == 1) & (counts > 0)
    assert weight[ones] / counts[ones] == pytest.approx(np.full(ones.sum(), N / (2 * counts[y == 1].sum())))


def test_out_of_bag_sums_do_not_depend_on_the_order() -> None:
    outside, leaf = RNG.permutation(10)[[2, 3, 4, 8, 9]], np.array([0, 0, 0, 1, 1])
    values = [RNG.normal(size=(2, 1)) * 10.0 ** RNG.integers(-9, 0) for _ in range(50)]
    sums = []
    for order in (range(50), RNG.permutation(50)):
        bag = OutOfBag(10, 1, 38)
        for i in order:
            bag.add(outside, leaf, values[i])
        sums.append(bag)
    assert sums[0].sum.tolist() == sums[1].sum.tolist()
    total = np.zeros(10)
    total[outside] = np.sum(values, axis=0)[leaf, 0]
    assert np.ldexp(sums[0].sum[:, 0].astype(float), -sums[0].exponent) == pytest.approx(total, abs=1e-9)
    assert sums[0].count.tolist() == [50 * (row in outside) for row in range(10)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("loss", "n_classes"), [(SquaredError(), 0), (log_loss_for(2), 2), (log_loss_for(3), 3)])
def test_gradients_in_fixed_point(loss: Any, n_classes: int, weighted: bool) -> None:
    y = CLASSES % n_classes if n_classes else Y
    weight = WEIGHT if weighted else None
    target = boosting_target(loss, y, weight, n_classes=n_classes)
    assert (
        target.initial.tolist() == loss.initial(y[WEIGHT > 0], WEIGHT[WEIGHT > 0]).tolist() if weighted else loss.initial(y, None).tolist()
    )
    target.raw += RNG.normal(size=target.raw.shape)
    raw = target.raw.copy()
    for output in range(loss.n_outputs):
        prepared = target.start(output, output)
        g, h, opened_round = np.empty(N), np.empty(N), np.empty(raw.shape)
        loss.open_round(raw, opened_round)
        loss.gradients(y, opened_round, output, g, h)
        a, b = unscaled(prepared)
        w = WEIGHT if weighted else 1.0
        assert a == pytest.approx(w * g, rel=1e-9, abs=1e-12 * np.abs(w * g).sum())
        assert b == pytest.approx(w * h, rel=1e-9, abs=1e-12 * np.abs(w * h).sum())
        assert (prepared.h.shape == (0,)) == (loss.constant_hessian and not weighted)
        target.raw[output] += 1.0  # all trees of a round use the predictions before it


def test_subsample_and_held_out_rows() -> None:
    target = boosting_target(
        log_loss_for(3), CLASSES, WEIGHT, n_classes=3, subsample=0.5, n_iter_no_change=2, validation_fraction=0.2, initial=np.zeros(3)
    )
    held_out = target.held_out
    for members in (np.flatnonzero(k == CLASSES) for k in range(3)):
        assert held_out[members].sum() == np.ceil(0.2 * np.count_nonzero(WEIGHT[members]))
    eligible = ~held_out & (WEIGHT > 0)
    first, same_round, second = (target.start(tree, output).in_sample.copy() for tree, output in ((0, 0), (1, 1), (3, 0)))
    for chosen in (first, second):
        assert chosen.sum() == eligible.sum() // 2
        assert not np.any(chosen & ~eligible)
    assert np.array_equal(first, same_round)
    assert not np.array_equal(first, second)
    prepared = target.start(3, 0)
    assert not prepared.g[~second].any()
    assert not prepared.h[~second].any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("changes", [{}, {"first_order": True}, {"n_iter_no_change": 2, "validation_fraction": 0.2}])
@pytest.mark.parametrize(("loss", "n_classes"), [(SquaredError(), 0), (log_loss_for(3), 3)])
def test_rows_drawn_by_gradients(loss: Any, n_classes: int, changes: dict[str, Any], weighted: bool) -> None:
    y, weight = CLASSES if n_classes else Y, WEIGHT if weighted else None
    whole = boosting_target(loss, y, weight, n_classes=n_classes, initial=np.zeros(loss.n_outputs), **changes)
    target = boosting_target(
        loss, y, weight, n_classes=n_classes, initial=np.zeros(loss.n_outputs), subsample=0.3, subsample_by="gradient", **changes
    )
    for some in (whole, target):
        some.raw += np.random.default_rng(1).normal(size=some.raw.shape)
    of_all = [unscaled(whole.start(output, output)) for output in range(loss.n_outputs)]
    eligible = np.full(N, True) if whole.train is None else whole.train
    sizes = np.sum([np.abs(g) for g, _ in of_all], axis=0)
    wanted = np.zeros(N)
    wanted[eligible] = [float(p) for p in naive.probabilities_by_gradient(sizes[eligible].tolist(), 0.3)]
    key = hashing.stream_key(target.seed, hashing.STREAM_SUBSAMPLE, 0)
    drawn = np.array([hashing.uniform(np.uint64(hashing.draw(np.uint64(key), row))) for row in range(N)]) < wanted
    assert 0.2 * eligible.sum() < drawn.sum() < 0.4 * eligible.sum()
    for output, (g, h) in enumerate(of_all):
        prepared = target.start(output, output)
        assert np.array_equal(prepared.in_sample, drawn)
        for found, values in zip(unscaled(prepared), (g, h), strict=True):
            assert found == pytest.approx(np.where(drawn, values / np.where(drawn, wanted, 1.0), 0.0), rel=1e-6, abs=1e-9)
    assert not np.array_equal(target.start(loss.n_outputs, 0).in_sample, drawn)
    assert not target.draws


def test_scores_are_weighted_means_over_both_parts() -> None:
    target = boosting_target(SquaredError(), Y, WEIGHT, n_iter_no_change=2, validation_fraction=0.3)
    target.raw += RNG.normal(size=N)
    losses, out = (Y - target.raw[0]) ** 2, target.held_out
    scores = scores_of([target.losses(0, N)])
    assert scores[:2] == pytest.approx([np.average(losses[part], weights=WEIGHT[part]) for part in (~out, out)])
    train, validation, *_ = scores_of([boosting_target(SquaredError(), Y).losses(0, N)])
    assert train == pytest.approx(Y.var())
    assert np.isnan(validation)


@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 3))
def test_shares_of_losses_are_all_losses(n_rows: int, n_shares: int, n_threads: int) -> None:
    """For any division of rows: the same numbers, to the last bit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "BLOCK_ROWS", 16)
        patch.setattr(boosting, "ADDITION_ROWS", 32)
        weight = np.abs(Y) + 1
        target = boosting_target(SquaredError(), np.resize(Y, n_rows), np.resize(weight, n_rows), n_threads=n_threads)
        shares = shares_of(n_rows, n_shares)
        assert np.concatenate([np.arange(*share) for share in shares]).tolist() == list(range(n_rows))
        one = scores_of([target.losses(0, n_rows)])
        assert scores_of([target.losses(*share) for share in shares]).train == one.train
        assert one.train == pytest.approx(np.average((target.target - target.raw[0]) ** 2, weights=target.weight))


def test_threads_change_nothing() -> None:
    y = np.random.default_rng(3).normal(size=50_000)
    one, four = (boosting_target(SquaredError(), y, np.abs(y) + 1, n_threads=k) for k in (1, 4))
    for x, z in zip(one.start(0, 0), four.start(0, 0), strict=True):
        assert np.array_equal(x, z) if x is not None else z is None


def layouts(target: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the same targets in several memory layouts, as processes and partitions may leave them."""
    unaligned = np.empty(target.nbytes + 1, np.uint8)[1:].view(target.dtype).reshape(target.shape)
    unaligned[...] = target
    return [target, np.array(target, order="F"), unaligned, np.repeat(target, 2, axis=0)[::2]]


def test_centers_do_not_depend_on_the_layout() -> None:
    """More rows than NumPy's buffers hold: it adds unaligned numbers in another order."""
    several = np.stack([np.random.default_rng(seed).random(9_000) for seed in range(8)], axis=1)
    assert any(layouts(y)[2].mean() != y.mean() for y in several.T.copy())
    means = [y.mean() for y in several.T.copy()]
    for k, y in enumerate(several.T.copy()):
        assert {ForestTarget.of_table(forest_plan(), target, None).scales.center.item() for target in layouts(y)} == {means[k]}
    for target in layouts(several):
        assert ForestTarget.of_table(forest_plan(targets=(1,) * 8), target, None).scales.center.tolist() == means


@pytest.mark.parametrize("n_draws", [None, N])
def test_targets_of_rows_of_weight_zero_change_nothing(n_draws: int | None) -> None:
    absent = WEIGHT == 0
    assert absent.any()
    one, other = (ForestTarget.of_table(forest_plan(n_draws=n_draws), np.where(absent, y, Y), WEIGHT).start(0, 0) for y in (1.0, 1e200))
    assert (one.g.tolist(), one.h.tolist(), one.exponents) == (other.g.tolist(), other.h.tolist(), other.exponents)
