"""Objects as they travel between actors: pickled, and their arrays as they lie in memory, without a copy.

>>> import numpy as np
>>> unpack(b"".join(pack(("keep", np.arange(3)))))
('keep', array([0, 1, 2]))
"""

from __future__ import annotations

import itertools
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

_NUMBER = struct.Struct("Q")
#: What packed bytes begin with, and none that pickle makes.
_MARK = b"\0arrays\0"
#: Arrays begin at multiples of so many bytes, as kernels expect of them.
_ALIGNED = 64


def pack(thing: Any) -> list[Any]:
    """Return bytes-like pieces that, one after the other, are an object that Python itself can pickle; arrays are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    pieces = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
    sizes = [piece.nbytes for piece in pieces]
    head = _MARK + b"".join(map(_NUMBER.pack, [len(sizes), *sizes]))
    places = _layout(sizes)
    packed: list[Any] = []
    end = 0
    for place, piece in zip([0, *places], [memoryview(head), *pieces], strict=True):
        packed += [bytes(place - end), piece]
        end = place + piece.nbytes
    return [piece for piece in packed if len(piece)]


def is_packed(packed: Any) -> bool:
    """Tell whether bytes are such an object."""
    return bytes(packed[: len(_MARK)]) == _MARK


def unpack(packed: Any) -> Any:
    """Return the object that some bytes are; its arrays lie in these bytes, or, where they cannot be written to, in a copy."""
    view = memoryview(packed).cast("B")
    if view.readonly:
        view = np.frombuffer(view, np.uint8).copy().data
    (n,) = _NUMBER.unpack_from(view, len(_MARK))
    sizes = list(struct.unpack_from(f"{n}Q", view, len(_MARK) + _NUMBER.size))
    places = _layout(sizes)
    pieces = [view[place : place + size] for place, size in zip(places, sizes, strict=True)]
    return pickle.loads(pieces[0], buffers=pieces[1:])


def _layout(sizes: Sequence[int]) -> list[int]:
    """Return where pieces of some sizes begin, after the head."""
    head = _rounded(len(_MARK) + (1 + len(sizes)) * _NUMBER.size)
    return list(itertools.accumulate(map(_rounded, sizes), initial=head))[:-1]


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
