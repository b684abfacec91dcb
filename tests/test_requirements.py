"""Every dependency has bounds, and the jobs for the newest and lowest versions know them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "requirements.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
@pytest.mark.parametrize(("which", "relation"), [("newest", ">="), ("lowest", "==")])
def test_versions(which: str, relation: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, which], capture_output=True, text=True, check=True, timeout=60)
    requirements = done.stdout.split()
    assert {"numba", "scikit-learn", "distributed", "pytest"} <= {line.partition(relation)[0] for line in requirements}
    assert not any("<" in line for line in requirements)
