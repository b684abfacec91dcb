"""The stored cells of a node, found in every way, against the table itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtrees.split.compile.kernels import kernel
from dtrees.split.node.partition import NOWHERE
from dtrees.split.search.sparse import (
    any_varies,
    find_cells,
    forget_cells,
    list_cells,
    lists_all,
    make_cell_room,
    may_list_all,
)
from tests.split.tables import random_table, sparse_of


@kernel
def listed(columns, rows, room):  # type: ignore[no-untyped-def]
    n_present = list_cells(columns, rows, room)
    return n_present, any_varies(room, n_present, rows.shape[0])


@kernel
def found(columns, column, rows, first, room):  # type: ignore[no-untyped-def]
    return find_cells(columns, column, rows, first, room)


@kernel
def forget(room, n_present):  # type: ignore[no-untyped-def]
    forget_cells(room, n_present)


@kernel
def choices(columns, rows, n_drawn, room):  # type: ignore[no-untyped-def]
    return lists_all(columns, rows, n_drawn, room), may_list_all(columns, rows, room)


@given(st.integers(1, 60), st.integers(1, 6), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(0, 10**6))
def test_cells_of_a_node(n_rows: int, n_columns: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_table(n_rows, n_columns, density, seed)
    columns = sparse_of(X)
    rows = np.sort(rng.permutation(n_rows)[: rng.integers(1, n_rows + 1)]).astype(np.uint32)
    first = int(rng.integers(0, 5))
    used = rng.random(n_columns) < 0.8
    room = make_cell_room(columns, dense=False)
    room.place_of[:] = NOWHERE
    room.place_of[rows] = first + np.arange(len(rows))
    room.n_listed[~used] = -1

    def cells(keys: np.ndarray) -> list[tuple[int, int]]:
        return sorted((int(key) & 0xFFFFFFFF, int(key) >> 32) for key in keys)

    wanted = []
    for j in range(n_columns):
        mine = slice(columns.starts[j], columns.starts[j + 1])
        code_of = dict(zip(columns.rows[mine].tolist(), columns.codes[mine].tolist(), strict=True))
        wanted.append([(place, code_of[row]) for place, row in enumerate(rows.tolist()) if row in code_of])
        assert cells(room.keys[: found(columns, j, rows, first, room)]) == wanted[j]
    _, may = choices(columns, rows, n_columns, room)
    if may:
        n_present, varies = listed(columns, rows, room)
        assert sorted(room.present[:n_present].tolist()) == [j for j in range(n_columns) if used[j] and wanted[j]]
        for j in room.present[:n_present].tolist():
            assert cells(room.keys[room.end[j] - room.n_listed[j] : room.end[j]]) == wanted[j]
        taken = [{np.nan if x != x else x for x in X[rows, j].tolist()} for j in np.flatnonzero(used)]
        assert varies == any(len(values) > 1 for values in taken)
        forget(room, n_present)
    assert room.n_listed.tolist() == np.where(used, 0, -1).tolist()


def test_what_costs_less() -> None:
    X = np.zeros((4000, 100))
    X[np.arange(4000), np.arange(4000) % 100] = 1.0
    columns = sparse_of(X)
    room = make_cell_room(columns, dense=False)
    few, all_rows = np.arange(3, dtype=np.uint32), np.arange(4000, dtype=np.uint32)
    assert choices(columns, few, 100, room) == (True, True)
    assert choices(columns, all_rows[:30], 1, room) == (False, True)
    assert choices(columns, all_rows, 100, room) == (False, False)
