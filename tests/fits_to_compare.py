"""Fit models of all kinds that use logarithms and exponentials, or sums of floats, and print a digest of each file and its predictions.

``python -m tests.fits_to_compare``: it prints the same on every processor.
"""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dtrees

N_ROWS = 9_000  # more than NumPy's buffers hold


def rows() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return a table, a positive signal, and weights, using only parts of the generator that are the same on every processor."""
    r = np.random.default_rng(6)
    X = np.round(r.random((N_ROWS, 4)), 2)
    signal = 0.1 + X[:, 0] * X[:, 1] + 0.3 * r.random(N_ROWS)
    return X, signal, 0.5 + r.random(N_ROWS)


def cases() -> Iterator[tuple[str, Any, Any]]:
    """Yield names, estimators and targets."""
    _, signal, _ = rows()
    counts, two = np.floor(4.0 * signal), (signal > 0.5).astype(int)
    three = np.digitize(signal, [0.3, 0.6])
    several, labels = np.column_stack([signal, 100.0 - signal]), np.column_stack([two, three])
    few = {"n_estimators": 3, "random_state": 0}
    limits = {"max_depth": 5, "random_state": 0}
    for loss, y in (("squared_error", signal), ("poisson", counts), ("gamma", signal), ("tweedie", counts), ("huber", signal)):
        yield loss, dtrees.GradientBoostingRegressor(loss=loss, learning_rate="auto", **few), y
    times = np.column_stack([signal, np.where(counts > 1, np.inf, signal)])
    for name in ("cox", "aft"):
        yield name, dtrees.GradientBoostingRegressor(loss=name, **few), times
    yield "several", dtrees.GradientBoostingRegressor(loss="poisson", **few), several
    yield "binary", dtrees.GradientBoostingClassifier(**few), two
    yield "exponential", dtrees.GradientBoostingClassifier(loss="exponential", n_iter_no_change=2, **few), two
    yield "multiclass", dtrees.GradientBoostingClassifier(n_iter_no_change=2, **few), three
    yield "poisson tree", dtrees.DecisionTreeRegressor(criterion="poisson", **limits), counts
    yield "entropy of two", dtrees.DecisionTreeClassifier(criterion="entropy", **limits), two
    yield "entropy of three", dtrees.DecisionTreeClassifier(criterion="entropy", **limits), three
    yield "entropy of several", dtrees.DecisionTreeClassifier(criterion="entropy", **limits), labels
    yield "medians", dtrees.DecisionTreeRegressor(criterion="absolute_error", max_depth=3), signal
    yield "classes", dtrees.RandomForestClassifier(oob_score=True, max_depth=3, **few), three
    yield "at random", dtrees.ExtraTreeRegressor(**limits), signal
    yield "classes at random", dtrees.ExtraTreesClassifier(criterion="entropy", max_depth=3, **few), labels
    yield "means", dtrees.RandomForestRegressor(oob_score=True, max_depth=5, **few), signal
    yield "means of several", dtrees.ExtraTreesRegressor(bootstrap=True, oob_score=True, max_depth=5, **few), several
    yield "bag", dtrees.BaggingRegressor(dtrees.GradientBoostingRegressor(n_estimators=2), 2, oob_score=True, random_state=0), signal


def digest_of(model: Any, X: NDArray[np.float64]) -> dict[str, str]:
    """Return digests of the model's file and of its predictions."""
    with tempfile.TemporaryDirectory() as folder:
        dtrees.save(model, Path(folder) / "model.dtrees")
        found = {"file": (Path(folder) / "model.dtrees").read_bytes()}
    for name in ("predict", "predict_proba", "predict_log_proba"):
        if hasattr(model, name):
            told = getattr(model, name)(X)
            found[name] = b"".join(np.ascontiguousarray(one).tobytes() for one in (told if isinstance(told, list) else [told]))
    if hasattr(model, "shap_values"):
        found["contributions"] = np.ascontiguousarray(model.shap_values(X[:50])).tobytes()
    return {name: hashlib.sha256(one).hexdigest()[:16] for name, one in found.items()}


def main() -> None:
    """Fit, and print the digests as JSON."""
    X, _, weight = rows()
    warnings.simplefilter("ignore")
    for name, estimator, y in cases():
        found = [name, digest_of(estimator.fit(X, y), X), digest_of(estimator.fit(X, y, weight), X)]
        print(json.dumps(found), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
