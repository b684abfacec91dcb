"""The best splits of nodes whose rows are spread over shards: combines the sums, flagged parts and rows of several shards.

Every shard sums its rows by the same zones and parts, whose edges are values that all shards share. The shard that *searches* a column
adds the sums of all shards in this column. From these it flags the parts that may hold a split above the bar, like
:mod:`dtrees.split.zones.scan`; the shards pick their rows in flagged parts, and the searcher merges and sweeps them.

Each shard has its own codes, so messages contain values. In the zone map of a searcher, which has no rows, codes stand for parts: the
first codes of parts are :data:`~dtrees.split.zones.over_shards.records.CODES` apart, and those of a single value have one code. A row's
code is that of its part, plus the rank of its value there.
"""
