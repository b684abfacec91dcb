"""What a search finds in a column of a node."""

#: The column has one value in this node (and none missing, or all).
CONSTANT = 0
#: The column varies, but no split is allowed.
NO_SPLIT = 1
#: There is a split.
SPLIT = 2
