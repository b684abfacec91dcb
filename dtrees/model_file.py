"""Save models to files that are safe to load, are checked, and are never half written.

A model file is a safetensors file: plain arrays after a JSON header. It contains no pickle, and loading it runs no code of the file's
author. Terms:

state
    content of an estimator: metadata that fit in JSON (parameters, schema, classes) and named arrays (the trees).
format version
    increases whenever an older dtrees could no longer read a file. Newer versions than ours are refused, older ones are read. In version
    2, trees of many nodes are stored without arrays that follow from the others (:mod:`dtrees.tree.stacking`).
digest
    SHA-256 over class, metadata and arrays, stored in the header. It finds damage (a flipped bit in a threshold would otherwise
    be a wrong model). It is not a signature: anyone who can write the file can write a digest.

Use
---
>>> import tempfile
>>> from dtrees import DecisionTreeRegressor
>>> path = Path(tempfile.mkdtemp()) / "model.dtrees"
>>> save(DecisionTreeRegressor().fit([[0.0], [1.0]], [10.0, 20.0]), path)
>>> load(path).predict([[0.2], [0.8]])
array([10., 20.])
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from sklearn.utils.validation import check_is_fitted

import dtrees
from dtrees.ensemble.state import PACKED
from dtrees.files import atomic_file, check_bools, digest, map_file, pack, parse
from dtrees.version import __version__

#: Version of the files written here, and the newest that can be read.
FORMAT_VERSION = 2

#: The entry of the safetensors header with our metadata.
_KEY = "dtrees"

#: The only classes that a file can name.
_ESTIMATORS = frozenset(
    f"{kind}{task}"
    for kind in ("DecisionTree", "ExtraTree", "ExtraTrees", "RandomForest", "GradientBoosting", "Bagging")
    for task in ("Classifier", "Regressor")
) | {"GradientBoostingRanker", "IsolationForest"}


def save(model: Any, path: str | os.PathLike[str], *, mappable: bool = False) -> None:
    """Write a fitted estimator to a file that :func:`load` reads.

    The file is written atomically: an older file of this name is replaced in one step.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dtrees.
    path : str or path-like
        File to write, with any name and extension.
    mappable : bool, default=False
        Whether to support ``load(path, mmap_mode="r")``. The file is then three to six times as large, because trees are stored in the form
        in which they are used.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees, ``path`` not a path, or ``mappable`` not a bool. For a pipeline, save its last step.
    ValueError
        If ``path`` is an address such as ``s3://bucket/model``, or :func:`load` would not accept ``model``, for example because a
        parameter was set to a wrong value after the fit.
    sklearn.exceptions.NotFittedError
        If ``model`` has not been fitted.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dtrees import DecisionTreeClassifier, load, save
    >>> model = DecisionTreeClassifier().fit([[0.0], [1.0], [2.0]], ["low", "low", "high"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.dtrees"
    ...     save(model, path)
    ...     load(path).predict([[1.7]]).tolist()
    ['high']
    """
    name = type(model).__name__
    if name not in _ESTIMATORS or type(model) is not _estimator_class(name):
        raise TypeError(f"model must be one of the estimators of dtrees, not {type(model).__module__}.{type(model).__qualname__}.")
    check_is_fitted(model)
    _check_path(path)
    if not isinstance(mappable, bool):
        raise TypeError(f"mappable is {mappable!r}; wants True or False")
    try:
        state, arrays = model._to_state(mappable)
    except ValueError as error:
        raise ValueError(f"this {name} cannot be saved: {error}") from error
    document = {"format_version": FORMAT_VERSION, "dtrees_version": __version__, "estimator": name, "state": state}
    with atomic_file(path) as file:
        file.write(pack(_KEY, document, arrays))


def load(path: str | os.PathLike[str], *, mmap_mode: Literal["r"] | None = None) -> Any:
    """Read an estimator that :func:`save` wrote. Its predictions equal those of the saved estimator exactly.

    Parameters
    ----------
    path : str or path-like
        File to read.
    mmap_mode : {None, "r"}, default=None
        With "r", the file is mapped into memory: all processes that map it share one copy, and trees are read-only. The file must have
        been saved with ``mappable=True``. It is checked completely, as without mapping, and must not be changed in place afterwards.
        :func:`save` never does so: it replaces the file, and processes that have mapped the old file keep it.

    Returns
    -------
    estimator
        A fitted estimator with the parameters of the saved one.

    Raises
    ------
    ValueError
        If ``path`` is an address such as ``s3://bucket/model``, or ``mmap_mode`` has another value; if the file was not saved for
        mapping; if it is not a dtrees model, was written by a newer dtrees, is damaged or truncated, or describes an impossible model (an
        index out of range, a cycle, a size that does not fit). The message names the file and says what to do.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dtrees import DecisionTreeRegressor, load, save
    >>> model = DecisionTreeRegressor(max_depth=3).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.dtrees"
    ...     save(model, path, mappable=True)
    ...     load(path).max_depth, load(path, mmap_mode="r").predict([[1.2]]).tolist()
    (3, [2.0])
    """
    _check_path(path)
    if mmap_mode is not None and mmap_mode != "r":
        raise ValueError(f"mmap_mode is {mmap_mode!r}; wants None or 'r'")
    with open(path, "rb"):  # raises the system's error for a file that is missing or not readable
        pass
    try:
        metadata, arrays = parse(map_file(path))
        document = json.loads(metadata[_KEY])
        _check_version(document, path)
        arrays = arrays if mmap_mode else {name: array.copy() for name, array in arrays.items()}
        found = digest(document, arrays)
    except (OSError, KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise _unreadable(path) from error
    if found != document.get("sha256"):
        raise _damaged(path, "its content does not match its checksum")
    name = document.get("estimator")
    if not isinstance(name, str) or name not in _ESTIMATORS:
        raise ValueError(f"{_quoted(path)} holds a model of the unknown kind {name!r:.40}. Save it again with dtrees.save.")
    if mmap_mode and not any(PACKED in key for key in arrays):
        raise ValueError(f"{_quoted(path)} was not saved for mapping. Load it without mmap_mode, or save it with mappable=True.")
    try:
        check_bools(arrays)
        return _estimator_class(name)._from_state(document.get("state"), arrays, mapped=mmap_mode is not None)
    except ValueError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{_quoted(path)} does not describe a valid {name}: {reason}. Save the model again with dtrees.save.") from error


def _check_path(path: Any) -> None:
    """Raise unless the path can be a file on this machine."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is {path!r}; wants the path of a file")
    if "://" in os.fspath(path):
        raise ValueError(f"path is the address {path!r}; wants a file on this machine, which fsspec can copy from there and to there")


def _estimator_class(name: str) -> type[Any]:
    """Return an estimator class by name; only names of ``_ESTIMATORS`` are passed."""
    cls: type[Any] = getattr(dtrees, name)
    return cls


def _check_version(document: dict[str, Any], path: str | os.PathLike[str]) -> None:
    version = document.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise _damaged(path, f"its format version is {version!r}")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{_quoted(path)} was written by dtrees {document.get('dtrees_version')} in format {version}; "
            f"this is dtrees {__version__}, which reads formats up to {FORMAT_VERSION}. Upgrade dtrees to load it."
        )


class ModelFileError(ValueError):
    """A file is not a valid model."""


def _unreadable(path: str | os.PathLike[str]) -> ModelFileError:
    """Return the error for a file that cannot be parsed, which differs if its start shows that it was a model."""
    with open(path, "rb") as file:
        start = file.read(64)
    if start[8:].startswith(b'{"__metadata__":{"%s":' % _KEY.encode()):
        return _damaged(path, "it cannot be parsed")
    return ModelFileError(
        f"{_quoted(path)} is not a dtrees model file, or is damaged beyond recognition. "
        "Give a file that dtrees.save or 'dtrees fit --output' wrote."
    )


def _damaged(path: str | os.PathLike[str], how: str) -> ModelFileError:
    return ModelFileError(f"{_quoted(path)} is damaged or truncated: {how}. Copy it again from where it came, or save the model again.")


def _quoted(path: str | os.PathLike[str]) -> str:
    return repr(str(Path(path)))
