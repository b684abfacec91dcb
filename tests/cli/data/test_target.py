"""The target: which task it calls for, and in which dtype it is trained on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dtrees.cli.errors import CommandError
from dtrees.cli.target import TargetSummary, choose_task, convert, merge, number_as_text, summarize_part

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
