"""What all pictures need of matplotlib."""

from __future__ import annotations

from typing import Any

from dtrees.version import pip_install


def pyplot() -> Any:
    """Return :mod:`matplotlib.pyplot`.

    Raises
    ------
    ImportError
        If matplotlib is not installed; it says how to install it.
    """
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(f"dtrees draws with matplotlib, which cannot be imported ({error}); {pip_install('plot')}") from error
    return matplotlib.pyplot


def axes_for(ax: Any, figsize: Any) -> Any:
    """Return the axes to draw in: those given, or those of a new figure of a size in inches (None for matplotlib's default).

    Raises
    ------
    TypeError
        If ``ax`` is something else.
    ValueError
        If both are given, or ``figsize`` is no pair of positive numbers.
    """
    plt = pyplot()
    if ax is None:
        return plt.subplots(figsize=checked_size(figsize), layout="constrained")[1]
    if not hasattr(ax, "transData"):
        raise TypeError(f"ax is of type {type(ax).__name__}; wants axes of matplotlib, or None for a new figure")
    if figsize is not None:
        raise ValueError(f"figsize is {figsize!r}, but ax is given, whose figure has a size; pass one of them")
    return ax


def checked_size(figsize: Any) -> tuple[float, float] | None:
    """Return a size in inches, or None where none is given."""
    if figsize is None:
        return None
    try:
        width, height = (float(number) for number in figsize)
    except (TypeError, ValueError):
        raise ValueError(f"figsize is {figsize!r}; wants a pair of numbers, width and height in inches") from None
    if not (width > 0 and height > 0):
        raise ValueError(f"figsize is {figsize!r}; wants positive numbers")
    return width, height
