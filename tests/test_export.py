"""Trees as text and for Graphviz, compared with scikit-learn's text and with the rows of each branch."""

import html
import io
import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
import sklearn.tree
from sklearn.exceptions import NotFittedError

import dtrees
from dtrees import GradientBoostingRegressor, export_graphviz, export_text, load, save
from dtrees.node_texts import Branches, NodeOptions, NodeTexts, class_colour, exact_text, node_colours, short_text
from tests.ensemble.samples import KINDS, LABELS, SIGNAL, X, every_kind, is_classifier, make, target

# --- trees as text, compared with scikit-learn's text and with the rows of each branch ---


@pytest.mark.parametrize("kind", KINDS[:4])
@pytest.mark.parametrize("depth", [None, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_depth": 0},
        {"max_depth": 1, "spacing": 1},
        {"decimals": 0},
        {"show_weights": True, "decimals": 4},
        {"feature_names": list("abcde")},
    ],
)
def test_trees_of_numbers_read_as_scikit_learns(kind, depth, options):
    tree = kind(max_depth=depth, random_state=0).fit(np.nan_to_num(X), target(kind))
    assert export_text(tree, **options) == sklearn.tree.export_text(tree, **options)


def test_large_thresholds_are_short():
    tree = dtrees.DecisionTreeRegressor().fit([[1.0], [np.inf]], [1.0, 2.0])
    assert export_text(tree).splitlines()[0] == "|--- feature_0 <= 9e+307"


def test_class_names():
    tree = dtrees.DecisionTreeClassifier(max_depth=2).fit(X, LABELS)
    names = [f"kind {k}" for k in range(len(tree.classes_))]
    assert "class: kind 0" in export_text(tree, class_names=names)
    with pytest.raises(ValueError, match=r"class_names has shape \(1,\); wants"):
        export_text(tree, class_names=["one"])


def people(seed=0, n=400):
    """Columns of text, of ordered categories and of numbers, all with missing values."""
    rng = np.random.default_rng(seed)
    job = rng.choice(["baker", "cook", "miller", "smith", "tailor", None], n)
    size = pd.Categorical(rng.choice(["large", "medium", "small"], n), ["small", "medium", "large"], ordered=True)
    frame = pd.DataFrame({"job": job, "size": size, "age": np.where(rng.random(n) < 0.2, np.nan, rng.integers(20, 60, n))})
    y = (
        frame["job"].isin(["cook", "smith"]) * 3.0
        + frame["job"].isna() * 5
        + frame["age"].isna() * 2
        + (frame["size"] == "large")
        + rng.random(n)
    )
    return frame, y.to_numpy()


def goes(frame, text):
    """Return which rows take a branch, according to its text."""
    name, test = text.split(" ", 1)
    or_missing, column = test.endswith(" or missing"), frame[name]
    test = test.removesuffix(" or missing")
    if test in ("is missing", "is not missing"):
        return (column.isna() if test == "is missing" else column.notna()).to_numpy()
    missing = column.isna().to_numpy()
    if "{" in test:
        word, names = test.split(" {")
        taken = column.isin(names.rstrip("}").split(", ")).to_numpy() == (word == "in")
    else:
        sign, threshold = test.split()
        taken = (column <= float(threshold)) if sign == "<=" else (column > float(threshold))
        taken = taken.to_numpy()
    return np.where(missing, or_missing, taken)


def test_long_sets_are_cut_short():
    rng = np.random.default_rng(0)
    code = rng.permutation(np.arange(1000) % 200)
    frame = pd.DataFrame({"place": [f"p{c:03}" for c in code]})
    tree = dtrees.DecisionTreeRegressor(max_depth=1, max_cat_threshold=200, min_samples_category=1).fit(frame, (code >= 100) * 1.0)
    text = export_text(tree, max_categories=3)
    assert text.splitlines()[0] == "|--- place in {p000, p001, p002, 97 more}"
    assert tree.tree_.categories_left(0).tolist() == list(range(100))
    assert tree.tree_.categories_left(1) is None
    with pytest.raises(ValueError, match="the nodes of this tree are 0 to 2"):
        tree.tree_.categories_left(3)


def test_members_of_ensembles():
    frame, y = people()
    for kind in (dtrees.RandomForestRegressor, dtrees.GradientBoostingRegressor):
        model = kind(n_estimators=2, max_depth=2, random_state=0).fit(frame, y)
        members = np.ravel(model.estimators_)
        assert "job in {" in "".join(export_text(tree) for tree in members)
        assert [export_text(model, tree_index=i) for i in range(2)] == [export_text(tree) for tree in members]
        with pytest.raises(ValueError, match="tree_index is 2; wants 0 to 1, as there are 2 trees"):
            export_text(model, tree_index=2)


