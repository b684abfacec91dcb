"""Targets that are times of events, possibly known only by bounds; see :mod:`dtrees.ensemble.objective.survival`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.column import is_missing
from dtrees.ensemble.input.schema import frame_columns, is_frame, without_mask
from dtrees.ensemble.input.warning import warn

_WANTED = (
    "wants an event (boolean) and a time for each row, as a structured array or a frame of two columns, or the two bounds of each time as "
    "numbers of shape (n, 2): equal where the event was observed, the upper one infinite where it was not"
)


def check_bounds(y: Any) -> NDArray[np.float64]:
    """Return the bounds of times, shape (n, 2), in column-major order; warn of events that look like bounds.

    Parameters
    ----------
    y : array-like
        A structured array, or a frame, with a boolean column (whether the event was observed) and one of times, in any order, or bounds as
        numbers of shape (n, 2).

    Raises
    ------
    ValueError
        If it has another form, or has NaN, negative times, infinite lower bounds, or upper bounds below lower ones.
    """
    y = without_mask(y, "y")
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names is not None:
        columns = [y[name] for name in names]
    elif is_frame(y):
        columns = [_plain(series.to_numpy()) for _, series in frame_columns(y)]
    else:
        columns = list(np.asarray(y).T) if np.ndim(y) == 2 else []
    if len(columns) != 2:
        shape = f"{len(names)} fields" if names is not None else f"the shape {np.shape(y)}"
        raise ValueError(f"y has {shape}, but loss is for times that may be censored: it {_WANTED}")
    kinds = [np.asarray(column).dtype.kind for column in columns]
    bounds = np.empty((len(columns[0]), 2), order="F")
    try:
        if "b" in kinds and kinds != ["b", "b"]:
            event, time = columns if kinds[0] == "b" else columns[::-1]
            columns = [time, np.where(event, time, np.inf)]
        bounds[:, 0], bounds[:, 1] = columns
    except (TypeError, ValueError) as error:
        raise ValueError(f"y cannot be turned into times ({error}); it {_WANTED}") from error
    wrong = ~((bounds[:, 0] >= 0.0) & np.isfinite(bounds[:, 0]) & (bounds[:, 1] >= bounds[:, 0]))
    if wrong.any():
        raise ValueError(
            f"y has the bounds {bounds[int(np.argmax(wrong))].tolist()}; wants times of at least 0, no NaN, a finite lower bound and an "
            "upper one that is no smaller, or events as booleans"
        )
    lower, upper = bounds.T
    if 0 < lower.sum() < len(lower) and np.isin(lower, (0.0, 1.0)).all() and np.isfinite(upper).all():
        warn("all lower bounds in y are 0 or 1 and all upper ones finite, as if they were events and times; pass events as booleans")
    return bounds


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Convert a column of objects, for example from a nullable dtype, to booleans or numbers if possible."""
    return np.array([np.nan if is_missing(value) else value for value in values]) if values.dtype.kind == "O" else values
