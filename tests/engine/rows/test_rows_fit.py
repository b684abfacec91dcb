"""Boosting over shards of rows: byte for byte the model of one process, however rows are spread, and whatever becomes of shards."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import BLOCK_ROWS
from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, ForestPlan
from dtrees.engine.protocol.messages import Message, ShardsLost, StaleMessage
from dtrees.engine.rows import exchange, flagged_rows, levels, rows_in_tree, searcher, zone_edges
from dtrees.engine.rows import messages as m
from dtrees.engine.rows import steps as s
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.exchange import Step
from dtrees.engine.rows.local import LocalRowsExecutor, ParcelsMissing
from dtrees.engine.rows.refusal import rows_placement_refusal
from dtrees.engine.rows.zone_edges import merge_sketches, sketch_columns
from dtrees.engine.run.boosting_rounds import boost
from dtrees.ensemble.objective.custom import CustomObjective
from tests.engine.shards import Logistic, Softmax, Squared, all_equal, local, rules, wild_table, wild_target, wild_weight
from tests.examples import examples
from tests.slow import one_of_each

LOSSES: dict[str, tuple[Any, int]] = {"squared": (Squared(), 0), "logistic": (Logistic(), 2), "softmax": (Softmax(3), 3)}
Cuts = Sequence[Sequence[tuple[int, int]]]


def kinds_of(message: Message) -> list[str]:
    """Return the name of a message's type, or of the types of those that travel in it."""
    return [type(one).__name__ for one in getattr(message, "messages", (message,))]


def names_of(step: Step) -> list[str]:
    """Return the name of a step, or of those that were taken together."""
    return step.name.rpartition(": ")[2].split(", ")


class Pickling(LocalRowsExecutor):
    """What is sent is pickled on the way; the shard that is at a kind of message or step for the n-th time is lost, all it knew with it.

    Steps are named as their parcels are; the shard has sent these, or, "before" the name, has not.
    """

    lose: str | None = None
    nth = 1
    n_lost = 0
    make: Callable[[], LocalRowsExecutor]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.largest = {}

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        for _ in range(kinds_of(next(iter(messages.values()))).count(str(self.lose))):
            self._count(max(messages))
        replies = super().send({shard: pickle.loads(pickle.dumps(one)) for shard, one in messages.items()})
        for shard, one in messages.items():
            size = len(pickle.dumps(replies[shard]))
            for kind in kinds_of(one):
                self.largest[kind] = max(self.largest.get(kind, 0), size)
        return replies

    def hand_over(self, shard: int, step: Step) -> None:
        names = names_of(step)
        if self.lose in [f"before {name}" for name in names]:
            self._count(shard)
        super().hand_over(shard, pickle.loads(pickle.dumps(step)))
        if self.lose in names:
            self._count(shard)

    def _count(self, shard: int) -> None:
        self.nth -= 1
        if not self.nth:
            self.n_lost += 1
            self.shards[shard].close()
            self.shards[shard] = self.make().shards[shard]
            raise ShardsLost("lost")


def spread(n: int, n_shards: int, bounds: Sequence[int], owners: Sequence[int]) -> Cuts:
    """Cut rows into stretches, and give each to a shard; some may have none."""
    ends = [0, *sorted(bounds), n]
    stretches = [(first, last) for first, last in pairwise(ends) if first < last]
    return [[one for i, one in enumerate(stretches) if owners[i % len(owners)] % n_shards == shard] for shard in range(n_shards)]


def fit_here(table: Any, plan: BoostingPlan, y: NDArray[Any], weight: Any, **more: Any) -> BoostingResult:
    with local(table, y, weight) as executor:
        return boost(executor, plan, **more)


def fit_spread(table: Any, plan: BoostingPlan, y: NDArray[Any], weight: Any, cuts: Cuts, n_threads: int = 1, **more: Any) -> BoostingResult:
    executor = Pickling.of(table, y, weight, cuts, n_threads)
    try:
        return boost(executor, plan, **more)
    finally:
        executor.close()


