"""Colours of the nodes of a drawn tree: what they predict, the stronger the surer.

Classes have hues that people who see few colours can tell apart too (Okabe and Ito, 2008), numbers go from white to blue; where there are
positive and negative ones, from red over white to blue. All are light enough for black text.
"""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import NDArray

from dtrees.tree.tree import Tree

_OKABE_ITO = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))
_BLUE, _RED, _WHITE = np.array([60.0, 130, 200]), np.array([220.0, 90, 60]), np.full(3, 255.0)
#: How much of a colour there is at most: black text has to be read on it.
_STRONGEST = 0.75


def class_colour(number: int, n_classes: int) -> tuple[int, int, int]:
    """Return the colour of a class as red, green and blue of 0 to 255.

    >>> class_colour(0, 2), class_colour(1, 2)
    ((230, 159, 0), (86, 180, 233))
    """
    if n_classes <= len(_OKABE_ITO):
        return _OKABE_ITO[number]
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(number / n_classes, 0.75, 0.9))
    return red, green, blue


def node_colours(tree: Tree, classify: bool) -> list[str]:
    """Return the colour of each node of a tree, as ``#rrggbb``.

    Parameters
    ----------
    tree : Tree
    classify : bool
        Whether values are shares of classes.
    """
    values = tree.value.reshape(tree.node_count, -1)
    if classify:
        strength, base = _surety(values)
    elif values.shape[1] > 1:  # several targets: how alike rows are
        strength, base = _scaled(-tree.impurity), np.tile(_BLUE, (tree.node_count, 1))
    else:
        number = values[:, 0]
        if number.min() < 0 < number.max():
            strength = np.abs(number) / np.abs(number).max()
            base = np.where(number[:, np.newaxis] < 0, _RED, _BLUE)
        else:
            strength, base = _scaled(number), np.tile(_BLUE, (tree.node_count, 1))
    mixed = _WHITE + (strength * _STRONGEST)[:, np.newaxis] * (base - _WHITE)
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in np.rint(mixed).astype(int).tolist()]


def _surety(shares: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far the largest class is ahead of the second one, as a share of what it could be, and its colour."""
    n_classes = shares.shape[1]
    colours = np.array([class_colour(k, n_classes) for k in range(n_classes)], dtype=np.float64)
    if n_classes == 1:
        return np.ones(len(shares)), np.tile(colours[0], (len(shares), 1))
    second, first = np.sort(shares, axis=1)[:, -2:].T
    with np.errstate(invalid="ignore"):
        ahead = np.where(second < 1, (first - second) / (1 - second), 0.0)
    return np.clip(ahead, 0, 1), colours[shares.argmax(axis=1)]


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros(len(values))
