"""The target and the rows held out for the test; scores of these; where a command writes."""

import itertools
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, r2_score, root_mean_squared_error

from dtrees.cli.errors import CommandError
from dtrees.cli.tables import check_destinations, check_new
from dtrees.cli.target import (
    Baseline,
    TargetSummary,
    choose_task,
    classification_scores,
    classification_sums,
    convert,
    held_out,
    merge,
    number_as_text,
    regression_scores,
    regression_sums,
    split,
    summarize_part,
)

# --- the target: task and dtype ---


MANY_NUMBERS = list(range(11))


def summary(*parts: list[object] | pd.Series) -> TargetSummary:
    return merge([summarize_part(part if isinstance(part, pd.Series) else pd.Series(part)) for part in parts])


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["yes", "no"], "classification"),
        (pd.Series(["yes", None, "no"], dtype="string"), "classification"),
        (pd.Series(["yes", "no"], dtype="category"), "classification"),
        ([True, False], "classification"),
        ([0, 1, 1], "classification"),
        ([1.0, np.nan, 2.0], "classification"),
        (pd.Series([1, None, 2], dtype="Int64"), "classification"),
        (MANY_NUMBERS, "regression"),
        ([0.5, 1.0], "regression"),
    ],
)
def test_task_is_told_from_the_target(values: list[object], task: str) -> None:
    found, reason = choose_task(summary(values), "y", "auto")
    assert found == task
    assert "'y' holds" in reason


def test_partitions_are_judged_together() -> None:
    assert choose_task(summary([1.0, 2.0], [], [0.5, np.nan]), "y", "auto")[0] == "regression"
    assert choose_task(summary(MANY_NUMBERS[:6], MANY_NUMBERS[6:]), "y", "auto")[0] == "regression"
    together = summary([1.0, np.nan], [np.nan, np.inf])
    assert (together.n_rows, together.n_missing, together.n_infinite) == (4, 2, 1)


