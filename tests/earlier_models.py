"""Model files of an earlier version, and the predictions of that version.

The files in ``tests/models`` are of dtrees 0.1.0, one for each kind of model. ``python -m tests.earlier_models FOLDER`` wrote them and
their predictions, ``predictions.npz``. They must not change; files of a later version would be in another folder.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dtrees

FOLDER = Path(__file__).parent / "models"
#: Outputs computed from raw predictions by exp, whose last bit may differ between versions.
BY_EXP = ("predict_proba", "predict of amounts")
#: The file that can be mapped.
MAPPABLE = "tree-classes"
N_ROWS = 90


def rows(first: int = 0) -> pd.DataFrame:
    """Return numbers with ties and missing values, text, a bool and categories, by integer arithmetic alone."""
    i = np.arange(first, first + N_ROWS)
    number = (i * 7919 % 101) / 8 - 4
    return pd.DataFrame(
        {
            "number": np.where(i % 7 == 0, np.nan, number),
            "count": i * 31 % 13,
            "single": (number * 1000.1).astype(np.float32),
            "flag": i * 5 % 3 == 0,
            "word": np.array(["ash", "elm", "fir", "oak", None], dtype=object)[i * 17 % 5],
            "level": pd.Categorical.from_codes(i * 11 % 7 - 1, list("uvwxyz")),
        }
    )


def targets() -> dict[str, Any]:
    """Return targets of each task by name."""
    frame = rows()
    value = frame["single"].to_numpy().astype(np.float64) / 512 + 3 * (frame["word"] == "elm") + frame["count"] % 4
    label = np.array(["low", "middle", "top"])[(frame["count"] + frame["flag"]).to_numpy() % 3]
    return {
        "value": value.to_numpy(),
        "amount": np.abs(value.to_numpy()).round(),
        "flag": ((frame["count"] > 6) ^ (frame["level"] == "w")).to_numpy(),
        "label": label,
        "values": np.column_stack([value, frame["count"]]),
        "labels": np.column_stack([label, np.where(frame["flag"], "yes", "no")]),
    }


def models() -> dict[str, tuple[Any, str]]:
    """Return an unfitted model of each kind, and its target, by the name of its file."""
    some: dict[str, Any] = {"random_state": 1, "max_depth": 4}
    few: dict[str, Any] = {**some, "n_estimators": 3}
    boosting: dict[str, Any] = {**few, "learning_rate": 0.5, "reg_lambda": 1.0, "min_samples_leaf": 2}
    sets: dict[str, Any] = {"categorical_features": ["word", "level"], "min_samples_category": 2, "cat_smooth": 1.0}
    regressor, classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
    return {
        "tree": (dtrees.DecisionTreeRegressor(**some), "value"),
        "tree-absolute-error": (dtrees.DecisionTreeRegressor(criterion="absolute_error", categorical_features=None, **some), "value"),
        "tree-quantile": (dtrees.DecisionTreeRegressor(criterion="quantile", alpha=0.3, categorical_features=None, **some), "value"),
        "tree-several": (dtrees.DecisionTreeRegressor(**some), "values"),
        "tree-classes": (dtrees.DecisionTreeClassifier(**some, **sets), "label"),
        "tree-entropy": (dtrees.DecisionTreeClassifier(criterion="entropy", **some), "flag"),
        "tree-several-classes": (dtrees.DecisionTreeClassifier(**some), "labels"),
        "extra-tree": (dtrees.ExtraTreeRegressor(**some), "value"),
        "extra-tree-classes": (dtrees.ExtraTreeClassifier(**some), "label"),
        "forest": (dtrees.RandomForestRegressor(oob_score=True, max_features=0.5, **few, **sets), "value"),
        "forest-poisson": (dtrees.RandomForestRegressor(criterion="poisson", **few), "amount"),
        "forest-classes": (dtrees.RandomForestClassifier(oob_score=True, class_weight="balanced", **few), "label"),
        "extra-trees": (dtrees.ExtraTreesRegressor(**few), "value"),
        "extra-trees-classes": (dtrees.ExtraTreesClassifier(bootstrap=True, **few), "flag"),
        "boosting": (regressor(**boosting, **sets, subsample=0.7, n_iter_no_change=3), "value"),
        "boosting-default": (regressor(n_estimators=3), "value"),
        "boosting-in-order": (regressor(**boosting, monotonic_cst={"number": 1, "count": -1}), "value"),
        "boosting-quantile": (regressor(loss="quantile", alpha=0.2, **boosting), "value"),
        "boosting-huber": (regressor(loss="huber", **boosting), "value"),
        "boosting-poisson": (regressor(loss="poisson", **boosting), "amount"),
        "boosting-several": (regressor(**boosting), "values"),
        "boosting-flag": (classifier(**boosting, class_weight="balanced"), "flag"),
        "boosting-exponential": (classifier(loss="exponential", **boosting), "flag"),
        "boosting-classes": (classifier(**boosting, **sets), "label"),
        "bag": (dtrees.BaggingRegressor(regressor(**boosting), 2, oob_score=True, random_state=2), "value"),
        "bag-classes": (dtrees.BaggingClassifier(classifier(**boosting), 2, random_state=2), "label"),
    }


def predictions(model: Any) -> dict[str, NDArray[Any]]:
    """Return predictions for the training rows and for others, by method."""
    X = pd.concat([rows(), rows(N_ROWS).assign(word="unseen")], ignore_index=True)
    amounts = getattr(model, "loss", "") == "poisson"
    found = {"predict of amounts" if amounts else "predict": model.predict(X)}
    for method in ("predict_proba", "decision_function", "apply"):
        if hasattr(model, method):
            given = getattr(model, method)(X)
            several = isinstance(given, list)
            found |= {f"{method}.{k}" if several else method: np.asarray(one) for k, one in enumerate(given if several else [given])}
    return found


def main(folder: Path) -> None:
    """Fit all models, and write them and their predictions."""
    folder.mkdir(exist_ok=True)
    found = {}
    for name, (model, target) in models().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(rows(), targets()[target])
        dtrees.save(model, folder / f"{name}.dtrees", mappable=name == MAPPABLE)
        # The dtype of text includes its length, and needs no pickle.
        found |= {f"{name}/{what}": array.astype(str) if array.dtype == object else array for what, array in predictions(model).items()}
    np.savez_compressed(folder / "predictions.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
