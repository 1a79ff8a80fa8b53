from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import Mask
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.record_columns import HeaderColumn, RecordColumns
from jobs.records.schema.declared import Field, Primitive
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule
from jobs.records.schema.parser import parse_schema
from jobs.streaming.driver.batch.tolerance import check_tolerance
from jobs.tables.commit.stamp.errors import ToleranceError
from jobs.tables.dead_letter_table.masking import MARK, can_return, masked
from tests.helpers.tasks import TaskWorld, records, stream_spec

ROWS = iceberg_schema(
    parse_schema("id string not null, card struct<number string, kind string>, items list<struct<sku string>>")
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def one(
    value: bytes | None,
    mask: Mask,
    *,
    field: str | None = None,
    message: str = "found 'secret'",
    names: NameRule = EXACT_NAMES,
) -> Any:
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"the key"], pa.binary()),
            "value": pa.array([value], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"secret"}, {"key": "i", "value": b"kept"}]], HEADERS),
        }
    )
    made = masked(batch, [Failure(0, "decode_value", "wrong_type", message, field)], mask, ROWS, names=names)
    return made.records.to_pylist()[0] | {"message": made.failures[0].message, "parts": made.parts[0]}


NAMES = NameRule(((("card",), ("kard",)), (("card", "number"), ("pan",)), (("items", "element", "sku"), ("article",))))


@pytest.mark.parametrize(
    ("value", "column", "kept"),
    [
        (b'{"kard": {"pan": "secret", "x": 1}}', "card.number", {"kard": {"pan": MARK, "x": 1}}),
        (b'{"card": {"PAN": "secret", "number": "secret"}}', "card.number", {"card": {"PAN": MARK, "number": MARK}}),
        # The mask names an alias: the column's own name is another name for the same.
        (b'{"card": {"number": "secret"}}', "kard.pan", {"card": {"number": MARK}}),
        (b'{"items": [{"article": "secret"}]}', "items.sku", {"items": [{"article": MARK}]}),
    ],
)
def test_a_masked_column_is_masked_under_each_of_its_names(value: bytes, column: str, kept: dict[str, Any]) -> None:
    letter = one(value, Mask(columns=(column,)), field="$.card.number", names=NAMES)
    assert (json.loads(letter["value"]), letter["parts"]) == (kept, "value")
    if column != "items.sku":
        assert letter["message"] == "what was found is masked"


def test_a_field_that_was_masked_before_it_was_a_column_s_name_never_becomes_a_row() -> None:
    letter = one(b'{"card": {"pan": "secret"}}', Mask(columns=("card.pan",)))
    assert letter["parts"] == "field:card.pan"
    assert can_return(letter["parts"], ROWS)
    assert not can_return(letter["parts"], ROWS, names=NAMES)


@pytest.mark.parametrize(
    ("value", "columns", "kept", "parts"),
    [
        (b'{"id": "secret", "n": 1.10}', ["id"], {"id": MARK, "n": 1.1}, "value"),
        (b'{"card": {"number": "secret", "cvv": 5}}', ["card.number"], {"card": {"number": MARK, "cvv": 5}}, "value"),
        (b'{"card": {"cvv": "secret"}, "id": 1}', ["card.cvv"], {"card": {"cvv": MARK}, "id": 1}, "field:card.cvv"),
        (b'{"a-b,c": "secret"}', ["`a-b,c`"], {"a-b,c": MARK}, "field:`a-b,c`"),
        (b'{"items": [{"sku": "secret"}, {"sku": null}, 7]}', ["items.sku"], {"items": MARK}, "value"),
        (b'{"items": [{"sku": "secret"}, {"x": 1}]}', ["items.sku"], {"items": [{"sku": MARK}, {"x": 1}]}, "value"),
        # The same key twice, in another case, or written with escapes.
        (b'{"id": "secret", "id": "secret"}', ["id"], {"id": MARK}, "value"),
        (b'{"ID": "secret"}', ["id"], {"ID": MARK}, "value"),
        (b'{"\\u0069d": "secret"}', ["id"], {"id": MARK}, "value"),
        (b'{"n": 1.10, "card": {"number": "secret"}, "card": null}', ["card.number"], {"n": 1.1, "card": None}, None),
        (b'{"card": {"number": "secret"}, "card": {}}', ["card.number"], {"card": {}}, None),
        (
            b'{"items": [{"x": {"sku": "secret"}, "x": 1}]}',
            ["items.x.sku"],
            {"items": [{"x": MARK}]},
            "field:items.x.sku",
        ),
        (b'{"i": {"items": [{"sku": "secret"}], "items": []}}', ["i.items.sku"], {"i": {"items": []}}, None),
        # What should be an object is the value itself.
        (b'{"card": "secret"}', ["card.number"], {"card": MARK}, "value"),
        (b'{"card": null, "n": 5}', ["card.number"], {"card": None, "n": 5}, None),
        (b'{"n": 5}', ["id", "card.number"], {"n": 5}, None),
    ],
)
def test_fields(value: bytes, columns: list[str], kept: Any, parts: str | None) -> None:
    row = one(value, Mask(columns=tuple(columns)))
    assert json.loads(row["value"]) == kept
    assert row["parts"] == parts
    assert row["key"] == b"the key"
    assert b"secret" not in row["value"]


