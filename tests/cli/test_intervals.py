"""``dtrees fit --intervals``, and what shows and predicts with the model that it makes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dtrees
from dtrees.cli.fit import flats
from tests.cli.commands import fail, succeed


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intervals") / "flats.csv"
    flats(1000, seed=3).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("model", ["boosting", "forest", pytest.param("extra-trees", marks=pytest.mark.slow)])
def test_from_fit_to_predictions(table: Path, tmp_path: Path, model: str) -> None:
    path, output = tmp_path / "rent.dtrees", tmp_path / "predictions.csv"
    more = ("-p", "n_estimators=20", "--model", model, "--intervals", "--output", path)
    result = succeed("fit", table, "--target", "rent", *more, "--json")
    found = json.loads(result.stdout)
    frame, fitted = pd.read_csv(table), dtrees.load(path)
    X, y = frame.drop(columns="rent"), frame["rent"]
    assert found["intervals"]["coverage"] == 0.9
    assert 0.8 < found["intervals"]["covered"] <= 1.0
    assert found["intervals"]["width"] > 0
    succeed("predict", path, table, "--output", output, "--coverage", "0.8", "--keep", "rent")
    written = pd.read_csv(output)
    names = ["prediction_0.05", "prediction_0.5", "prediction_0.95"] if model == "boosting" else ["prediction"]
    assert written.columns.tolist() == ["rent", *names, "lower", "upper"]
    np.testing.assert_allclose(written[["lower", "upper"]], fitted.predict_interval(X, 0.8))
    assert 0.7 < np.mean((written["lower"] <= y) & (y <= written["upper"])) <= 1.0
    shown, facts = succeed("show", path).stdout, json.loads(succeed("show", path, "--json").stdout)
    if model == "boosting":
        n = facts["calibration_rows"]
        assert n == len(fitted.conformity_scores_)
        assert 0.1 < n / (n + found["n_train"]) < 0.3
        assert f"calibrated on {n} rows" in shown
        assert f"Intervals are calibrated on {n} further rows" in result.stderr
    else:
        assert facts["target_rows"] == found["n_train"]
        assert f"by the targets of {found['n_train']} rows in the leaves" in shown
    assert "R2" in succeed("evaluate", path, table, "--target", "rent").stdout


def test_in_words_and_by_another_loss(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "rent.dtrees"
    options = ("-p", "n_estimators=5", "-p", "loss=squared_error", "--intervals", "--output", path)
    result = succeed("fit", table, "--target", "rent", *options)
    assert "Intervals for 90 % cover" in " ".join(result.stdout.split())
    assert dtrees.load(path).loss == "squared_error"


def test_refusals(table: Path, tmp_path: Path) -> None:
    given = ("fit", table, "--target", "rent", "--intervals")
    assert "--intervals is for --model boosting, forest, extra-trees; --model is tree" in fail(*given, "--model", "tree", code=2)
    assert "--intervals wants bootstrap=True" in fail(*given, "--model", "forest", "-p", "bootstrap=false", code=2)
    assert "--intervals is for numbers" in fail("fit", table, "--target", "district", "--intervals")
    path, few = tmp_path / "plain.dtrees", tmp_path / "few.csv"
    frame = pd.read_csv(table)
    frame.head(20).to_csv(few, index=False)
    assert "wants 9 rows at least to calibrate with" in fail("fit", few, "--target", "rent", "--intervals", "--output", path)
    assert not path.exists()
    dtrees.save(dtrees.GradientBoostingRegressor(n_estimators=2).fit(frame[["area"]], frame["rent"]), path)
    line = fail("predict", path, table, "--output", tmp_path / "new.csv", "--coverage", "0.9")
    assert "--coverage is for models of dtrees fit --intervals" in line
