"""Treelite's models from models of dtrees, in float64 (but for softmax, which Treelite has in float32), with sets of categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtrees.interop.description import EXPONENTIAL, LOGISTIC, SHARES, SOFTMAX, describe
from dtrees.tree.tree import Tree
from dtrees.version import needed

#: Treelite's name of the step from sums to predictions, and its task.
_STEPS = {
    EXPONENTIAL: ("exponential", "kRegressor"),
    LOGISTIC: ("sigmoid", "kBinaryClf"),
    SOFTMAX: ("softmax", "kMultiClf"),
    SHARES: ("identity_multiclass", "kMultiClf"),
}


def to_treelite(model: Any) -> Any:
    """Return Treelite's model that predicts what a model does, in float64; the probabilities of boosting of many classes are float32.

    ``treelite.gtil.predict(found, dtrees.to_numbers(model, X))`` gives an array of shape (n, n_targets, n_classes): values of regressors,
    probabilities of classifiers, where boosting of two classes has that of the second only. TL2cgen compiles such a model to C, and RAPIDS
    FIL runs it on a GPU.

    Parameters
    ----------
    model : estimator
        One of dtrees, fitted.

    Returns
    -------
    treelite.Model
        ``found.serialize(path)`` writes it to a file.

    Raises
    ------
    TypeError
        If ``model`` is no estimator of dtrees.
    ValueError
        If it starts from an estimator or from ``base_margin``.
    ImportError
        If Treelite is not installed.

    Examples
    --------
    >>> from dtrees import RandomForestRegressor, to_treelite
    >>> forest = RandomForestRegressor(3, random_state=0).fit([[1.0], [2.0]], [5.0, 9.0])
    >>> to_treelite(forest).num_tree  # doctest: +SKIP
    3
    """
    plain = describe(model, "Treelite")
    treelite = needed("treelite.model_builder", "export")
    trees = plain.trees()
    name, task = _STEPS.get(plain.link, ("identity", "kRegressor"))
    if plain.link == SHARES and plain.n_outputs == 1:
        name, task = "identity", "kRegressor"  # of a single class
    by_class = plain.link in (SOFTMAX, SHARES)
    n_targets, n_classes = (1, plain.n_outputs) if by_class else (plain.n_outputs, 1)
    shape = (1, 1) if plain.by_groups else (n_targets, n_classes)
    outputs = [output for output, _ in trees]
    none, every = [0] * len(trees), [-1] * len(trees)
    builder = treelite.ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=treelite.Metadata(
            num_feature=plain.n_features,
            task_type=task,
            average_tree_output=plain.divisor > 1,
            num_target=n_targets,
            num_class=[n_classes] * n_targets,
            leaf_vector_shape=shape,
        ),
        tree_annotation=treelite.TreeAnnotation(
            num_tree=len(trees),
            target_id=every if shape[0] > 1 else none if by_class else outputs,
            class_id=every if shape[1] > 1 else outputs if by_class else none,
        ),
        postprocessor=treelite.PostProcessorFunc(name, sigmoid_alpha=plain.slope),
        base_scores=plain.initial.tolist(),
    )
    for _, tree in trees:
        _build(builder, tree)
    return builder.commit()


def _build(builder: Any, tree: Tree) -> None:
    """Add a tree."""
    builder.start_tree()
    by_set = np.isnan(tree.threshold).tolist()
    arrays = (tree.children_left, tree.children_right, tree.feature, tree.threshold, tree.missing_go_to_left, tree.value)
    for node, (left, right, feature, threshold, missing, value) in enumerate(zip(*(array.tolist() for array in arrays), strict=True)):
        builder.start_node(node)
        if left < 0:
            builder.leaf(value if len(value) > 1 else value[0])
        elif by_set[node]:
            builder.categorical_test(
                feature,
                default_left=missing,
                category_list=tree.categories.of_node(node).tolist(),
                category_list_right_child=False,
                left_child_key=left,
                right_child_key=right,
            )
        else:
            builder.numerical_test(feature, threshold, default_left=missing, opname="<=", left_child_key=left, right_child_key=right)
        builder.end_node()
    builder.end_tree()
