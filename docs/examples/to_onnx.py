"""A model with categories as an ONNX file, run by ONNX Runtime: ``python to_onnx.py adult_train.csv adult_test.csv``.

It needs ``pip install 'dask-dtrees[export]' onnxruntime``. The table is UCI's "Adult" (Kohavi 1996), with text columns and missing
values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd

import dtrees


def main(train: str, test: str) -> None:
    """Fit, export, and compare predictions of new rows."""
    rows, new = pd.read_csv(train), pd.read_csv(test)
    X, y = rows.drop(columns="income"), rows["income"]
    X_new = new.drop(columns="income")
    model = dtrees.GradientBoostingClassifier(n_estimators=100, learning_rate=0.1, n_jobs=-1, random_state=0).fit(X, y)

    onnx.save(dtrees.to_onnx(model), "income.onnx")
    print(f"{Path('income.onnx').stat().st_size / 1e6:.1f} MB")

    # ``to_numbers`` replaces categories by their numbers. The file lists them, so another program can do the same without dtrees.
    session = onnxruntime.InferenceSession("income.onnx")
    metadata = session.get_modelmeta().custom_metadata_map
    categories = dict(zip(json.loads(metadata["columns"]), json.loads(metadata["categories"]), strict=True))
    print("sex is one of", categories["sex"])
    labels, probabilities = session.run(None, {"X": dtrees.to_numbers(model, X_new)})
    print("the same labels:", np.array_equal(labels, model.predict(X_new)))
    print(f"probabilities differ by at most {np.abs(probabilities - model.predict_proba(X_new)).max():.0e}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
