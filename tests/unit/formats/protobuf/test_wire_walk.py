"""The wire walk reads varints of every length as the bytes say, and leaves out what is cut off or has too many bits."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.formats.protobuf.message_tree import Field, Message, Scalar
from jobs.formats.protobuf.wire_walk import WireWalk, walkable

NUMBERS = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 64).map(lambda bits: (1 << bits) - 1 if bits else 0))
TREE = Message("A", (Field(1, "a", Scalar("uint64")), Field(2, "b", Scalar("uint64"))))


def varint(number: int, length: int = 0) -> bytes:
    found = bytearray()
    while number > 0x7F or len(found) + 1 < length:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def walked(*values: bytes) -> tuple[list[tuple[int | None, int | None]], list[bool]]:
    walk = WireWalk(pa.array([b"", *values], pa.binary())[1:])
    read = walk.read(TREE)
    return list(zip(*(column.to_pylist() for column in read.columns), strict=True)), walk.good.tolist()


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 10)), min_size=1))
def test_numbers_of_every_length(pairs: list[tuple[int, int, int]]) -> None:
    values = [b"\x08" + varint(one, length) + b"\x10" + varint(other) for one, other, length in pairs]
    assert walked(*values) == ([pair[:2] for pair in pairs], [True] * len(pairs))


@pytest.mark.parametrize("number", [0, 127, 128, 2**35, 2**63, 2**64 - 1])
def test_numbers_that_are_cut_off_or_go_on(number: int) -> None:
    whole = b"\x08" + varint(number)
    bad = [whole[:-1], whole + b"\x08", whole + whole, b"\x10\x01" + whole, whole[:-1] + b"\xff" * 11]
    # Whatever stands behind them, they do not borrow from it.
    for each in bad:
        assert walked(whole, each, whole)[1] == [True, False, True]


def test_more_than_64_bits_are_left_out() -> None:
    assert walked(b"\x08" + b"\xff" * 9 + b"\x02")[1] == [False]
    assert walked(b"\x08" + b"\xff" * 9 + b"\x01") == ([(2**64 - 1, None)], [True])


def test_an_empty_message_has_no_fields() -> None:
    assert walked(b"", b"") == ([(None, None)] * 2, [True, True])


def test_lists_are_not_walked() -> None:
    assert walkable(TREE)
    assert not walkable(Message("B", (Field(1, "a", TREE), Field(2, "b", Scalar("bytes"), shape="list"))))
