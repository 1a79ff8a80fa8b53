"""Block decoder of Avro: it gives what the reference gives, over generated schemas and hostile bytes."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.records.formats.avro import container
from jobs.records.formats.avro.block import MOST_ITEMS, AvroBlockDecoder, misfits
from jobs.records.formats.avro.container import read_block, reading_schema
from jobs.records.formats.avro.options import AvroOptions
from jobs.records.formats.avro.reference import AvroReferenceDecoder
from jobs.records.formats.avro.schema import top_node
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.writer_schema import WriterSchema
from tests.unit.records.formats.avro.generated import (
    Kind,
    hostile,
    number,
    schemas,
    sized,
    text,
)

TEXT = json.dumps({"type": "record", "name": "r", "fields": [{"name": "t", "type": "string"}]})


def same(found: Decoded, expected: Decoded) -> None:
    assert found.rows.schema.equals(expected.rows.schema, check_metadata=True)
    found.rows.validate(full=True)
    assert found.positions.tolist() == expected.positions.tolist()
    assert found.failures == expected.failures
    assert found.tombstones.tolist() == expected.tombstones.tolist() == []
    # As texts: NaN != NaN, and -0.0 == 0.0.
    assert repr(found.rows.to_pylist()) == repr(expected.rows.to_pylist())


def both(schema: str, values: list[bytes], smallest: int = 1, **options: Any) -> tuple[Decoded, Decoded]:
    node = top_node(WriterSchema(schema), AvroOptions(**options))
    array = pa.array([b"before", *values], pa.binary()).slice(1)
    return AvroBlockDecoder(node, smallest=smallest).decode(array), AvroReferenceDecoder(node).decode(array)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Kind, list[bytes]]:
    kind = draw(schemas())
    return kind, draw(st.lists(kind.values, min_size=1, max_size=12))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(blocks())
def test_a_block_gives_what_the_reference_gives(block: tuple[Kind, list[bytes]]) -> None:
    kind, values = block
    node = top_node(WriterSchema(text(kind)), AvroOptions())
    # Each good record is read by the block's way, not left to the reference, whatever its values mean.
    array = pa.array([b"before", *values], pa.binary()).slice(1)
    assert read_block(*reading_schema(node), array).num_rows == len(values)
    assert not misfits(node, array).any()
    same(*both(text(kind), values))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=12), st.integers(1, 38))
def test_short_decimals_are_those_of_the_reference(values: list[bytes], precision: int) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 0}
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "d", "type": kind}]})
    same(*both(schema, [sized(each) for each in values]))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(blocks(), st.data())
def test_what_is_cut_off_or_too_long_is_found_and_no_other(
    block: tuple[Kind, list[bytes]], data: st.DataObject
) -> None:
    kind, values = block
    row = data.draw(st.integers(0, len(values) - 1))
    spoilt = data.draw(st.sampled_from([values[row][:-1], values[row] + b"\0"]))
    if spoilt == values[row]:
        return
    array = pa.array([*values[:row], spoilt, *values[row + 1 :]], pa.binary())
    found = misfits(top_node(WriterSchema(text(kind)), AvroOptions()), array)
    assert found.nonzero()[0].tolist() == [row]


def test_texts_that_are_not_utf_8_are_found() -> None:
    texts = ["ü€😀".encode(), b"a", b"\xff", "ü".encode()[:1], b""]
    values = [sized(each) for each in texts]
    found = misfits(top_node(WriterSchema(TEXT), AvroOptions()), pa.array(values, pa.binary()))
    assert found.tolist() == [False, False, True, True, False]
    same(*both(TEXT, values))


def test_very_long_lists_are_left_to_the_reference() -> None:
    kind = {"type": "array", "items": "boolean"}
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "l", "type": kind}]})
    values = [number(n) + bytes(n) + b"\0" for n in (1, MOST_ITEMS, MOST_ITEMS + 1)] + [b"\2"]
    found = misfits(top_node(WriterSchema(schema), AvroOptions()), pa.array(values, pa.binary()))
    assert found.tolist() == [False, False, True, True]
    same(*both(schema, values))


@st.composite
def hostile_blocks(draw: st.DrawFn) -> tuple[Kind, list[bytes]]:
    kind, values = draw(blocks())
    changed = draw(st.lists(hostile(values[0]), min_size=1, max_size=3))
    return kind, draw(st.permutations([*values, *changed]))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(hostile_blocks())
def test_hostile_records_fail_as_the_reference_says_and_no_other(block: tuple[Kind, list[bytes]]) -> None:
    kind, values = block
    same(*both(text(kind), values))


def test_blocks_of_any_size_follow_one_another_in_one_file() -> None:
    for count, length in [(3000, 50), (1, 1), (400, 3), (3000, 60), (2, 0)]:
        found, expected = both(TEXT, [sized(b"%05d" % n * length) for n in range(count)])
        same(found, expected)
        assert found.rows.num_rows == count


def test_a_large_file_is_not_kept_nor_is_that_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    both(TEXT, [sized(b"a")])
    ((process, kept),) = container._spare
    assert process == os.getpid() and os.fstat(kept).st_size < 1000
    monkeypatch.setattr(container.os, "getpid", lambda: -1)
    same(*both(TEXT, [sized(b"b")]))
    assert [process for process, _ in container._spare] == [-1]
    monkeypatch.setattr(container, "LARGEST_SPARE", 100)
    same(*both(TEXT, [sized(b"c" * 100)]))
    assert container._spare == []
