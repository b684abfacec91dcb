"""Boosting over rows that stay where they are: every byte is that of a fit here, whatever the workers, the partitions and the losses."""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import dtrees
from dtrees import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from dtrees.cluster.dashboard import FitHistory
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.exchange import Shards
from tests.cluster.cases import HELD_OUT, HELD_OUT_TARGETS, N_ROWS, TARGETS, TRAIN, WEIGHTS, outcome
from tests.cluster.faults import Cut, Fault, cut_off, install, stopped
from tests.cluster.samples import assert_clean, events, in_partitions
from tests.plain import PLAIN
from tests.slow import one_of_each, thorough_for


@dataclass(frozen=True)
class Case:
    """A model of a task; categories are numbers in an order, unless splits of them are ``by_set``."""

    task: str
    make: Callable[[], Any]
    weighted: bool = True
    evaluated: bool = False
    by_set: bool = False


CASES = {
    "squared error": Case(
        "regression",
        lambda: GradientBoostingRegressor(n_estimators=4, max_depth=5, colsample_bytree=0.8, min_samples_category=3, random_state=1),
        by_set=True,
    ),
    "two classes, best first, stops early": Case(
        "binary", lambda: GradientBoostingClassifier(n_estimators=6, max_leaf_nodes=9, n_iter_no_change=2, random_state=2)
    ),
    "classes": Case("multiclass", lambda: GradientBoostingClassifier(n_estimators=2, max_depth=3, random_state=3), weighted=False),
    "rows and columns drawn, in order": Case(
        "regression",
        lambda: GradientBoostingRegressor(
            n_estimators=4, max_depth=5, subsample=0.7, max_features=0.5, monotonic_cst={"wide": 1, "count": -1}, random_state=6
        ),
        by_set=True,
    ),
    "targets, by Huber's loss": Case(
        "several",
        lambda: GradientBoostingRegressor(loss="huber", n_estimators=3, max_depth=4, n_iter_no_change=3, scoring="r2", random_state=7),
    ),
    "forest": Case("regression", lambda: RandomForestRegressor(3, oob_score=True, max_features=0.5, max_depth=6, random_state=8)),
    "forest of classes": Case(
        "multiclass",
        lambda: RandomForestClassifier(3, oob_score=True, class_weight="balanced_subsample", max_depth=6, random_state=9),
        by_set=True,
    ),
    "forest of several targets": Case(
        "several", lambda: RandomForestRegressor(3, oob_score=True, max_features=0.5, max_samples=0.8, random_state=10)
    ),
    "extra-trees of classes of several targets": Case(
        "several classes",
        lambda: ExtraTreesClassifier(
            3, bootstrap=True, oob_score=True, class_weight="balanced_subsample", max_features=0.5, random_state=11
        ),
    ),
    "Poisson, evaluated": Case(
        "amounts", lambda: GradientBoostingRegressor(loss="poisson", n_estimators=4, max_depth=4, random_state=4), evaluated=True
    ),
}
#: Sets of categories have kernels of their own.
QUICK = "two classes, best first, stops early"
FOREST_OF_CLASSES = Case(
    "binary", lambda: RandomForestClassifier(4, class_weight="balanced_subsample", oob_score=True, max_depth=6, random_state=9)
)
FOREST_OF_SEVERAL_CLASSES = replace(FOREST_OF_CLASSES, task="several classes")
#: Rows of partitions: none in some, one in some, nearly all in one.
PARTS = {1: [N_ROWS], 4: [1, 0, N_ROWS - 21, 20], 7: [40, 1, 100, 0, 59, 60, 40]}


def fit(case: Case, lengths: list[int] | None = None) -> Any:
    """Fit in this process, or from partitions of some lengths."""
    give = (lambda data: data) if lengths is None else functools.partial(in_partitions, lengths=lengths)
    options: dict[str, Any] = {}
    if case.evaluated:
        options["eval_set"] = [(HELD_OUT, HELD_OUT_TARGETS[case.task])]
    weight = give(WEIGHTS) if case.weighted else None
    model = case.make()
    by_default = {name: value for name, value in PLAIN.items() if getattr(model, name, None) == "auto"}
    if not case.by_set:
        model.set_params(categorical_features=None)
    return model.set_params(**by_default).fit(give(TRAIN), give(TARGETS[case.task]), weight, **options)


def found(model: Any) -> dict[str, bytes]:
    assert any(tree.node_count > 3 for group in model._trees.groups for tree in group)
    with tempfile.TemporaryDirectory() as folder:
        return outcome(model, Path(folder))


