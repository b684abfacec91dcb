"""The threads and buffers that grow subtrees of sparse tables on a shard.

One thread grows a tree, or several if every node is searched in all columns: they share large nodes as those of dense tables do.
"""

from __future__ import annotations

from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.runner import Assignment, Runner, TreeContext, make_task, rows_to_share, size_of_task
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import bind
from dtrees.split.grow.by_criterion import METHODS
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.grow.subtree import Task
from dtrees.split.grow.work_pool import WorkPool, begin, grown, make_work_pool, opening
from dtrees.split.node.limits import limits_for_thread, most_nodes
from dtrees.split.node.partition import NOWHERE
from dtrees.split.node.records import Nodes
from dtrees.split.policy import SPARSE_SUMS_SHARE, SPARSE_THREAD_CELLS
from dtrees.split.search.sparse import CellBuffer, make_cell_buffer
from dtrees.split.table.sparse_columns import AnyColumns, SparseColumns
from dtrees.split.table.sparse_zones import no_zones
from dtrees.split.zones.sum_slots import SumSlots, for_thread, no_sum_slots
from dtrees.split.zones.sums import note_places

_NO_SUM_SLOTS = no_sum_slots(no_zones())


class SparseRunner(Runner):
    """Threads that grow subtrees of a sparse table."""

    def __init__(self, columns: SparseColumns, threads: Threads, by_turns: bool = False) -> None:
        super().__init__(columns, threads, by_turns)
        self._columns = columns

    def forget(self) -> None:
        """Free scratch space, and the buffers that refer to it."""
        super().forget()
        self._buffers: list[CellBuffer] = []

    def grow(self, n_threads: int, assignment: Assignment) -> list[Nodes]:
        """Grow nodes to their ends by a suitable number of threads; see :meth:`Runner.grow`."""
        context, places = assignment.context, assignment.roots.places
        n_threads = self._threads_for(context)
        self._scratch_up_to(n_threads - 1, 0)
        sum_slots = _NO_SUM_SLOTS if assignment.sum_slots is None else assignment.sum_slots(n_threads)
        fewest, buffers = self._fewest_rows(sum_slots), self._buffers_for(n_threads, context)
        work_pool = self._work_pool(assignment, n_threads, fewest)
        tasks = [self._task(assignment, work_pool, thread, buffer, sum_slots, fewest) for thread, buffer in enumerate(buffers)]
        for start, _, stop, _ in places:
            note_places(buffers[0].place_of, context.partition.rows, start, stop)
        kernel = bind(grow_together, self._columns, work_pool, tasks[0])
        self._run(assignment, lambda thread: kernel(self._columns, work_pool, tasks[thread]), n_threads, work_pool.control)
        return [grown(work_pool, i, copy=True) for i in range(len(places))]

    def _work_pool(self, assignment: Assignment, n_threads: int, fewest: int) -> WorkPool:
        """Return the work of growing nodes; those of up to ``fewest`` rows are not shared among threads."""
        context, roots = assignment.context, assignment.roots
        sizes = [in_stop - start for start, in_stop, _, _ in roots.places]
        share_rows = max(rows_to_share(max(sizes), n_threads), fewest)
        n_nodes = [most_nodes.py_func(context.stops, context.limits, n, root[3]) for n, root in zip(sizes, roots.places, strict=True)]
        most_shared = sum(sizes) // max(1, share_rows) + 1 if max(sizes) > share_rows else 0
        last, n_sums = max(stop for _, _, stop, _ in roots.places) if most_shared else 0, roots.sums.shape[1]
        work_pool = make_work_pool(len(sizes), most_shared, last, sum(n_nodes), n_sums, n_sums)
        return begin(work_pool, opening(work_pool, roots.places, n_nodes), roots, share_rows, n_threads)

    def _threads_for(self, context: TreeContext) -> int:
        """Return the number of threads to grow a tree: one, if columns are drawn for each node."""
        if context.stops.max_features < context.pool.shape[0]:
            return 1
        return min(self.threads.n_threads, 1 + self._columns.rows.shape[0] // SPARSE_THREAD_CELLS)

    def _fewest_rows(self, sum_slots: SumSlots) -> int:
        """Return the largest number of rows of a node that is not searched by zone sums."""
        if not sum_slots.sums.slots.shape[0]:
            return -1
        n_elements, n_cells = sum_slots.sums.starts[0, -1] // sum_slots.sums.width, max(1, self._columns.rows.shape[0])
        return int(n_elements) * self._columns.n_rows // (SPARSE_SUMS_SHARE * n_cells)

    def _buffers_for(self, n: int, context: TreeContext) -> list[CellBuffer]:
        """Return each thread's buffer for finding the cells of nodes; the places of rows are shared."""
        dense = self._scratch[0].line_up is not None
        while len(self._buffers) < n:
            buffer = make_cell_buffer(self._columns, dense, self._buffers[0].place_of if self._buffers else None)
            self._buffers.append(buffer)
        place_of = self._buffers[0].place_of
        if context.partition.rows.shape[0] < place_of.shape[0]:
            place_of.fill(NOWHERE)
        for buffer in self._buffers[:n]:
            buffer.n_listed.fill(-1)
            buffer.n_listed[context.pool] = 0
        return self._buffers[:n]

    def _task(self, assignment: Assignment, work_pool: WorkPool, thread: int, buffer: CellBuffer, sum_slots: SumSlots, fewest: int) -> Task:
        """Return the task of a thread that grows nodes."""
        context, roots = assignment.context._replace(limits=limits_for_thread(assignment.context.limits)), assignment.roots
        size, scratch = size_of_task(context, roots.places), self._scratch[thread]
        task = make_task(context, size, roots.sums.shape[1], scratch, sum_slots, buffer=buffer)
        if sum_slots is not _NO_SUM_SLOTS:
            sum_slots = for_thread(sum_slots, task.stack.path.shape[0])
        task = task._replace(sum_slots=sum_slots._replace(sums=sum_slots.sums._replace(place_of=buffer.place_of)), block_rows=fewest)
        methods = METHODS.of(task, "limits", columns=self._columns, work_pool=work_pool)
        methods.write(task.limits.hidden, task.limits.memory)
        return task._replace(methods=methods.addresses)


def make_runner(columns: AnyColumns, threads: Threads, by_turns: bool = False) -> Runner:
    """Return a runner for the kind of table."""
    return SparseRunner(columns, threads, by_turns) if isinstance(columns, SparseColumns) else SubtreeRunner(columns, threads, by_turns)
