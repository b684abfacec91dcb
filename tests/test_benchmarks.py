"""Every benchmark runs on tiny tables, whichever peers are installed."""

import importlib.util
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import libraries, page, picture, results, timing
from benchmarks.__main__ import main
from benchmarks.data import synthetic
from benchmarks.machine import describe
from benchmarks.results import Measure, Results, Row
from benchmarks.run import Run, benchmarks
from benchmarks.works.losses import first_below, loss
from tests.slow import slow_for

#: Benchmarks of every test run; the others take long, most of them because of clusters or peers.
QUICK = {"trees", "cross-validation"}
#: The slowest benchmarks.
THOROUGH = {"chaos", "cold", "memory", "accuracy", "past-memory", "boosting-tasks", "cluster-boosting"}


@pytest.fixture
def untidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the clean-up between two turns, which takes a second in a process with as many imports as the tests have."""
    monkeypatch.setattr(timing, "tidy_up", lambda: None)


@pytest.mark.usefixtures("untidy")
@pytest.mark.parametrize("name", slow_for(set(benchmarks()) - QUICK, benchmarks(), THOROUGH))
def test_every_benchmark_runs(name: str, tmp_path: Path) -> None:
    # OpenMP's threads wait for each other by spinning, which takes forever on a machine that runs other tests, too.
    arguments = ["--only", name, "--scale", "tiny", "--repeats", "1", "--threads", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    ((found, stored),) = results.read(tmp_path).items()
    assert found == name
    assert stored.rows
    for row in stored.rows:
        assert f"| {' | '.join(results.cells(row))} |" in result.output
        assert math.isfinite(row.ours.value)
        assert row.ratio is None or row.ratio > 0


def test_peers_that_are_not_installed_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.run.is_installed", lambda name: name == "dtrees")
    said: list[str] = []
    run = Run("tiny", 1, 1, say=said.append)
    rows = list(run.fits("stumps", *synthetic(50), libraries.boosting(1, 1)))
    assert [(row.peer, row.ratio) for row in rows] == [("", None)]
    assert said == [
        "skipped: XGBoost hist is not installed",
        "skipped: LightGBM is not installed",
        "skipped: CatBoost is not installed",
    ]


def test_libraries_are_known_by_the_first_word() -> None:
    assert libraries.is_installed("scikit-learn, 1 thread")
    assert libraries.is_installed("two heaps")  # no library: it belongs to dtrees
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
    assert measure.value == pytest.approx(0.001)
    assert clock[0] == pytest.approx(0.001 + 2 * 0.1)


@pytest.mark.usefixtures("untidy")
def test_slow_contenders_have_fewer_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock[0], sleep=lambda seconds: None))

    def take_a_minute() -> None:
        clock[0] += 60.0

    (measure,) = timing.interleave({"a": take_a_minute}, 5, pause=0.0, long=100.0).values()
    assert (measure.n, measure.value) == (2, 60.0)


def test_a_summary_is_of_all_measurements() -> None:
    assert timing.summary([5.0, 1.0, 2.0]) == Measure(2.0, 2.0, 3)


def test_a_row_has_the_ratio_of_its_peer() -> None:
    rows = list(Run("tiny", 1, 1).rows("w", {"dtrees": Measure(2.0), "a": Measure(3.0), "b": Measure(1.0)}))
    assert [(row.peer, row.ratio) for row in rows] == [("a", 1.5), ("b", 0.5)]
    assert results.cells(rows[0]) == ("w", "a", "3 s", "2 s", "1.50", "")
    assert results.cells(Row("memory", Measure(380.0, unit="bytes a row"))) == ("memory", "", "", "380 bytes a row", "", "")


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    stored = Results("2 cores", (Row("a", Measure(1.0, 0.1, 3), "b", Measure(2.0), "c"), Row("d", Measure(1.0, unit="MB"))))
    results.write(tmp_path, "some", stored)
    assert results.read(tmp_path) == {"some": stored}


def test_a_page_has_a_line_for_each_work_and_a_column_for_each_peer(tmp_path: Path) -> None:
    rows = (
        Row("deep", Measure(2.0), "scikit-learn", Measure(1.0)),
        Row("deep", Measure(2.0), "YDF", Measure(30.0)),
        Row("flat", Measure(4.0), "scikit-learn", Measure(10.0)),
    )
    found = {"trees": Results("2 cores", rows), "others": Results("2 cores", (Row("x", Measure(1.0, unit="MB")),))}
    text = page.fill(
        "{{machine trees}}\n{{ratios trees}}\n{{values trees others missing: fit, here}}\n## Left out\n{{ratios missing}}\n", found
    )
    assert text.splitlines() == [
        "2 cores",
        "| work | dtrees | scikit-learn | YDF |",
        "| --- | --- | --- | --- |",
        "| deep | 2 s | **0.50** | 15 |",
        "| flat | 4 s | 2.5 |  |",
        "| fit | here | scikit-learn | YDF |",
        "| --- | --- | --- | --- |",
        "| deep | 2 s | 1 s | 30 s |",
        "| flat | 4 s | 10 s |  |",
        "| x | 1 MB |  |  |",
    ]


def test_the_page_is_that_of_the_stored_results(tmp_path: Path) -> None:
    """``python -m benchmarks.page benchmarks/measured docs/benchmarks.md`` was run after the last change of results or text."""
    root = Path(page.__file__).parents[1]
    written = tmp_path / "benchmarks.md"
    result = CliRunner().invoke(page.main, [str(root / "benchmarks" / "measured"), str(written)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert written.read_text(encoding="utf-8") == (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert "{{" not in written.read_text(encoding="utf-8")


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


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    works = {"Iris": 9.0, "1,000 x 28": 1.0, "10,000 x 28": 5.0}
    rows = tuple(Row(work, Measure(seconds), "LightGBM", Measure(2 * seconds)) for work, seconds in works.items())
    assert picture.lines(rows) == {"dtrees": {1_000: 1.0, 10_000: 5.0}, "LightGBM": {1_000: 2.0, 10_000: 10.0}}
    results.write(tmp_path, "boosting-sizes", Results("2 cores", rows))
    drawn = []
    for name in ("one.svg", "same.svg"):
        result = CliRunner().invoke(picture.main, [str(tmp_path), str(tmp_path / name)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        drawn.append((tmp_path / name).read_bytes())
    assert drawn[0] == drawn[1]
    assert b"LightGBM" in drawn[0]


def test_the_first_loss_below_a_bound() -> None:
    assert first_below([3.0, 2.0, 2.5, 1.0], 2.2) == 1


def test_losses() -> None:
    y = np.array([0, 1])
    assert loss(y, np.array([0.0, 0.5]), classify=False) == 0.125
    assert loss(y, np.array([0.5, 0.5]), classify=True) == pytest.approx(math.log(2.0))
