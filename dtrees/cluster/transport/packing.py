"""Objects as they travel between actors: pickled, and their arrays as they lie in memory, without a copy.

>>> import numpy as np
>>> unpack(b"".join(pack(("keep", np.arange(3)))))
('keep', array([0, 1, 2]))

What is sent many times for each tree is a name and arrays of numbers. That takes half the time where nothing else is looked for:

>>> unpack(b"".join(pack_named(("sums", 7), (np.arange(3), np.eye(1)))))
(('sums', 7), (array([0, 1, 2]), array([[1.]])))
"""

from __future__ import annotations

import itertools
import math
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBER = struct.Struct("Q")
#: What packed bytes begin with, and none that pickle makes; of a name and arrays, another.
_MARK, _NAMED = b"\0arrays\0", b"\0named\0\0"
#: Arrays begin at multiples of so many bytes, as kernels expect of them.
_ALIGNED = 64
#: Up to so many bytes are one piece: to copy them takes less time than to give the system several.
_ONE_PIECE = 1 << 15


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


def pack_named(name: tuple[Any, ...], arrays: tuple[Any, ...]) -> list[Any]:
    """Do as :func:`pack` does for ``(name, arrays)``, in less time if the latter are arrays of numbers only."""
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "iufb" for array in arrays):
        return pack((name, arrays))
    head = pickle.dumps((name, [(array.dtype.str, array.shape) for array in arrays]), protocol=5)
    pieces: list[Any] = [_NAMED + _NUMBER.pack(len(head)) + head]
    end = len(pieces[0])
    for array in arrays:
        if array.nbytes:
            pieces += [bytes(-end % _ALIGNED), np.ascontiguousarray(array).data.cast("B")]
            end += -end % _ALIGNED + array.nbytes
    return [b"".join(pieces)] if end <= _ONE_PIECE else [piece for piece in pieces if len(piece)]


def _unpack_named(view: memoryview) -> tuple[Any, tuple[NDArray[Any], ...]]:
    (size,) = _NUMBER.unpack_from(view, len(_NAMED))
    end = len(_NAMED) + _NUMBER.size + size
    name, about = pickle.loads(view[end - size : end])
    arrays = []
    for dtype, shape in about:
        n = math.prod(shape)
        if n:
            end += -end % _ALIGNED
            array = np.frombuffer(view, dtype, n, end)
            end += array.nbytes
            arrays.append(array if len(shape) == 1 else array.reshape(shape))
        else:
            arrays.append(np.empty(shape, dtype))
    return name, tuple(arrays)


def is_packed(packed: Any) -> bool:
    """Tell whether bytes are such an object."""
    return bytes(packed[: len(_MARK)]) == _MARK


def unpack(packed: Any) -> Any:
    """Return the object that some bytes are; its arrays lie in these bytes, or, where they cannot be written to, in a copy."""
    view = memoryview(packed).cast("B")
    if view.readonly:
        view = np.frombuffer(view, np.uint8).copy().data
    if view[: len(_NAMED)] == _NAMED:
        return _unpack_named(view)
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
