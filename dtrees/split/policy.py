"""Every size decision of the split core and of the engine: from how many rows on something pays, into how many chunks work is cut.

None of these numbers changes a model: they decide how long a fit takes and how much memory it needs. (Numbers that do are where they are
used, such as the rows of a block of losses.) Where a number was measured, the table and the gain are named, as far as the history of the
code tells them; where it was not, what it trades off is. "100k x 28" is a table of 100,000 rows and 28 columns.
"""

# Rows and columns of a table -------------------------------------------------------------------------------------------------------------

#: Rows ahead of the one in turn that memory is asked for. Rows of a node are far from each other: without, every row waits for memory.
AHEAD = 16
#: The same for what is to be written where other threads wrote last: to get it from their caches takes longer.
AHEAD_TO_WRITE = 64
#: The same for the rows of flagged zones where a node's rows are far from each other.
FAR_AHEAD = 64
#: Smaller arrays are left to the allocator: to map one takes as long as to write so many bytes. Larger ones go back to the system: an
#: allocator kept 180 bytes a row of them in each thread.
MAPPED_BYTES = 2**18
#: From so many bytes on, large pages are asked for, as NumPy does.
LARGE_PAGES_BYTES = 2**22
#: Bytes of a table on disk that are read before what has been read is forgotten: a second of a slow disk's work or less, and little of a
#: worker's memory.
DISK_BYTES = 2**25
#: Rows whose slopes are kept at once while sums are added up: few enough for the first cache. In order and several at once, sums of 20,000
#: rows take 2 microseconds instead of 23, with hessians 8 instead of 43.
SLOPES_AT_ONCE = 1024

# Sorting and sweeping one column of a node -----------------------------------------------------------------------------------------------

#: Columns that fill whole vectors are a multiple of this: the loops over whole vectors are the fast ones.
VECTOR = 8
#: Up to so many rows are sorted by insertion; the counts of a radix sort cost more there.
INSERTION_ROWS = 24
#: In nodes of so many rows, or more, a few rows are looked at, evenly spaced, to find a code that most have. Where so many of the few have
#: one code, keys of that are not sorted: forests on sparse columns take half the time.
PROBED_ROWS, PROBES, EQUAL_PROBES = 512, 16, 8
#: Where so many of these have the dominant code, and at most one row in so many has another, only the others are listed and swept: four
#: trees of a forest on 100k x 28 sparse columns from 3.5 s to 1.6 s, of two classes from 1.8 to 1.1, of four from 2.7 to 1.9.
DOMINANT_HITS, OTHER_CODES_SHARE = 12, 3
#: Rows of a chunk, which is gone through twice: for running sums, then for scores, several at a time. What it needs fits the first cache.
CHUNK = 256
#: Most bins of a column, each of one value; columns of more values are sorted where they are not searched by zones.
MOST_BINS = 2**13
#: Rows of a node are summed by category in one go over a table of all categories, unless there are so many times as many of these as rows;
#: then they are sorted. To clear and to read the table takes about as long a category as to sort takes a row.
DENSE_CATEGORIES = 4
#: Chunks of keys that categories are counted in where only those at both ends are to be put in order, and from how many times as many
#: categories as are wanted of an end on that is done. Of 2,000 categories, to sort all took three quarters of a fit.
CATEGORY_BUCKETS, ORDERED_SHARE = 256, 3
#: Up to so many categories are put in order by comparing each with each.
RANKED_CATEGORIES = 48
#: Up to so many rows it is found out what a node's best split may gain at most, by a search more, as soon as it has one: each of several
#: columns is likely to reach that, and the others need not be searched.
BOUNDED_BY_TARGET = 8
#: Gains of so many splits in a row are bounded together before each is computed.
GAINS_AT_ONCE = 16
#: Steps that the pointer to a median may take in a pass, for each row, before a tree is used instead: only very unequal weights take more.
POINTER_STEPS = 6

# Sparse tables ---------------------------------------------------------------------------------------------------------------------------

#: The stored cells of a node in all columns are listed if they are no more than one in so many of the table's. Nodes of more
#: are searched column by column.
LISTED_SHARE = 2
#: To list a cell takes as long as to look at so many cells of one column.
LISTED_CELL = 2
#: Stored cells of a tree for each thread that grows it, and chunks of the search of a node for each.
SPARSE_THREAD_CELLS, SPARSE_CHUNKS = 2**16, 4

