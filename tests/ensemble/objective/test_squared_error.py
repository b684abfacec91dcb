from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import mean_squared_error

from dtrees.ensemble.objective.regression import SquaredError
from tests.ensemble.objective.samples import pointwise, sample


def test_squared_error_is_sklearns():
    target, raw, _ = sample(SquaredError(), 0)
    assert pointwise(SquaredError(), target, raw).mean() == pytest.approx(mean_squared_error(target, raw[0]), rel=1e-14)


def test_the_mean_is_compensated():
    target = np.array([1e16, 1.0, -1e16, 1.0] * 1000)
    assert SquaredError().initial(target, None)[0] == 0.5
