"""The block decoder of Protobuf gives what the reference decoder gives, in every field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.formats.protobuf.block import ProtobufBlockDecoder
from jobs.records.formats.protobuf.compile import message_of
from jobs.records.formats.protobuf.message_tree import Field, Message, Scalar
from jobs.records.formats.protobuf.options import ProtobufRules
from jobs.records.formats.protobuf.reference import ProtobufReferenceDecoder
from jobs.records.formats.protobuf.schema import message_tree
from jobs.records.formats.protobuf.wire_walk import WireWalk, walkable
from jobs.records.schema.arrow_schema import rows_arrow_schema
from tests.helpers.protobuf_records import filled, messages, spoilt

RULES = st.one_of(
    st.just(ProtobufRules()),
    st.builds(
        ProtobufRules,
        **dict.fromkeys(
            (
                *("int_for_enums", "optional_for_nullables", "optional_for_proto2", "wrapper_for_nullables"),
                *("generate_struct_for_nulls", "flatten_unions", "generate_index_for_unions"),
            ),
            st.booleans(),
        ),
        unknown_fields=st.sampled_from(["ignore", "fail"]),
    ),
)


@st.composite
def blocks(draw: Any) -> tuple[Message, list[bytes], bool]:
    rules = draw(RULES)
    message = draw(messages())
    good = [each.SerializeToString() for each in draw(st.lists(filled(message), min_size=1, max_size=4))]
    bad = draw(st.lists(spoilt(good[0], good[-1]), max_size=4))
    return message_tree(message, rules), draw(st.permutations([*good, *bad])), rules.unknown_fields == "fail"


def same(tree: Message, values: Sequence[bytes], *, refuse_unknown: bool = False) -> ProtobufBlockDecoder:
    block = pa.array([b"cut off", *values], pa.binary())[1:]
    decoder = ProtobufBlockDecoder(tree, refuse_unknown=refuse_unknown, smallest=1)
    expected = ProtobufReferenceDecoder(tree, refuse_unknown=refuse_unknown).decode(block)
    decoded = decoder.decode(block)
    for each in (decoded, expected):
        each.rows.validate(full=True)
        assert each.rows.schema.equals(rows_arrow_schema(decoder.schema))
        assert sorted([*each.positions.tolist(), *(one.row for one in each.failures)]) == list(range(len(values)))
    assert decoded.failures == expected.failures
    assert decoded.positions.tolist() == expected.positions.tolist()
    # As texts, since -0.0 == 0.0.
    assert repr(decoded.rows.to_pylist()) == repr(expected.rows.to_pylist())
    assert decoded.unknown_fields == expected.unknown_fields
    return decoder


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(blocks())
def test_blocks_of_any_schema_good_and_bad(block: tuple[Message, list[bytes], bool]) -> None:
    tree, values, refuse = block
    same(tree, values, refuse_unknown=refuse)


@given(st.lists(st.tuples(st.integers(-(2**120), 2**120), st.integers(0, 2), st.sampled_from([0, 2])), min_size=1))
def test_decimals_of_any_length(numbers: list[tuple[int, int, int]]) -> None:
    """In 18 digits, in 30, and in as many as there are."""
    schema = WriterSchema(
        'syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto"; message A { '
        + "".join(
            f"confluent.type.Decimal d{precision} = {precision} [(confluent.field_meta).params = {{key: 'precision' "
            f"value: '{precision}'}}, (confluent.field_meta).params = {{key: 'scale' value: '2'}}]; "
            for precision in (18, 30, 38)
        )
        + "}"
    )
    message = message_of(schema)
    kind: Any = GetMessageClass(message)
    values = [
        {"value": number.to_bytes(number.bit_length() // 8 + 1 + more, "big", signed=True), "scale": 2 - scale}
        for number, more, scale in numbers
    ]
    tree = message_tree(message, ProtobufRules())
    same(tree, [kind(**{f"d{digits}": value}).SerializeToString() for value in values for digits in (18, 30, 38)])


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
