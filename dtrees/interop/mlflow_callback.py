"""Log a fit to MLflow: its parameters, the metrics of each round, and the model file."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any, Self

from dtrees.engine.plan.plans import Progress
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.model_file import save
from dtrees.version import needed

#: MLflow truncates longer values.
_LONGEST = 500


class MLflowCallback:
    """Log a fit to MLflow: its parameters, the losses and metrics of each round, and the model as an artifact.

    Use it as a context manager around ``fit``, and pass it in ``callbacks``. It logs the parameters at the beginning of the block and,
    unless the fit failed, the model file (:func:`dtrees.save`) at the end. After each round it logs ``train_score``, ``validation_score``
    and ``NAME-METRIC`` for each evaluation set (forests have ``trees``), with the number of the round as step. It logs to the active run,
    or to a new run, which ends with the block. ``mlflow.set_tracking_uri`` sets where MLflow stores runs.

    Parameters
    ----------
    model : estimator
        The estimator of dtrees to be fitted.
    artifact : str or None, default="model.dtrees"
        Name of the model file in the run. None logs no file.
    every : int, default=1
        Log the metrics of every ``every``-th round, and of the last one.

    Attributes
    ----------
    run_id : str
        The run's id, set at the beginning of the block.

    Raises
    ------
    ImportError
        If MLflow is not installed.

    Examples
    --------
    >>> import mlflow  # doctest: +SKIP
    >>> from dtrees import GradientBoostingRegressor, MLflowCallback
    >>> model = GradientBoostingRegressor(n_estimators=20)
    >>> with MLflowCallback(model) as log:  # doctest: +SKIP
    ...     model.fit([[1.0], [2.0]], [5.0, 9.0], callbacks=[log])
    """

    def __init__(self, model: Any, *, artifact: str | None = "model.dtrees", every: int = 1) -> None:
        if not isinstance(model, TreeEstimator):
            raise TypeError(f"model is of type {type(model).__name__}; wants an estimator of dtrees (of a pipeline, its last step)")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every is {every!r}; wants an integer of at least 1")
        if artifact is not None and (not isinstance(artifact, str) or not artifact or Path(artifact).name != artifact):
            raise ValueError(f"artifact is {artifact!r}; wants the name of a file, without a folder, or None")
        self._model, self._artifact, self._every = model, artifact, every
        self._own_run = False
        self.run_id: str | None = None

    def __enter__(self) -> Self:
        """Log the parameters, to the active run or to a new one."""
        mlflow = needed("mlflow", "mlflow")
        run = mlflow.active_run()
        self._own_run = run is None
        if run is None:
            run = mlflow.start_run()
        self.run_id = str(run.info.run_id)
        given = {"estimator": type(self._model).__name__, **self._model.get_params(deep=False)}
        client = mlflow.MlflowClient()
        for name, value in given.items():
            client.log_param(self.run_id, name, str(value)[:_LONGEST])
        return self

    def __call__(self, progress: Progress) -> None:
        """Log the metrics of a round."""
        if self.run_id is None:
            raise RuntimeError(
                "the callback is not entered; use it as 'with MLflowCallback(model) as log: model.fit(..., callbacks=[log])'"
            )
        if progress.done % self._every and progress.done != progress.total:
            return
        metrics = {"train_score": progress.train_score, "validation_score": progress.validation_score, "fit_seconds": progress.seconds}
        metrics |= {f"{name}-{metric}": value for name, values in progress.evaluation.items() for metric, value in values.items()}
        if progress.train_score is None:
            metrics["trees"] = float(progress.done)
        known = {name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)}
        client = needed("mlflow", "mlflow").MlflowClient()
        for name, value in known.items():
            client.log_metric(self.run_id, _name(name), value, step=progress.done)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Log the model file, unless there was an error, and end the run if it began here."""
        mlflow = needed("mlflow", "mlflow")
        try:
            if error is None and self._artifact is not None and self._model.__sklearn_is_fitted__():
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / self._artifact
                    save(self._model, path)
                    mlflow.MlflowClient().log_artifact(self.run_id, str(path))
        finally:
            if self._own_run:
                mlflow.end_run("FINISHED" if error is None else "FAILED")


def _name(metric: str) -> str:
    """Return the name of a metric with only the characters that MLflow allows."""
    return "".join(sign if sign.isalnum() or sign in "_-. /" else "_" for sign in metric)
