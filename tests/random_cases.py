"""Estimators, parameters and small tables drawn at random, for :mod:`tests.differential`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import dtrees
from tests.ensemble.test_pairs_of_parameters import options

NUMBERS = ("numbers", "ties", "constant", "neighbours", "huge", "tiny", "skewed", "zeros", "gaps", "missing")
OF_FRAMES = ("single", "flag", "text", "levels")
WEIGHTS = ("", "", "counts", "shares", "wide")
VALUES = ("plain", "plain", "ties", "large", "small", "amounts", "even", "several")
LABELS = ("two", "two", "three", "words", "rare", "one", "several classes")
N_ROWS = (1, 2, 3, 10, 30, 30, 100, 100, 100, 400)
KINDS = sorted(name for name in dtrees.__all__ if name.endswith(("Regressor", "Classifier")))
#: Estimators whose kernels other tests compile, too, and parameters that need kernels of their own.
FEW_KINDS = ("RandomForestClassifier", "GradientBoostingRegressor", "GradientBoostingClassifier", "BaggingRegressor")
OWN_KERNELS = {"reg_alpha", "monotonic_cst", "interaction_cst", "entropy", "poisson", "several", "several classes", "text", "levels"}


@dataclass(frozen=True)
class Case:
    """An estimator and a table, which are determined by these fields."""

    kind: str
    parameters: dict[str, Any]
    columns: tuple[str, ...]
    target: str
    weights: str = ""
    n_rows: int = 100
    seed: int = 0

    def random(self, *what: int) -> np.random.Generator:
        """Return a random generator for one part of the table, independent of the others."""
        return np.random.default_rng([self.seed, *what])

    def estimator(self) -> Any:
        """Return the unfitted estimator."""
        model = getattr(dtrees, self.kind)()
        if hasattr(model, "estimator"):
            model.estimator = getattr(dtrees, self.kind.replace("Bagging", "GradientBoosting"))()
        if hasattr(model, "warm_start"):
            model.warm_start = True
        return model.set_params(**self.parameters)

    def table(self) -> Any:
        """Return X, as an array if that can hold the columns, otherwise as a frame."""
        made = {f"{kind}_{j}": _column(kind, self.n_rows, self.random(1, j)) for j, kind in enumerate(self.columns)}
        return pd.DataFrame(made) if {*OF_FRAMES} & {*self.columns} else np.column_stack(list(made.values()))

    def y(self) -> Any:
        """Return the target, which depends on the first two columns and noise."""
        random, X = self.random(2), pd.DataFrame(self.table())
        value = random.normal(size=self.n_rows)
        for j in range(min(2, X.shape[1])):
            codes = pd.factorize(X.iloc[:, j], sort=True)[0]
            value += 2.0 * codes / max(codes.max(), 1)
        label = np.digitize(value, [1.0, 2.0])
        return {
            "plain": value,
            "ties": value.round(),
            "large": value * 1e12,
            "small": value * 1e-12,
            "amounts": np.abs(value).round() + ("gamma" in self.parameters.values()),
            "even": np.full(self.n_rows, 0.1),
            "several": np.column_stack([value, value.round(), random.normal(size=self.n_rows)]),
            "two": np.minimum(label, 1),
            "three": label,
            "words": np.array(["low", "middle", "top"])[label],
            "rare": np.where(np.arange(self.n_rows) == 0, 7, np.minimum(label, 1)),
            "one": np.zeros(self.n_rows, int),
            "several classes": np.column_stack([label, value > 0]),
        }[self.target]

    def weight(self) -> Any:
        """Return the weights of rows, including zeros, or None."""
        random, n = self.random(3), self.n_rows
        shares = random.random(n) * (random.random(n) < 0.8)
        wide = np.where(shares, 10.0 ** random.uniform(-3, 30, n), 0.0)
        return {"counts": random.integers(0, 4, n) * 1.0, "shares": shares, "wide": wide}.get(self.weights)

    def data(self) -> tuple[Any, ...]:
        """Return X, the target and the weights: all arrays, or all frames and series."""
        X, *others = self.table(), self.y(), self.weight()
        if isinstance(X, pd.DataFrame):
            others = [None if one is None else pd.DataFrame(one).squeeze(axis=1) for one in others]
        return X, *others


def _column(kind: str, n: int, random: np.random.Generator) -> Any:
    numbers, few = random.normal(size=n), random.integers(0, 5, n)
    return {
        "numbers": numbers,
        "ties": few.astype(float),
        "constant": np.full(n, 1.5),
        "neighbours": 1.0 + few * np.spacing(1.0),
        "huge": numbers * 1e307,
        "tiny": few * 5e-324,
        "skewed": np.exp(numbers * 30),
        "zeros": np.where(few < 4, 0.0 * np.sign(numbers), numbers),
        "gaps": np.where(few == 0, np.nan, numbers),
        "missing": np.where(np.arange(n) == n // 2, 1.0, np.nan),
        "single": numbers.astype(np.float32),
        "flag": few < 2,
        "text": np.array(["ash", "elm", "fir", "oak", None], dtype=object)[few],
        "levels": pd.Categorical.from_codes(random.integers(-1, 12, n), [f"level {k}" for k in range(12)]),
    }[kind]


def draw(seed: int, number: int, few_kernels: bool = False) -> Case:
    """Return one case of a seed; with ``few_kernels``, one that only needs the kernels of :data:`FEW_KINDS`."""
    random = np.random.default_rng([seed, number])
    left_out = OWN_KERNELS if few_kernels else set()

    def one_of(values: Any) -> Any:
        values = [value for value in values if value not in left_out]
        return values[random.integers(len(values))]

    kind = one_of(FEW_KINDS if few_kernels else KINDS)
    member = getattr(dtrees, kind.replace("Bagging", "GradientBoosting"))
    known = [one for one in options(member) if not {one[0], str(one[1])} & left_out]
    parameters = dict(known[i] for i in random.choice(len(known), random.integers(5), replace=False))
    names = one_of((NUMBERS, NUMBERS + OF_FRAMES))
    columns = tuple(one_of(names) for _ in range(random.integers(1, 9)))
    if "monotonic_cst" in parameters:
        parameters["monotonic_cst"] = [int(random.integers(-1, 2)) for _ in columns]
    if hasattr(member(), "n_estimators"):
        parameters["n_estimators"] = int(random.integers(2, 7))
    amounts = {"poisson", "gamma", "tweedie"} & {str(value) for value in parameters.values()}
    if kind.startswith("Bagging"):
        parameters = {f"estimator__{name}": value for name, value in parameters.items()} | {"n_estimators": 2}
        parameters |= {"oob_score": True} if random.random() < 0.5 else {}
    return Case(
        kind,
        parameters | {"random_state": int(random.integers(100))},
        columns,
        "amounts" if amounts else one_of(LABELS if kind.endswith("Classifier") else VALUES),
        one_of(WEIGHTS),
        one_of(N_ROWS),
        int(random.integers(10**6)),
    )
