"""The block decoder of Protobuf gives what the reference decoder gives, in every field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.formats.protobuf.block import ProtobufBlockDecoder
from jobs.formats.protobuf.message_tree import Message
from jobs.formats.protobuf.options import ProtobufRules
from jobs.formats.protobuf.reference import ProtobufReferenceDecoder
from jobs.formats.protobuf.schema import message_tree
from jobs.schema.arrow_schema import rows_arrow_schema
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
