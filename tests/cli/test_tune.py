"""``dtrees tune``: what a user types, and what comes back."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

import dtrees
from dtrees.cli.fit import flats
from tests.cli.commands import fail, succeed


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "flats.csv"
    flats(400, seed=1).to_csv(path, index=False)
    return path


def test_a_model_is_found_and_saved(table: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.dtrees"
    given = ("tune", table, "--target", "rent", "--trials", 3, "--folds", 3, "-p", "n_estimators=15", "--output", model)
    result = succeed(*given)
    assert "Trial 1: " in result.stderr
    assert "the best so far (the model as it is)" in result.stderr
    assert re.search(r"Trial 3: .*max_depth=", result.stderr)
    assert re.search(r"Best mean rmse of 3 folds: \S+ \(trial \d\), with these parameters:\n-p ", result.stdout)
    assert "R2" in result.stdout
    assert f"Model saved to {model}." in result.stdout
    again = succeed(*given[:-1], tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == model.read_bytes()
    assert again.stdout.replace("again", "model.dtrees") == result.stdout
    rows = pd.read_csv(table)
    assert dtrees.load(model).score(rows.drop(columns="rent"), rows["rent"]) > 0.5


def test_its_parameters_give_the_model(table: Path, tmp_path: Path) -> None:
    """``dtrees fit`` with the parameters found, as given in JSON, has the same scores."""
    given = (table, "--target", "rent", "--model", "forest", "-p", "max_depth=5", "--json")
    found = json.loads(succeed("tune", *given, "-p", "n_estimators=4", "--trials", 4, "--folds", 2, "--jobs", 2, "--scoring", "r2").stdout)
    assert (found["judged_by"], found["n_trials"]) == ("r2", 4)
    settings = [part for name, value in found["parameters"].items() for part in ("-p", f"{name}={value}")]
    fitted = json.loads(succeed("fit", *given, "-p", "n_estimators=4", *settings).stdout)
    assert fitted["scores"] == found["scores"]


def test_a_study_is_gone_on_with(table: Path, tmp_path: Path) -> None:
    given = (
        "tune",
        table,
        "--target",
        "rent",
        "--model",
        "tree",
        "--folds",
        2,
        "--storage",
        f"sqlite:///{tmp_path}/study.db",
        "--study",
        "flats",
    )
    assert "Trial 2: " in succeed(*given, "--trials", 2).stderr
    result = succeed(*given, "--trials", 1, "--timeout", 60)
    assert "Trial 3: " in result.stderr
    assert "Trial 1: " not in result.stderr
    assert "3 trials" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--study", "flats"), 2, "--storage and --study go together"),
        (("--scoring", "nonsense"), 1, "eval_metric has 'nonsense'"),
        (("-p", "random_state=3"), 1, "use --seed"),
        (("--drop", "height"), 1, "height"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], code: int, message: str, table: Path) -> None:
    assert message in fail("tune", table, "--target", "rent", *arguments, code=code)


def test_without_optuna(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'dask-dtrees[tune]'" in fail("tune", table, "--target", "rent")
