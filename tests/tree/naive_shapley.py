"""Shapley values by their definition: over all sets of columns."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.tree.tree import Tree
from tests.tree.trees import goes_left, naive_leaf

Game = dict[frozenset[int], NDArray[np.float64]]


def value_of(tree: Tree, x: Any, known: frozenset[int], node: int = 0) -> NDArray[np.float64]:
    """Return the prediction of a tree if some columns are known; others send a row both ways by the weights of the nodes."""
    left, right = int(tree.children_left[node]), int(tree.children_right[node])
    if left < 0:
        return tree.value[node]
    if int(tree.feature[node]) in known:
        return value_of(tree, x, known, left if goes_left(tree, node, x) else right)
    weights = tree.weighted_n_node_samples[[left, right]]
    return np.average([value_of(tree, x, known, left), value_of(tree, x, known, right)], axis=0, weights=weights)


def mean_value_of(tree: Tree, x: Any, known: frozenset[int], background: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean prediction of background rows whose known columns are replaced by those of a row."""
    rows = background.copy()
    rows[:, list(known)] = np.asarray(x)[list(known)]
    return np.mean([tree.value[naive_leaf(tree, row)] for row in rows], axis=0)


def game_of(trees: list[Tree], x: Any, n_columns: int, background: NDArray[Any] | None = None) -> Game:
    """Return the joint prediction of trees for each set of known columns."""
    sets = [frozenset(some) for size in range(n_columns + 1) for some in itertools.combinations(range(n_columns), size)]
    one: Callable[[Tree, frozenset[int]], Any]
    if background is None:
        one = lambda tree, known: value_of(tree, x, known)  # noqa: E731
    else:
        one = lambda tree, known: mean_value_of(tree, x, known, background)  # noqa: E731
    return {known: np.sum([one(tree, known) for tree in trees], axis=0) for known in sets}


def shapley_values(game: Game, n_columns: int) -> NDArray[np.float64]:
    """Shape (n_columns, n_values)."""
    values = np.zeros((n_columns, len(game[frozenset()])))
    for i in range(n_columns):
        for known, value in game.items():
            if i not in known:
                weight = 1 / (n_columns * math.comb(n_columns - 1, len(known)))
                values[i] += weight * (game[known | {i}] - value)
    return values


def interaction_values(game: Game, n_columns: int) -> NDArray[np.float64]:
    """Shape (n_columns, n_columns, n_values)."""
    values = np.zeros((n_columns, n_columns, len(game[frozenset()])))
    for i, j in itertools.permutations(range(n_columns), 2):
        for known, value in game.items():
            if i not in known and j not in known:
                weight = 1 / (2 * (n_columns - 1) * math.comb(n_columns - 2, len(known)))
                values[i, j] += weight * (game[known | {i, j}] - game[known | {i}] - game[known | {j}] + value)
    for i, own in enumerate(shapley_values(game, n_columns)):
        values[i, i] = own - values[i].sum(axis=0)
    return values