# Zones of a table (zone map) -------------------------------------------------------------------------------------------------------------

#: Most zones of a column, missing values included: a zone's number is a byte.
MAX_ZONES = 256
#: A zone for so many rows of the table, and the fewest zones. More of them hardly rule out more in tables of few rows, and are all bounded.
ROWS_PER_ZONE, FEWEST_ZONES = 320, 32


def flagged_bytes(n_rows: int, n_columns: int) -> int:
    """Return how many bytes of rows in flagged parts may be sent at a time to a shard that has so many rows, of 6 bytes a cell."""
    most, least = (6 * n_rows * n_columns // share for share in FLAGGED_SHARES)
    return max(min(most, FLAGGED_BYTES), least, LEAST_FLAGGED_BYTES)


def most_zones(n_rows: int) -> int:
    """Return the most zones that a column of numbers is cut into, that of missing values not counted.

    Examples
    --------
    >>> most_zones(1000), most_zones(16_000), most_zones(1_000_000)
    (32, 50, 255)
    """
    return max(FEWEST_ZONES, min(MAX_ZONES - 1, n_rows // ROWS_PER_ZONE))


#: Zones are cut into ``2**FOLD`` parts. Of a million rows of noise, as those of late boosting trees are, 255 zones rule out nothing, 2,040
#: parts all but a twentieth, and 4,080 all but a hundredth.
FOLD = 4
#: Nodes are summed by so small parts of zones that there is one for so many of their rows: to bound a part costs about as much as to scan
#: these.
ROWS_PER_PART = 8
#: The rows of each column are listed in the order of their values in tables of up to so many rows, as long as what rows are looked up in by
#: their numbers stays in the cache. California, 100 trees, 4 threads: 211 to 260 ms without, 151 to 155 with.
LIST_ROWS = 2**17
#: Most rows listed at an end of a column of larger tables: the flagged parts of a late tree are mostly there.
LISTED_AT_ENDS = 128
#: Most parts of a column: of all its zones, and those that flagged zones or parts are cut into. Scratch space has room for so many.
MAX_PARTS = 4096
#: A column's codes are shifted to be fewer than this where parts are looked up by them: few enough for tables to stay in the cache. The
#: same for columns with a value that many rows have, which is to be separated from its neighbours.
MAX_CELLS, MAX_SINGLE_CELLS = 2**17, 2**20

# Sums by zones ---------------------------------------------------------------------------------------------------------------------------

#: Sums are made anew where the size of a row is below so many units on average, or where the node's sum is more than this share of its size
#: (its target is far from the centre), if that makes sizes so many times smaller at least, given as a power of two. Coarser sizes make
#: bounds looser; to make sums anew takes a pass over the node's rows.
COARSE, ASKEW, SHARPER = 8, 0.75, 2
#: One column in so many tells how much is flagged. All would cost some per cent of the search.
SAMPLED_COLUMNS = 4
#: Fewest rows of a chunk of a sum for each zone, or part, that it is by: the slots of chunks have to be added up.
ROWS_TO_ADD = 8
#: To clear, fill and subtract so many numbers of a slot takes as long as to add a row's cell to one.
NUMBERS_PER_CELL = 6
#: Rows of a part that flagged zones are cut into before rows are sorted, if these are less than half as wide.
ROWS_PER_CUT_PART = 4
#: Where rows are spread over shards, flagged parts are cut into finer ones of so many rows, unless these are fewer of each than so many.
ROWS_PER_FINER_PART, FEWEST_FINER_PARTS = 16, 4
#: Where rows are spread over shards: to look at a row that is listed for its part takes as long as to compare so many codes of a node, and
#: to take one that is in the node from its list, rather than from these, spares as long as it takes to compare so many.
CODES_FOR_LISTED, CODES_FOR_PICKED = 5.5, 20.0
#: To list the rows of all columns takes as long as to compare so many codes for each cell. Once that many have been compared, they are.
CODES_FOR_LISTS = 8
#: Places of rows are noted, for listed rows to be looked up, where as many codes in large nodes, of one row in so many at least, would be
#: compared otherwise as there are rows: to note one takes about as long as to compare two.
LARGE_NODE_SHARE = 16
#: A column with flagged zones of a larger share of a node's rows than one in so many takes long to search: others are searched meanwhile.
LONG_SEARCH_SHARE = 8
#: To look at a listed row takes as long as to look at one of the node; each that is picked saves so many of them, as it is sorted already.
LISTED_PER_PICKED = 4
#: Of so many rows of a table (two or more), one is kept at most for each column, of those picked in nodes of more than half of the rows:
#: late trees of a million rows are chains of such nodes.
KEPT_SHARE = 32
#: To look for a listed row takes as long as to look at so many rows of the node.
ROWS_TO_FIND = 64
#: Where rows are spread over shards: bytes of rows in flagged parts that a shard is sent at a time, one for so many bytes of its own cells.
#: Of these, the former where that is less, and the latter where it is more. In noise most cells of a level are flagged.
FLAGGED_BYTES, FLAGGED_SHARES = 2**23, (16, 64)
#: But so many in any case: each further batch is three more steps of all shards. 20k x 28 on two shards takes 0.7 of the time for it.
LEAST_FLAGGED_BYTES = 2**22
#: Rows that are compared with intervals at a time, a multiple of 64; scratch space has flags for more (MAX_PARTS).
COMPARED_ROWS = 2048
#: Where more of a node's rows than one in so many lie in the intervals, it is faster to look at each closely.
COVERED_SHARE = 6

# Slots of sums, and levels ---------------------------------------------------------------------------------------------------------------

#: Slots may take so many bytes, or so many for each row, whichever is more: sums are to take about what the rows themselves do.
SLOTS_MIN_BYTES, SLOTS_BYTES_PER_ROW = 64 * 2**20, 32
#: Zone sums are of all columns: in boosting, they pay where nodes are searched in at least this share of these; in deep trees, in all.
SUMMED_SHARE = 0.06
#: Zones are cut into parts if more than one in so many rows of the last tree's large nodes were in flagged zones: to pick and scan these
#: takes longer then than to sum by parts. They are cut into the smallest parts if more than one in so many were, else into parts
#: ``2**COARSER_FOLD`` times as large: sums by 1,020 parts stay in the second cache, where those by 2,040 do not.
FLAGGED_SHARE, MUCH_FLAGGED_SHARE, COARSER_FOLD = 512, 16, 2
#: Most categories of a column that a node's rows are summed by together with the zones of other columns, and of all such columns together:
#: sums of more would not stay in the cache, and are made column by column in each node.
SUMMED_CATEGORIES, ALL_SUMMED_CATEGORIES = 4095, 2**17
#: Most elements of columns of categories that are joined with each other: the second where there are too many for the rows of the table.
#: Boosting on 100,000 x 10 columns of 20 categories, joined by two, takes 0.87 to 0.90 of the time, of 5, by three, 0.83.
MOST_JOINED = 512, 64
#: Most elements of all joined columns, which are to stay in the cache; fewest rows of a table for each; and of a sum that is made by them.
ALL_JOINED, ROWS_PER_JOINED, ROWS_PER_JOINED_SUM = 2**14, 8, 1
#: Columns are joined if that saves at least this share of them, and so many where there are others: to go through rows once more takes as
#: long as to add up so many cells. Sums of columns of 100 categories, joined with none, take as long as those column by column.
JOINED_SAVES, SAVES_PASS = 1 / 3, 4
#: Their elements take memory in every slot: with fewer slots than so many, columns are not joined.
JOINED_SLOTS = 1024
#: Below this many rows, bounding zones costs more than it saves.
BOUNDED_ROWS = 128
#: Slots for each thread that grows subtrees: a waiting node without one is summed anew. The second is for slots that hold all parts.
SLOTS_PER_THREAD, FINE_SLOTS_PER_THREAD = 16, 8
#: To map the zones of a table of fewer cells takes less time than to start threads.
SERIAL_MAP_CELLS = 100_000

# Subtrees --------------------------------------------------------------------------------------------------------------------------------

#: Most rows of a node that is searched unsorted, all columns side by side: a sort and a sweep for each column take longer.
TINY_ROWS = 16
#: The same by order statistics, where to follow quantiles row by row takes longer than to sort.
TINY_RANKED_ROWS = 48
#: In-sample rows of a block, and up to how many where columns are few: of so many cells. A block is to stay in the cache; larger ones, with
#: what else that change brought, made a forest for regression on 100k x 28 a sixth faster, one for classification a seventh.
BLOCK_ROWS, MOST_BLOCK_ROWS, BLOCK_CELLS = 4096, 2**14, 2**19
#: Rows of a block whose values are read at once, column by column, and asked for before: their cells, of 8 bytes, stay in the first cache.
#: Extra-trees on 100k x 28 take 0.9 of the time that they take with 128 rows and values not asked for, a third of the columns 0.85.
ROWS_AT_ONCE = 64
#: Up to so many rows of a node of a block that are out of sample are divided by their values. For more, the code of the threshold is looked
#: for first, which takes as long as to read the values of some 20. Boosting of 5 % of the rows takes 0.90 of the time that it takes when
#: codes are looked for in every node, a forest scored out of bag 0.96.
COMPARED_OUTSIDE = 32
#: A table of up to so many cells, and BLOCK_ROWS rows, is grown whole in a block: a level's messages cost more than all its sums.
WHOLE_BLOCK_CELLS = 2**17
#: Most chunks of a step that threads share, most nodes that are shared out (of further ones, each is grown by one thread), and fewest rows
#: of a chunk. Growing in one kernel, by threads that share large nodes, took a tree of 100k x 28 from 19 to 9 ms (4 threads), 27 to 22 (1).
CHUNKS, SHARED_NODES, CHUNK_ROWS = 32, 512, 4096
#: Fewest numbers of a slot that are worth a chunk.
CHUNK_NUMBERS = 2**12
#: Rows taken from a slot for each thread that they are worth.
TAKEN_ROWS = 32
#: Nodes of a tree that are to be left to each thread: enough that all end together. Nodes of no more than so many rows are never shared.
NODES_PER_THREAD, SHARE_ROWS = 3, 2048
#: Cells of subtrees to be grown for each thread, and where they are searched by zone sums.
GROW_CELLS, GROW_CELLS_BY_SUMS = 32_768, 2**15
#: Most splits of a tree of limited leaves that are kept in order. Of more, only the least gain on the way to each is: to put one of 10,000
#: in order takes as long as to search its node. Late trees of 31 leaves, boosting on 24,000 x 23, take 7 ms in place of 55 for the order.
MOST_RANKED = 1024
#: Room for more nodes is not kept from tree to tree: it would be needed together with the tree that is made of them.
MOST_NODES_KEPT = 2**18

# Threads of a shard ----------------------------------------------------------------------------------------------------------------------

#: Rows to be marked or divided for each thread: to start a thread from Python takes as long as this many.
THREAD_ROWS = 32_768
#: Fewest bytes of route bits that are made in one chunk.
ROUTE_BYTES = 1024
#: Nodes of so many rows, or more, are divided by several threads, by way of the spare partition, which costs a copy.
SPREAD_ROWS = 65_536
#: Fewest rows in sample whose sums are worth a thread to be put in order.
GATHERED_ROWS = 2**17
#: Fewest rows that are worth a thread: where each takes an addition or so, and where it takes logarithms. Threads that computed losses of
#: 8,192 rows at a time waited for the interpreter's lock: 6 ms a tree of a million rows, now 1.
ADDITION_ROWS, LOGARITHM_ROWS = 2**17, 2**15
#: Rows a task of the search should have at least, over all its nodes and columns.
SEARCH_TASK_ROWS = 8192
#: In tables of up to this many cells, threads spend more time waiting for each other's Python than growing the trees of a forest.
SERIAL_FOREST_CELLS = 2048
#: Trees of tables of up to this many cells are grown in one block while a helper compiles other kernels.
PLAIN_CELLS = 2**21

# Exchanges with shards -------------------------------------------------------------------------------------------------------------------

#: Cells that shards share in an exchange, for all trees under way together: what a message may weigh.
SHARED_CELLS = 2**20
#: Parts of the rows, for each shard, that a node has to fit in to be grown by one of them: enough that all have work.
DELEGATED_PARTS = 4
#: Columns of a tree for each shard: where there are more, sending all of them costs more than to exchange the splits of a node.
DELEGATED_COLUMNS = 32
#: Bytes that the trees under way may take on a shard: so many for each row, or so many in all if that is more, which is about what a
#: worker's process takes before it has any data. Trees grown to their ends on a large table take more: then there is one at a time.
FOREST_BYTES_PER_ROW, FOREST_MIN_BYTES = 64, 128 * 2**20
#: More trees make an exchange hardly cheaper for each.
MOST_TREES_SIDE_BY_SIDE = 64
#: Trees of the first batch of a forest that is checkpointed, and how much larger each may be than the one before.
FIRST_BATCH_TREES, BATCH_GROWTH = 16, 4
