"""Estimators with scikit-learn's interface; no growth logic, and no Dask.

The steps of a fit::

    X, y --backend.load--> Table (schema, classes, handles) --parameters--> plan --backend.grow_forest or boost--> trees

A prediction is a function of a block of rows (:mod:`dtrees.ensemble.prediction`), which the backend of X maps over it.

- :mod:`~dtrees.ensemble.estimators.single_tree`, :mod:`~dtrees.ensemble.estimators.forests`,
  :mod:`~dtrees.ensemble.estimators.gradient_boosting`: the estimators.
- :mod:`~dtrees.ensemble.estimators.base`, :mod:`~dtrees.ensemble.estimators.base_kinds`,
  :mod:`~dtrees.ensemble.estimators.base_boosting`: their common parts.
- :mod:`~dtrees.ensemble.bagging`: bags of boosters.
- :mod:`~dtrees.ensemble.input.schema`, :mod:`~dtrees.ensemble.input.target`: input to numbers.
- :mod:`~dtrees.ensemble.estimators.parameters`: parameters with constraints and descriptions; :mod:`~dtrees.ensemble.input.rules`: the
  engine's rules that follow from them.
- :mod:`~dtrees.ensemble.objective.registry`: the losses of boosting.
- :mod:`~dtrees.ensemble.metrics`: metrics computed after each round on :mod:`~dtrees.ensemble.evaluation_sets`.
- :mod:`~dtrees.ensemble.callbacks`: callbacks, early stopping, and progress bars, shown by :mod:`~dtrees.ensemble.displays`.
- :mod:`~dtrees.ensemble.checkpoint`: finished trees, stored so that a fit can be resumed.
- :mod:`~dtrees.ensemble.state`: the content of a model file.
- :mod:`~dtrees.ensemble.backend`, :mod:`~dtrees.ensemble.in_process`: the interface of backends, and the backend for this process.
"""
