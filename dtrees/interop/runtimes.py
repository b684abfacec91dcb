"""Convert models for ONNX Runtime and Treelite, which compare in float64 and support subsets of categories.

ONNX's operator TreeEnsemble (of ai.onnx.ml) holds the inner nodes of all trees in one list, and their leaves in another; other operators
compute the link. A leaf adds to one output, so classification trees, whose leaves hold a share of each class, are repeated for each
class.

Treelite's models are built node by node.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.interop.description import PlainModel, describe
from dtrees.tree.tree import Tree
from dtrees.version import needed

#: Versions of the operators, and of the format: the first with all features used here.
_OPSET, _ML_OPSET, _IR_VERSION = 18, 5, 10
#: Modes of nodes: x <= split, and x in a set.
_LEQ, _MEMBER = 0, 6
#: Attributes that are tensors instead of lists.
_TENSORS = "nodes_splits", "nodes_modes", "leaf_weights", "membership_values"
#: Treelite's name of the function from sums to predictions, and its task.
_TREELITE_STEPS = {
    "exponential": ("exponential", "kRegressor"),
    "logistic": ("sigmoid", "kBinaryClf"),
    "softmax": ("softmax", "kMultiClf"),
    "shares": ("identity_multiclass", "kMultiClf"),
}


def to_onnx(model: Any) -> Any:
    """Return an ONNX model with the predictions of a model, in float64.

    The input is ``X``, float64 of shape (n, n_features_in_): the table as numbers (:func:`to_numbers`), in which NaN is a missing value.
    The output of a regressor is ``prediction``, float64 of shape (n,), or (n, n_outputs_) for multi-output models. The outputs of a
    classifier are ``label`` and ``probabilities``, in the order of ``classes_``. The model requires ONNX Runtime 1.20 or later.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dtrees.

    Returns
    -------
    onnx.ModelProto
        ``onnx.save(found, path)`` writes it to a file. Its metadata contain the names of columns and their categories as JSON.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees.
    ValueError
        If the model starts from an estimator or from ``base_margin``.
    ImportError
        If onnx is not installed.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier, to_onnx
    >>> tree = DecisionTreeClassifier().fit([[1.0], [2.0], [3.0]], ["low", "low", "high"])
    >>> [output.name for output in to_onnx(tree).graph.output]  # doctest: +SKIP
    ['label', 'probabilities']
    """
    plain = describe(model, "ONNX")
    onnx = needed("onnx", "export")
    graph = _OnnxGraph(onnx)
    raw = graph.add("TreeEnsemble", ["X"], domain="ai.onnx.ml", **_onnx_ensemble(onnx, plain))
    outputs = _onnx_labels(graph, plain, raw) if plain.classes is not None else _onnx_values(graph, plain, raw)
    X = onnx.helper.make_tensor_value_info("X", onnx.TensorProto.DOUBLE, [None, plain.n_features])
    made = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, type(model).__name__, [X], outputs, graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid("ai.onnx.ml", _ML_OPSET)],
        ir_version=_IR_VERSION,
        producer_name="dtrees",
    )
    columns = {"columns": plain.names, "categories": [list(column.categories) or None for column in plain.schema.columns]}
    onnx.helper.set_model_props(made, {name: json.dumps(value, ensure_ascii=False) for name, value in columns.items()})
    return made


def to_treelite(model: Any) -> Any:
    """Return a Treelite model with the predictions of a model, in float64 (float32 for probabilities of boosting of more than two classes).

    ``treelite.gtil.predict(found, dtrees.to_numbers(model, X))`` returns an array of shape (n, n_targets, n_classes): values of a
    regressor, or probabilities of a classifier (boosting of two classes has only that of the second). TL2cgen compiles the model to C, and
    RAPIDS FIL runs it on a GPU.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dtrees.

    Returns
    -------
    treelite.Model
        ``found.serialize(path)`` writes it to a file.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees.
    ValueError
        If the model starts from an estimator or from ``base_margin``.
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
    name, task = _TREELITE_STEPS.get(plain.link, ("identity", "kRegressor"))
    if plain.link == "shares" and plain.n_outputs == 1:
        name, task = "identity", "kRegressor"  # for a single class
    by_class = plain.link in ("softmax", "shares")
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
        _build_tree(builder, tree)
    return builder.commit()


class _OnnxGraph:
    """Nodes and constants of a graph while it is built."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        output = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, value: NDArray[Any]) -> str:
        """Add a constant, and return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(value, name))
        return name

    def output(self, name: str, kind: Any, shape: list[Any]) -> Any:
        """Return the description of an output."""
        return self._onnx.helper.make_tensor_value_info(name, self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)


def _onnx_mean(graph: _OnnxGraph, plain: PlainModel, raw: str, last: str | None = None) -> str:
    """Add the initial value to sums, and divide them."""
    done = graph.add("Add", [raw, graph.constant(plain.initial)]) if plain.initial.any() else raw
    if plain.divisor > 1:
        return graph.add("Div", [done, graph.constant(np.array(float(plain.divisor)))], last)
    return graph.add("Identity", [done], last) if last else done


