"""The model of larger clusters says what its costs say, and more of anything never costs less."""

import doctest
import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import model, rows_model
from benchmarks.cluster import News
from benchmarks.data import N_COLUMNS
from benchmarks.model import MEASURED, Cluster, Costs, Shape
from benchmarks.rows_model import RowCosts
from benchmarks.works.models import calibrate
from benchmarks.works.row_costs import Messages, OwnWork, calibrate_rows, messages_of, own_work
from dtrees.cluster.data import memory as placing
from dtrees.cluster.data.memory import seconds_alone, seconds_beside_rows, seconds_by_columns, seconds_by_rows

COSTS = Costs(row=100e-9, cell=10e-9, level=2e-3, level_worker=1e-3, forest_cell=5e-9, speed_up=2.0)

rows = st.integers(1_000, 10**10)
columns = st.integers(1, 1_000)
workers = st.integers(1, 500)
positive = st.floats(1e-12, 1e-3)
costs = st.builds(Costs, positive, positive, positive, positive, positive, st.floats(1.0, 64.0))


def test_a_tree_by_hand() -> None:
    """10 million rows, 100 columns, 5 workers with 20 columns each, links of 1 GB a second."""
    predicted = model.boosting(COSTS, Cluster(5, memory=10e9, bandwidth=1e9), 10**7, 100)
    assert predicted.work == pytest.approx(1.5)  # 10^7 * (100 + 20 * 10) ns, halved by threads
    assert predicted.latency == pytest.approx(0.042)  # 6 * (2 + 5) ms
    assert predicted.network == pytest.approx(0.045)  # 6 * 1.25 MB * 6 / (1 GB/s)
    assert predicted.seconds == pytest.approx(1.587)
    assert predicted.to_worker == 1_250_000
    assert predicted.memory == pytest.approx(3.04e9)  # 10^7 * (20 * 12 + 64)
    assert predicted.limits == ()


def test_a_forest_by_hand() -> None:
    """2^20 rows, 30 columns of which 10 are tried, 100 trees on 12 threads: 9 one after another."""
    predicted = model.forest(COSTS, Cluster(3, threads=4), 2**20, 30)
    assert predicted.seconds == pytest.approx(9 * 2**20 * 20 * 10 * 5e-9)
    assert predicted.memory == 2**20 * (30 * 12 + 4 * 64)


def test_what_does_not_fit_is_said() -> None:
    (too_many, state) = model.boosting(COSTS, Cluster(400, bandwidth=math.inf), 10**10, 400).limits
    assert too_many == "more than 4,294,967,295 rows"
    assert state == "the rows' state alone (640 GB) exceeds a worker's memory"
    assert model.boosting(COSTS, Cluster(4, bandwidth=math.inf), 10**9, 4).limits == ("exceeds a worker's memory",)
    assert model.boosting(COSTS, Cluster(10, bandwidth=math.inf), 10**6, 4).limits == ("6 workers have no column",)
    assert model.boosting(COSTS, Cluster(100, bandwidth=1e6), 10**7, 400).limits == ("the coordinator's link takes most of the time",)


@pytest.mark.parametrize("predict", [model.boosting, model.forest, rows_model.boosting_by_rows])
@given(costs=costs, n_rows=rows, n_columns=columns, n_workers=workers)
def test_more_takes_no_less_and_more_workers_have_no_more_work(
    predict: Any, costs: Any, n_rows: int, n_columns: int, n_workers: int
) -> None:
    if predict is rows_model.boosting_by_rows:
        costs = rows_model.ROWS_MEASURED
    now, shared = (predict(costs, Cluster(n), n_rows, n_columns) for n in (n_workers, 2 * n_workers))
    for more in (
        predict(costs, Cluster(n_workers), 2 * n_rows, n_columns),
        predict(costs, Cluster(n_workers), n_rows, n_columns + n_workers),
    ):
        assert more.seconds >= now.seconds
        assert more.memory >= now.memory
        assert more.to_worker >= now.to_worker
    assert shared.memory <= now.memory
    assert shared.latency >= now.latency
    if predict is not rows_model.boosting_by_rows:
        assert shared.work <= now.work
        assert shared.network >= now.network


@given(costs=costs, n_rows=rows, n_columns=columns, n_workers=workers)
def test_nothing_is_saved_by_slower_threads_or_links(costs: Costs, n_rows: int, n_columns: int, n_workers: int) -> None:
    now = model.boosting(costs, Cluster(n_workers), n_rows, n_columns)
    assert model.boosting(replace(costs, speed_up=costs.speed_up / 2), Cluster(n_workers), n_rows, n_columns).seconds >= now.seconds
    assert model.boosting(costs, Cluster(n_workers, bandwidth=1e8), n_rows, n_columns).seconds >= now.seconds


