"""Reading of JSON data that may be damaged or malicious: the type of each value is checked.

>>> take({"columns": 3}, "columns", int, "the model")
3
>>> take({"columns": "3"}, "columns", int, "the model")
Traceback (most recent call last):
...
ValueError: the model has columns = '3'; wants int
"""

from __future__ import annotations

import contextlib
import math
from decimal import Decimal
from itertools import pairwise
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin

import numpy as np

#: A bound on integers, such that sums of two do not overflow.
_LARGEST = 2**62


def take(data: Any, name: str, kinds: type | tuple[type, ...], owner: str) -> Any:
    """Return an entry of a dict after checking its type; True and False are not integers.

    Raises
    ------
    ValueError
        If it is missing or has another type. The message names the entry and its ``owner``.
    """
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if type(data) is not dict or name not in data:
        raise ValueError(f"{owner} has no {name}")
    value = data[name]
    if type(value) not in kinds:
        raise ValueError(f"{owner} has {name} = {shown(value)}; wants {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def annotated(value: Any, annotation: Any, what: str, least: int = 0) -> Any:
    """Convert JSON data to a value of an annotation, lists to tuples; numbers must be finite and at least ``least``, integers below 2**62.

    >>> annotated([1, 2], tuple[float, ...] | None, "the model has weights")
    (1.0, 2.0)
    >>> annotated("a", int, "the model has columns")
    Traceback (most recent call last):
    ...
    ValueError: the model has columns = 'a'; wants int, and numbers that are finite and not below 0

    Raises
    ------
    ValueError
        If that fails. The message starts with ``what``.
    """
    for kind in get_args(annotation) if isinstance(annotation, UnionType) else (annotation,):
        with contextlib.suppress(ValueError):
            return _of_kind(value, kind, least)
    name = getattr(annotation, "__name__", annotation)
    raise ValueError(f"{what} = {shown(value)}; wants {name}, and numbers that are finite and not below {least}")


def _of_kind(value: Any, kind: Any, least: int) -> Any:
    if get_origin(kind) is tuple and type(value) is list:
        return tuple(_of_kind(item, get_args(kind)[0], least) for item in value)
    is_number = kind in (int, float)
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError
    if is_number and not least <= value < (_LARGEST if type(value) is int else math.inf):
        raise ValueError
    return float(value) if kind is float else value


def shown(value: Any) -> str:
    """Return a short description of a value; lists and dicts, which may be nested deeply, by their type."""
    return f"a {type(value).__name__}" if isinstance(value, list | dict | tuple) else f"{value!r:.40}"


def plain(value: Any) -> Any:
    """Return a parameter as JSON data, None if it has no such form."""
    if isinstance(value, dict):
        return {"dict": [[plain(key), plain(item)] for key, item in value.items()]}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, set | frozenset):
        value = sorted(value, key=lambda item: (isinstance(item, str), item))
    if isinstance(value, list | tuple):
        return None if any(callable(item) for item in value) else [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def from_plain(value: Any, depth: int = 2) -> Any:
    """Return the parameter that :func:`plain` described: a scalar, a dict of scalars, or a list of these, or of lists of scalars.

    Raises
    ------
    ValueError
        If it is something else, or lists are nested more deeply than ``depth``.
    """
    if type(value) is list and depth:
        return [from_plain(item, depth - 1) for item in value]
    if type(value) is dict and depth:
        pairs = take(value, "dict", list, "a parameter")
        if not all(type(pair) is list and len(pair) == 2 for pair in pairs):
            raise ValueError("a parameter is a dict of something else than pairs")
        return {from_plain(key, 0): from_plain(item, 0) for key, item in pairs}
    if value is not None and type(value) not in (bool, int, float, str):
        raise ValueError(f"a parameter holds {shown(value)}; wants numbers, text, True, False or None")
    return value


def plain_label(value: Any) -> Any:
    """Convert a label or a category (NumPy scalar, enum member, decimal) to the str, bool, int or float that JSON represents.

    >>> plain_label(np.str_("a")), plain_label(np.int8(3)), plain_label(Decimal("1.50"))
    ('a', 3, 1.5)
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) or (isinstance(value, Decimal) and float(value).is_integer()) else float(value)


def check_labels(values: Any, owner: str, *, is_sorted: bool = True) -> None:
    """Raise unless values are distinct labels (text, booleans or numbers), ascending if ``is_sorted``.

    Raises
    ------
    ValueError
        If they are not; the message names their ``owner``.
    """
    kinds = {type(value) for value in values}
    if not (kinds <= {str} or kinds <= {bool} or kinds <= {int, float}):
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"{owner} are of type {names}; wants text, booleans or numbers, in a model file only one of them")
    for value in values:
        if kinds == {str}:
            check_text(value, owner)
        elif value != value:
            raise ValueError(f"{owner} contain NaN")
    if not is_sorted and len(set(values)) < len(values):
        raise ValueError(f"{owner} are not distinct")
    if is_sorted and not all(one < other for one, other in pairwise(values)):
        raise ValueError(f"{owner} are not distinct and in ascending order")


def check_text(value: str, owner: str) -> None:
    """Raise if a text cannot be written to a file."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{owner} contain text that is not valid Unicode ({error})") from error
