"""Every size decision of the split core and of the engine: the sizes from which a method pays, and the numbers of chunks.

None of these numbers changes a model: they decide how long a fit takes and how much memory it needs. (Numbers that do are defined where
they are used, such as the rows of a block of losses.) If a number was measured, the table and the gain are stated, as far as the history
of the code has them; if not, the trade-off is. "100k x 28" is a table of 100,000 rows and 28 columns.
"""

# Rows and columns of a table -------------------------------------------------------------------------------------------------------------

#: Distance in rows of prefetching. The rows of a node are far apart in memory: without prefetching, every row waits for memory.
AHEAD = 16
#: The same for memory that other threads wrote last: fetching it from their caches takes longer.
AHEAD_TO_WRITE = 64
#: The same for the rows of flagged zones if a node's rows are far apart.
FAR_AHEAD = 64
#: Smaller arrays are left to the allocator: mapping one takes as long as writing its bytes. Memory of larger ones returns to the system:
#: an allocator retained 180 bytes a row of them in each thread.
MAPPED_BYTES = 2**18
#: Arrays of at least this size ask for large pages, as NumPy does.
LARGE_PAGES_BYTES = 2**22
#: Bytes of a table on disk that are read before the pages read so far are released: at most a second of a slow disk's work, and a small
#: part of a worker's memory.
DISK_BYTES = 2**25
#: Rows whose slopes are buffered while sums are computed: few enough for the first-level cache. In order and several at once, sums of
#: 20,000 rows take 2 microseconds instead of 23, with hessians 8 instead of 43.
SLOPES_AT_ONCE = 1024

# Sorting and sweeping one column of a node -----------------------------------------------------------------------------------------------

#: The number of columns is padded to a multiple of this, for which loops are vectorised.
VECTOR = 8
#: Up to this many rows are sorted by insertion; the counts of a radix sort take longer.
INSERTION_ROWS = 24
#: In nodes of at least ``PROBED_ROWS`` rows, ``PROBES`` evenly spaced rows are read to find a code that most rows have. If
#: ``EQUAL_PROBES`` of them have the same code, keys with that code are not sorted: forests on sparse columns take half the time.
PROBED_ROWS, PROBES, EQUAL_PROBES = 512, 16, 8
#: If ``DOMINANT_HITS`` probes have the dominant code, and at most one row in ``OTHER_CODES_SHARE`` has another code, only the other rows
#: are listed and swept: four trees of a forest on 100k x 28 sparse columns take 1.6 s instead of 3.5 s, for two classes 1.1 instead of
#: 1.8, for four classes 1.9 instead of 2.7.
DOMINANT_HITS, OTHER_CODES_SHARE = 12, 3
#: Rows of a chunk, which is read twice: for running sums, then for scores, several at a time. Its buffers fit the first-level cache.
CHUNK = 256
#: Most bins of a column, each of one value; columns with more values are sorted if they are not searched by zones.
MOST_BINS = 2**13
#: The rows of a node are summed by category in a dense table of all categories, unless there are this many times as many categories as
#: rows; then they are sorted. Clearing and reading a category of the table takes about as long as sorting a row.
DENSE_CATEGORIES = 4
#: Number of buckets of keys by which categories are counted if only those at both ends have to be ordered, and the ratio of all
#: categories to those needed at an end from which this is done. With 2,000 categories, ordering all took three quarters of a fit.
CATEGORY_BUCKETS, ORDERED_SHARE = 256, 3
#: Up to this many categories are ordered by comparing all pairs.
RANKED_CATEGORIES = 48
#: For nodes of up to this many rows, as soon as a split is found, one more search computes an upper bound of the gain of any split:
#: several columns often reach it, and then the others need not be searched.
BOUNDED_BY_TARGET = 8
#: Gains of this many consecutive splits are bounded together before each is computed.
GAINS_AT_ONCE = 16
#: Steps that the pointer to a median may take in a pass, for each row, before a tree replaces it: only very unequal weights take more.
POINTER_STEPS = 6

# Sparse tables ---------------------------------------------------------------------------------------------------------------------------

#: The stored cells of a node in all columns are listed if they are at most one in this many of the table's. Larger nodes are searched
#: column by column.
LISTED_SHARE = 2
#: Stored cells of a zone of a sparse column, and most such zones of a column.
CELLS_PER_ZONE, MAX_SPARSE_ZONES = 32, 128

#: Fewest stored cells of a sparse table for each column, on average, if nodes are searched by zone sums: otherwise sums take more memory.
SUMMED_CELLS = 16
#: Zones of consecutive columns of a sparse table that are bounded at once.
ZONES_AT_ONCE = 256
#: Nodes are searched by zone sums if they have one stored cell for this many zones.
SPARSE_SUMS_SHARE = 2
#: Listing a cell takes as long as reading this many cells of one column.
LISTED_CELL = 2
#: Stored cells of a tree for each thread that grows it, and chunks for each thread when a node is searched.
SPARSE_THREAD_CELLS, SPARSE_CHUNKS = 2**16, 4