@functools.cache
def wanted(name: str) -> dict[str, bytes]:
    return found(fit(CASES[name]))


def check(model: Any, name: str) -> None:
    assert model.placement_.kind == "rows"
    ours, theirs = found(model), wanted(name)
    assert [key for key in theirs if ours.get(key) != theirs[key]] == []


@pytest.fixture
def by_rows() -> Iterator[None]:
    with dask.config.set({"dtrees.placement": "rows"}):
        yield


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are grown by all shards together, but for small ones; for workers in this process."""
    monkeypatch.setattr("dtrees.engine.rows.tree.SENT_ROWS", N_ROWS // 10)
    monkeypatch.setattr("dtrees.engine.rows.searcher.ROWS_PER_FINER_PART", 1)
    monkeypatch.setattr("dtrees.engine.rows.searcher.FEWEST_FINER_PARTS", 1)


def test_three_workers(client: Client, by_rows: None) -> None:
    """And rows of a partition are on the worker that had it."""
    check(fit(CASES[QUICK], PARTS[7]), QUICK)
    (holding,) = events(client, "holding")
    assert len(holding["workers"]) == 3
    assert sum(holding["rows_of"].values()) == holding["rows"] > max(holding["rows_of"].values())
    assert_clean(client)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_parts"), one_of_each([*CASES], [*PARTS], others=pytest.mark.thorough))
def test_five_workers(five_threads: Client, by_rows: None, few_rows: None, name: str, n_parts: int) -> None:
    check(fit(CASES[name], PARTS[n_parts]), name)


def test_a_forest(five_threads: Client, by_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: N_ROWS // 10)
    model = fit(CASES["forest"], PARTS[7])
    check(model, "forest")
    assert model.oob_score_ == fit(CASES["forest"]).oob_score_
    with pytest.raises(AttributeError, match="drawn by weights or classes that are on a cluster"):
        model.estimators_samples_  # noqa: B018
    assert_clean(five_threads, in_processes=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_worker(cluster_of_1: LocalCluster, by_rows: None, name: str) -> None:
    with Client(cluster_of_1, set_as_default=False) as client, client.as_current():
        check(fit(CASES[name], PARTS[7]), name)


@pytest.mark.slow
def test_a_row_a_worker(client: Client, by_rows: None) -> None:
    X, y = pd.DataFrame({"a": [1.0, 2.0, 3.0]}), pd.Series([0.0, 0.0, 1.0])
    model = GradientBoostingRegressor(n_estimators=3, min_samples_leaf=1, max_features=None)
    ours = model.fit(in_partitions(X, [1, 1, 1]), in_partitions(y, [1, 1, 1]))
    np.testing.assert_array_equal(ours.predict(X), model.fit(X, y).predict(X))


@pytest.mark.slow
def test_a_fit_that_is_cut_short_goes_on_elsewhere(client: Client, tmp_path: Path) -> None:
    """The checkpoint of a fit by rows is that of the same fit with any other placement."""
    path, lengths = tmp_path / "checkpoint", PARTS[4]

    def boost(placement: str, n_estimators: int, **options: Any) -> Any:
        model = GradientBoostingRegressor(
            n_estimators=n_estimators, max_depth=4, categorical_features=None, max_features=None, random_state=5
        )
        X, y = in_partitions(TRAIN, lengths), in_partitions(TARGETS["regression"], lengths)
        return model.fit(X, y, checkpoint=path, checkpoint_interval=0.0, placement=placement, **options)

    boost("rows", 6, callbacks=[_after_three])
    (left,) = {path.read_bytes()}
    ours = boost("sharded", 6)
    assert path.read_bytes() != left
    here = GradientBoostingRegressor(n_estimators=6, max_depth=4, categorical_features=None, max_features=None, random_state=5)
    np.testing.assert_array_equal(ours.predict(HELD_OUT), here.fit(TRAIN, TARGETS["regression"]).predict(HELD_OUT))


def _after_three(progress: Any) -> bool:
    return progress.done == 3


FOREST_KINDS = ["Open", "GrowTrees", "AddVotes", "CountVotes"]
KINDS = ["Introduce", "Open", "Replay", "GrowTree"]
#: What only shard 0 is sent, or seldom anybody.
RARE = {"Replay", "GrowTree"}
#: What there is where leaves hold what follows from the order of residuals, and rows held out are scored.
BY_ORDER = ("quantiles", "deviations", "scores")
#: What shards send one another: a worker may be lost before it does, and after.
STEPS = ["targets", "derived", "sums", "bars", "flags", "finer sums", "finer flags", "picked", "picked of batch 1", "level"]
STEPS += ["apart", "subtrees", "losses"]
#: Those of forests.
FOREST_STEPS = ["draws", "drawn", "means"]


LOST_AT = [*(kind for kind in KINDS if kind not in RARE), *STEPS, *BY_ORDER]
#: Shards of one process are lost at nearly all of these in slow tests (test_rows_fit.py, test_forests_by_rows.py, test_leaves_by_order.py),
#: and workers at some. How a loss is noticed does not depend on the message, and what is done then not on how it was noticed: at few of
#: them, workers are not killed but no longer heard of, for which it is to be waited.
KILLED_AT = {"Open", "level", "GrowTree", "sums", "finer flags", "picked of batch 1", "apart", "deviations", "scores"}
KILLED_AT |= {"GrowTrees", "means", "draws"}
UNHEARD_AT = {"sums", "drawn"}


def losses(kinds: list[str]) -> list[Any]:
    """Return each kind with each way that a worker is lost."""
    ways = ("killed", KILLED_AT), ("unheard", UNHEARD_AT)
    return [one for how, some in ways for one in thorough_for(set(kinds) - some, [(kind, how) for kind in kinds])]


assert {*LOST_AT, *FOREST_KINDS, *FOREST_STEPS, "GrowTree"} >= KILLED_AT | UNHEARD_AT


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "how"), losses(LOST_AT))
def test_a_worker_is_lost_at_every_message_and_step(
    five_threads: Client, by_rows: None, few_rows: None, monkeypatch: pytest.MonkeyPatch, kind: str, how: Any
) -> None:
    monkeypatch.setattr("dtrees.cluster.growing.actors._SECONDS_TO_EXPLAIN", 0.5)  # the scheduler is in this process
    if kind == "subtrees":  # each small node has too many rows for one exchange with others
        monkeypatch.setattr("dtrees.engine.rows.tree.SHARED_CELLS", 1)
    if "of batch" in kind:
        monkeypatch.setattr("dtrees.engine.rows.rows_in_tree.flagged_bytes", lambda n_rows, n_columns: 200)
    cut, name = (
        Cut(kind, 1 if kind in ("Introduce", "Open", "targets") else 3, how),
        "targets, by Huber's loss" if kind in BY_ORDER else "squared error",
    )
    with cut_off(cut) as done:
        check(fit(CASES[name], PARTS[7]), name)
    assert done == [cut]
    assert_clean(five_threads, in_processes=False)


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("kind", "how"), losses([*FOREST_KINDS, *FOREST_STEPS]))
def test_a_worker_is_lost_at_every_message_of_forests(
    five_threads: Client, by_rows: None, monkeypatch: pytest.MonkeyPatch, kind: str, how: Any, several: bool
) -> None:
    monkeypatch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: N_ROWS // 10)
    monkeypatch.setattr("dtrees.cluster.growing.actors._SECONDS_TO_EXPLAIN", 0.5)  # the scheduler is in this process
    cut = Cut(kind, 1 if kind in {*FOREST_KINDS} else 3, how)
    case = CASES["forest of several targets" if several else "forest"]
    if kind == "draws":
        case = FOREST_OF_SEVERAL_CLASSES if several else FOREST_OF_CLASSES
    with cut_off(cut) as done:
        model = fit(case, PARTS[7])
    here = fit(case)
    assert model.placement_.kind == "rows"
    assert found(model) == found(here)
    assert model.oob_score_ == here.oob_score_
    assert done == [cut]
    assert_clean(five_threads, in_processes=False)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "own"), [("drawn", False), ("apart", False), ("means", True)])
def test_a_worker_that_grows_a_forest_is_killed(mortal_client: Client, by_rows: None, tmp_path: Path, kind: str, own: bool) -> None:
    """Its three trees grow side by side, so their first messages of a kind are one."""
    fault = Fault(tmp_path, kind, own=own)
    install(mortal_client, fault)
    check(fit(CASES["forest"], PARTS[7]), "forest")
    assert len(stopped(fault)) == 1
    assert_clean(mortal_client)


@pytest.mark.slow
def test_a_worker_is_killed_in_a_round_and_another_while_trees_are_replayed(mortal_client: Client, by_rows: None, tmp_path: Path) -> None:
    faults = Fault(tmp_path, "flags", at=9), Fault(tmp_path, "Replay", at=1)
    install(mortal_client, *faults)
    mortal_client.run(_grow_together)
    check(fit(CASES["squared error"], PARTS[7]), "squared error")
    assert len(stopped(*faults)) == 2
    assert_clean(mortal_client)


@pytest.mark.slow
def test_a_worker_stands_still_and_wakes_up_later(mortal_client: Client, by_rows: None, tmp_path: Path) -> None:
    fault = Fault(tmp_path, "picked", at=5, number=signal.SIGSTOP)
    install(mortal_client, fault)
    mortal_client.run(_grow_together)
    try:
        with dask.config.set({"dtrees.patience": 3.0}):
            check(fit(CASES["squared error"], PARTS[7]), "squared error")
    finally:
        for process in stopped(fault):
            os.kill(process, signal.SIGCONT)
    assert len(stopped(fault)) == 1
    assert_clean(mortal_client)


@pytest.mark.slow
def test_the_coordinators_worker_is_killed(mortal_client: Client, by_rows: None, tmp_path: Path) -> None:
    fault = Fault(tmp_path, "bars", at=7, own=True)
    install(mortal_client, fault)
    mortal_client.run(_grow_together)
    check(fit(CASES["squared error"], PARTS[7]), "squared error")
    assert len(stopped(fault)) == 1
    assert_clean(mortal_client)


def test_the_time_of_a_slow_worker_is_told_as_its_own(five_threads: Client, by_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what rounds tell and the dashboard shows: a worker that takes longer over each of its steps than the others."""
    original, slept = Shards.step, [0.0]

    def step_slowly(self: Shards, *arguments: Any) -> Any:
        if self.shard == 1:
            time.sleep(0.02)
            slept[0] += 0.02
        return original(self, *arguments)

    monkeypatch.setattr(Shards, "step", step_slowly)
    check(fit(CASES[QUICK], PARTS[7]), QUICK)
    told = events(five_threads, "round")[-1]
    history = FitHistory("fit", "GradientBoostingRegressor", "round")
    history.take(told)
    slow = max(told["scan"], key=lambda worker: told["scan"][worker])
    assert slept[0] > 0.1
    assert told["scan"][slow] >= slept[0], "what it took itself is not waiting"
    assert history.workers[slow].scan == told["scan"][slow]
    assert set(told["wait"]) == set(told["scan"])


