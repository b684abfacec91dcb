"""Names and what goes with them, as they travel between actors: pickled, but for arrays, which go as they lie in memory, without a copy.

>>> import numpy as np
>>> unpack(b"".join(pack_named(("sums", 7), (np.arange(3), np.eye(1)))))
(('sums', 7), (array([0, 1, 2]), array([[1.]])))

Packed bytes are the length of a head, the head, and the arrays. What is sent many times for each tree is a name and arrays of numbers: then
nothing else is looked for. Anything else that Python can pickle is pickled without its arrays, which are put back by their numbers:

>>> unpack(b"".join(pack_named(("found", 8), ({"best": np.arange(2)},))))
(('found', 8), ({'best': array([0, 1])},))
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBER = struct.Struct("Q")
#: Arrays begin at multiples of so many bytes, as kernels expect of them.
_ALIGNED = 64
#: Up to so many bytes are one piece: to copy them takes less time than to give the system several.
_ONE_PIECE = 1 << 15
#: Kinds of arrays of numbers.
_NUMBERS = "iufb"


class _Pickler(pickle.Pickler):
    """Pickles all but arrays, which it collects. They go twice as fast by themselves, and objects of a dozen of them four times."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.arrays: list[NDArray[Any]] = []

    def persistent_id(self, thing: Any) -> int | None:
        """Return the number of an array, None for anything else."""
        if type(thing) is not np.ndarray or thing.dtype.hasobject:
            return None
        self.arrays.append(thing)
        return len(self.arrays) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Sequence[NDArray[Any]]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, number: int) -> NDArray[Any]:
        return self._arrays[number]


def pack_named(name: tuple[Any, ...], things: tuple[Any, ...]) -> list[Any]:
    """Return bytes-like pieces that, one after the other, are a name and some things."""
    arrays: Sequence[NDArray[Any]] = things
    about: list[tuple[Any, tuple[int, ...]]] = []
    for array in things:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in _NUMBERS:
            break
        about.append((array.dtype.str, array.shape))
    if len(about) == len(things):
        head = pickle.dumps((name, None, about), protocol=5)
    else:
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(things)
        arrays = pickler.arrays
        about = [(array.dtype.str if array.dtype.kind in _NUMBERS else array.dtype, array.shape) for array in arrays]
        head = pickle.dumps((name, file.getvalue(), about), protocol=5)
    pieces: list[Any] = [_NUMBER.pack(len(head)), head]
    end = _NUMBER.size + len(head)
    for array in arrays:
        if n := array.nbytes:
            if array.dtype.kind not in _NUMBERS:
                array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            if gap := -end % _ALIGNED:
                pieces.append(bytes(gap))
            pieces.append(np.ascontiguousarray(array).data.cast("B"))
            end += gap + n
    return [b"".join(pieces)] if end <= _ONE_PIECE else pieces


def unpack(packed: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the name and the things that some bytes are; arrays lie in these bytes, or, where they cannot be written to, in a copy."""
    view = memoryview(packed).cast("B")
    if view.readonly:
        view = np.frombuffer(view, np.uint8).copy().data
    (size,) = _NUMBER.unpack_from(view)
    end = _NUMBER.size + size
    name, pickled, about = pickle.loads(view[_NUMBER.size : end])
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
    return name, tuple(arrays) if pickled is None else _Unpickler(io.BytesIO(pickled), arrays).load()
