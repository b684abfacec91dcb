"""Convert models of dtrees to other tools, and models of scikit-learn to dtrees.

Every exporter reads a :class:`~dtrees.interop.description.PlainModel`, which describes any estimator of dtrees by its trees, the initial
value and the divisor of their sum, and the link from the sum to predictions. Each module is for one target, or for two similar ones.
"""
