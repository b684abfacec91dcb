"""Models of other tools from models of dtrees, and the other way.

Every exporter reads a :class:`~dtrees.interop.description.PlainModel`, what any estimator of dtrees comes to: trees, where sums of them
start, what they are divided by, and the link from there to predictions. There is a file for each target, or for two that are alike.
"""