def told(shape: Shape, costs: Costs) -> News:
    """What a fit would tell whose trees take what the costs say."""
    work = shape.n_rows * (costs.row + costs.cell * -(-shape.n_columns // shape.n_workers))
    tree = work + 6 * (costs.level + costs.level_worker * shape.n_workers)
    return News([{"message": "GrowTree", "slowest": work}] * 4, [{"seconds": tree * i} for i in range(4)])


def test_costs_are_found_again() -> None:
    sizes = (1_000, N_COLUMNS), (4_000, N_COLUMNS), (4_000, 3 * N_COLUMNS)
    shapes = [Shape(*size, n_workers) for size in sizes for n_workers in (2, 4)]
    found = calibrate({shape: told(shape, COSTS) for shape in shapes})
    for name in ("row", "cell", "level", "level_worker"):
        assert getattr(found, name) == pytest.approx(getattr(COSTS, name))


def test_costs_of_rows_are_found_again() -> None:
    costs = RowCosts(row=50e-9, cell=4e-9, column=1e-4, tree=18e-3, worker=2e-3, peer=1e-3)
    sizes = (20_000, N_COLUMNS), (80_000, N_COLUMNS), (80_000, 3 * N_COLUMNS)
    own = {}
    for shape in [Shape(*size, n_workers) for size in sizes for n_workers in (2, 4, 8)]:
        work = rows_model.boosting_by_rows(costs, Cluster(shape.n_workers, 1), shape.n_rows, shape.n_columns).work
        work += 8e-3 + 0.25 * costs.peer * (shape.n_workers - 1)
        own[shape] = OwnWork(work, 0.9 * work, 2e-3, parcels=40.0, exchanges=8.0)
    # 10 ms of a tree are found in the work, and 8 are those of 40 steps and 8 exchanges.
    messages = Messages(step=1e-4, parcel=0.75 * costs.peer / 40, exchange=5e-4, call=costs.worker / 8)
    found = calibrate_rows(own, messages)
    for name in ("row", "cell", "column", "tree", "worker", "peer"):
        assert getattr(found, name) == pytest.approx(getattr(costs, name)), name


def test_costs_of_messages_are_found_again() -> None:
    messages = Messages(step=3e-5, parcel=4e-5, exchange=5e-5, call=6e-5)
    talks = {n: (messages.step + messages.parcel * (n - 1), messages.exchange + messages.call * n) for n in (2, 3, 5)}
    assert messages_of(talks) == pytest.approx(messages)


def test_own_work_is_that_of_all_steps() -> None:
    """A shard sends each other one something in each step of a tree, of which there are as many whatever the shards."""
    two, four = (own_work(20_000, 6, n, 4) for n in (2, 4))
    assert two.shards >= two.slowest > 0.0 < two.coordinator
    assert two.parcels == pytest.approx(four.parcels, abs=3.0)
    assert two.parcels > 4 * (two.exchanges - 3)
    assert two.exchanges == four.exchanges


def test_what_workers_take_of_one_another_grows_with_those_that_they_talk_to() -> None:
    for n in (1, 2, 8, 25, 100):
        assert seconds_beside_rows(4 * n) > seconds_beside_rows(n)
    own = seconds_beside_rows(400) - seconds_beside_rows(100)
    assert own == pytest.approx(1e-9 * (300 * (placing.ROWS_WORKER + placing.ROWS_PEER)))


def test_placements_are_chosen_by_the_same_costs() -> None:
    predicted = rows_model.boosting_by_rows(rows_model.ROWS_MEASURED, Cluster(4, 1, bandwidth=math.inf), 10**8, 30)
    assert predicted.work * rows_model.ROWS_MEASURED.speed_up + predicted.latency == pytest.approx(
        seconds_by_rows(dict.fromkeys("abcd", 10**8 // 4), 30, dict.fromkeys("abcd", 1))
    )


def test_whole_fits_took_about_what_is_predicted() -> None:
    """Seconds of 100 trees, 1M x 28, squared error, on a quiet machine, loading included."""
    two = {"a": 1, "b": 1}
    assert 100 * seconds_by_rows(dict.fromkeys(two, 500_000), 28, two) == pytest.approx(14.8, rel=0.25)
    assert 100 * seconds_by_columns(10**6, 28, two) == pytest.approx(11.9, rel=0.25)
    assert 100 * seconds_alone(10**6, 28, threads=2) == pytest.approx(8.5, rel=0.25)


def test_columns_are_placed_by_the_costs_of_the_model() -> None:
    predicted = model.boosting(MEASURED, Cluster(4, 1, bandwidth=math.inf), 10**8, 30)
    # The model has a worker with the most columns, 8; placement has all share them evenly, 7.5 each.
    by_hand = 10**8 * (MEASURED.row + 7.5 * MEASURED.cell) + predicted.latency
    assert seconds_by_columns(10**8, 30, dict.fromkeys("abcd", 1)) == pytest.approx(by_hand)
    assert predicted.work * MEASURED.speed_up + predicted.latency > by_hand


def test_the_targets_of_rows_hold_in_the_model() -> None:
    """1G x 100, workers of 4 threads, 10 Gbit/s."""
    few, many = (rows_model.boosting_by_rows(rows_model.ROWS_MEASURED, Cluster(n), 10**9, 100).seconds for n in (4, 40))
    assert few / many >= 7.0
    assert many <= 8.0


@pytest.mark.parametrize("module", [model, rows_model, placing])
def test_examples(module: ModuleType) -> None:
    n_failed, n_tried = doctest.testmod(module)
    assert (n_failed, n_tried > 0) == (0, True)
