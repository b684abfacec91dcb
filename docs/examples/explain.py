"""Importances, Shapley values and a report of a model of incomes: ``python explain.py adult_train.csv adult_test.csv``.

The table is UCI's "Adult" (Kohavi 1996). Plots and the report need matplotlib: ``pip install 'dask-dtrees[plot]'``.
"""

from __future__ import annotations

import sys

import pandas as pd
from sklearn.inspection import permutation_importance

import dtrees


def main(train: str, test: str) -> None:
    """Explain a model, and one of its predictions."""
    rows, new = pd.read_csv(train).sample(8000, random_state=0), pd.read_csv(test).sample(2000, random_state=0)
    X, y, X_new, y_new = rows.drop(columns="income"), rows["income"], new.drop(columns="income"), new["income"]
    model = dtrees.GradientBoostingClassifier(n_estimators=100, n_jobs=-1, random_state=0).fit(X, y)

    importances = permutation_importance(model, X_new, y_new, n_repeats=3, random_state=0).importances_mean
    both = pd.DataFrame({"gain": model.feature_importances_, "permutation": importances}, index=X.columns)
    print(both.sort_values("permutation", ascending=False).head(5).round(3))

    values = model.shap_values(X_new[:1])[0]  # they add up to the log odds, with the expected value
    print(f"log odds {model.decision_function(X_new[:1])[0]:.3f} = {model.shap_expected_value():.3f} + {values.sum():.3f}")
    for j in abs(values).argsort()[::-1][:3]:
        print(f"  {X.columns[j]} = {X_new.iloc[0, j]}: {values[j]:+.3f}")
    dtrees.plot_partial_dependence(model, X_new, ["age", "education"])[0].figure.savefig("dependence.png")
    dtrees.report(model, X_new, y_new, "report.html", rows="held out")
    print("written: dependence.png, report.html")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
