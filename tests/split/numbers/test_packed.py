"""Packed numbers: their bytes have the documented format, and are unpacked correctly."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.work_queue import make_queue
from dtrees.split.numbers.packed import SPARE, packed_size
from dtrees.split.zones.over_shards.node_sums import add_packed, pack_numbers

LEAST, MOST = -(2**63), 2**63 - 1


def packed_by_hand(elements: list[list[int]], width: int) -> bytes:
    out = b""
    for first in range(0, len(elements), 64):
        block = elements[first : first + 64]
        there = [any(one) for one in block]
        if all(there):
            out += bytes([len(block)])
        else:
            out += bytes([128 + len(block)]) + sum(1 << i for i, some in enumerate(there) if some).to_bytes(8, "little")
        forms, content = b"", b""
        for numbers in [[one[k] for one, some in zip(block, there, strict=True) if some] for k in range(width)]:
            words = [number % 2**64 for number in numbers]
            whole = 0 if not any(words) else max(1 + (max(number, ~number).bit_length()) // 8 for number in numbers)
            upper = max([((word >> 32).bit_length() + 7) // 8 for word in words], default=0)
            lower = max([((word % 2**32).bit_length() + 7) // 8 for word in words], default=0)
            if upper + lower < whole:
                forms += bytes([16 * (upper + 1) + lower])
                for word in words:
                    content += (word % 2**32).to_bytes(4, "little")[:lower] + (word >> 32).to_bytes(4, "little")[:upper]
            else:
                forms += bytes([whole])
                content += b"".join(word.to_bytes(8, "little")[:whole] for word in words)
        out += forms + content
    return out


def pack(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    out = np.full(packed_size(numbers.shape[0], width, 1), 77, np.uint8)
    end = pack_numbers(numbers, width, out, 0)
    assert end + SPARE <= out.shape[0]
    return out[:end]


def added(packed: NDArray[np.uint8], width: int, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
    out, failed = np.empty_like(numbers), np.zeros(1, np.int64)
    spared = np.concatenate([packed, np.full(SPARE, 255, np.uint8)])
    add_packed(make_queue(), np.array([[0, 0, 0, numbers.shape[0]]]), spared, width, numbers, out, failed)
    return out, not failed[0]


#: Numbers of every size, including two counts in one number.
NUMBERS = st.one_of(
    st.just(0),
    st.sampled_from([LEAST, MOST, -1, 1, 127, 128, -128, -129, 255, 256, 2**31, 2**32, -(2**32), 2**62, -(2**62) - 1]),
    st.integers(0, 63).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1)),
    st.tuples(st.integers(0, 2**20), st.integers(0, 2**10)).map(lambda pair: (pair[0] << 32) + pair[1]),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    width = draw(st.integers(1, 5))
    kinds = draw(st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=1, max_size=8))
    return width, [kinds[i] for i in draw(st.lists(st.integers(0, len(kinds) - 1), max_size=200))]


@settings(max_examples=200, deadline=None)
@given(tables())
@example((2, []))
@example((2, [[0, 0]] * 64))
@example((3, [[LEAST, MOST, -1]] * 65))
@example((1, [[0]] * 63 + [[-1]]))
def test_bytes_are_those_of_the_format(table: tuple[int, list[list[int]]]) -> None:
    width, elements = table
    numbers = np.array(elements, np.int64).reshape(-1)
    packed = pack(numbers, width)
    assert packed.tobytes() == packed_by_hand(elements, width)
    base = np.arange(numbers.shape[0]) * 10**17
    found, are_all = added(packed, width, base)
    assert are_all
    assert np.array_equal(found, base + numbers)  # sums wrap around as those of NumPy do


@pytest.mark.parametrize("width", [1, 2, 3, 7])
@pytest.mark.parametrize("bits", [1, 7, 8, 9, 31, 32, 33, 62, 63])
def test_many_random_numbers(width: int, bits: int) -> None:
    rng = np.random.default_rng(bits)
    numbers = rng.integers(-(2**bits), 2**bits - 1, 300 * width, np.int64, endpoint=True)
    numbers.reshape(-1, width)[rng.random(300) < 0.4] = 0
    packed = pack(numbers, width)
    found, are_all = added(packed, width, np.zeros_like(numbers))
    assert are_all
    assert np.array_equal(found, numbers)
    assert packed.shape[0] <= packed_size(numbers.shape[0], width, 1) - SPARE


def test_small_numbers_take_few_bytes() -> None:
    numbers = np.tile([-100, (300 << 32) + 7], 640)
    assert pack(numbers, 2).shape[0] == 10 * (1 + 2) + 640 * (1 + 3)
    assert pack(np.zeros(6400, np.int64), 2).shape[0] == 50 * (1 + 8 + 2)


def test_other_numbers_than_were_packed() -> None:
    packed = pack(np.arange(200), 1)
    assert not added(packed, 1, np.zeros(150, np.int64))[1]
    assert not added(np.zeros(20, np.uint8), 1, np.zeros(5, np.int64))[1]
