"""Models on disk: safe to load, checked, and never half written.

A model file is a safetensors file: plain arrays behind a JSON header. There is no pickle in it, and loading one runs no code of the
file's author. Terms:

state
    what an estimator says of itself: JSON-able metadata (parameters, schema, classes) and named arrays (the trees).
format version
    grows whenever a file could no longer be read by an older dtrees; a newer one than ours is refused, older ones are read. 2: trees
    of many nodes without what follows from the rest of them (:mod:`dtrees.tree.stacking`).
digest
    SHA-256 over class, metadata and arrays, stored in the header. It finds damage (a flipped bit in a threshold would otherwise
    be a wrong model); it is no signature, anyone who can write the file can write a digest.

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

#: The entry of the safetensors header that holds our document.
_KEY = "dtrees"

#: The only classes that a file can ask for.
_ESTIMATORS = frozenset(
    f"{kind}{task}"
    for kind in ("DecisionTree", "ExtraTree", "ExtraTrees", "RandomForest", "GradientBoosting", "Bagging")
    for task in ("Classifier", "Regressor")
) | {"GradientBoostingRanker", "IsolationForest"}


def save(model: Any, path: str | os.PathLike[str], *, mappable: bool = False) -> None:
    """Write a fitted estimator to a file, which :func:`load` reads back.

    The file appears whole or not at all: an older file of that name is replaced in one step.

    Parameters
    ----------
    model : estimator
        One of the estimators of dtrees, fitted.
    path : str or path-like
        Where to write; any name and extension will do.
    mappable : bool, default=False
        Whether ``load(path, mmap_mode="r")`` is to be possible. The file is then three to six times as large: trees lie in it as they are
        used.

    Raises
    ------
    TypeError
        If ``model`` is not one of the estimators of dtrees, ``path`` no path, or ``mappable`` no bool. Of a pipeline, save the last step.
    ValueError
        If ``path`` is an address such as ``s3://bucket/model``, or ``model`` is nothing that :func:`load` would accept, by a parameter
        that was set to a wrong value after the fit, say.
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
    """Read an estimator that :func:`save` wrote. It predicts exactly what the saved one did.

    Parameters
    ----------
    path : str or path-like
        The file.
    mmap_mode : {None, "r"}, default=None
        With "r", the model works with the file itself, mapped into memory: all processes that do so share one copy, and trees can
        be read only. The file must have been saved with ``mappable=True``. All of it is checked here, as without mapping; from then on
        it must not be changed in place. :func:`save` never does so: it replaces a file, and who has mapped the old one keeps that.

    Returns
    -------
    estimator
        Fitted, with the parameters of the saved one.

    Raises
    ------
    ValueError
        If ``path`` is an address such as ``s3://bucket/model``, or ``mmap_mode`` is neither; if the file was not saved for
        mapping; if it is no dtrees model, was written by a newer dtrees, is damaged or truncated, or describes an impossible model (an
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
    with open(path, "rb"):  # the system's own error for a file that is not there or may not be read
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
    """Raise if this cannot be a file of this machine's."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is {path!r}; wants the path of a file")
    if "://" in os.fspath(path):
        raise ValueError(f"path is the address {path!r}; wants a file on this machine, which fsspec can copy from there and to there")


def _estimator_class(name: str) -> type[Any]:
    """One of the classes of estimators. Only names of ``_ESTIMATORS`` come here."""
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
    """What is wrong with a file, said in full."""


def _unreadable(path: str | os.PathLike[str]) -> ModelFileError:
    """What to say of a file that cannot be parsed, by whether its start shows that it was a model once."""
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
