"""Compact trees: all trees are restored to the last bit."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.tree.compact import CompactTree, compact, expanded
from dtrees.tree.stacking import stacked
from dtrees.tree.tree import Tree
from tests.tree.trees import grown, random_tree


@given(
    st.integers(0, 2**32), st.integers(1, 300), st.integers(0, 7), st.integers(1, 3),
    st.sampled_from([1, 200, 70_000, 2**40]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_grown_tree_comes_back(seed: int, n_features: int, depth: int, n_values: int, most: int, fractions: bool, pure: bool) -> None:
    rng = np.random.default_rng(seed)
    arrays = grown(random_tree(rng, n_features, depth, n_values, [-1.0, np.inf, 1e300, 5e-324]), rng, most, fractions, pure)
    small = compact(arrays)
    assert small is not None
    assert Tree(**expanded(small)).equals(Tree(**arrays))
    assert sum(array.nbytes for array in small) < sum(array.nbytes for array in arrays.values())


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("n_node_samples", 0, 10**6),
        ("weighted_n_node_samples", 0, 1e6),
        ("weighted_n_node_samples", -1, np.nan),
        ("weighted_n_node_samples", -1, -1.0),
        ("threshold", -1, 3.0),
        ("gain", -1, -0.0),
        ("missing_go_to_left", -1, True),
        ("children_right", 0, 7),
        ("feature", -1, 0),
        ("feature", -1, -300),
    ],
)
def test_what_does_not_follow_is_not_left_out(name: str, place: int, value: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = grown(random_tree(rng, 5, 6), rng, 9, False, True)
    assert compact(arrays) is not None
    arrays[name] = arrays[name].copy()
    arrays[name][place] = value
    assert compact(arrays) is None


@pytest.mark.parametrize("broken", [False, True])
def test_large_trees_are_pickled_compactly(broken: bool) -> None:
    rng = np.random.default_rng(1)
    arrays = grown(random_tree(rng, 5, 18), rng, 9, False, True)
    if broken:
        arrays["gain"] = np.ones_like(arrays["gain"])
    tree = Tree(**arrays)
    assert tree.node_count > 1024
    content = pickle.dumps(tree)
    assert (len(content) < 25 * tree.node_count) != broken
    assert pickle.loads(content).equals(tree)


def large_tree() -> Tree:
    rng = np.random.default_rng(2)
    return Tree(**grown(random_tree(rng, 5, 18), rng, 9, False, True))


def test_a_tree_is_passed_on_without_its_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = large_tree()
    content = pickle.dumps(tree)
    with monkeypatch.context() as patch:
        patch.setattr("dtrees.tree.compact.expanded", lambda small: pytest.fail("the arrays were made"))
        patch.setattr("dtrees.tree.compact.compact", lambda arrays: pytest.fail("the arrays were left out again"))
        passed_on = pickle.loads(content)
        assert pickle.dumps(passed_on) == content
        stacked([[passed_on]])
    assert passed_on.equals(tree)
    assert pickle.dumps(passed_on) == content


def test_threads_that_ask_for_the_arrays_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = large_tree()
    passed_on = pickle.loads(pickle.dumps(tree))
    together = threading.Barrier(4, timeout=30)

    def expanded_together(small: CompactTree) -> dict[str, Any]:
        together.wait()
        return expanded(small)

    monkeypatch.setattr("dtrees.tree.compact.expanded", expanded_together)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda name: getattr(passed_on, name), ["feature", "threshold", "gain", "value"]))
    assert [array.tobytes() for array in found] == [getattr(tree, name).tobytes() for name in ("feature", "threshold", "gain", "value")]


def test_an_attribute_that_there_is_not() -> None:
    passed_on = pickle.loads(pickle.dumps(large_tree()))
    with pytest.raises(AttributeError, match="'Tree' object has no attribute 'treshold'"):
        passed_on.treshold  # noqa: B018
    assert copy.deepcopy(passed_on).equals(passed_on)
