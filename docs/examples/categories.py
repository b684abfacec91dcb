"""Text columns split by subsets of categories: ``python categories.py adult_train.csv adult_test.csv``.

The table is UCI's "Adult" (Kohavi 1996), with eight text columns of up to 42 categories, and missing values.
"""

from __future__ import annotations

import sys

import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import dtrees


def main(train: str, test: str) -> None:
    """Compare subsets of categories with one-hot encoding."""
    rows, new = pd.read_csv(train), pd.read_csv(test)
    X, y = rows.drop(columns="income"), rows["income"]
    X_new, y_new = new.drop(columns="income"), new["income"]

    model = dtrees.GradientBoostingClassifier(n_estimators=150, learning_rate=0.1, n_jobs=-1, random_state=0)
    print(f"subsets of categories: accuracy {model.fit(X, y).score(X_new, y_new):.4f}")
    print("columns of categories:", ", ".join(X.columns[model.is_categorical_]))
    print(dtrees.export_text(model.estimators_[0, 0], max_depth=1, max_categories=4))

    # One-hot encoding makes a column of 0 and 1 for each category. dtrees fits the sparse table directly.
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")), remainder="passthrough"
    )
    print(f"one-hot encoding: accuracy {make_pipeline(encoder, model).fit(X, y).score(X_new, y_new):.4f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
