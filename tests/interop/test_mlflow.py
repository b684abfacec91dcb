"""Fits logged to MLflow, in a local folder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees import GradientBoostingRegressor, MLflowCallback, RandomForestRegressor
from tests.interop.cases import FULL, SIGNAL


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return MLflow, with runs in a folder of the test."""
    found = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = found.get_tracking_uri()
    found.set_tracking_uri((tmp_path / "runs").as_uri())
    yield found
    found.set_tracking_uri(before)


def history(mlflow: Any, run: str, metric: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of a metric."""
    found = sorted((entry.step, entry.value) for entry in mlflow.MlflowClient().get_metric_history(run, metric))
    return [step for step, _ in found], [value for _, value in found]


@pytest.mark.slow
def test_boosting_is_logged(mlflow: Any, tmp_path: Path) -> None:
    model = GradientBoostingRegressor(n_estimators=5, eval_metric=["mae", "rmse"], random_state=1)
    with MLflowCallback(model) as log:
        model.fit(FULL, SIGNAL, callbacks=[log], eval_set={"new rows": (FULL[:50], SIGNAL[:50])})
    assert mlflow.active_run() is None
    run = mlflow.get_run(log.run_id)
    assert run.info.status == "FINISHED"
    wanted = {"estimator": "GradientBoostingRegressor", "n_estimators": "5", "random_state": "1", "loss": "squared_error"}
    assert wanted.items() <= run.data.params.items()
    steps, values = history(mlflow, log.run_id, "train_score")
    assert steps == [1, 2, 3, 4, 5]
    assert_allclose(values, model.train_score_)
    assert_allclose(history(mlflow, log.run_id, "new rows-mae")[1], model.evals_result_["new rows"]["mae"])
    path = mlflow.MlflowClient().download_artifacts(log.run_id, "model.dtrees", str(tmp_path))
    assert_array_equal(dtrees.load(path).predict(FULL), model.predict(FULL))


@pytest.mark.slow
def test_a_forest_in_a_run_that_is_active(mlflow: Any) -> None:
    model = RandomForestRegressor(5, random_state=0)
    with mlflow.start_run() as run, MLflowCallback(model, artifact=None, every=2) as log:
        model.fit(FULL, SIGNAL, callbacks=[log])
    assert log.run_id == run.info.run_id
    assert history(mlflow, log.run_id, "trees") == ([2, 4, 5], [2.0, 4.0, 5.0])
    assert mlflow.MlflowClient().list_artifacts(log.run_id) == []


@pytest.mark.slow
def test_a_fit_that_fails(mlflow: Any) -> None:
    model = GradientBoostingRegressor(n_estimators=5)
    with pytest.raises(ValueError, match="y"), MLflowCallback(model) as log:
        model.fit(FULL, np.full(300, np.nan), callbacks=[log])
    assert mlflow.get_run(log.run_id).info.status == "FAILED"
    assert mlflow.MlflowClient().list_artifacts(log.run_id) == []


def test_wrong_arguments() -> None:
    model = GradientBoostingRegressor()
    with pytest.raises(TypeError, match="model is of type int"):
        MLflowCallback(3)
    with pytest.raises(ValueError, match="every is 0; wants an integer of at least 1"):
        MLflowCallback(model, every=0)
    with pytest.raises(ValueError, match="artifact is 'a/b'; wants the name of a file"):
        MLflowCallback(model, artifact="a/b")
    with pytest.raises(RuntimeError, match="is not entered"):
        GradientBoostingRegressor(n_estimators=1).fit(FULL, SIGNAL, callbacks=[MLflowCallback(model)])
