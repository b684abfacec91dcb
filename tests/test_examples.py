"""The scripts of docs/examples run on the real data, and print what they promise."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import real_data

ROOT = Path(__file__).parents[1]
EXAMPLES = {
    "laptop": (["california_housing.csv"], "the loaded model predicts the same: True"),
    "categories": (["adult_train.csv", "adult_test.csv"], "sets of categories: accuracy 0.87"),
    "to_onnx": (["adult_train.csv", "adult_test.csv"], "the same labels: True"),
    "submit_and_watch": (["california_housing.csv"], "100 trees"),
    "lost_worker": (["adult_train.csv"], "the same model: True"),
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in (ROOT / "docs" / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_without_its_files_says_how_to_run_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "to_onnx":
        pytest.importorskip("onnxruntime")
    path = ROOT / "docs" / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path)])
    with pytest.raises(SystemExit, match=rf"``python {name}\.py {' '.join(EXAMPLES[name][0])}``"):
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tmp_path: Path) -> None:
    files, said = EXAMPLES[name]
    if name == "to_onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    command = [sys.executable, ROOT / "docs" / "examples" / f"{name}.py", *(real_data(file) for file in files)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