def test_a_deep_tree_needs_no_deep_stack():
    n = 3000
    tree = dtrees.DecisionTreeRegressor().fit(np.arange(n)[:, np.newaxis], 2.0 ** -np.minimum(np.arange(n), 1000.0))
    assert export_text(tree, max_depth=10**6).count("value:") == tree.get_n_leaves()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"feature_names": ["a"]}, ValueError, r"feature_names has shape \(1,\); wants \(5,\)"),
        ({"max_depth": -1}, ValueError, "max_depth is -1; wants at least 0"),
        ({"max_depth": 1.5}, TypeError, "max_depth is 1.5; wants an integer of at least 0"),
        ({"spacing": 0}, ValueError, "spacing is 0; wants at least 1"),
        ({"decimals": True}, TypeError, "decimals is True; wants an integer of at least 0"),
        ({"max_categories": 0}, ValueError, "max_categories is 0; wants at least 1"),
    ],
)
def test_what_cannot_be_used(options, error, message):
    tree = dtrees.DecisionTreeRegressor(max_depth=1).fit(X, SIGNAL)
    with pytest.raises(error, match=message):
        export_text(tree, **options)


def test_what_is_no_tree():
    with pytest.raises(TypeError, match="decision_tree is of type DecisionTreeRegressor; wants an estimator of dtrees"):
        export_text(sklearn.tree.DecisionTreeRegressor())
    with pytest.raises(TypeError, match=r"of type BaggingRegressor; wants .* of a bag, one of its boosters \(estimators_\)"):
        export_text(dtrees.BaggingRegressor())
    with pytest.raises(NotFittedError):
        export_text(dtrees.DecisionTreeRegressor())


# --- trees for Graphviz: each node describes the tree's, for any names of columns and classes ---


NODE, EDGE = re.compile(r'^(\d+) \[label="(.*?)"(?:, fillcolor="(#\w{6})")?\];$'), re.compile(r'^(\d+) -> (\d+) \[label="(.*)"\];$')


def graph(text):
    """Return the lines of each node, and the label of each edge."""
    found = [NODE.match(line) for line in text.splitlines()]
    nodes = {int(match[1]): match[2].split(r"\n") for match in found if match}
    edges = {(int(match[1]), int(match[2])): match[3] for match in map(EDGE.match, text.splitlines()) if match}
    return nodes, edges


@every_kind
def test_the_graph_is_the_tree(kind):
    model = make(kind).fit(X, target(kind))
    members = np.ravel(model.estimators_)[:2] if hasattr(model, "estimators_") else [model]
    for index, tree in enumerate(member._tree for member in members):
        nodes, edges = graph(export_graphviz(model, tree_index=index, precision=12))
        assert sorted(nodes) == list(range(tree.node_count))
        inner = np.flatnonzero(tree.feature >= 0)
        assert set(edges) == {(i, c) for i in inner for c in (tree.children_left[i], tree.children_right[i])}
        for node, lines in nodes.items():
            said = dict(line.split(" = ") for line in lines if " = " in line)
            assert int(said["samples"]) == tree.n_node_samples[node]
            if node in inner:
                children = int(tree.children_left[node]), int(tree.children_right[node])
                if np.isinf(tree.threshold[node]):
                    assert lines[0] == f"feature_{tree.feature[node]} is not missing"
                    assert [edges[node, child] for child in children] == ["yes", "no"]
                    continue
                name, threshold = lines[0].split(" <= ")
                assert (name, float(threshold)) == (f"feature_{tree.feature[node]}", pytest.approx(tree.threshold[node]))
                missing_left = tree.missing_go_to_left[node]
                assert [edges[node, child] for child in children] == (["yes, missing", "no"] if missing_left else ["yes", "no, missing"])
            values = np.array(eval(f"[{said['value'].strip('[]')}]"))
            if is_classifier(kind) and "GradientBoosting" not in kind.__name__:
                assert said["class"] == model.classes_[tree.value[node].argmax()]
                np.testing.assert_allclose(values, tree.value[node] * tree.weighted_n_node_samples[node], rtol=1e-9)
            elif kind in KINDS[:8]:
                np.testing.assert_allclose(values, tree.value[node], rtol=1e-6)


