"""Zones of sparse columns, compared with their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dtrees.split.table import sparse_zones
from dtrees.split.table.sparse_columns import presort_sparse
from dtrees.split.table.sparse_zones import find_zones
from tests.examples import examples


@given(st.integers(1, 60), st.integers(1, 5), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(1, 12), st.integers(0, 10**6))
@examples(200)
def test_zones(n_rows: int, n_columns: int, density: float, cells: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-4, 5, (n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < density) * 1.0
    X[rng.random(X.shape) < 0.1] = np.nan
    table = sparse.csc_array(X)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_zones, "CELLS_PER_ZONE", cells)
        zones = find_zones(presort_sparse(table.data, table.indices, table.indptr, n_rows))
    assert zones.which.tolist() == list(range(n_columns))
    assert not zones.by_category.any()
    elements = np.full(X.shape, -1)
    elements[sparse.csr_array(X).nonzero()] = zones.elements
    for j, column in enumerate(X.T):
        first, n_zones, present = zones.begins[j], zones.n_zones[j], column[~np.isnan(column)]
        assert zones.begins[j + 1] == first + n_zones + 1
        assert (elements[np.isnan(column), j] == first + n_zones).all()
        values = [present[(present != 0) & (elements[~np.isnan(column), j] == first + z)] for z in range(n_zones)]
        if zones.zero_zone[j] >= 0:
            assert not values[zones.zero_zone[j]].size
            values[zones.zero_zone[j]] = np.zeros(1)
        assert (0 in present) == (zones.zero_zone[j] >= 0)
        distinct = [np.unique(some) for some in values]
        assert np.concatenate([*distinct, np.empty(0)]).tolist() == np.unique(present).tolist()  # consecutive values, ascending
        assert zones.alone[first : first + n_zones].tolist() == [len(some) == 1 for some in distinct]
        assert all(len(some) <= cells for some, own in zip(values, distinct, strict=True) if len(own) > 1)
