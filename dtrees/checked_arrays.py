"""Arrays and a JSON document in one piece of bytes: safe to read, and checked.

The bytes are those of a safetensors file: plain arrays behind a header, in which the document is an entry. No pickle: reading runs no
code of the author's. A digest in the document finds damage and truncation; it is no signature.

>>> import numpy as np
>>> content = pack("notes", {"about": "numbers"}, {"x": np.arange(3.0)})
>>> document, arrays = unpack("notes", content)
>>> document["about"], arrays["x"].tolist()
('numbers', [0.0, 1.0, 2.0])
>>> unpack("notes", content[:-1])
Traceback (most recent call last):
...
ValueError: it cannot be parsed
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

Arrays = dict[str, NDArray[Any]]


def pack(key: str, document: dict[str, Any], arrays: Arrays) -> bytes:
    """Return document and arrays as bytes, which are the same whenever these are.

    Parameters
    ----------
    key : str
        What kind of document it is.
    document : dict
        Of JSON data. The entry ``"sha256"`` is made here.
    arrays : dict from str to ndarray
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # One entry only: safetensors writes several in random order.
    return safetensors.numpy.save(arrays, {key: json.dumps({**document, "sha256": digest(document, arrays)})})


def unpack(key: str, content: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return what :func:`pack` was given, with the same key.

    Raises
    ------
    ValueError
        If the bytes are no such document, or damaged.
    """
    try:
        arrays = safetensors.numpy.load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        document = json.loads(header["__metadata__"][key])
        is_whole = digest(document, arrays) == document["sha256"]
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it cannot be parsed") from error
    if not is_whole:
        raise ValueError("its content does not match its checksum")
    return document, arrays


def digest(document: dict[str, Any], arrays: Arrays) -> str:
    """Return the SHA-256 of everything but the entry for it, in an order that does not depend on the file's."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()