def test_the_user_has_the_last_word() -> None:
    assert choose_task(summary([0, 1]), "y", "regression")[0] == "regression"
    assert choose_task(summary(MANY_NUMBERS), "y", "classification")[0] == "classification"


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        ([], "auto", "no rows"),
        ([None, np.nan], "auto", "missing in every row"),
        ([3, 3], "auto", "nothing to learn"),
        ([1.0, np.inf], "auto", "infinite in 1 rows"),
        (["a", "b"], "regression", "holds text such as 'a'; use --task classification"),
        ([0.5, 1.5], "classification", "use --task regression"),
        ([f"id{i}" for i in range(1001)], "auto", "more than 1,000 distinct values"),
        ([pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")], "auto", "neither numbers nor text"),
    ],
)
def test_targets_that_cannot_be_learned(values: list[object], task: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        choose_task(summary(values), "y", task)


def test_text_in_one_partition_and_numbers_in_another() -> None:
    with pytest.raises(CommandError, match="neither numbers nor text only"):
        choose_task(summary(["a"], [1]), "y", "auto")


def test_classes_are_whole_numbers_again_after_missing_values_made_them_floats() -> None:
    assert convert(pd.Series([1.0, 2.0]), "classification", frozenset({"whole"})).dtype == np.int64
    assert convert(pd.Series([1, 2]), "regression", frozenset({"whole"})).dtype == np.float64
    assert convert(pd.Series(["a"], dtype="category"), "classification", frozenset({"text"})).tolist() == ["a"]
    assert convert(pd.Series([True]), "classification", frozenset({"bool"})).dtype == np.bool_


@pytest.mark.parametrize(
    ("values", "example"),
    [
        (["1,5", "12,25", "3"], "1,5"),
        (["-1.234,56", "+7"], "-1.234,56"),
        (["1 234,5"], "1 234,5"),
        (["1.5", "2"], None),
        (["1,5", "a"], None),
        (["1,5,2"], None),
        ([1.5, 2.5], None),
        (["1,5", 2], None),
        ([], None),
    ],
)
def test_numbers_with_decimal_commas(values: list[object], example: str | None) -> None:
    assert number_as_text(values) == example


# --- the rows held out for the test ---


FRAME = pd.DataFrame({"row": np.arange(1000)})


@pytest.fixture(autouse=True)
def in_this_process() -> object:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("n_partitions", [1, 3, 7])
def test_the_same_rows_in_any_partitioning(n_partitions: int) -> None:
    train, test = split(dd.from_pandas(FRAME, npartitions=n_partitions, sort=False), 0.3, seed=5)
    wanted = held_out(np.arange(1000), 0.3, seed=5)
    assert test["row"].compute().tolist() == np.flatnonzero(wanted).tolist()
    assert train["row"].compute().tolist() == np.flatnonzero(~wanted).tolist()


def test_empty_partitions() -> None:
    frame = dd.from_pandas(FRAME, npartitions=4, sort=False)
    emptied = frame[(frame["row"] < 250) | (frame["row"] >= 750)]
    train, test = split(emptied, 0.5, seed=0)
    assert len(train) + len(test) == 500


def test_share_is_met_on_average_and_seeds_differ() -> None:
    shares = [held_out(np.arange(2000), 0.2, seed).mean() for seed in range(200)]
    assert abs(np.mean(shares) - 0.2) < 0.002
    overlap = (held_out(np.arange(20_000), 0.2, 0) & held_out(np.arange(20_000), 0.2, 1)).mean()
    assert abs(overlap - 0.04) < 0.005
    assert not held_out(np.arange(100), 0.0, 0).any()


# --- scores from sums over partitions equal scikit-learn's on all rows ---


CUTS = [0, 40, 40, 100]


def test_regression() -> None:
    random = np.random.default_rng(0)
    y = 1e6 + random.normal(size=100)
    predicted = y + random.normal(size=100)
    mean = 1e6 + 0.1
    sums = np.sum([regression_sums(y[a:b], predicted[a:b], mean) for a, b in itertools.pairwise(CUTS)], axis=0)
    r2, rmse, mae = regression_scores(sums)
    trivial = np.full(100, mean)
    assert r2.model == pytest.approx(r2_score(y, predicted), rel=1e-9)
    assert r2.baseline == pytest.approx(r2_score(y, trivial), abs=1e-9)
    assert (rmse.model, rmse.baseline) == pytest.approx((root_mean_squared_error(y, predicted), root_mean_squared_error(y, trivial)))
    assert (mae.model, mae.baseline) == pytest.approx((mean_absolute_error(y, predicted), mean_absolute_error(y, trivial)))


def test_constant_test_target_has_no_r2() -> None:
    assert np.isnan(regression_scores(regression_sums([2.0, 2.0], np.array([1.0, 2.0]), 2.0))[0].model)


@pytest.mark.parametrize("classes", [("a", "b", "c"), (0, 1, 5)])
def test_classification(classes: tuple[object, ...]) -> None:
    random = np.random.default_rng(0)
    y = pd.Series([classes[i] for i in random.integers(0, 3, 100)])
    shares = random.dirichlet(np.ones(3), 100)
    trivial = Baseline(classes=classes, frequencies=(0.2, 0.5, 0.3))
    sums = np.sum([classification_sums(y[a:b], shares[a:b], trivial) for a, b in itertools.pairwise(CUTS)], axis=0)
    accuracy, loss = classification_scores(sums)
    assert accuracy.model == accuracy_score(y, [classes[i] for i in shares.argmax(axis=1)])
    assert accuracy.baseline == (y == classes[1]).mean()
    assert loss.model == pytest.approx(log_loss(y, shares, labels=list(classes)))
    assert loss.baseline == pytest.approx(log_loss(y, np.tile([0.2, 0.5, 0.3], (100, 1)), labels=list(classes)))


def test_a_class_that_training_never_saw_counts_as_wrong() -> None:
    trivial = Baseline(classes=("a", "b"), frequencies=(0.5, 0.5))
    accuracy, loss = classification_scores(classification_sums(["z"], np.array([[0.9, 0.1]]), trivial))
    assert accuracy.model == 0
    assert loss.model > 30


# --- destinations: not a file that is read, and not the same file twice ---


def test_free_places(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("a model of before")
    (tmp_path / "data").write_text("a,b")
    written = {"--output": str(tmp_path / "old"), "--checkpoint": str(tmp_path / "kept"), "--data": None}
    check_destinations(written, [str(tmp_path / "data")])
    check_destinations({"--checkpoint": "s3://bucket/kept", "--output": ""}, ["s3://bucket/data.csv"])
    check_new("--data", str(tmp_path / "new"))


@pytest.mark.parametrize(
    ("output", "checkpoint", "message"),
    [
        ("data", None, "--output: .*data' is what this command reads"),
        ("link", None, "--output: .*link' is what this command reads"),
        (None, "data", "--checkpoint: .*data' is what this command reads"),
        (None, "file:data", "--checkpoint: .* is what this command reads"),
        ("same", "same", "--checkpoint: .*same' is what --output names too, and would be written over"),
        ("same", "folder/../same", "is what --output names too"),
        (None, "no/such", "--checkpoint: the folder .* does not exist"),
    ],
)
def test_places_that_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str | None, checkpoint: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_text("a,b")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    if checkpoint is not None:
        checkpoint = checkpoint.replace("file:", f"file://{tmp_path}/")
    with pytest.raises(CommandError, match=message):
        check_destinations({"--output": output, "--checkpoint": checkpoint}, [str(tmp_path / "data")])


def test_addresses_that_are_taken() -> None:
    with pytest.raises(CommandError, match="is what this command reads"):
        check_destinations({"--checkpoint": "s3://bucket/data.csv"}, ["s3://bucket/data.csv"])