def taken(frame, above, node):
    """Return which rows take an edge, according to its label and the node above."""
    test = " ".join(above.lines[k] for k in above.bold)
    answer, _, missing = node.edge.partition(", ")
    found = goes(frame, test) == (answer == "yes")
    return found if test.endswith("is not missing") else np.where(frame[test.split(" ")[0]].isna(), missing == "missing", found)


@pytest.mark.parametrize(
    ("kind", "categorical_features"),
    [
        *((dtrees.DecisionTreeRegressor, columns) for columns in ("from_dtype", None, ["job"])),
        # Several targets have kernels of their own.
        *(pytest.param(kind, ["job", "size"], marks=pytest.mark.slow) for kind in (KINDS[4], KINDS[1])),
        *(pytest.param(kind, ["job", "size"], marks=pytest.mark.thorough) for kind in (KINDS[2], KINDS[7])),
    ],
)
def test_rows_go_where_texts_and_drawings_say(kind, categorical_features):
    frame, y = people()
    if categorical_features == ["job", "size"]:
        y = np.column_stack([y, frame["age"].fillna(0) / 40 - (frame["size"] == "medium")])
        y = np.column_stack([np.digitize(y[:, 0], [2, 4]), y[:, 1] > 0.5]) if is_classifier(kind) else y
    every_set = {"min_samples_category": 1, "cat_smooth": 0} if categorical_features is not None else {}
    model, by_sets = kind(categorical_features=categorical_features, random_state=0, **every_set).fit(frame, y), set()
    for tree in model.estimators_[:2] if hasattr(model, "estimators_") else [model]:
        path, nodes = tree.decision_path(frame).toarray().astype(bool), tree.tree_
        text = export_text(tree, max_depth=100, decimals=17, show_missing=True, max_categories=100)
        assert "nan" not in text
        branches = Branches(tree, None, "{:.17f}".format, True, 100)
        drawn = {node.number: node for node in NodeTexts(tree, 0, NodeOptions(precision=17, max_categories=100)).drawn()}
        assert graph(export_graphviz(tree, precision=17, max_categories=100))[0] == {i: list(node.lines) for i, node in drawn.items()}
        for node in np.flatnonzero(nodes.feature >= 0):
            for branch, child in zip(branches.of(node), (nodes.children_left[node], nodes.children_right[node]), strict=True):
                assert f" {branch}\n" in text
                np.testing.assert_array_equal(goes(frame, branch) & path[:, node], path[:, child])
                np.testing.assert_array_equal(taken(frame, drawn[int(node)], drawn[int(child)]) & path[:, node], path[:, child])
                by_sets.add("{" in branch)
        for number, said in drawn.items():
            value = next(line for line in said.lines if line.startswith("value = ")).removeprefix("value = ")
            amounts = tree._tree.value[number]  # for all targets, or all their classes, side by side
            wanted = amounts * nodes.weighted_n_node_samples[number] if is_classifier(kind) else amounts
            np.testing.assert_allclose(np.hstack(json.loads(f"[{value}]")), wanted, rtol=1e-12)
    assert by_sets == {True, False}


def test_names_and_options():
    tree = dtrees.DecisionTreeClassifier(max_depth=3).fit(X, LABELS)
    text = export_graphviz(tree, max_depth=1, feature_names=list("abcde"), class_names=["u", "v", "w"], node_ids=True, rotate=True)
    nodes, _ = graph(text)
    assert "rankdir=LR;" in text.splitlines()
    stubs = [lines for lines in nodes.values() if lines[0] == "(...)"]
    assert len(stubs) == 4
    assert sum(int(lines[1].split()[0]) for lines in stubs) == tree.get_n_leaves()
    assert nodes[0][0] == "node = 0"
    assert nodes[0][1][0] in "abcde"
    assert nodes[0][-1] in ("class = u", "class = v", "class = w")
    bare, _ = graph(export_graphviz(tree, label="none", impurity=False, proportion=True, filled=False, rounded=False))
    assert bare[0][1] == "100.0%"
    assert np.isclose(sum(eval(bare[0][2])), 1, atol=0.01)
    assert "fill" not in export_graphviz(tree, filled=False)
    assert [" = " in line for line in graph(export_graphviz(tree, label="root"))[0][1]] == [False] * 5


def test_many_classes_are_told_by_the_largest():
    y = np.arange(len(X)) % 10
    tree = dtrees.DecisionTreeClassifier(max_depth=1).fit(X, y)
    nodes, _ = graph(export_graphviz(tree))
    assert re.fullmatch(r"value = \d: \d+, \d: \d+, \d: \d+, 7 more", nodes[0][3])


