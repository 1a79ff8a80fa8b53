"""Columns from keys and headers on the whole way: rows, dead letters with masks, and replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.clients.kafka.records import HEADERS
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.tables.dead_letter_table.masking import MARK
from tests.helpers.dead_letters import GOOD, DeadLetterWorld
from tests.helpers.evolving_stream import EvolvingStream
from tests.helpers.tasks import TaskOutput, TaskWorld, records, stream_spec

DECODE: dict[str, Any] = {
    "key": {"format": "string", "into": "key"},
    "headers": {"n": {"header": "x-n", "type": "int"}},
}
LINES = "  key: {format: string, into: key}\n  headers: {n: {header: x-n, type: int}}\n"


def run(folder: Path, header: bytes, *, mask: Any = None, value: str = "json") -> TaskOutput:
    errors = {"dead_letters": {"mask": mask}} if mask else None
    schema = "id long" if value == "json" else "id string"
    world = TaskWorld(folder, stream_spec(schema, errors=errors, decode=DECODE | {"value": value}))
    try:
        return world.run(records([b'{"id":1}', None, b'{"id":2}'], headers=[("x-n", header), ("other", b"o")]))
    finally:
        world.close()


def test_rows_have_columns_of_key_and_headers(tmp_path: Path) -> None:
    made = run(tmp_path, b"7")
    assert [(row["id"], row["key"], row["n"], row["_kafka_offset"]) for row in made.rows] == [
        (1, "k0", 7, 0),
        (2, "k2", 7, 2),
    ]
    assert made.counts.tombstones == 1


def test_a_header_that_is_refused_is_a_letter_with_the_whole_record(tmp_path: Path) -> None:
    made = run(tmp_path, b"seven")
    assert sorted(made.letters) == [0, 2] and not made.rows
    letter = made.letters[0]
    assert (letter["stage"], letter["error_class"], letter["field"]) == ("decode_header", "wrong_type", "$.n")
    assert letter["message"] == "needs int, found 'seven'"
    assert (letter["key"], letter["value"]) == (b"k0", b'{"id":1}')
    assert letter["headers"][0] == {"key": "x-n", "value": b"seven"}


@pytest.mark.parametrize("mask", [{"columns": ["n"]}, {"headers": ["x-n"]}])
@pytest.mark.parametrize("value", ["json", "string"])
def test_a_masked_column_withholds_the_header_that_it_is_from(tmp_path: Path, mask: Any, value: str) -> None:
    letter = run(tmp_path, b"seven", mask=mask, value=value).letters[0]
    assert letter["headers"] == [{"key": "x-n", "value": MARK.encode()}, {"key": "other", "value": b"o"}]
    assert (letter["key"], letter["value"], letter["masked"]) == (b"k0", b'{"id":1}', "headers")
    assert "seven" not in letter["message"]


def test_a_masked_column_withholds_the_key(tmp_path: Path) -> None:
    letter = run(tmp_path, b"seven", mask={"columns": ["key"]}).letters[0]
    assert (letter["key"], letter["masked"]) == (None, "key")


def letters_of(world: DeadLetterWorld, headers: list[Any], **columns: Any) -> None:
    world.add([GOOD] * len(headers), headers=pa.array(headers, HEADERS), **columns)


def test_a_replay_decodes_keys_and_headers_too(tmp_path: Path) -> None:
    world = DeadLetterWorld(tmp_path, decode=LINES)
    header = [{"key": "x-n", "value": b"1"}, {"key": "x-n", "value": b"2"}]
    letters_of(world, [header, None, [{"key": "x-n", "value": b"no"}]])
    result = world.replay()
    assert (result.replayed, result.failed_again) == (2, 1)
    rows = world.sink().scan().to_arrow().select(["id", "key", "n"]).to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": "p-0", "key": "k", "n": 2},
        {"id": "p-1", "key": "k", "n": None},
    ]
    world.close()


def test_a_letter_without_what_a_row_needs_stays_a_letter(tmp_path: Path) -> None:
    world = DeadLetterWorld(tmp_path, decode=LINES)
    masked = [{"key": "x-n", "value": MARK.encode()}]
    letters_of(world, [masked, [{"key": "other", "value": MARK.encode()}]])
    result = world.replay()
    assert (result.replayed, result.reasons[0].error_class) == (1, "letter_masked")
    assert world.landed() == {"p-1": 1}
    world.close()


FROM_TABLE: dict[str, Any] = {"key": {"format": "json", "schema": "table", "into": "key"}}


def test_a_key_s_columns_are_those_that_the_table_has_at_each_batch(tmp_path: Path) -> None:
    one = EvolvingStream(tmp_path, decode=FROM_TABLE, key="k long not null, shop string")
    one.keys = {0: b'{"k": 1, "shop": "a"}', 2: b'{"k": 3, "more": 1}', 3: b'{"k": "x"}', 4: b'{"shop": "a"}'}
    # A new column of the value is made as ever; no key makes one.
    done = one.land({"id": "a"}, {"id": "b"}, {"id": "c", "new": 1}, {"id": "d"}, {"id": "e"})
    assert one.rows == [
        {"id": "a", "key": {"k": 1, "shop": "a"}},
        {"id": "b"},
        {"id": "c", "key": {"k": 3, "shop": None}, "new": 1},
    ]
    assert {path: each.records for path, each in done.unknown_fields.items()} == {"$key.more": 1}
    assert one.letters == {3: "wrong_type", 4: "missing_field"}
    with one.table.update_schema() as change:
        change.add_column(("key", "more"), LongType())
        change.rename_column(("key", "shop"), "store")
    mapping = one.table.schema().name_mapping.model_dump_json().replace('"store"', '"store","shop"')
    with one.table.transaction() as change:
        change.set_properties({NAME_MAPPING: mapping})
    one.stream.targets[one.spec.table.name].read()
    one.keys[5] = b'{"k": 4, "more": 5, "shop": "b"}'
    one.land({"id": "f"}, batch=1)
    assert one.rows[-1] == {"id": "f", "key": {"k": 4, "store": "b", "more": 5}}


def test_a_table_that_lost_the_column_of_keys_gets_no_rows(tmp_path: Path) -> None:
    one = EvolvingStream(tmp_path, decode=FROM_TABLE, key="k long")
    with one.table.update_schema() as change:
        change.delete_column("key")
    one.stream.targets[one.spec.table.name].read()
    with pytest.raises(FrazilError, match="and the table has no column key"):
        one.land({"id": "a"})
    assert one.rows == []


def test_letters_of_such_keys_are_masked_and_come_back_by_what_the_table_says(tmp_path: Path) -> None:
    for mask in ((), ("key.shop",)):
        home = tmp_path / ("masked" if mask else "plain")
        one = EvolvingStream(home, decode=FROM_TABLE, key="k int not null, shop string", mask=mask)
        wrong = b'{"k": 3000000000, "shop": "a"}'
        one.keys = {0: wrong, 1: wrong}
        one.land({"id": "a"}, b"{")
        letters = one.catalog.load_table(one.spec.dead_letter_table).scan().to_arrow().to_pylist()
        assert {each["key"] for each in letters} == {None if mask else wrong}
        (letter,) = [each for each in letters if each["stage"] == "decode_key"]
        assert (letter["error_class"], letter["field"]) == ("out_of_range", "$.key.k")
        with one.table.update_schema() as change:
            change.update_column(("key", "k"), LongType())
        result = replay(one.spec, one.settings, one.catalog, ReplayRequest())
        assert (result.replayed, result.failed_again) == ((0, 2) if mask else (1, 1))
        assert {each.error_class for each in result.reasons} == {"letter_masked" if mask else "malformed_json"}
        assert one.rows == ([] if mask else [{"id": "a", "key": {"k": 3_000_000_000, "shop": "a"}}])
        one.catalog.close()
