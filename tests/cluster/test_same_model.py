"""Collections of other kinds, and other ways to fit, than in test_conformance.py: the model is the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dask
import pytest
from distributed import Client

import dtrees
from dtrees.cluster.growing.watching import local_callback
from tests.cluster.samples import FRAME, LENGTHS, NUMBERS, TARGETS, WEIGHTS, assert_clean, assert_same_model, in_partitions
from tests.slow import one_quick

pytestmark = [pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores"), pytest.mark.usefixtures("sharded")]

BY_NAME: dict[str, tuple[str, Callable[[], Any]]] = {
    "forest": ("regression", lambda: dtrees.RandomForestRegressor(7, oob_score=True, max_features=0.5, random_state=5)),
    "boosting": (
        "regression",
        lambda: dtrees.GradientBoostingRegressor(n_estimators=6, subsample=0.7, max_features=0.6, random_state=9),
    ),
    "boosting-binary": (
        "binary",
        lambda: dtrees.GradientBoostingClassifier(
            n_estimators=6, max_leaf_nodes=6, n_iter_no_change=3, colsample_bytree=0.8, random_state=10
        ),
    ),
}


@functools.cache
def fitted_here(name: str, kind: str) -> Any:
    task, make = BY_NAME[name]
    X = FRAME if kind == "frame" else NUMBERS
    return make().fit(X, TARGETS[task], WEIGHTS)


def test_without_weights_and_without_a_trace(client: Client) -> None:
    for name in ("forest", "boosting"):
        task, make = BY_NAME[name]
        there = make().fit(in_partitions(FRAME, LENGTHS[3]), in_partitions(TARGETS[task], LENGTHS[3]))
        assert_same_model(there, make().fit(FRAME, TARGETS[task]))
    assert_clean(client)


def test_without_a_client_it_fits_here() -> None:
    for name in ("forest", "boosting"):
        task, make = BY_NAME[name]
        there = make().fit(*(in_partitions(data, LENGTHS[3]) for data in (FRAME, TARGETS[task], WEIGHTS)))
        assert_same_model(there, fitted_here(name, "frame"))


def test_inside_a_task(client: Client) -> None:
    def fit(name: str, lazy: bool) -> Any:
        task, make = BY_NAME[name]
        data = (FRAME, TARGETS[task], WEIGHTS)
        return make().fit(*(in_partitions(item, LENGTHS[3]) if lazy else item for item in data))

    for lazy in (False, True):
        model = client.submit(fit, "boosting", lazy).result(timeout=60)
        assert_same_model(model, fitted_here("boosting", "frame"))


def test_callbacks_hear_of_trees_in_order_and_end_the_fit(client: Client) -> None:
    _, make = BY_NAME["forest"]
    for n_trees in (5, 80):  # with a batch for each tree, and with several trees in one
        heard: list[int] = []
        model = make().set_params(n_estimators=n_trees)
        with local_callback(lambda progress, heard=heard: heard.append(progress.done)) as hear:
            X, y = in_partitions(FRAME, LENGTHS[3]), in_partitions(TARGETS["regression"], LENGTHS[3])
            model.fit(X, y, callbacks=[hear, lambda progress: progress.done == 3])
        assert heard == [1, 2, 3]
        assert_same_model(model, make().set_params(n_estimators=3).fit(FRAME, TARGETS["regression"]))


@pytest.mark.parametrize("placement", one_quick(["sharded", "one-worker"]))
def test_callbacks_of_boosting(client: Client, placement: str) -> None:
    X, y = in_partitions(FRAME, LENGTHS[3]), in_partitions(TARGETS["regression"], LENGTHS[3])
    _, make = BY_NAME["boosting"]
    heard: list[tuple[int, float]] = []
    with (
        dask.config.set({"dtrees.placement": placement}),
        local_callback(lambda progress: heard.append((progress.done, progress.train_score))) as hear,
    ):
        there = make().fit(X, y, callbacks=[hear, lambda progress: progress.done == 4])
    alone = make().set_params(n_estimators=4).fit(FRAME, TARGETS["regression"])
    assert_same_model(there, alone)
    assert heard == list(zip(range(1, 5), alone.train_score_, strict=True))
    assert_clean(client)