def test_what_is_not_masked_stays_byte_for_byte() -> None:
    value = b' {"n": 1.10, "x": 12345678901234567890.50}'
    assert one(value, Mask(columns=("id",)))["value"] == value
    assert b"1.10" in one(b'{"id": 1, "n": 1.10}', Mask(columns=("id",)))["value"]


@pytest.mark.parametrize(
    "value",
    [
        *(b'{"id": "secret"', b"secret", b"\xff secret", b'"secret"', b'["secret"]', b"[" * 5000 + b"1", b""),
        # Keys that come twice, too deep for anybody to look for them.
        b'{"x": {"id": "secret"}, "x": {}, "id": ' + b"[" * 980 + b"]" * 980 + b"}",
    ],
)
def test_a_value_that_cannot_be_read_is_withheld(value: bytes) -> None:
    row = one(value, Mask(columns=("id",)))
    assert (row["value"], row["parts"], row["message"]) == (None, "value", "what was found is masked")


def test_a_tombstone_has_nothing_to_withhold() -> None:
    assert one(None, Mask(columns=("id",)))["parts"] is None


@pytest.mark.parametrize(
    ("field", "quoted"),
    [
        ("$.card.number", False),
        ("$.card", False),
        ("$.card.number.x", False),
        ("$.card.kind", True),
        ("$.id", True),
        (None, True),
    ],
)
def test_a_message_about_a_masked_field_quotes_nothing(field: str | None, quoted: bool) -> None:
    row = one(b'{"card": {"number": 5}}', Mask(columns=("card.number",)), field=field)
    assert ("secret" in row["message"]) == quoted


def test_places_in_lists_are_the_field_s() -> None:
    assert (
        "secret" not in one(b'{"items": [{"sku": 5}]}', Mask(columns=("items.sku",)), field="$.items[0].sku")["message"]
    )


@pytest.mark.parametrize(
    ("mask", "place", "message"),
    [
        (Mask(headers=("h",)), "$.from_h", "what was found is masked"),
        (Mask(headers=("h",)), "$.from_i", "found 'secret'"),
        (Mask(columns=("from_h",)), "$.from_h", "what was found is masked"),
        (Mask(headers=("i",)), "$.from_h", "found 'secret'"),
    ],
)
def test_a_failure_tells_nothing_of_a_masked_header(mask: Mask, place: str, message: str) -> None:
    columns = RecordColumns(
        headers=tuple(HeaderColumn(Field(f"from_{name}", Primitive("int")), name) for name in ("h", "i"))
    )
    headers = pa.array([[{"key": "h", "value": b"secret"}]], HEADERS)
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"{}"], pa.binary()), "headers": headers})
    failure = Failure(0, "decode_header", "wrong_type", "found 'secret'", place)
    assert masked(batch, [failure], mask, ROWS, columns).failures[0].message == message


def test_headers_and_key() -> None:
    row = one(b'{"id": 5}', Mask(headers=("h",), key=True))
    assert row["headers"] == [{"key": "h", "value": MARK.encode()}, {"key": "i", "value": b"kept"}]
    assert (row["key"], row["value"], row["parts"]) == (None, b'{"id": 5}', "key,headers")


@pytest.mark.parametrize(
    ("parts", "schema", "returns"),
    [
        (None, "id string", True),
        ("key,headers", "id string", True),
        ("value", "id string", False),
        ("field:card.cvv", "id string", True),
        ("field:card.cvv,key", "id string, card struct<number string>", True),
        ("field:card.cvv,key", "id string, card struct<cvv string>", False),
        ("field:card.cvv", "card map<string, string>", False),
        ("field:card.cvv", "card string", False),
        ("field:`a,b`", "`a,b` string", False),
    ],
)
def test_whether_a_letter_can_come_back(parts: str | None, schema: str, returns: bool) -> None:
    assert can_return(parts, iceberg_schema(parse_schema(schema))) is returns


