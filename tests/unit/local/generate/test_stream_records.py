"""Generated records of a stream: keys and headers pass its pipeline, and what is bad about them is told by its name."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from jobs.base.errors import FrazilError
from jobs.clients.kafka.records import HEADERS
from jobs.config.values.decode import Decode
from jobs.local.generate.derived_schema import derived_schema
from jobs.local.generate.record import FIRST_TIME, GeneratedRecord, RecordGenerator
from jobs.local.generate.stream_records import record_generator
from jobs.local.generate.values import OneSchema
from jobs.records.formats.interface.decoder_spec import rows_of
from jobs.records.formats.interface.writer_schema import RegistrySchema, WriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.record_columns import BYTES_TYPES, TEXT_TYPES
from jobs.records.schema.kafka_columns import NO_KAFKA_COLUMNS
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import stream_pipeline
from jobs.streaming.pipeline.record_stages import ReadHeaders

_TEXT = {"decimal": "decimal(9,2)"}


def writer_of(kind: str, columns: Any) -> OneSchema | None:
    registry_kind = FORMATS[kind].registry_kind
    if registry_kind is None:
        return None
    return OneSchema(3, RegistrySchema(registry_kind, WriterSchema(derived_schema(kind, columns, "keys"))))


def stream(**decode: Any) -> tuple[RecordGenerator, Any]:
    """What makes records of a stream, and what lands them."""
    spec = Decode.model_validate({"value": "json", "schema": "v int not null"} | decode)
    columns, rows = spec.record_columns(NO_KAFKA_COLUMNS), spec.declared
    assert rows is not None
    key = columns.key
    writers = [writer_of(rows.decoder.kind, rows.schema.fields)]
    writers += [writer_of(key.decoder.kind, rows_of(key.decoder).fields)] if key else [None]
    made = record_generator("keys", rows, columns, *writers)

    def land(records: list[GeneratedRecord]) -> Block:
        batch = {
            "value": pa.array([each.value for each in records], pa.binary()),
            "key": pa.array([each.key for each in records], pa.binary()),
            "headers": pa.array([[{"key": k, "value": v} for k, v in each.headers] for each in records], HEADERS),
        }
        pipeline = stream_pipeline(
            rows.with_schemas(writers[0]).decoder,
            "a.b",
            lambda block: block,
            columns=columns.with_schemas(writers[1]),
            first=[ReadHeaders()],
            reference=True,
        )
        return pipeline.run(pa.record_batch(batch))

    return made, land


def assert_as_said(made: RecordGenerator, land: Any) -> None:
    good = [made.good(random.Random(n), FIRST_TIME) for n in range(40)]
    assert land(good).failures == []
    for kind, error_class in made.bad_kinds.items():
        bad = [made.bad(kind, random.Random(n), FIRST_TIME) for n in range(20)]
        found = land(bad).failures
        assert {each.error_class for each in found} == {error_class}, kind
        assert len(found) == len(bad), kind
        assert {each.stage for each in found} == {"decode_value"}, kind


@pytest.mark.parametrize("kind", ["string", "bytes", "boolean", "short", "int", "long", "float", "double"])
@pytest.mark.parametrize("suffix", ["", " not null"])
def test_keys_that_are_one_value(kind: str, suffix: str) -> None:
    made, land = stream(key={"format": kind, "into": f"key{suffix}"})
    assert made.good(random.Random(1), FIRST_TIME).key is not None
    assert_as_said(made, land)


@pytest.mark.parametrize("kind", ["json", "avro", "json_schema", "connect_json"])
@pytest.mark.parametrize("into", [{}, {"into": "key"}])
def test_keys_with_columns_of_their_own(kind: str, into: dict[str, str]) -> None:
    made, land = stream(key={"format": kind, "schema": "id long not null, region string"} | into)
    assert_as_said(made, land)


def test_headers_of_every_type() -> None:
    texts = {f"t_{name}": {"type": _TEXT.get(name, name)} for name in TEXT_TYPES}
    numbers = {f"b_{name}": {"type": name, "as": "bytes"} for name in BYTES_TYPES}
    more = {"e": {"type": "timestamptz as epoch_ms", "header": "sent-at"}, "r": "string not null"}
    made, land = stream(headers={**texts, **numbers, **more})
    names = [name for name, _ in made.good(random.Random(1), FIRST_TIME).headers]
    assert len(names) == len({*names}) and "sent-at" in names
    assert_as_said(made, land)


def test_a_header_of_two_columns_is_written_once() -> None:
    made, land = stream(headers={"a": {"type": "int", "header": "h"}, "b": {"type": "int not null", "header": "h"}})
    assert [name for name, _ in made.good(random.Random(1), FIRST_TIME).headers] == ["h"]
    assert_as_said(made, land)
    with pytest.raises(FrazilError, match="header h: no value is known that fits all of the columns a and b"):
        stream(headers={"a": {"type": "int", "header": "h"}, "b": {"type": "date", "header": "h"}})


def test_a_key_that_cannot_be_generated_is_named() -> None:
    with pytest.raises(FrazilError, match="keys: column at: values of the type timestamp as 'dd"):
        stream(key={"format": "json", "schema": "at timestamp as 'dd.MM.yyyy HH:mm'"})