def _grow_together() -> None:
    rows_tree.SENT_ROWS = N_ROWS // 10


@pytest.mark.slow
def test_a_connection_that_breaks_costs_a_tree(five_threads: Client, by_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that live, but did not reach one another once, are asked again."""
    from dtrees.cluster.transport.peers import PeerLost, Peers

    original, broken = Peers.send, []

    def send(self: Peers, calls: Any) -> None:
        if calls and not broken:
            broken.append(self)
            raise PeerLost("the cable is out")
        original(self, calls)

    monkeypatch.setattr(Peers, "send", send)
    check(fit(CASES["squared error"], PARTS[7]), "squared error")
    assert broken
    monkeypatch.setattr(Peers, "send", functools.partialmethod(_fails))
    with (
        pytest.raises(dtrees.cluster.errors.WorkerLost, match="could not reach one another 4 times"),
        dask.config.set({"dtrees.max-restarts": 3}),
    ):
        fit(CASES["squared error"], PARTS[7])


def _fails(self: Any, calls: Any) -> None:
    from dtrees.cluster.transport.peers import PeerLost

    raise PeerLost("there is no cable")


def test_what_rows_cannot_do(client: Client) -> None:
    X, y = in_partitions(TRAIN, PARTS[1]), in_partitions(TARGETS["regression"], PARTS[1])
    with pytest.raises(ValueError, match="does not take criterion='absolute_error'"):
        dtrees.ExtraTreesRegressor(2, criterion="absolute_error").fit(X, y, placement="rows")
    with pytest.raises(ValueError, match="does not take criterion='absolute_error'"):
        dtrees.DecisionTreeRegressor(criterion="absolute_error").fit(X, in_partitions(TARGETS["several"], PARTS[1]), placement="rows")
    assert not events(client, "placed")  # before anything is loaded


@pytest.mark.slow
def test_auto_takes_rows_where_they_are_fastest_and_can_be(five_threads: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.data.placement.seconds_by_rows", lambda rows, n_columns, threads: 1e-9)
    model = fit(CASES["squared error"], PARTS[7])
    assert model.placement_.kind == "rows"
    assert model.placement_.predicted["rows"] == 1e-9 < model.placement_.predicted["one-worker"]
    assert "predicted seconds a tree: one-worker " in str(model.placement_)
    check(model, "squared error")