def test_in_the_letters(tmp_path: Path) -> None:
    mask = {"columns": ["card.number"], "headers": ["h"], "key": True}
    spec = stream_spec("id string not null, card struct<number string>", errors={"dead_letters": {"mask": mask}})
    world = TaskWorld(tmp_path, spec)
    made = world.run(
        records([b'{"card": {"number": "secret"}}', b'{"id": "a", "card": {"number": "kept"}}', b"secret"])
    )
    assert made.letters[0]["value"] == b'{"card":{"number":"[masked]"}}'
    assert (made.letters[0]["masked"], made.letters[0]["key"]) == ("key,value", None)
    assert made.letters[2]["value"] is None
    assert [row["card"] for row in made.rows] == [{"number": "kept"}]
    world.close()


@pytest.mark.parametrize("value", [b"17", b"null", b'{"other": "secret"}', b"secret"])
def test_nothing_is_kept_of_a_value_that_is_no_json_and_whose_column_is_masked(tmp_path: Path, value: bytes) -> None:
    """It may read as JSON all the same, in which nothing would stand where the masked column should be."""
    spec = StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "long", "schema": "balance long"},
            "table": {"name": "orders.payments"},
            "errors": {"dead_letters": {"mask": {"columns": ["balance"]}}},
        }
    )
    world = TaskWorld(tmp_path, spec)
    made = world.run(records([value, (517).to_bytes(8, "big"), None]))
    letter = made.letters[0]
    assert (letter["value"], letter["masked"], letter["message"]) == (None, "value", "what was found is masked")
    assert [row["balance"] for row in made.rows] == [517]
    assert made.counts.tombstones == 1
    world.close()


MARKER = "hunter2"
SCHEMA = (
    "id string not null, amount decimal(6,2), text decimal(6,2) as text, at timestamptz, day date, b binary, f float, "
    "ms timestamp as epoch_ms, n int"
)
VALUES = [
    MARKER.encode(),
    f'{{"id": "{MARKER}"'.encode(),
    f'"{MARKER}"'.encode(),
    f'{{"id": "{MARKER}", "amount": "{MARKER}"}}'.encode(),
    b'{"id": "a", "text": "%s"}' % MARKER.encode(),
    b'{"id": "a", "at": "%s"}' % MARKER.encode(),
    b'{"id": "a", "day": "%s"}' % MARKER.encode(),
    b'{"id": "a", "b": "%s!"}' % MARKER.encode(),
    b'{"id": "%s", "n": 1.5}' % MARKER.encode(),
    b'{"id": "%s\xff"}' % MARKER.encode(),
]
# What is needed, told without what was found.
NEEDED = ("needs decimal(6,2), found a string", "needs one valid JSON object", "needs int, found a number")
NUMBER = 987654321
NUMBERS = [
    b'{"id": "a", "amount": %d}' % NUMBER,
    b'{"id": "a", "ms": %d000000000}' % NUMBER,
    b'{"id": "a", "f": %de200}' % NUMBER,
    b'{"id": "a", "n": %d000}' % NUMBER,
]


@pytest.mark.parametrize(
    "errors",
    [
        {"tolerance": "none"},
        {"stop_above": {"count": 1}},
        {"stop_above": {"ratio": 0.01, "min_records": 1}},
        {"stop_above": {"window": {"of": "1h", "count": 1}}},
    ],
    ids=json.dumps,
)
def test_values_are_told_to_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture, errors: dict[str, object]) -> None:
    caplog.set_level(logging.DEBUG)
    world = TaskWorld(tmp_path, stream_spec(SCHEMA, errors=errors))
    made = world.run(records([*VALUES, *NUMBERS]))
    assert sorted(made.letters) == list(range(len(VALUES) + len(NUMBERS)))
    # The letters themselves may quote; that there is something to quote keeps this test honest.
    assert any(MARKER in letter["message"] for letter in made.letters.values())
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(world.spec, made.counts, made.tallies)
    told = str(stop.value) + repr(stop.value) + msgspec.json.encode(made.tallies).decode() + caplog.text
    assert MARKER not in told
    assert str(NUMBER) not in told
    assert "offset 0: malformed_json in decode_value: needs one valid JSON object" in told
    assert all(needed in told for needed in NEEDED)
    world.close()
