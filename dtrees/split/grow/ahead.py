"""What a helper process compiles while this one compiles the rest of what grows trees."""

from __future__ import annotations

from typing import Any

from numba import typeof, types

from dtrees.split.compile.helper import compile_elsewhere, compile_kernel
from dtrees.split.compile.kernels import is_bound, is_compiled
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.grow.parallel_subtree import do_piece, grow_together
from dtrees.split.grow.subtree import Task
from dtrees.split.grow.work_pool import WorkPool
from dtrees.split.node.limits import BestThreshold
from dtrees.split.search.column import search_by_sums
from dtrees.split.table.columns import Columns


def kernels_apart(columns: Columns, work_pool: WorkPool, task: Task) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return long kernels that :func:`~dtrees.split.grow.parallel_subtree.grow_together` calls late, and the types of their arguments."""
    number = types.int64
    found: list[tuple[Any, tuple[Any, ...]]] = []
    if task.sum_slots is not None:
        found.append((do_piece, (*map(typeof, (task.sum_slots, columns, work_pool, task)), number, number, number)))
    elif isinstance(task.limits.thresholds, BestThreshold) and not isinstance(task.limits.criterion, Deviations):
        column = typeof(columns.codes[0]), typeof(columns.values[:0])
        node = typeof(task.partition), number, number, typeof(work_pool.sums[0]), typeof(task.limits)
        found.append((search_by_sums, (*column, *node, types.float64, typeof(task.scratch))))
    return found


def compile_apart(columns: Columns, work_pool: WorkPool, task: Task) -> None:
    """Have the helper compile :func:`kernels_apart`, unless they are compiled; before the kernel that calls them is bound."""
    if is_bound(grow_together, columns, work_pool, task):
        return
    for kernel, argument_types in kernels_apart(columns, work_pool, task):
        if not is_compiled(kernel, argument_types):
            compile_elsewhere(compile_kernel, kernel.__module__, kernel.__name__, argument_types)