def cut_finely(patch: pytest.MonkeyPatch, rows: int = 1, fewest: int = 2, listed: bool = True, batch_bytes: int = 1000) -> None:
    """Have nodes of few rows summed by parts of zones, and flagged ones cut into finer ones, too; rows in there are looked up in lists.

    They are sent in batches of so many bytes.
    """
    patch.setattr(rows_in_tree, "flagged_bytes", lambda n_rows, n_columns: batch_bytes)
    patch.setattr(flagged_rows, "CODES_FOR_LISTS", 0 if listed else 2**40)
    patch.setattr(levels, "_ROWS_PER_PART", 8)
    patch.setattr(searcher, "ROWS_PER_FINER_PART", rows)
    patch.setattr(searcher, "FEWEST_FINER_PARTS", fewest)


def assert_same(one: BoostingResult, other: BoostingResult) -> None:
    assert len(one.rounds) == len(other.rounds)
    assert all(all_equal(a, b) for a, b in zip(one.rounds, other.rounds, strict=True))
    for name in ("initial", "train_score", "validation_score", "out_of_bag"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def make_plan(loss: str, n_columns: int, n_rounds: int = 3, rule_changes: Any = None, **changes: Any) -> BoostingPlan:
    kind, n_classes = LOSSES[loss]
    some = rules("newton", n_columns, **({"max_depth": 4, "reg_lambda": 1.0} | (rule_changes or {})))
    return BoostingPlan(some, 9, kind, n_rounds, n_classes=n_classes, **changes)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], bool]] = {
    "plain": ("squared", {}, {}, False),
    "weighted": ("squared", {"min_child_weight": 2.0}, {}, True),
    "two classes": ("logistic", {"min_samples_leaf": 3}, {"class_weight": (0.3, 2.0)}, False),
    "three classes": ("softmax", {}, {}, True),
    "deep": ("squared", {"max_depth": None, "reg_lambda": 0.0}, {}, False),
    "columns drawn": ("logistic", {"max_features": 3, "columns_per_tree": 3}, {}, False),
    "best first": ("squared", {"max_depth": None, "max_leaf_nodes": 9}, {}, True),
    "held out": ("logistic", {}, {"n_iter_no_change": 50, "validation_fraction": 0.25}, True),
    "rows and columns drawn": ("squared", {"max_features": 2, "columns_per_tree": 5}, {"subsample": 0.6}, False),
    "one column by level": ("logistic", {"max_features": 1, "by_level": True}, {"subsample": 0.5}, True),
    "drawn and held out": ("squared", {}, {"n_iter_no_change": 50, "subsample": 0.8}, True),
    "monotonic": ("squared", {"monotonic": (1, 0, -1, 0, 0, 1, 0), "max_depth": 5}, {}, False),
    "interactions": ("squared", {"interactions": ((0, 1, 2), (2, 3, 4, 5, 6))}, {}, False),
    "pruned": ("squared", {"ccp_alpha": 0.01}, {}, False),
}


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first one compiles
@pytest.mark.parametrize(("case", "sent_rows"), one_of_each([*CASES], [0, 30, 10_000], others=pytest.mark.thorough))
def test_models_are_those_of_one_process(case: str, sent_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_tree, "SENT_ROWS", sent_rows)
    if sent_rows:
        cut_finely(monkeypatch, listed=sent_rows == 30)
        monkeypatch.setattr(zone_edges, "_LISTED_AT_ENDS", 2)  # and looked up in nodes of 256 rows
    loss, rule_changes, changes, weighted = CASES[case]
    n = 9_000 if case == "plain" else 700
    table = wild_table(n, 4)
    plan = make_plan(loss, len(table), rule_changes=rule_changes, **changes)
    y, weight = wild_target(table, plan.n_classes, 4), wild_weight(n, 4) if weighted else None
    one = fit_here(table, plan, y, weight)
    for n_shards, cuts, n_threads in ((1, [], 2), (2, [n // 3], 1), (5, [1, 2, n // 2, n - 1], 1)):
        assert_same(one, fit_spread(table, plan, y, weight, spread(n, n_shards, cuts, range(9)), n_threads))


def test_more_shards_than_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that searches no column waits while others have parts cut finer."""
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 1)
    cut_finely(monkeypatch)
    n = 400
    table = wild_table(n, 4)
    y, plan, table = wild_target(table, 0, 4), make_plan("squared", 2), [table[0], table[2]]
    assert_same(fit_here(table, plan, y, None), fit_spread(table, plan, y, None, spread(n, 3, [10, 200], range(3))))


@pytest.mark.slow
def test_children_are_summed_by_finer_parts_than_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "_ROWS_PER_PART", 8)
    monkeypatch.setattr(exchange, "_FIRST_GRAIN", 0)
    monkeypatch.setattr(exchange, "_FAR_TOO_MUCH_FLAGGED_SHARE", 2**40)
    both, plan_level = [], rows_tree._Levels.plan

    def plan_and_note(levels: Any, grower: Any, splits: Any) -> s.Levelled:
        summed = plan_level(levels, grower, splits)
        both.append(any({left, left + 1} <= set(summed.node.tolist()) for left in splits.left.tolist()))
        return summed

    monkeypatch.setattr(rows_tree._Levels, "plan", plan_and_note)
    n = 9_000
    table = wild_table(n, 5)
    plan, y = make_plan("squared", len(table)), np.random.default_rng(5).normal(size=n)
    assert_same(fit_here(table, plan, y, None), fit_spread(table, plan, y, None, spread(n, 2, [n // 3], range(9))))
    assert both[0]
    assert not all(both)


#: What comes less than five times.
RARE = {
    "Introduce",
    "Open",
    "Replay",
    "GrowTree",
    "targets",
    "before targets",
    "held out",
}
KINDS = ("continuous", "ties", "one value", "sorted", "neighbours", "heavy", "missing", "missing first", "float32", "integers")


def make_column(kind: str, n: int, rng: np.random.Generator) -> NDArray[Any]:
    x = rng.normal(size=n)
    match kind:
        case "ties":
            return np.round(x)
        case "one value":
            return np.ones(n)
        case "sorted":
            return np.sort(x)
        case "neighbours":
            return 1.0 + rng.permutation(n) * 2.0**-52
        case "heavy":
            return np.where(rng.random(n) < 0.7, np.round(x, 1), x)
        case "missing":
            return np.where(rng.random(n) < 0.4, np.nan, x)
        case "missing first":
            return np.where(np.arange(n) < n // 2, np.nan, x)
        case "float32":
            return x.astype(np.float32)
        case "integers":
            return rng.integers(-5, 300, n)
    return x


def draw_table(data: st.DataObject, most_columns: int) -> tuple[list[NDArray[Any]], np.random.Generator]:
    """Return a table of one row or many, and what drew it."""
    n = data.draw(st.sampled_from([1, 2, 3, 10, 60, 400, 1500]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=most_columns))
    return [make_column(kind, n, rng) for kind in kinds], rng


def draw_weight(data: st.DataObject, rng: np.random.Generator, n: int) -> NDArray[np.float64] | None:
    """Return weights of rows, some of them 0, or none."""
    if not data.draw(st.booleans()):
        return None
    weight = np.where(rng.random(n) < data.draw(st.sampled_from([0.0, 0.5])), 0.0, rng.random(n))
    weight[0] = 1.0
    return weight


@pytest.mark.slow
@examples(100)
@given(data=st.data())
def test_any_table_and_partition(data: st.DataObject) -> None:
    table, rng = draw_table(data, 4)
    n = len(table[0])
    noise = data.draw(st.sampled_from([0.0, 1.0, 1e6]))
    y = np.nan_to_num(table[0].astype(float)) * 2 + noise * rng.normal(size=n)
    if data.draw(st.booleans()):
        y = np.sign(y)
    weight = draw_weight(data, rng, n)
    changes = {
        "max_depth": data.draw(st.sampled_from([None, 2, 6])),
        "reg_lambda": data.draw(st.sampled_from([0.0, 1.0])),
        "min_samples_leaf": data.draw(st.sampled_from([1, 4])),
        "max_features": data.draw(st.sampled_from([1, len(table), len(table)])),
        "max_leaf_nodes": data.draw(st.sampled_from([None, None, 6])),
    }
    plan = make_plan("squared", len(table), rule_changes=changes, subsample=data.draw(st.sampled_from([1.0, 1.0, 0.5])))
    n_shards = data.draw(st.integers(1, 5))
    bounds = data.draw(st.lists(st.integers(0, n), max_size=7))
    cuts = spread(n, n_shards, bounds, data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_tree, "SENT_ROWS", data.draw(st.sampled_from([0, 8, 100])))
        rows, fewest, batch_bytes = (data.draw(st.sampled_from(some)) for some in ([1, 2, 16], [1, 2], [1, 100, 2000, 2**30]))
        cut_finely(patch, rows, fewest, data.draw(st.booleans()), batch_bytes)
        assert_same(fit_here(table, plan, y, weight), fit_spread(table, plan, y, weight, cuts))


@pytest.mark.slow
@pytest.mark.parametrize("power", [10, 11])
def test_sums_at_a_power_of_two_are_added_in_order(power: int) -> None:
    n = 2**power
    table, y = [np.arange(n) % 37 * 1.0], np.where(np.arange(n) % 2, 1.0, -1.0)
    weight = np.full(n, 1.0) + (np.arange(n) % 3 - 1) * 2.0**-53
    plan = make_plan("squared", 1)
    for some in (None, weight):
        one = fit_here(table, plan, y, some, initial=np.zeros(1))
        assert_same(one, fit_spread(table, plan, y, some, spread(n, 3, [5, 100, 101], range(9)), initial=np.zeros(1)))


PLACES = [
    "Introduce", "Open", "Replay", "GrowTree", "derived", "level", "subtrees", "targets", "before targets",
    "before derived", "before level", "before subtrees", "held out", "sums", "before sums", "bars",
    "before bars", "flags", "before flags", "picked", "before picked", "apart", "before apart", "losses", "before losses", "finer sums",
    "before finer sums", "finer flags", "before finer flags", "before finer sums of batch 1", "picked of batch 1",
    "before picked of batch 2",
]  # fmt: skip


LOST = [*((place, 1) for place in PLACES if place in RARE)]
LOST += one_of_each([place for place in PLACES if place not in RARE], [1, 5], others=pytest.mark.thorough)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "nth"), LOST)
def test_a_shard_lost_anywhere(place: str, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    if place.endswith("subtrees"):  # each small node has too many rows for one exchange with others
        monkeypatch.setattr(rows_tree, "SHARED_CELLS", 1)
    cut_finely(monkeypatch)
    n = 400
    table = wild_table(n, 4)
    y, plan = wild_target(table, 2, 4), make_plan("logistic", len(table))
    cuts = spread(n, 3, [10, 200], range(3))
    once = fit_here(table, make_plan("logistic", len(table), n_rounds=1), y, None)
    one = fit_here(table, plan, y, None, previous=once.rounds, initial=once.initial)
    executor = Pickling.of(table, y, None, cuts)
    executor.lose, executor.nth = place, nth
    executor.make = lambda: LocalRowsExecutor.of(table, y, None, cuts)
    got = boost(executor, plan, previous=once.rounds, initial=once.initial)
    executor.close()
    assert executor.n_lost == 1
    assert_same(one, got)


@pytest.mark.slow
def test_goes_on_from_predictions_of_each_row() -> None:
    n = 300
    table = wild_table(n, 4)
    y, plan = wild_target(table, 0, 4), make_plan("squared", len(table))
    initial = np.random.default_rng(0).normal(size=(1, n))
    one = fit_here(table, plan, y, None, initial=initial)
    assert_same(one, fit_spread(table, plan, y, None, spread(n, 2, [77], range(2)), initial=initial))


def test_losses_of_torn_blocks_are_put_together_where_they_begin() -> None:
    """Pieces of a block on its own shard, on others, on several in turns; and what goes by the coordinator is a few sums."""
    n = 40_000
    table = [np.arange(n) % 97 * 1.0]
    y, weight = np.sin(np.arange(n) * 0.1), wild_weight(n, 4)
    plan = make_plan("squared", 1, n_rounds=2, n_iter_no_change=50, rule_changes={"max_depth": 2})
    ends = [0, 5, 8191, 8192, 8200, 9000, 16_384, 20_000, 20_001, 31_000, n]
    stretches = list(pairwise(ends))
    cuts = [stretches[:1] + stretches[3:7:3], stretches[1:3] + stretches[7:9], [], stretches[4:6] + stretches[9:]]
    assert sorted(one for some in cuts for one in some) == stretches
    executor = Pickling.of(table, y, weight, cuts)
    assert_same(fit_here(table, plan, y, weight), boost(executor, plan))
    executor.close()
    assert executor.largest["GrowTree"] < BLOCK_ROWS


def test_parcels_that_nobody_sends_are_named() -> None:
    table = wild_table(50, 4)
    executor = LocalRowsExecutor.of(table, wild_target(table, 0, 4), None, [[(0, 30)], [(30, 50)]])
    shard, plan = executor.shards[0], make_plan("squared", len(table))
    executor.send({i: m.Introduce("fit", 0, i, 2, plan, 0, False) for i in range(2)})
    edges = merge_sketches([sketch_columns(one._columns) for one in executor.shards]).of_categories(np.zeros(len(table), np.int64))
    about = edges, [np.array([[0, 30]]), np.array([[30, 50]])]
    step = next(executor.shards[1].program(m.Open("fit", 0, *about)))
    assert list(step.parcels) == [0]
    with pytest.raises(ParcelsMissing, match="shard 0 awaits targets of the shards \\[1\\]"):
        executor.send({0: m.Open("fit", 0, *about)})
    with pytest.raises(StaleMessage):
        executor.send({0: m.Open("fit", 1, *about)})
    shard.mailbox.put(step.parcels[0]._replace(epoch=-1))  # of an earlier epoch: dropped
    with pytest.raises(ParcelsMissing):
        executor.send({0: m.Open("fit", 0, *about)})
    shard.mailbox.put(step.parcels[0])
    assert executor.send({0: m.Open("fit", 0, *about)})[0].shape == (1,)
    executor.close()


class InOrder:
    """Scores by the order of rows, too."""

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        place = np.arange(target.shape[0])
        return float((place * (target - raw[0]) * (1.0 if weight is None else weight)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.3, None])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_scorer_is_given_all_rows_held_out_in_their_order(weighted: bool, fraction: float | None) -> None:
    n = 400
    table = wild_table(n, 4)
    plan = make_plan("squared", len(table), 5, n_iter_no_change=2, validation_fraction=fraction, scoring=InOrder())
    y, weight = wild_target(table, 0, 4), wild_weight(n, 4) if weighted else None
    one = fit_here(table, plan, y, weight)
    for n_shards, bounds in ((1, []), (3, [50, 51, 200, 390])):
        assert_same(one, fit_spread(table, plan, y, weight, spread(n, n_shards, bounds, [2, 0, 1])))


def pulled_together(y: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> tuple[Any, Any]:
    """An objective that takes rows one by one, but looks at all of them; of one output or several."""
    error = raw - (np.eye(3)[y] if raw.ndim == 2 else y)
    w = np.ones(len(raw)) if weight is None else weight
    w = w.reshape(-1, *[1] * (raw.ndim - 1))
    return w * (error + 0.1 * (raw - raw.mean(axis=0))), w * (np.ones_like(raw) + np.arange(len(raw)).reshape(w.shape) % 3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [0, 3])
def test_an_objective_of_all_rows(n_classes: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One shard computes it, once for each round, also if a shard is lost between trees of a round."""
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    n, calls = 300, [0]

    def objective(*given: Any) -> tuple[Any, Any]:
        calls[0] += 1
        return pulled_together(*given)

    table = wild_table(n, 4)
    y, weight = wild_target(table, n_classes, 4), wild_weight(n, 4) if weighted else None
    plan = replace(make_plan("squared", len(table), n_rounds=3, subsample=0.7), loss=CustomObjective(n_classes, objective))
    one, cuts = fit_here(table, plan, y, weight), spread(n, 3, [20, 150], [2, 0, 1])
    calls[0] = 0
    executor = LocalRowsExecutor.of(table, y, weight, cuts)
    assert_same(one, boost(executor, plan))
    executor.close()
    assert calls == [3]
    lasting = Pickling.of(table, y, weight, cuts)
    lasting.lose, lasting.nth, lasting.make = "level", 5, lambda: Pickling.of(table, y, weight, cuts)
    assert_same(one, boost(lasting, replace(plan, loss=CustomObjective(n_classes, pulled_together))))
    lasting.close()
    assert lasting.n_lost == 1


class MeasuresOtherwise(Squared):
    measures_leaves = True


def test_refusals_name_the_parameter() -> None:
    assert rows_placement_refusal(make_plan("squared", 3)) is None
    assert "loss='mine'" in str(rows_placement_refusal(replace(make_plan("squared", 3), loss=MeasuresOtherwise()), "mine"))
    forest = ForestPlan(rules("squared_error", 3), seed=0)
    assert rows_placement_refusal(forest) is None
    assert rows_placement_refusal(replace(forest, targets=(1, 1))) is None
    for changes, words in (
        ({"rules": rules("absolute_error", 3)}, "criterion='absolute_error'"),
        ({"rules": rules("absolute_error", 3, random_splits=True)}, "criterion='absolute_error'"),
    ):
        assert words in str(rows_placement_refusal(replace(forest, **changes)))
