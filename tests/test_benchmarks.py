"""Every benchmark runs on tiny tables, whichever peers are installed."""

import importlib.util
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import dtrees
from benchmarks import baselines, libraries, picture, plots, report, staged, timing
from benchmarks.__main__ import main
from benchmarks.data import synthetic
from benchmarks.machine import describe
from benchmarks.plain import PlainBoosting, PlainTree
from benchmarks.registry import benchmarks
from benchmarks.results import Measure, Point, Row
from benchmarks.run import Run
from benchmarks.works.boosting import slope, thread_counts
from benchmarks.works.losses import first_below
from benchmarks.works.worst_cases import cases
from tests.slow import one_of_each, slow_for

#: Benchmarks that are tried in every run of the tests; the others take long, most of them for clusters or peers.
QUICK = {"boosting", "tree-depth-6", "best-first"}
#: Those that take longest.
THOROUGH = {"model", "chaos", "cold", "memory", "accuracy", "past-memory"}


@pytest.fixture
def untidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """To tidy up between two turns takes a second in a process that has imported as much as the tests have."""
    monkeypatch.setattr(timing, "tidy_up", lambda: None)


@pytest.mark.usefixtures("untidy")
@pytest.mark.parametrize("name", slow_for(set(benchmarks()) - QUICK, benchmarks(), THOROUGH))
def test_every_benchmark_runs(name: str, tmp_path: Path) -> None:
    # OpenMP's threads wait for one another by spinning, which takes forever on a machine that runs other tests too.
    threads = "2" if name == "threads" else "1"
    arguments = ["--only", name, "--scale", "tiny", "--repeats", "1", "--threads", threads, "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "results.json").read_text())["results"]
    table = (tmp_path / "table.md").read_text()
    assert {one["benchmark"] for one in found} <= {name}
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [one for one in found if one["kind"] == "row"]
    assert len(lines) == 2 + len(rows)
    assert rows or "skipped" in result.output
    for row in rows:
        assert row["ours"] or row["theirs"]
        assert all(math.isfinite(row[side]["median"]) for side in ("ours", "theirs") if row[side])
        assert row["ratio"] is None or row["ratio"] > 0
    assert all(one["x"] > 0 and one["y"] > 0 for one in found if one["kind"] == "point")


def test_peers_that_are_not_installed_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.run.is_installed", lambda name: name == "dtrees")
    said: list[str] = []
    run = Run("tiny", 1, 1, say=said.append)
    rows = list(run.fits("stumps", *synthetic(50), libraries.boosting(1, 1), {"LightGBM": 1.0}))
    assert [(row.peer, row.met) for row in rows] == [("", None)]
    assert said == [
        "skipped: XGBoost exact is not installed",
        "skipped: XGBoost hist is not installed",
        "skipped: LightGBM is not installed",
    ]


def test_libraries_are_known_by_the_first_word() -> None:
    assert libraries.is_installed("scikit-learn, 1 thread")
    assert libraries.is_installed("two heaps")  # no library: our own
    assert libraries.is_installed("XGBoost hist") == (importlib.util.find_spec("xgboost") is not None)


def test_quick_benchmarks_exist() -> None:
    assert set(benchmarks()) >= QUICK | THOROUGH


def test_an_unknown_name_is_refused() -> None:
    result = CliRunner().invoke(main, ["--only", "nonsense"])
    assert result.exit_code == 2
    assert "no benchmark is called nonsense" in result.output


def test_the_list_names_every_benchmark() -> None:
    result = CliRunner().invoke(main, ["--list"])
    assert [line.split()[0] for line in result.output.splitlines()] == list(benchmarks())


@pytest.mark.usefixtures("untidy")
def test_contenders_take_turns() -> None:
    turns: list[str] = []
    contenders = {name: lambda name=name: turns.append(name) for name in "ab"}
    measures = timing.interleave(contenders, 3, pause=0.0, shortest=0.0)
    assert turns == ["a", "b"] * 3
    assert {measure.n for measure in measures.values()} == {3}


@pytest.mark.usefixtures("untidy")
def test_short_work_is_called_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock[0], sleep=lambda seconds: None))

    def take_a_millisecond() -> None:
        clock[0] += 0.001

    (measure,) = timing.interleave({"a": take_a_millisecond}, 2, pause=0.0, shortest=0.1).values()
    assert measure.median == pytest.approx(0.001)
    assert clock[0] == pytest.approx(0.001 + 2 * 0.1)


@pytest.mark.usefixtures("untidy")
def test_slow_contenders_have_fewer_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock[0], sleep=lambda seconds: None))

    def take_a_minute() -> None:
        clock[0] += 60.0

    (measure,) = timing.interleave({"a": take_a_minute}, 5, pause=0.0, long=100.0).values()
    assert (measure.n, measure.median) == (2, 60.0)


def test_a_summary_is_of_all_measurements() -> None:
    assert timing.summary([5.0, 1.0, 2.0]) == Measure(2.0, 2.0, 3)


def test_rows_say_whether_a_target_is_met() -> None:
    assert Row.of("w", "p", Measure(4.0), Measure(2.0), 2.0).met is True
    assert Row.of("w", "p", Measure(3.9), Measure(2.0), 2.0).met is False
    assert Row.of("w", "p", Measure(4.0), Measure(2.0)).met is None
    rows = Run("tiny", 1, 1).rows("w", {"dtrees": Measure(1.0), "a": Measure(3.0), "b": Measure(2.0)}, fastest=2.5)
    assert [(row.peer, row.target, row.met) for row in rows] == [("a", "", None), ("b", "≥ 2.5", False)]


