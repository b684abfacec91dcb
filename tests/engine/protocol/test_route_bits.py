"""RouteBits that shards offer, kept by node until they are applied."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtrees.engine.protocol.route_bits import RouteBitStore
from dtrees.engine.protocol.splits import RouteBits


def marks(each: list[bytes]) -> RouteBits:
    offsets = np.cumsum([0, *map(len, each)])
    return RouteBits(np.frombuffer(b"".join(each), np.uint8), offsets)


def apart(found: RouteBits) -> list[bytes]:
    return [found.bits[i:j].tobytes() for i, j in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


@given(st.data())
def test_what_was_noted_is_taken_in_any_order(data: st.DataObject) -> None:
    """Against a dictionary."""
    store, kept = RouteBitStore(), dict[int, bytes]()
    for _ in range(data.draw(st.integers(1, 5))):
        new = [node for node in data.draw(st.lists(st.integers(0, 200), max_size=6, unique=True)) if node not in kept]
        each = [data.draw(st.binary(max_size=3)) for _ in new]
        which = np.array([data.draw(st.booleans()) for _ in new], np.bool_)
        store.note(np.array(new, np.int64), marks(each), which)
        kept |= {node: bits for node, bits, wanted in zip(new, each, which, strict=True) if wanted and bits}
        assert store.has(np.arange(300)).nonzero()[0].tolist() == sorted(kept)
        taken = data.draw(st.lists(st.sampled_from(sorted(kept)), unique=True)) if kept else []
        assert apart(store.take(np.array(taken, np.int64))) == [kept.pop(node) for node in taken]


def test_a_reply_without_nodes() -> None:
    store = RouteBitStore()
    store.note(np.empty(0, np.int64), marks([]), np.empty(0, np.bool_))
    assert not store.has(np.array([0])).any()


def test_some_of_many_are_spread() -> None:
    each = [b"ab", b"c"]
    assert apart(marks(each).spread(np.array([False, True, True, False]))) == [b"", b"ab", b"c", b""]
