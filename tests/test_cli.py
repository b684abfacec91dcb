"""The command line from end to end: commands, and their output."""

import functools
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from distributed import Client, LocalCluster

import dtrees
from dtrees.cli.fit import flats
from dtrees.cli.target import held_out
from dtrees.cluster.growing import submission
from dtrees.cluster.transport.clients import connect
from tests.cli.commands import fail, run, succeed
from tests.cluster.samples import assert_clean, wait_until
from tests.slow import one_quick

QUICK = ("-p", "n_estimators=5")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with LocalCluster(n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    frame = flats(600, seed=1)
    frame.to_csv(folder / "flats.csv", index=False)
    frame.assign(dear=np.where(frame["rent"] > 1000, "yes", "no")).drop(columns="rent").to_parquet(
        folder / "dear.parquet", row_group_size=100
    )
    gaps = frame.copy()
    gaps.loc[:99, "rent"] = np.nan
    gaps.to_csv(folder / "gaps.csv", index=False)
    (folder / "parts").mkdir()
    for number, start in enumerate(range(0, 600, 200)):
        frame[start : start + 200].to_csv(folder / "parts" / f"{number}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path, scheduler: str) -> Path:
    succeed("fit", folder / "flats.csv", "--target", "rent", *QUICK, "--output", folder / "rent.dtrees", "--scheduler", scheduler)
    return folder / "rent.dtrees"


def figure(output: str, name: str) -> tuple[float, float]:
    """Return the model's and the baseline's value from a score table."""
    found = re.search(rf"{name}\s*│\s*(\S+)\s*│\s*(\S+)", output)
    assert found, output
    return float(found[1].replace(",", "")), float(found[2].replace(",", ""))


# Fitting


def test_fit_starts_its_own_cluster_and_says_what_it_does(folder: Path, tmp_path: Path) -> None:
    given = ("--target", "rent", "--threads-per-worker", 2, "--output", tmp_path / "m", "-p", "learning_rate=0.15", *QUICK)
    result = succeed("fit", folder / "flats.csv", *given)
    assert re.search(r"Dask: 1 worker, 2 threads. Dashboard: http://127.0.0.1:\d+/status", result.stderr)
    assert "Task: regression ('rent' holds numbers with fractions" in result.stderr
    assert "GradientBoostingRegressor on" in result.stderr
    assert "Training: 5 rounds in" in result.stderr
    score, baseline = figure(result.stdout, "R2")
    assert score > 0.3 > baseline
    assert f"dtrees predict {tmp_path / 'm'} DATA" in result.stdout


@pytest.mark.parametrize("name", one_quick(["forest", "tree", "extra-trees", "boosting"]))  # few kernels
def test_every_model_classifies(name: str, folder: Path, scheduler: str) -> None:
    settings = () if name == "tree" else QUICK
    result = succeed("fit", folder / "dear.parquet", "--target", "dear", "--model", name, "--scheduler", scheduler, *settings)
    assert "Task: classification ('dear' holds text, 2 distinct values)" in result.stderr
    assert figure(result.stdout, "accuracy")[0] > figure(result.stdout, "accuracy")[1]
    assert "baseline (always 'yes')" in result.stdout or "baseline (always 'no')" in result.stdout
    assert "The model was not saved" in result.stderr


def test_the_partitioning_does_not_change_the_model(folder: Path, scheduler: str, tmp_path: Path) -> None:
    for data, output in (("flats.csv", "one"), ("parts", "three")):
        succeed(
            "fit", folder / data, "--target", "rent", "--output", tmp_path / output, "--scheduler", scheduler, *QUICK, "-p", "subsample=0.7"
        )
    assert (tmp_path / "one").read_bytes() == (tmp_path / "three").read_bytes()


def test_seed_size_and_parameters(folder: Path, scheduler: str, tmp_path: Path) -> None:
    common = ("fit", folder / "flats.csv", "--target", "rent", "--model", "forest", "--scheduler", scheduler, "--test-size", 0)
    result = succeed(*common, *QUICK, "-p", "max_features=sqrt", "-p", "max-depth=3", "--seed", 7, "--output", tmp_path / "m")
    assert "RandomForestRegressor on 600 rows" in result.stderr
    assert "R2" not in result.stdout
    fitted = dtrees.load(tmp_path / "m")
    assert (fitted.random_state, fitted.max_features, fitted.max_depth) == (7, "sqrt", 3)
    frame = pd.read_csv(folder / "flats.csv")
    here = dtrees.RandomForestRegressor(n_estimators=5, max_features="sqrt", max_depth=3, random_state=7)
    here.fit(frame.drop(columns="rent"), frame["rent"])
    np.testing.assert_array_equal(fitted.predict(frame.drop(columns="rent")), here.predict(frame.drop(columns="rent")))


def test_choice_of_columns(folder: Path, scheduler: str, tmp_path: Path) -> None:
    common = ("fit", folder / "flats.csv", "--target", "rent", "--scheduler", scheduler, *QUICK, "--output", tmp_path / "m")
    succeed(*common, "--features", "rooms,area", "--features", "district")
    assert dtrees.load(tmp_path / "m").feature_names_in_.tolist() == ["area", "rooms", "district"]
    succeed(*common, "--drop", "area", "--drop", "heating,lift")
    assert dtrees.load(tmp_path / "m").feature_names_in_.tolist() == ["rooms", "floor", "built", "centre_km", "district"]


def test_rows_without_a_target_are_left_out_and_mentioned(folder: Path, scheduler: str) -> None:
    result = succeed("fit", folder / "gaps.csv", "--target", "rent", "--test-size", 0, "--scheduler", scheduler, *QUICK)
    assert "left out 100 of 600 rows, in which 'rent' is missing" in result.stderr
    assert "on 500 rows" in result.stderr


def test_test_data_of_its_own(folder: Path, scheduler: str) -> None:
    result = succeed("fit", folder / "flats.csv", "--test", folder / "gaps.csv", "--target", "rent", "--scheduler", scheduler, *QUICK)
    assert "GradientBoostingRegressor on 600 rows" in result.stderr
    assert "left out 100 of 600 test rows" in result.stderr
    assert "Score on 500 rows of" in result.stdout


def test_validation_data_and_early_stopping(folder: Path, scheduler: str, tmp_path: Path) -> None:
    path = tmp_path / "m"
    result = succeed(
        "fit", folder / "flats.csv", "--target", "rent", "--validation", folder / "gaps.csv", "--scheduler", scheduler, "--output", path,
        "-p", "n_estimators=40", "-p", "learning_rate=0.9", "-p", "early_stopping_rounds=2", "-p", "eval_metric=mae",
    )  # fmt: skip
    assert "left out 100 of 600 validation rows" in result.stderr
    model = dtrees.load(path)
    scores = model.evals_result_["validation"]["mae"]
    assert model.n_estimators_ == scores.argmin() + 1 <= 40
    assert re.search(r"Training: \d+ rounds in .* validation mae [\d.]+", result.stderr)


def test_parameters_from_a_file_and_results_as_json(folder: Path, scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "params.toml").write_text('n_estimators = 3\nmax-depth = 2\nmax_features = "none"\nlearning_rate = 0.5\n')
    common = ("fit", folder / "flats.csv", "--target", "rent", "--scheduler", scheduler, "--params", tmp_path / "params.toml")
    result = succeed(*common, "-p", "learning_rate=0.25", "--json", "--output", tmp_path / "m")
    found = json.loads(result.stdout)
    assert (found["estimator"], found["task"], found["model"]) == ("GradientBoostingRegressor", "regression", str(tmp_path / "m"))
    assert found["n_train"] + found["n_test"] == 600
    assert found["scores"]["R2"]["model"] > found["scores"]["R2"]["baseline"]
    assert "Score on" in result.stderr
    model = dtrees.load(tmp_path / "m")
    assert (model.n_estimators, model.max_depth, model.max_features, model.learning_rate) == (3, 2, None, 0.25)
    (tmp_path / "params.toml").write_text("max_dept = 2\n")
    assert "has no parameter 'max_dept'. Did you mean 'max_depth'?" in fail(*common)
    (tmp_path / "params.toml").write_text("max_depth: 2\n")
    assert "is not a TOML file" in fail(*common)


@pytest.mark.slow
def test_files_that_only_workers_can_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers are in another folder, so a relative path does not exist here."""
    monkeypatch.chdir(tmp_path)
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.run(os.chdir, str(folder))
        where = ("--scheduler", cluster.scheduler_address)
        result = succeed("fit", "flats.csv", "--test", "parts", "--target", "rent", *QUICK, "--output", tmp_path / "m", *where)
        assert "Score on 600 rows of parts" in result.stdout
        succeed("predict", tmp_path / "m", "parts/*.csv", "--output", tmp_path / "p.csv", *where)
        assert len(pd.read_csv(tmp_path / "p.csv")) == 600
        assert "Score on 600 rows of flats.csv" in succeed("evaluate", tmp_path / "m", "flats.csv", "--target", "rent", *where).stdout
        assert "'nowhere.csv' does not exist" in fail("fit", "nowhere.csv", "--target", "rent", *where)
        monkeypatch.setattr("dtrees.cli.check._fit_a_little", lambda: None)
        assert "All is well: 1 worker and the scheduler." in succeed("check", *where).stdout
    assert "'flats.csv' does not exist" in fail("fit", "flats.csv", "--target", "rent")


def test_another_project_of_that_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cli.check._fit_a_little", lambda: None)
    real = importlib.metadata.version
    installed = {"dtrees": "0.8b21"}
    monkeypatch.setattr("importlib.metadata.version", lambda name: installed[name] if name in installed else real(name))
    result = run("check")
    assert "the package dtrees 0.8b21 is installed, too" in result.stderr
    assert "pip uninstall dtrees dask-dtrees, then pip install dask-dtrees." in result.stderr
    assert json.loads(run("check", "--json").stdout)["ok"]


def test_check_of_a_cluster(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cli.check._fit_a_little", lambda: None)
    assert "All is well: 1 worker and the scheduler." in succeed("check", "--scheduler", scheduler).stdout
    real = importlib.metadata.version
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0" if name == "pandas" else real(name))
    assert "Versions differ: pandas." in fail("check", "--scheduler", scheduler)
    found = json.loads(run("check", "--scheduler", scheduler, "--json").stdout)
    assert (found["ok"], found["differing"]) == (False, ["pandas"])


def test_reports(folder: Path, scheduler: str, tmp_path: Path) -> None:
    common = ("fit", folder / "flats.csv", "--target", "rent", "--scheduler", scheduler, *QUICK, "--report", tmp_path / "page.html")
    assert f"Report written to {tmp_path / 'page.html'}" in succeed(*common).stdout
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    n_test = len(pd.read_csv(folder / "flats.csv").pipe(lambda frame: frame[held_out(np.arange(len(frame)), 0.2, 0)]))
    assert f"{n_test} rows (held out; target rent)" in page
    assert "--report: '" in fail(*common[:-1], folder / "flats.csv")


@pytest.mark.parametrize("model", one_quick(["boosting", "forest"]))
def test_checkpoints(model: str, folder: Path, scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    common = ("fit", folder / "flats.csv", "--target", "rent", "--model", model, "--scheduler", scheduler)
    succeed(*common, "-p", "n_estimators=2", "--checkpoint", "kept", "--checkpoint-interval", 0)
    assert (tmp_path / "kept").exists()
    succeed(*common, "-p", "n_estimators=5", "--checkpoint", "kept", "--output", "continued")
    succeed(*common, "-p", "n_estimators=5", "--output", "whole")
    assert (tmp_path / "continued").read_bytes() == (tmp_path / "whole").read_bytes()
    assert "checkpoint: " in (message := fail(*common, "-p", "n_estimators=5", "-p", "max_depth=2", "--checkpoint", "kept"))
    assert "is 2" in message


def test_demo(tmp_path: Path, scheduler: str) -> None:
    result = succeed("demo", "--rows", 300, "--data", tmp_path / "flats.csv", "--scheduler", scheduler, *QUICK)
    assert figure(result.stdout, "R2")[0] > 0
    assert f"Next: dtrees fit {tmp_path / 'flats.csv'} --target rent" in result.stdout
    assert len(pd.read_csv(tmp_path / "flats.csv")) == 300
    (tmp_path / "mine.csv").write_text("a table of the user's")
    assert "mine.csv' exists" in fail("demo", "--data", tmp_path / "mine.csv", "--scheduler", scheduler, *QUICK)
    assert (tmp_path / "mine.csv").read_text() == "a table of the user's"
    assert "is what --data names too" in fail("demo", "--data", tmp_path / "new", "--output", tmp_path / "new", *QUICK)
    assert not (tmp_path / "new").exists()


# Predicting


@pytest.mark.parametrize("on_cluster", [False, True])
def test_predict(model: Path, folder: Path, tmp_path: Path, on_cluster: bool, scheduler: str) -> None:
    where = ("--scheduler", scheduler) if on_cluster else ()
    frame = pd.read_csv(folder / "flats.csv")
    wanted = dtrees.load(model).predict(frame.drop(columns="rent"))
    result = succeed("predict", model, folder / "parts", "--output", tmp_path / "p.csv", "--keep", "rent", *where)
    assert "Wrote 600 predictions to" in result.stdout
    written = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert written.columns.tolist() == ["rent", "prediction"]
    np.testing.assert_array_equal(written["prediction"].map(float), wanted)
    np.testing.assert_array_equal(written["rent"].map(float), frame["rent"])
    succeed("predict", model, folder / "parts", "--output", tmp_path / "p.parquet", *where)
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "p.parquet")["prediction"], wanted)


def test_predictions_of_several_targets(folder: Path, tmp_path: Path) -> None:
    """Numbers, or labels of different kinds, with columns of probabilities for each target."""
    frame = pd.read_csv(folder / "flats.csv")
    X, rent = frame.drop(columns="rent"), frame["rent"]
    model = dtrees.GradientBoostingRegressor(n_estimators=3).fit(X, np.column_stack([rent, np.sqrt(rent)]))
    dtrees.save(model, tmp_path / "model.dtrees")
    succeed("predict", tmp_path / "model.dtrees", folder / "flats.csv", "--output", tmp_path / "p.csv", "--keep", "rent")
    written = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert written.columns.tolist() == ["rent", "prediction_0", "prediction_1"]
    np.testing.assert_array_equal(written.iloc[:, 1:].map(float), model.predict(X))
    labels = pd.DataFrame({"size": np.where(rent > 1000, "b", "a"), "number": np.array([1, 5, 7])[np.digitize(rent, [600, 1200])]})
    classifier = dtrees.DecisionTreeClassifier(max_depth=3).fit(X, labels)
    dtrees.save(classifier, tmp_path / "labels.dtrees")
    succeed("predict", tmp_path / "labels.dtrees", folder / "parts", "--output", tmp_path / "p.parquet", "--proba")
    written = pd.read_parquet(tmp_path / "p.parquet")
    names = ["probability_0_a", "probability_0_b", "probability_1_1", "probability_1_5", "probability_1_7"]
    assert written.columns.tolist() == ["prediction_0", "prediction_1", *names]
    assert written["prediction_1"].dtype == np.int64
    assert written.iloc[:, :2].to_numpy().tolist() == classifier.predict(X).tolist()
    np.testing.assert_array_equal(written[names], np.hstack(classifier.predict_proba(X)))


def test_predictions_into_a_pipe(model: Path, folder: Path, tmp_path: Path) -> None:
    """For example /dev/stdout, next to which no temporary file can be created, and which must not be replaced."""
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        result = succeed("predict", model, folder / "flats.csv", "--output", tmp_path / "pipe")
        assert len(read.result(timeout=30).splitlines()) == 601
    assert not result.stdout
    assert (tmp_path / "pipe").is_fifo()


def test_files_of_other_columns(tmp_path: Path, scheduler: str) -> None:
    for i, columns in enumerate((["a", "y"], ["y"])):
        pd.DataFrame({"a": [1.5, 2.5], "y": [1.5, 2.5]})[columns].to_parquet(tmp_path / f"{i}.parquet")
    assert "some of its files lack columns that the first has" in fail("fit", tmp_path, "--target", "y", "--scheduler", scheduler)


def test_probabilities(folder: Path, tmp_path: Path, scheduler: str) -> None:
    succeed("fit", folder / "dear.parquet", "--target", "dear", *QUICK, "--output", tmp_path / "m", "--scheduler", scheduler)
    succeed("predict", tmp_path / "m", folder / "dear.parquet", "--output", tmp_path / "p.csv", "--proba")
    written = pd.read_csv(tmp_path / "p.csv")
    assert written.columns.tolist() == ["prediction", "probability_no", "probability_yes"]
    assert np.allclose(written["probability_no"] + written["probability_yes"], 1)
    assert (written["prediction"] == np.where(written["probability_yes"] > 0.5, "yes", "no")).all()


def test_codes_that_look_like_numbers_stay_text(tmp_path: Path, scheduler: str) -> None:
    """A column that was text at fit is read as text, even if the values of the new table look like numbers."""
    train = pd.DataFrame({"code": ["01", "02", "x3"] * 40, "y": [1.5, 2.5, 4.5] * 40})
    train.to_csv(tmp_path / "train.csv", index=False)
    (tmp_path / "new.csv").write_text("code\n01\n02\n")
    (tmp_path / "none.csv").write_text("code\n")
    succeed("fit", tmp_path / "train.csv", "--target", "y", "--model", "tree", "--output", tmp_path / "m", "--scheduler", scheduler)
    succeed("predict", tmp_path / "m", tmp_path / "new.csv", "--output", tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["prediction"].tolist() == [1.5, 2.5]
    succeed("predict", tmp_path / "m", tmp_path / "none.csv", "--output", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == "prediction\n"


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.csv", "--target", "rent"), "'nowhere.csv' does not exist"),
        (("flats.csv", "--target", "rnet"), "--target: 'flats.csv' has no column 'rnet'. Did you mean 'rent'?"),
        (("flats.csv", "--target", "rent", "--drop", "aera"), "--drop: 'flats.csv' has no column 'aera'. Did you mean 'area'?"),
        (("flats.csv", "--target", "rent", "--features", "rent"), "names the target"),
        (("flats.csv", "--target", "rent", "-p", "max_dept=3"), "has no parameter 'max_dept'. Did you mean 'max_depth'?"),
        (("flats.csv", "--target", "rent", "-p", "max_depth"), "not of the form NAME=VALUE"),
        (("flats.csv", "--target", "rent", "-p", "random_state=3"), "use --seed"),
        (("flats.csv", "--target", "rent", "--output", "no/such/model"), "does not exist; create it first"),
        (("flats.csv", "--target", "rent", "--output", "flats.csv"), "--output: 'flats.csv' is what this command reads"),
        (("flats.csv", "--target", "rent", "--checkpoint", "flats.csv"), "--checkpoint: 'flats.csv' is what this command reads"),
        (("flats.csv", "--target", "rent", "--output", "m", "--checkpoint", "m"), "--checkpoint: 'm' is what --output names too"),
        (("flats.csv", "--target", "rent", "--test", "dear.parquet"), "--test: 'dear.parquet' has no column 'rent'"),
        (("flats.csv", "--target", "rent", "-p", "learning_rate=-1"), "The 'learning_rate' parameter of GradientBoostingRegressor must be"),
        (("flats.csv", "--target", "rent", "--model", "forest", "-p", "criterion=entropie"), "'criterion' parameter of RandomForest"),
    ],
)
def test_mistakes_that_show_before_anything_is_started(
    arguments: tuple[str, ...], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert message in fail("fit", *arguments)


def test_no_scheduler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.transport.clients.connect", functools.partial(connect, timeout=0.5))
    message = fail("fit", folder / "flats.csv", "--target", "rent", "--scheduler", "127.0.0.1:1")
    assert "No Dask scheduler answers at '127.0.0.1:1' (waited 0.5 s)" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("flats.csv", "--target", "district", "--task", "regression"), "holds text such as 'Harbour'; use --task classification"),
        (("flats.csv", "--target", "rent", "--task", "classification"), "use --task regression"),
        (("flats.csv", "--target", "rent", "--model", "forest", "-p", "criterion=gini"), "'criterion' parameter of RandomForestRegressor"),
        (
            ("flats.csv", "--target", "rent", "-p", "class_weight=balanced"),
            "'class_weight' is not a parameter of --model boosting for regression",
        ),
        (("flats.csv", "--target", "rent", "--test-size", "0.000001"), "0 for the test"),
    ],
)
def test_mistakes_that_the_data_shows(
    arguments: tuple[str, ...], message: str, folder: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert message in fail("fit", *arguments, "--scheduler", scheduler)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,y\n" + "1,2.5\n2,3.5\n" * 20 + "1,2,3\n", "Cannot read t.csv: Error tokenizing data"),
        (b"a,y\n\xe9,2.5\n", "Cannot read t.csv: The data is not UTF-8 text"),
        ("a,y\n" + "1,2.5\n1152921504606847000,3.5\n" * 20, "leave the column out with --drop"),
        ("a,y\n", "The data has no rows"),
        ("a,y\n1,2.5\n1,2.5\n", "there is nothing to learn"),
    ],
)
def test_tables_that_cannot_be_used(
    content: str | bytes, message: str, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    assert message in fail("fit", "t.csv", "--target", "y", "--scheduler", scheduler)


def test_columns_of_one_name_are_mentioned(tmp_path: Path, scheduler: str) -> None:
    (tmp_path / "t.csv").write_text("a,a,y\n" + "1,2,2.5\n2,1,3.5\n" * 20)
    result = succeed("fit", tmp_path / "t.csv", "--target", "y", "--model", "tree", "--scheduler", scheduler, "--output", tmp_path / "m")
    assert "has several columns 'a'; this one is called 'a.1' here" in result.stderr
    result = succeed("predict", tmp_path / "m", tmp_path / "t.csv", "--output", tmp_path / "p.csv")
    assert "this one is called 'a.1' here" in result.stderr


def test_decimal_commas_are_mentioned(tmp_path: Path, scheduler: str) -> None:
    lines = [f'"{i},5","{i % 7},25",{i % 2}' for i in range(60)]
    (tmp_path / "t.csv").write_text("y,x,z\n" + "\n".join(lines) + "\n")
    result = succeed("fit", tmp_path / "t.csv", "--target", "y", "--model", "tree", "--scheduler", scheduler, "--test-size", 0)
    assert "'y' looks like numbers ('0,5'), which makes 60 classes. To read it as numbers: --decimal CHAR" in result.stderr
    result = succeed("fit", tmp_path / "t.csv", "--target", "z", "--model", "tree", "--scheduler", scheduler)
    notes = [line for line in result.stderr.splitlines() if line.startswith("Note: X column")]
    assert len(notes) == 2
    assert "X column 'y' holds numbers as text" in notes[0]
    assert "X column 'x' holds numbers as text, such as '6,25'" in notes[1]


def test_currencies_and_groups_of_digits_are_mentioned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[object] = []
    monkeypatch.setattr(submission.logger, "warning", lambda *message: logged.append(message))  # the worker is in this process
    lines = [f'"${i + 1},{i:03}.50",{i % 2}' for i in range(40)]
    (tmp_path / "t.csv").write_text("price,y\n" + "\n".join(lines) + "\n")
    result = succeed("fit", tmp_path / "t.csv", "--target", "y", "--model", "tree")
    (said,) = [line for line in result.stderr.splitlines() if "price" in line]
    assert said.startswith("Note: X column 'price' holds numbers as text, such as '$")
    assert "--decimal and --thousands of the command line" in said
    assert not logged


def test_test_data_with_gaps_among_flags(tmp_path: Path, scheduler: str) -> None:
    frame = pd.DataFrame({"flag": np.arange(60) % 3 > 0, "y": np.arange(60) % 2 == 0})
    frame.to_csv(tmp_path / "t.csv", index=False)
    gaps = frame.astype(object)
    gaps.loc[3, "flag"], gaps.loc[4, "y"] = None, None
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    command = ("fit", tmp_path / "t.csv", "--target", "y", "--test", tmp_path / "gaps.csv", "--scheduler", scheduler)
    result = succeed(*command, "--model", "tree", "--json")
    assert json.loads(result.stdout)["n_test"] == 59


def test_identifiers_are_mentioned(folder: Path, scheduler: str, tmp_path: Path) -> None:
    pd.read_csv(folder / "flats.csv").assign(id=[f"flat {i}" for i in range(600)]).to_csv(tmp_path / "t.csv", index=False)
    result = succeed("fit", tmp_path / "t.csv", "--target", "rent", "--scheduler", scheduler, *QUICK)
    assert "Note: X column 'id' holds" in result.stderr
    assert "'district'" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "x.csv"), "Missing option '--target'. Try: main fit --help"),
        (("fit", "x.csv", "--target", "y", "--model", "woods"), "'woods' is not one of"),
        (("fit", "x.csv", "--target", "y", "--test-size", "1"), "is not in the range 0<=x<1"),
        (("fit", "x.csv", "--target", "y", "--test", "z.csv", "--test-size", "0.1"), "exclude each other"),
        (("fit", "flats.csv", "--target", "rent", "--model", "forest", "--validation", "z.csv"), "--validation is for --model boosting"),
        (("fit", "flats.csv", "--target", "rent", "--model", "tree", "--checkpoint", "c"), "--checkpoint is for models of several trees"),
        (("fit", "flats.csv", "--target", "rent", "--checkpoint-interval", "3"), "is for --checkpoint, which is not given"),
        (("fit", "flats.csv", "--target", "rent", "-p", "early_stopping_rounds=3"), "stops by the scores on --validation DATA"),
        (("train", "x.csv"), "No such command 'train'"),
        (("fit", "flats.csv", "--target", "rent", "--scheduler", "h:1", "--n-workers", "2"), "leave them out with --scheduler"),
    ],
)
def test_commands_given_wrongly(arguments: tuple[str, ...], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert message in fail(*arguments, code=2)


def test_mistakes_at_prediction(model: Path, folder: Path, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "p.csv")
    damaged = tmp_path / "damaged.dtrees"
    damaged.write_bytes(model.read_bytes()[:-10])
    assert "is damaged or truncated" in fail("predict", damaged, folder / "flats.csv", *output)
    assert "is not a dtrees model file" in fail("predict", folder / "flats.csv", folder / "flats.csv", *output)
    assert "No such file" in fail("predict", tmp_path / "none", folder / "flats.csv", *output)
    pd.read_csv(folder / "flats.csv").drop(columns=["area", "lift"]).to_csv(tmp_path / "less.csv", index=False)
    assert "lacks 2 of the 8 columns that the model was fitted on: 'area', 'lift'" in fail("predict", model, tmp_path / "less.csv", *output)
    pd.read_csv(folder / "flats.csv").assign(area="big").to_csv(tmp_path / "text.csv", index=False)
    assert "'area'" in fail("predict", model, tmp_path / "text.csv", *output)
    assert "--proba is for classes" in fail("predict", model, folder / "flats.csv", *output, "--proba")
    assert not list(tmp_path.glob("*p.csv*"))
    copied = tmp_path / "model.csv"
    copied.write_bytes(model.read_bytes())
    for read in (copied, tmp_path / "less.csv"):
        before = read.read_bytes()
        data = folder / "flats.csv" if read == copied else tmp_path / "less.csv"
        assert "is what this command reads, and would be written over" in fail("predict", copied, data, "--output", read)
        assert read.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize(
    ("name", "word", "code"),
    [("SIGTERM", "Terminated.", 143), pytest.param("SIGHUP", "The terminal was closed.", 129, marks=pytest.mark.slow)],
)
def test_a_signal_ends_a_fit_with_a_word_and_leaves_nothing(
    name: str, word: str, code: int, folder: Path, scheduler: str, tmp_path: Path
) -> None:
    rounds = 10**6 + code  # to distinguish it from other fits
    arguments = ["fit", str(folder / "flats.csv"), "--target", "rent", "-p", f"n_estimators={rounds}", "--output", str(tmp_path / "model")]
    command = [sys.executable, "-m", "dtrees", *arguments, "--scheduler", scheduler]
    with (
        Client(scheduler, set_as_default=False) as client,
        subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.Signals[name], signal.SIG_DFL),  # the test runner may ignore it: nohup
        ) as process,
    ):
        try:
            wait_until(lambda: any(event.get("total") == rounds for _, event in client.get_events("dtrees")))
            process.send_signal(signal.Signals[name])
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == code
        assert said.splitlines()[-1] == f"Error: {word}"
        assert "Traceback" not in said
        assert list(tmp_path.iterdir()) == []
        assert_clean(client)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_the_embedded_cluster_is_part_of_the_process_and_ends_with_it(folder: Path) -> None:
    arguments = ["fit", str(folder / "flats.csv"), "--target", "rent", "-p", "n_estimators=1000000"]
    command = [sys.executable, "-m", "dtrees", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "GradientBoostingRegressor on" not in said:
                said = process.stderr.readline()
                assert said, "it ended before it began to train"
            time.sleep(1)
            assert psutil.Process(process.pid).children() == []
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1] == "Error: Interrupted."


def test_help_and_version_in_a_process_of_their_own() -> None:
    def output(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-m", "dtrees", *arguments], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    assert output("--version").strip() == f"dtrees {dtrees.__version__}"
    assert "dtrees fit DATA --target COLUMN" in output("--help")
    assert "Examples:" in output("fit", "--help")


def test_no_command_is_answered_by_the_help() -> None:
    done = subprocess.run([sys.executable, "-m", "dtrees"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Usage: python -m dtrees [OPTIONS] COMMAND [ARGS]...\n\n")


# Real data


@pytest.mark.slow  # compiles the kernels of zones with sets of categories
def test_california_housing(california_housing: Path, scheduler: str) -> None:
    settings = ("-p", "n_estimators=100", "-p", "learning_rate=0.1")
    result = succeed("fit", california_housing, "--target", "median_house_value", "--scheduler", scheduler, *settings)
    score, baseline = figure(result.stdout, "R2")
    assert score > 0.82
    assert abs(baseline) < 0.01


@pytest.mark.slow
def test_adult(adult_train: Path, adult_test: Path, scheduler: str) -> None:
    result = succeed("fit", adult_train, "--test", adult_test, "--target", "income", "--model", "forest", "--scheduler", scheduler)
    score, baseline = figure(result.stdout, "accuracy")
    assert score > 0.85
    assert abs(baseline - 0.7638) < 0.001
