"""Model files that are changed at random are refused by the one documented error, or are sound models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed_model_files import try_files
from tests.slow import slow_for

#: Files of one test.
BATCH = 100
#: So many tests are without models of several targets and by quantile, whose kernels take long to compile; the first of them is quick.
QUICK = 3


@pytest.mark.parametrize("batch", slow_for(range(1, 10), range(10)))
def test_changed_files_are_refused_or_sound(batch: int, tmp_path: Path) -> None:
    """The rest of the 20,000 are tried by ``python -m tests.changed_model_files``."""
    found = try_files(batch * BATCH, BATCH, tmp_path, rare=batch >= QUICK)
    assert found["refused"] > BATCH // 2
    assert found["loaded, another sound model"] > 0