def _onnx_values(graph: _OnnxGraph, plain: PlainModel, raw: str) -> list[Any]:
    """Add the nodes from sums to the predictions of a regressor."""
    value = _onnx_mean(graph, plain, raw)
    if plain.link == "exponential":
        value = graph.add("Exp", [value])
    if plain.n_outputs > 1:
        graph.add("Identity", [value], "prediction")
        return [graph.output("prediction", np.float64, [None, plain.n_outputs])]
    graph.add("Squeeze", [value, graph.constant(np.array([1]))], "prediction")
    return [graph.output("prediction", np.float64, [None])]


def _onnx_labels(graph: _OnnxGraph, plain: PlainModel, raw: str) -> list[Any]:
    """Add the nodes from sums to labels and probabilities."""
    assert plain.classes is not None
    name = "probabilities"
    if plain.link == "logistic":
        odds = _onnx_mean(graph, plain, raw)
        sides = graph.add("Mul", [odds, graph.constant(np.array([[-plain.slope, plain.slope]]))])
        graph.add("Sigmoid", [sides], name)
    elif plain.link == "softmax":
        graph.add("Softmax", [_onnx_mean(graph, plain, raw)], name, axis=1)
    else:
        _onnx_mean(graph, plain, raw, name)
    classes = plain.classes
    if classes.dtype.kind in "iu":
        classes = classes.astype(np.int64)
    elif classes.dtype.kind in "UO":
        classes = classes.astype(object)
    largest = graph.add("ArgMax", [name], axis=1, keepdims=0)
    graph.add("Gather", [graph.constant(classes), largest], "label")
    return [
        graph.output("label", classes.dtype, [None]),
        graph.output(name, np.float64, [None, len(classes)]),
    ]


def _onnx_ensemble(onnx: Any, plain: PlainModel) -> dict[str, Any]:
    """Return the attributes of the operator TreeEnsemble."""
    parts, n_nodes, n_leaves = [], 0, 0
    for output, tree in plain.trees():
        for k in range(tree.value.shape[1]):
            parts.append(_onnx_part(tree, tree.value[:, k], output + k, n_nodes, n_leaves))
            n_nodes, n_leaves = n_nodes + len(parts[-1]["nodes_modes"]), n_leaves + len(parts[-1]["leaf_weights"])
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    attributes: dict[str, Any] = {"n_targets": plain.n_outputs, "aggregate_function": 1, "post_transform": 0}
    for name, values in joined.items():
        if values.size:  # there may be no sets
            attributes[name] = onnx.numpy_helper.from_array(values, name) if name in _TENSORS else values.tolist()
    return attributes


def _onnx_part(tree: Tree, value: NDArray[np.float64], output: int, first_node: int, first_leaf: int) -> dict[str, NDArray[Any]]:
    """Return the attributes of one tree; its nodes and leaves are numbered from the given ones."""
    leaf = tree.children_left < 0
    place = np.where(leaf, first_leaf + np.cumsum(leaf) - 1, first_node + np.cumsum(~leaf) - 1)
    inner = np.flatnonzero(~leaf)
    sides = np.stack([tree.children_left[inner], tree.children_right[inner]])
    if not inner.size:  # the operator requires a node: one with the same leaf on both sides
        inner, sides = np.zeros(1, np.int64), np.zeros((2, 1), np.int64)
    # Sets end with NaN. A set that only separates missing values is empty, but ONNX Runtime requires a member: an impossible category.
    sets = [tree.categories.of_node(node).astype(np.float64) for node in tree.categories.node.tolist()]
    members = [np.append(some if some.size else -1.0, np.nan) for some in sets]
    return {
        "tree_roots": np.array([first_node]),
        "leaf_targetids": np.full(int(leaf.sum()), output),
        "leaf_weights": value[leaf],
        "nodes_featureids": np.maximum(tree.feature[inner], 0).astype(np.int64),
        "nodes_splits": np.nan_to_num(tree.threshold[inner], posinf=np.inf),
        "nodes_modes": np.where(np.isnan(tree.threshold[inner]), _MEMBER, _LEQ).astype(np.uint8),
        "nodes_truenodeids": place[sides[0]].astype(np.int64),
        "nodes_falsenodeids": place[sides[1]].astype(np.int64),
        "nodes_trueleafs": leaf[sides[0]].astype(np.int64),
        "nodes_falseleafs": leaf[sides[1]].astype(np.int64),
        "nodes_missing_value_tracks_true": tree.missing_go_to_left[inner].astype(np.int64),
        "membership_values": np.concatenate([np.empty(0), *members]),
    }


def _build_tree(builder: Any, tree: Tree) -> None:
    """Add a tree to a builder of Treelite."""
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