def test_a_line_of_the_table() -> None:
    row = Row.of("tree", "scikit-learn", Measure(5.18, 0.259, 3), Measure(0.94), 10.0)
    assert report.line(row) == "| tree | scikit-learn | 5.18 ±5% | 0.94 | 5.51 | ≥ 10 | no |"
    assert report.line(Row("memory", "", None, Measure(380.0, unit="bytes a row"))) == "| memory | - |  | 380 bytes a row |  |  |  |"


def test_synthetic_tables_are_the_same_each_time() -> None:
    X, y = synthetic(100)
    again, labels = synthetic(100, classify=True)
    assert X.dtype == np.float32
    assert np.array_equal(X, again)
    assert np.array_equal(y > 0, labels == 1)


def test_the_machine_is_described_without_its_name() -> None:
    import platform

    text = describe(2)
    assert "cores (2 used)" in text
    assert "numpy" in text
    assert platform.node() not in text


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = [("b", Row.of("work", "peer", Measure(1.0), Measure(2.0), 1.0))]
    points = [("b", Point("time", series, x, y)) for series in ("dtrees", "XGBoost hist") for x, y in ((1, 2), (10, 20))]
    paths = plots.draw(tmp_path, [*results, *points])
    assert [path.name for path in paths] == ["time.png", "ratios.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


@pytest.mark.usefixtures("untidy")
def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "images" / "boosting.svg"
    arguments = [str(path), "--scale", "tiny", "--repeats", "1", "--threads", "1", "--longest", "0"]
    result = CliRunner().invoke(picture.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    drawn = path.read_bytes()
    assert b"<svg" in drawn
    points = json.loads(path.with_suffix(".json").read_text())["points"]
    assert {point["x"] for point in points} == {200}, "who is slow gets no larger table"
    path.unlink()
    result = CliRunner().invoke(picture.main, [str(path), "--again"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert path.read_bytes() == drawn


@pytest.mark.parametrize(("case", "depth"), one_of_each([*cases(100)], [3, None]))
def test_the_plain_scan_grows_the_same_trees(case: str, depth: int | None) -> None:
    """Otherwise it would be no yardstick."""
    X, y = cases(100)[case]
    plain = PlainTree(depth).fit(X, y)
    tree = dtrees.DecisionTreeRegressor(max_depth=depth).fit(X, y)
    assert plain.n_leaves_ == tree.get_n_leaves()
    assert plain.fitted_ == pytest.approx(tree.predict(X), rel=0.0, abs=1e-12 * np.abs(y).max())  # its leaves are in fixed point


def test_the_plain_scan_boosts_alike() -> None:
    X, y = synthetic(300)
    ours = libraries.our_boosting(5, 1).fit(X, y)
    assert PlainBoosting(5).fit(X, y).fitted_ == pytest.approx(ours.predict(X), rel=1e-6)


def test_the_first_loss_below_a_bound() -> None:
    assert first_below([3.0, 2.0, 2.5, 1.0], 2.2) == 1


def test_losses() -> None:
    y = np.array([0, 1])
    assert staged.loss(y, np.array([0.0, 0.5]), classify=False) == 0.125
    assert staged.loss(y, np.array([0.5, 0.5]), classify=True) == pytest.approx(math.log(2.0))


def test_slope_of_a_power() -> None:
    assert slope([(n, 3.0 * n**1.5) for n in (10, 100, 1000)]) == pytest.approx(1.5)


def stump_table(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.integers(0, 12, (60, 3)).astype(np.float32), random.normal(size=60)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("depth", [0, 1, 3, None])
def test_the_numpy_tree_is_the_same_tree(seed: int, depth: int | None) -> None:
    X, y = stump_table(seed)
    if depth == 0:
        assert baselines.NumpyTree(0).fit(X, y).fitted_ == pytest.approx(np.full(60, y.mean()))
        return
    tree = dtrees.DecisionTreeRegressor(max_depth=depth).fit(X, y)
    assert baselines.NumpyTree(depth).fit(X, y).fitted_ == pytest.approx(tree.predict(X))


@pytest.mark.parametrize("seed", range(5))
def test_the_stumps_agree(seed: int) -> None:
    X, y = stump_table(seed)
    tree = dtrees.DecisionTreeRegressor(max_depth=1).fit(X, y).tree_
    column, value = baselines.quadratic_stump(X, y)
    assert (column, value) == baselines.sorted_stump(X, y)
    assert column == tree.feature[0]
    assert value <= tree.threshold[0] < X[X[:, column] > value, column].min()


def test_running_medians_agree() -> None:
    y = np.random.default_rng(0).normal(size=101).round(1)
    expected = [np.median(y[:k]) for k in range(1, 102)]
    assert baselines.medians_by_sorting(y).tolist() == expected
    assert baselines.medians_by_heaps(y) == pytest.approx(expected)


def test_thread_counts() -> None:
    assert [thread_counts(n) for n in (1, 2, 4, 6)] == [[1], [1, 2], [1, 2, 4], [1, 2, 4, 6]]
