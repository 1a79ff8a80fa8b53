"""Columns from keys and headers on the whole way: rows, dead letters with masks, and replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.deadletter.masking import MARK
from jobs.kafka.records import HEADERS
from tests.helpers.dead_letters import GOOD, DeadLetterWorld
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
