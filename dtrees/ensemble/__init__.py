"""Estimators with scikit-learn's interface; no growth logic, and no Dask.

How a fit goes::

    X, y --backend.load--> Table (schema, classes, handles) --parameters--> plan --backend.grow_forest or boost--> trees

and a prediction: a function of a block of rows (:mod:`dtrees.ensemble.prediction`), which the backend of X maps over it.

- :mod:`~dtrees.ensemble.estimators.single_tree`, :mod:`~dtrees.ensemble.estimators.forests`,
  :mod:`~dtrees.ensemble.estimators.gradient_boosting`: the estimators.
- :mod:`~dtrees.ensemble.estimators.base`, :mod:`~dtrees.ensemble.estimators.base_kinds`,
  :mod:`~dtrees.ensemble.estimators.base_boosting`: what they share.
- :mod:`~dtrees.ensemble.bagging`: bags of boosters.
- :mod:`~dtrees.ensemble.input.schema`, :mod:`~dtrees.ensemble.input.target`: input to numbers.
- :mod:`~dtrees.ensemble.estimators.parameters`: parameters, what they may be and mean; :mod:`~dtrees.ensemble.input.rules`: the rules that
  follow from them.
- :mod:`~dtrees.ensemble.objective.registry`: the losses of boosting.
- :mod:`~dtrees.ensemble.metrics`: what is measured after each round on :mod:`~dtrees.ensemble.evaluation_sets`.
- :mod:`~dtrees.ensemble.callbacks`: callbacks, early stopping, and progress bars, shown by :mod:`~dtrees.ensemble.displays`.
- :mod:`~dtrees.ensemble.checkpoint`: finished trees, stored for a fit to go on from.
- :mod:`~dtrees.ensemble.state`: what a model file holds.
- :mod:`~dtrees.ensemble.backend`, :mod:`~dtrees.ensemble.in_process`: where the data is, and the backend for this process.
"""