# Zones of a table (zone map) -------------------------------------------------------------------------------------------------------------

#: Most zones of a column, including that of missing values: a zone's number is a byte.
MAX_ZONES = 256
#: Rows of the table for each zone, and the fewest zones. In tables of few rows more zones hardly prune more, and each is bounded.
ROWS_PER_ZONE, FEWEST_ZONES = 320, 32


def flagged_bytes(n_rows: int, n_columns: int) -> int:
    """Return how many bytes of rows in flagged parts may be sent at a time to a shard of ``n_rows`` rows, at 6 bytes a cell."""
    most, least = (6 * n_rows * n_columns // share for share in FLAGGED_SHARES)
    return max(min(most, FLAGGED_BYTES), least, LEAST_FLAGGED_BYTES)


def most_zones(n_rows: int) -> int:
    """Return the largest number of zones of a numeric column, without that of missing values.

    Examples
    --------
    >>> most_zones(1000), most_zones(16_000), most_zones(1_000_000)
    (32, 50, 255)
    """
    return max(FEWEST_ZONES, min(MAX_ZONES - 1, n_rows // ROWS_PER_ZONE))


#: Zones are divided into ``2**FOLD`` parts. In a million rows of noise, such as those of late boosting trees, 255 zones prune nothing,
#: 2,040 parts all but a twentieth, and 4,080 all but a hundredth.
FOLD = 4
#: Nodes are summed by parts of zones such that there is one part for this many of their rows: bounding a part takes about as long as
#: scanning these.
ROWS_PER_PART = 8
#: In tables of up to this many rows, the rows of each column are listed in the order of their values, as long as the table that is
#: indexed by row number stays in the cache. California, 100 trees, 4 threads: 151 to 155 ms instead of 211 to 260.
LIST_ROWS = 2**17
#: Most rows listed at an end of a column of larger tables: most flagged parts of a late tree are there.
LISTED_AT_ENDS = 128
#: Most parts of a column: of all its zones, and those that flagged zones or parts are divided into. Scratch space has this size.
MAX_PARTS = 4096
#: A column's codes are shifted to be fewer than this if parts are looked up by them, so that the tables stay in the cache. The second
#: number is for columns with a frequent value, which has to be separated from its neighbours.
MAX_CELLS, MAX_SINGLE_CELLS = 2**17, 2**20

# Sums by zones ---------------------------------------------------------------------------------------------------------------------------

#: Sums are rescaled if the average size of a row is below ``COARSE`` units, or if the node's sum is more than the share ``ASKEW`` of its
#: size (its target is far from the centre), provided that sizes become at least ``2**SHARPER`` times smaller. Coarser sizes make bounds
#: looser; computing sums again takes a pass over the node's rows.
COARSE, ASKEW, SHARPER = 8, 0.75, 2
#: One column in this many is sampled for the share of flagged rows. Sampling all would take some per cent of the search.
SAMPLED_COLUMNS = 4
#: Fewest rows of a chunk of a sum for each zone, or part: the sums of all chunks have to be added.
ROWS_TO_ADD = 8
#: Clearing, filling and subtracting this many numbers of a slot takes as long as adding the cell of a row to one.
NUMBERS_PER_CELL = 6
#: Rows of a part that flagged zones are divided into before rows are sorted, if the parts are less than half as wide.
ROWS_PER_CUT_PART = 4
#: If rows are spread over shards, flagged parts are divided into finer ones of ``ROWS_PER_FINER_PART`` rows, unless each would give
#: fewer than ``FEWEST_FINER_PARTS``.
ROWS_PER_FINER_PART, FEWEST_FINER_PARTS = 16, 4
#: If rows are spread over shards: reading a row from the list of its part takes as long as comparing ``CODES_FOR_LISTED`` codes of a
#: node, and a row of the node that is found in this list saves the time of comparing ``CODES_FOR_PICKED`` codes.
CODES_FOR_LISTED, CODES_FOR_PICKED = 5.5, 20.0
#: Listing the rows of all columns takes as long as comparing this many codes for each cell. The lists are built once that many codes
#: have been compared.
CODES_FOR_LISTS = 8
#: The places of rows are stored, to look up listed rows, if large nodes (with at least one row in this many) would otherwise compare as
#: many codes as there are rows: storing a place takes about as long as comparing two codes.
LARGE_NODE_SHARE = 16
#: A column takes long to search if more than one in this many of a node's rows are in its flagged zones: others are searched meanwhile.
LONG_SEARCH_SHARE = 8
#: Reading a listed row takes as long as reading one of the node; a row that is picked saves this many of them, as it is already sorted.
LISTED_PER_PICKED = 4
#: One in this many of a table's rows (at least two rows) is stored at most for each column, of those picked in nodes of more than half
#: of the rows: late trees of a million rows are chains of such nodes.
KEPT_SHARE = 32
#: Looking up a listed row takes as long as reading this many rows of the node.
ROWS_TO_FIND = 64
#: If rows are spread over shards: bytes of rows in flagged parts that a shard receives at a time, but at most one for 16 bytes of its own
#: cells, and at least one for 64. In noise most cells of a level are flagged.
FLAGGED_BYTES, FLAGGED_SHARES = 2**23, (16, 64)
#: The least limit: each further batch takes three more steps of all shards. 20k x 28 on two shards takes 0.7 of the time with it.
LEAST_FLAGGED_BYTES = 2**22
#: Rows that are compared with intervals at a time, a multiple of 64; scratch space has flags for more (MAX_PARTS).
COMPARED_ROWS = 2048
#: If more than one in this many of a node's rows lie in the intervals, checking each row exactly is faster.
COVERED_SHARE = 6

# Slots of sums, and levels ---------------------------------------------------------------------------------------------------------------

#: Memory for slots: this many bytes, or this many for each row if that is more, so that sums take about as much as the rows themselves.
SLOTS_MIN_BYTES, SLOTS_BYTES_PER_ROW = 64 * 2**20, 32
#: The same for each stored cell of a sparse table: no more than loading takes.
SLOTS_BYTES_PER_CELL = 24
#: Zone sums cover all columns: in boosting they pay if nodes are searched in at least this share of the columns; in deep trees, in all.
SUMMED_SHARE = 0.06
#: Zones are divided into parts if more than one in ``FLAGGED_SHARE`` rows of the last tree's large nodes were in flagged zones: picking
#: and scanning these takes longer than summing by parts. They are divided into the smallest parts if more than one in
#: ``MUCH_FLAGGED_SHARE`` were, otherwise into parts ``2**COARSER_FOLD`` times as large: sums by 1,020 parts stay in the second-level
#: cache, unlike those by 2,040.
FLAGGED_SHARE, MUCH_FLAGGED_SHARE, COARSER_FOLD = 512, 16, 2
#: Most categories of a column that is summed together with the zones of other columns, and of all such columns together: sums of more
#: would not stay in the cache, and are computed column by column in each node.
SUMMED_CATEGORIES, ALL_SUMMED_CATEGORIES = 4095, 2**17
#: Most elements of columns of categories that are joined with each other; the second number is for tables with too few rows for the
#: first. Boosting takes 0.87 to 0.90 of the time on 100,000 x 10 columns of 20 categories, joined in pairs, and 0.83 on columns of 5,
#: joined in threes.
MOST_JOINED = 512, 64
#: Most elements of all joined columns, which should stay in the cache; fewest rows of a table for each element; fewest rows of a sum by
#: them.
ALL_JOINED, ROWS_PER_JOINED, ROWS_PER_JOINED_SUM = 2**14, 8, 1
#: Columns are joined if that removes at least the share ``JOINED_SAVES`` of them, and at least ``SAVES_PASS`` columns if there are
#: others: one more pass over the rows takes as long as adding that many cells. Sums of columns of 100 categories, which are not joined,
#: take as long as sums column by column.
JOINED_SAVES, SAVES_PASS = 1 / 3, 4
#: Joined elements take memory in every slot: with fewer slots than this, columns are not joined.
JOINED_SLOTS = 1024
#: Below this many rows, bounding zones takes longer than it saves.
BOUNDED_ROWS = 128
#: Slots for each thread that grows subtrees: a waiting node without one is summed again. The second number is for slots that hold all
#: parts. If leaves are limited, there is one for each split: on one thread, Adult by defaults takes 0.75 of the time without, 31 leaves
#: at 100k x 28 0.91, 255 leaves at 500k x 28 0.85.
SLOTS_PER_THREAD, FINE_SLOTS_PER_THREAD = 16, 8
#: Building the zone map of a table of fewer cells takes less time than starting threads.
SERIAL_MAP_CELLS = 100_000

# Subtrees --------------------------------------------------------------------------------------------------------------------------------

#: Most rows of a node that is searched unsorted, all columns side by side: a sort and a sweep for each column take longer.
TINY_ROWS = 16
#: The same for order statistics, for which following quantiles row by row takes longer than sorting.
TINY_RANKED_ROWS = 48
#: In-sample rows of a block, and the most for few columns, as long as there are at most ``BLOCK_CELLS`` cells. A block should stay in
#: the cache. Larger blocks, together with other changes, made a forest for regression on 100k x 28 a sixth faster, one for
#: classification a seventh.
BLOCK_ROWS, MOST_BLOCK_ROWS, BLOCK_CELLS = 4096, 2**14, 2**19
#: Rows of a block whose values are read at once, column by column, and prefetched: their cells, of 8 bytes, stay in the first-level
#: cache. Extra-trees on 100k x 28 take 0.9 of the time with 128 rows and no prefetching, with a third of the columns 0.85.
ROWS_AT_ONCE = 64
#: In a node of a block, up to this many rows out of sample are divided by their values. For more, the code of the threshold is looked up
#: first, which takes as long as reading the values of some 20. Boosting of 5 % of the rows takes 0.90 of the time of looking up codes in
#: every node, a forest scored out of bag 0.96.
COMPARED_OUTSIDE = 32
#: A table of up to this many cells, and BLOCK_ROWS rows, is grown whole in a block: a level's messages take longer than all its sums.
WHOLE_BLOCK_CELLS = 2**17
#: Most chunks of a step that threads share, most nodes that they share (further nodes are grown by one thread each), and fewest rows of
#: a chunk. Growing in one kernel, by threads that share large nodes, takes 9 ms instead of 19 for a tree of 100k x 28 (4 threads), 22
#: instead of 27 (1 thread).
CHUNKS, SHARED_NODES, CHUNK_ROWS = 32, 512, 4096
#: Fewest numbers of a slot in a chunk.
CHUNK_NUMBERS = 2**12
#: Fewest rows for each thread that subtracts a slot.
TAKEN_ROWS = 32
#: Nodes of a tree that are left for each thread, enough for all to finish together. Nodes of up to ``SHARE_ROWS`` rows are never shared.
NODES_PER_THREAD, SHARE_ROWS = 3, 2048
#: Cells of subtrees for each thread that grows them; the second number is for searches by zone sums.
GROW_CELLS, GROW_CELLS_BY_SUMS = 32_768, 2**15
#: Most splits of a tree of limited leaves that are stored in order. Of more, only the least gain on the path to each is: inserting one
#: of 10,000 in order takes as long as searching its node. In late trees of 31 leaves, boosting on 24,000 x 23, the order takes 7 ms
#: instead of 55.
MOST_RANKED = 1024
#: A buffer for more nodes is not retained from tree to tree: it would exist together with the finished tree.
MOST_NODES_KEPT = 2**18

# Threads of a shard ----------------------------------------------------------------------------------------------------------------------

#: Rows to be marked or divided for each thread: starting a thread from Python takes as long as this many.
THREAD_ROWS = 32_768
#: Fewest bytes of route bits that are computed in one chunk.
ROUTE_BYTES = 1024
#: Nodes of at least this many rows are divided by several threads, by way of the spare partition, which takes a copy.
SPREAD_ROWS = 65_536
#: Fewest in-sample rows for each thread that puts their numbers in order.
GATHERED_ROWS = 2**17
#: Fewest rows for each thread: for about one addition a row, and for logarithms. Threads that computed losses of 8,192 rows at a time
#: waited for the interpreter's lock: 6 ms a tree of a million rows, now 1.
ADDITION_ROWS, LOGARITHM_ROWS = 2**17, 2**15
#: Fewest rows of a search task, over all its nodes and columns.
SEARCH_TASK_ROWS = 8192
#: In tables of up to this many cells, threads would wait for the interpreter's lock longer than it takes to grow the trees of a forest.
SERIAL_FOREST_CELLS = 2048
#: Trees of tables of up to this many cells are grown in one block while a helper compiles other kernels.
PLAIN_CELLS = 2**21

# Exchanges with shards -------------------------------------------------------------------------------------------------------------------

#: Cells that shards share in an exchange, for all trees under way together; it limits the size of a message.
SHARED_CELLS = 2**20
#: A node is delegated to one shard if it has at most the table's rows divided by this and by the number of shards: enough nodes for all
#: shards to have work.
DELEGATED_PARTS = 4
#: Columns of a tree for each shard: with more, sending all columns takes longer than exchanging the splits of a node.
DELEGATED_COLUMNS = 32
#: Memory of the trees under way on a shard: bytes for each row, or in total if that is more, which is about the memory of a worker's
#: process without data. Trees grown to their ends on a large table take more: then there is one at a time.
FOREST_BYTES_PER_ROW, FOREST_MIN_BYTES = 64, 128 * 2**20
#: With more trees, an exchange hardly gets cheaper for each.
MOST_TREES_SIDE_BY_SIDE = 64
#: Trees of the first batch of a forest with checkpoints, and the largest ratio of the size of a batch to the one before.
FIRST_BATCH_TREES, BATCH_GROWTH = 16, 4
