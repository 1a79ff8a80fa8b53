"""The block `changes`: what a file may say, what is refused, and which table follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from jobs.config.documents.validation import SpecError
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.steps.shaping import key_fields
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import first_decoded, fitting_table
from jobs.records.schema.decoded_columns import decoded_properties
from jobs.records.schema.iceberg_schema import iceberg_schema, with_null
from jobs.records.schema.parser import parse_schema
from jobs.tables.write.partitioning import partition_spec

ROW = "struct<id: int not null, name: string>"
EVENTS = f"before {ROW}, after {ROW}, op string, ts_ms long, source struct<connector: string, lsn: long>"
BASE: dict[str, Any] = {
    "stream": "customers",
    "source": {"topics": ["shop.public.customers"]},
    "decode": {
        "value": "json",
        "schema": EVENTS,
        "key": {"format": "json", "schema": "id int", "into": "_change_key"},
        "headers": {"trace": "string"},
    },
    "changes": {"envelope": "debezium"},
    "table": {"name": "shop.customers_changes"},
}


def spec_of(**more: Any) -> StreamSpec:
    return StreamSpec.model_validate({**BASE, **more})


def problems(tmp_path: Path, **more: Any) -> list[str]:
    path = tmp_path / "customers.yaml"
    path.write_text(yaml.safe_dump({**BASE, **more}, sort_keys=False))
    try:
        load_stream(path)
    except SpecError as problem:
        lines = path.read_text().splitlines()
        found = [each.partition(":")[2] for each in problem.problems]
        return [f"{lines[int(each.partition(':')[0]) - 1].strip()} | {each.partition(': ')[2]}" for each in found]
    return []


def test_the_table_has_the_rows_columns_and_those_of_the_changelog() -> None:
    schema = spec_of(changes={"envelope": "debezium", "before": True}).table_schema
    assert [f"{each.name} {with_null(each)}" for each in schema.fields] == [
        "id int",
        "name string",
        "trace string",
        "_change_op string not null",
        "_change_at timestamptz",
        "_change_position string",
        "_change_lineage string",
        "_change_transaction string",
        "_change_unavailable list<string>",
        "_change_key struct<id int>",
        "_change_old_key struct<id int>",
        "_change_before struct<id int, name string>",
        "_kafka_topic string",
        "_kafka_partition int",
        "_kafka_offset long",
        "_kafka_timestamp timestamptz",
    ]


def test_steps_behind_it_see_the_changelogs_columns() -> None:
    spec = spec_of(transform=[{"where": "_change_op <> 'r'"}, {"drop": "_change_old_key"}])
    assert "_change_old_key" not in [each.name for each in spec.table_schema.fields]
    assert spec.chain.names == ("changes", "transform[0].filter", "transform[1].drop")


def test_a_table_without_keys_has_no_columns_of_them() -> None:
    spec = spec_of(decode={"value": "json", "schema": EVENTS})
    assert not [each.name for each in spec.table_schema.fields if each.name.endswith("_key")]


DECODE: dict[str, Any] = BASE["decode"]
MONGO: dict[str, Any] = {
    "value": "json",
    "schema": "after string, before string, op string, source struct<ts_ms: long>",
    "key": {"format": "json", "schema": "id string", "into": "_change_key"},
}
FLAT: dict[str, Any] = {"envelope": "columns", "op": "op"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"changes": {"envelope": "debezum"}}, "envelope: debezum | changes.envelope"),
        ({"changes": {"envelop": "debezium"}}, "did you mean 'envelope'"),
        ({"changes": {"envelope": "debezium", "key": "id"}}, "key: id | changes.key: is for a key that is a single"),
        (
            {"decode": DECODE | {"key": {"format": "int", "into": "_change_key"}}},
            "changes.key: the record's key is a single value, int: say which column of the row it is",
        ),
        (
            {"decode": DECODE | {"key": {"format": "json", "schema": "id int", "into": "k"}}},
            "decode.key.into: must be _change_key beside changes",
        ),
        ({"decode": DECODE | {"schema": "id int, name string"}}, "takes events of Debezium"),
        ({"decode": DECODE | {"schema": f"after {ROW}, op string"}}, "needs 'source'"),
        (
            {"decode": DECODE | {"schema": f"after {ROW}, op string, source struct<lsn: boolean>"}},
            "source.lsn is a whole number in Debezium's events, and boolean here",
        ),
        (
            {"decode": DECODE | {"schema": EVENTS.replace("name: string", "_Change_op: string")}},
            "the source has a column '_Change_op', and names with _change_ are the changelog's own",
        ),
        (
            {
                "decode": DECODE | {"schema": f"after {ROW}, op string, source struct<lsn: long>"},
                "changes": {"envelope": "debezium", "before": True},
            },
            "before: true | changes.before: keeps 'before', which decode.schema does not declare",
        ),
        ({"decode": {"value": "string", "schema": "v string"}}, "values of the format string have none"),
        ({"table": {"name": "a.b", "kafka_columns": False}}, "is needed beside changes"),
        ({"table": {"name": "a.b", "kafka_columns": {"offset": False}}}, "is needed beside changes"),
        ({"decode": {"value": "avro", "schema": "table"}}, "with decode.schema 'table' it is unknown"),
        ({"transform": [{"drop": "before"}]}, "there is no column 'before' at this step"),
        ({"changes": {"envelope": "mongo", "schema": "id int"}, "decode": MONGO}, "needs the field _id, the key of"),
        (
            {"changes": {"envelope": "mongo", "schema": "_id int not null"}, "decode": MONGO},
            "has a field with not",
        ),
        (
            {"changes": {"envelope": "mongo", "schema": "_id intt"}, "decode": MONGO},
            "_id intt | changes.schema",
        ),
        ({"changes": "mongo", "decode": MONGO | {"key": None}}, "needs decode.key with schema: id string and into"),
        ({"changes": "mongo"}, "with the columns op (string), after (string) and source (struct)"),
        ({"changes": {"envelope": "debezium", "schema": "_id int"}}, "goes with envelope: mongo, not with debezium"),
        ({"changes": {"envelope": "mongo", "key": "_id"}, "decode": MONGO}, "not with mongo"),
        ({"changes": "dms"}, "takes records of AWS DMS, with the structs data and metadata"),
        (
            {"changes": "dms", "decode": {"value": "json", "schema": "data struct<id: int>, metadata struct<x: int>"}},
            "needs metadata.operation as string",
        ),
        ({"changes": "columns"}, "changes: needs op: the column with the operation on a row"),
        (
            {"changes": FLAT | {"before": True}},
            "before: true | changes.before: goes with envelope: debezium or dms, not",
        ),
        (
            {"changes": {"envelope": "debezium", "at": "t"}},
            "changes.at: goes with envelope: columns or upsert, not with",
        ),
        ({"changes": FLAT | {"op": {"column": "op", "insert": "I", "update": ["U", "I"]}}}, "'I' means insert already"),
        ({"changes": FLAT | {"op": {"column": "op", "insert": [{}]}}}, "must be values of the column: texts, whole"),
        ({"changes": FLAT | {"op": "oq"}}, "op: oq | changes.op.column: there is no column 'oq' at this step"),
        ({"changes": FLAT | {"op": "after"}}, "the column 'after' is struct<id int not null, name string>, and"),
        (
            {"changes": FLAT | {"order_by": ["ts_ms", "after"]}},
            "the column 'after' is struct<id int not null, name string>;",
        ),
        (
            {"changes": FLAT | {"at": "op"}},
            "the column 'op' is string; a change's time is a timestamptz, or milliseconds",
        ),
        (
            {"changes": "upsert", "decode": {"value": "json", "schema": "id int"}},
            "needs decode.key with into: _change_key",
        ),
        *(
            (
                {"changes": envelope, "decode": {"value": format_, "schema": schema}},
                f"{envelope} identifies the row by the record's key: write decode: {{…, key: {{{form}, into: "
                "_change_key}}",
            )
            for envelope, format_, schema, form in (
                ("upsert", "json", "infer", "format: json, schema: infer"),
                ("upsert", "avro", "registry", "format: avro, schema: registry"),
                ("upsert", "connect_json", "infer", "format: connect_json, schema: infer"),
                ("mongo", "json", "infer", 'format: json, schema: "id string"'),
            )
        ),
        (
            {
                "changes": "upsert",
                "route": {"by": "op", "tables": [{"match": "c", "table": "a.c", "on_table_error": "park"}]},
            },
            "park does not go with upsert",
        ),
        (
            {
                "changes": "upsert",
                "decode": {"value": "json", "schema": "infer", "key": DECODE["key"]},
                "route": {"by": "topic", "to": "shop.{value}"},
            },
            "over columns that no file declares does not go with upsert",
        ),
    ],
    ids=str,
)
def test_what_does_not_go_is_named_with_its_line(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    found = problems(tmp_path, **more)
    assert any(said in each for each in found), found


def test_a_short_envelope_is_the_same() -> None:
    assert spec_of(changes="debezium").config_hash == spec_of().config_hash


@pytest.mark.parametrize("more", [{"before": True}, {"unavailable": "gone"}])
def test_what_changes_rows_is_in_the_hash(more: dict[str, Any]) -> None:
    assert spec_of(changes={"envelope": "debezium", **more}).config_hash != spec_of().config_hash


def test_a_default_written_out_is_no_other_configuration() -> None:
    written = {"envelope": "debezium", "before": False, "unavailable": "__debezium_unavailable_value"}
    assert spec_of(changes=written).config_hash == spec_of().config_hash


def test_a_driver_is_started_anew_for_what_it_says_and_for_no_default_of_it(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    written = {"envelope": "debezium", "before": False}
    assert generation(spec_of(changes=written), settings) == generation(spec_of(changes="debezium"), settings)
    kept = spec_of(changes={"envelope": "debezium", "before": True})
    assert generation(kept, settings) != generation(spec_of(), settings)


def registry_spec(**more: Any) -> StreamSpec:
    decode = {
        "value": "avro",
        "schema": "registry",
        "key": {"format": "avro", "schema": "registry", "into": "_change_key"},
    }
    return spec_of(decode=decode, **more)


def schema_of(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


def metadata_of(spec: StreamSpec, events: str) -> TableMetadata:
    decoded = first_decoded(spec, schema_of(events), schema_of("id int not null").fields)
    schema = spec.table_schema_of(decoded.rows, key_fields(decoded))
    made = new_table_metadata(schema, partition_spec(spec.table.partition_by, schema), UNSORTED_SORT_ORDER, "/t", {})
    return made.model_copy(update={"properties": decoded_properties({}, spec.stream, decoded, None)})


def test_where_no_file_declares_them_the_table_keeps_the_events_columns() -> None:
    spec = registry_spec()
    assert spec.shapes
    metadata = metadata_of(spec, EVENTS.replace("op string", "op string not null"))
    assert [each.name for each in metadata.schema().fields][:3] == ["id", "name", "_change_op"]
    # Heartbeats and the ends of transactions have no such fields.
    assert not any(each.required for each in spec.decoded_for(metadata.schema(), metadata.properties).rows.fields)


@pytest.mark.parametrize(
    ("events", "changes", "refused"),
    [
        (EVENTS.replace("name: string", "name: string, note: string"), ["add note string"], ""),
        (EVENTS.replace("id: int", "id: long"), ["widen id to long"], ""),
        (EVENTS.replace("name: string", "_change_x: int"), [], "names with _change_ are the changelog's own"),
    ],
)
def test_new_and_wider_columns_of_the_source_are_those_of_the_table(
    events: str, changes: list[str], refused: str
) -> None:
    spec = registry_spec()
    metadata = metadata_of(spec, EVENTS)
    decoded = first_decoded(spec, schema_of(events), schema_of("id int not null").fields)
    fit = fitting_table(spec, metadata, decoded)
    assert (refused in "; ".join(fit.refused)) and bool(fit.refused) == bool(refused)
    assert len(fit.changes) == len(changes), fit.changes
