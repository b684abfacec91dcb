"""The best splits of nodes whose rows are spread over shards: sums, flagged parts and rows of several shards put together.

Every shard sums its rows by the same zones and parts, whose edges are values that all shards share. Sums of shards are added up, number by
number, for some columns each, by the shard that *searches* these. That flags the parts that may hold a better split than the bar, as
:mod:`dtrees.split.zones.scan` does; the shards pick their rows in flagged parts, and the searcher merges and sweeps them.

Shards have codes of their own, so what travels are values. In the zone map of a searcher, which is of no rows, codes stand for parts: parts
begin :data:`~dtrees.split.zones.over_shards.records.CODES` apart, those of a single value have one code. A row's code is that of its part,
plus its rank among the values there.
"""
