"""Every dependency has bounds, and the jobs for the newest and lowest versions know them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "requirements.py"
RECIPE = ROOT / ".ci" / "conda" / "meta.yaml"


@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
@pytest.mark.parametrize(("which", "relation"), [("newest", ">="), ("lowest", "==")])
def test_versions(which: str, relation: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, which], capture_output=True, text=True, check=True, timeout=60)
    requirements = done.stdout.split()
    assert {"numba", "scikit-learn", "distributed", "pytest"} <= {line.partition(relation)[0] for line in requirements}
    assert not any("<" in line for line in requirements)


@pytest.mark.skipif(not RECIPE.exists(), reason="only in a checkout")
def test_the_conda_recipe_wants_the_same_versions() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    run = RECIPE.read_text(encoding="utf-8").partition("  run:\n")[2].partition("\n\n")[0]
    wanted = re.findall(r"^    - (\S+) (\S+)$", run, re.MULTILINE)
    assert wanted == [("python", ">=3.11"), *(re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.+)", one).groups() for one in dependencies)]