def test_files(tmp_path):
    tree = dtrees.DecisionTreeRegressor(max_depth=1).fit(X, SIGNAL)
    stream = io.StringIO()
    text = export_graphviz(tree, stream)
    assert export_graphviz(tree, tmp_path / "tree.dot") == text == stream.getvalue() == (tmp_path / "tree.dot").read_text()
    with pytest.raises(TypeError, match="out_file is of type int; wants a path"):
        export_graphviz(tree, 3)


@pytest.mark.skipif(shutil.which("dot") is None, reason="wants Graphviz")
def test_graphviz_reads_any_name():
    names = ['"<b>&lt;\\n', "a\\", "{x|y}", "$x$", "new\nline"]
    frame = pd.DataFrame(np.nan_to_num(X), columns=names)
    tree = dtrees.DecisionTreeClassifier(max_depth=4).fit(frame, LABELS)
    text = export_graphviz(tree, class_names=['"', "\\", "&amp;"])
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True, timeout=60).stdout
    said = {html.unescape(line) for line in re.findall(r"<text[^>]*>(.*?)</text>", drawn)}
    for name in np.array(names)[np.unique(tree.tree_.feature[tree.tree_.feature >= 0])]:
        assert any(line.replace("\xa0", " ").startswith(" ".join(name.split()) + " <= ") for line in said), name
    assert {'class = "', "class = \\", "class = &amp;"} & {line.replace("\xa0", " ") for line in said}


def test_colours_say_which_class_and_how_sure():
    tree = dtrees.DecisionTreeClassifier(max_depth=4).fit(X, LABELS)._tree
    rgb = np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in node_colours(tree, True)])
    for node, shares in enumerate(tree.value):
        second, first = np.sort(shares)[-2:]
        strength = 0.75 * (first - second) / (1 - second)
        np.testing.assert_allclose(rgb[node], 255 + strength * (np.array(class_colour(int(shares.argmax()), 3)) - 255), atol=0.51)
    assert len({class_colour(k, 20) for k in range(20)}) == 20
    signs = dtrees.DecisionTreeRegressor(max_depth=2).fit([[0.0], [1.0], [2.0]], [-1.0, 0.0, 1.0])._tree
    colours = node_colours(signs, False)
    assert colours[0] == "#ffffff"
    assert len({colours[int(np.argmin(signs.value))], colours[int(np.argmax(signs.value))], "#ffffff"}) == 3


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-7, 123.456, 1999.5, 5e5 + 0.25, 7e8, 3.25e9, 1e300, -1e-300])
@pytest.mark.parametrize("precision", [0, 1, 3, 8])
def test_numbers_are_near_what_they_say(value, precision):
    assert abs(float(exact_text(value, precision)) - value) <= max(
        0.5 * 10**-precision, 1e-15 * abs(value), 0.06 * abs(value) * (value > 1e14)
    )
    assert abs(float(short_text(value, precision)) - value) <= max(0.5 * 10**-precision, abs(value) * 10 ** -float(min(precision, 2)))
    assert (float(exact_text(value, precision)) == 0) == (value == 0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"label": "some"}, ValueError, "label is 'some'; wants 'all', 'root', 'none'"),
        ({"max_depth": -1}, ValueError, "max_depth is -1; wants at least 0"),
        ({"precision": 1.5}, TypeError, "precision is 1.5; wants an integer"),
        ({"max_categories": 0}, ValueError, "max_categories is 0; wants at least 1"),
        ({"tree_index": 1}, ValueError, "tree_index is 1; wants 0 to 0, as there are 1 trees"),
        ({"feature_names": ["a"]}, ValueError, r"feature_names has shape \(1,\)"),
    ],
)
def test_what_cannot_be_drawn(options, error, message):
    tree = dtrees.DecisionTreeRegressor(max_depth=1).fit(X, SIGNAL)
    with pytest.raises(error, match=message):
        export_graphviz(tree, **options)


def test_boosted_trees_have_no_impurity(tmp_path):
    """Newton's criterion only has gains; squared leaf values, under another criterion's name, are not an impurity."""
    X = np.arange(20.0)[:, np.newaxis]
    model = GradientBoostingRegressor(n_estimators=2).fit(X, X[:, 0])
    member = model.estimators_[0, 0]
    save(member, tmp_path / "member")
    for tree in (model, member, load(tmp_path / "member")):
        assert "squared_error" not in export_graphviz(tree)
    assert np.isnan(load(tmp_path / "member").tree_.impurity).all()
    assert "squared_error = " in export_graphviz(member.fit(X, X[:, 0]))
