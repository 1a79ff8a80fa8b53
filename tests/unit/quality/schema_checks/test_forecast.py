"""What becomes of records of a writer schema, by the stream's policy and its table."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.finding import worst
from jobs.quality.schema_checks.forecast import forecast
from jobs.quality.schema_checks.subjects import key_subjects_of, subject_contract, subjects_of
from jobs.records.formats.interface.writer_schema import RegistrySchema, WriterSchema
from jobs.records.schema.decoded_columns import DecodedColumns, decoded_properties
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.tables.write.partitioning import partition_spec

TABLE = "id string not null, n int, note string"


def spec_of(evolve: dict[str, str] | None = None, *, schema: str = "registry", **decode: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t", "u"]},
            "decode": {"value": "protobuf", "schema": schema, **decode},
            "table": {"name": "n.s"},
            **({"evolve": evolve} if evolve else {}),
        }
    )


def rows(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


def metadata(spec: StreamSpec, text: str = TABLE, by: tuple[str, ...] = ()) -> TableMetadata:
    schema = spec.table_schema_of(rows(text))
    partitions = PartitionSpec()
    if by:
        named = spec.model_copy(update={"table": spec.table.model_validate({"name": "n.s", "partition_by": list(by)})})
        partitions = partition_spec(named.table.partition_by, schema)
    return new_table_metadata(schema, partitions, UNSORTED_SORT_ORDER, "file:///nowhere", {"format-version": "2"})


def outcomes(spec: StreamSpec, text: str, by: tuple[str, ...] = ()) -> dict[str, str]:
    return {each.difference.column: each.outcome for each in forecast(spec, rows(text), metadata(spec, by=by))}


SAME = "id string not null, n int, note string"


@pytest.mark.parametrize(
    ("text", "column", "by_answer"),
    [
        (SAME + ", more long", "more",
         {"auto": "changes_table", "propose": "proposed", "ignore": "left_out", "fail": "stops"}),
        (SAME.replace("n int", "n long"), "n",
         {"auto": "changes_table", "propose": "proposed", "ignore": "dead_letter", "fail": "stops"}),
        (SAME.replace("string not null", "string"), "id",
         {"auto": "changes_table", "propose": "proposed", "ignore": "dead_letter", "fail": "stops"}),
        ("n int, note string", "id",
         {"auto": "changes_table", "propose": "proposed", "ignore": "dead_letter", "fail": "stops"}),
    ],
)  # fmt: skip
def test_what_the_table_lacks_is_a_matter_of_the_policy(text: str, column: str, by_answer: dict[str, str]) -> None:
    for answer, outcome in by_answer.items():
        spec = spec_of({"add": answer, "widen": answer, "relax": answer})
        assert outcomes(spec, text) == {column: outcome}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SAME, {}),
        ("id string not null, n int", {"note": "null"}),
        (SAME.replace("note string", "note long"), {"note": "dead_letter"}),
        (SAME.replace("note string", "Note string"), {"Note": "dead_letter"}),
        (SAME.replace("n int", "n int not null"), {"n": "lands"}),
    ],
)
def test_what_no_policy_changes(text: str, expected: dict[str, str]) -> None:
    assert outcomes(spec_of(), text) == expected


def test_a_column_that_a_partition_rests_on_is_not_widened() -> None:
    spec = spec_of()
    found = forecast(spec, rows(SAME.replace("n int", "n long")), metadata(spec, by=("n",)))
    assert [(each.outcome, each.level) for each in found] == [("dead_letter", "warn")]
    assert "partitioned by" in found[0].why


def test_unknown_fields_that_are_refused_are_dead_letters() -> None:
    spec = spec_of({"add": "ignore"}, unknown_fields="fail")
    assert outcomes(spec, SAME + ", more long") == {"more": "dead_letter"}


def test_declared_columns_are_not_changed_by_records() -> None:
    spec = spec_of(schema=TABLE)
    found = forecast(spec, rows(SAME + ", more long"), metadata(spec))
    assert [each.outcome for each in found] == ["left_out"]
    assert worst(found) == "ok"


def test_subjects_are_those_of_the_topics_unless_one_is_named() -> None:
    assert subjects_of(spec_of()) == ("t-value", "u-value")
    assert subjects_of(spec_of(subject="payments")) == ("payments",)
    json = spec_of().model_dump(mode="json") | {"decode": {"value": "json", "schema": "id string"}}
    assert subjects_of(StreamSpec.model_validate(json)) == ()


PROTO = 'syntax = "proto3"; message M { string id = 1; int64 n = 2; string note = 3; string more = 4; }'


def test_subjects_of_keys_are_those_of_the_topics() -> None:
    key = {"format": "avro", "schema": "k long"}
    assert key_subjects_of(spec_of(key=key)) == ("t-key", "u-key")
    assert key_subjects_of(spec_of()) == ()
    assert key_subjects_of(spec_of(key={"format": "json", "schema": "k long"})) == ()
    assert key_subjects_of(spec_of(key=key | {"subject": "k"})) == ("k",)
    # Values that need no registry beside keys that do.
    beside = spec_of(schema="a string", value="json", key=key)
    assert (subjects_of(beside), key_subjects_of(beside)) == ((), ("t-key", "u-key"))


def test_a_schema_of_a_registry_is_read_as_the_format_reads_it() -> None:
    spec = spec_of()
    found = subject_contract(
        spec, metadata(spec, "id string, n int, note string"), "t-value", 3,
        RegistrySchema("PROTOBUF", WriterSchema(PROTO)),
    )  # fmt: skip
    assert found.problem is None
    assert {each.difference.column: each.outcome for each in found.findings if each.outcome != "lands"} == {
        "n": "changes_table",
        "more": "changes_table",
    }
    assert (found.shown, found.level) == ("t-value version 3", "ok")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (RegistrySchema("AVRO", WriterSchema("{}")), "it is of the type AVRO, and decode.value is protobuf"),
        (RegistrySchema("PROTOBUF", WriterSchema("no schema")), "it cannot be read"),
    ],
)
def test_a_schema_that_no_record_can_be_read_with_is_a_warning(schema: RegistrySchema, said: str) -> None:
    spec = spec_of()
    found = subject_contract(spec, metadata(spec), "t-value", 1, schema)
    assert said in (found.problem or "")
    assert found.level == "warn"


def test_what_a_new_version_breaks_of_a_step_is_told_before_a_record_comes() -> None:
    """A wider column widens what is computed of it, unless that has to stay: then the version's records would fail."""
    spec = spec_of().model_copy(update={"transform": StreamSpec.model_validate(WITH_STEPS).transform, "rules": ()})
    wider = SAME.replace("n int", "n long")
    (found,) = forecast(spec, rows(wider), metadata(spec))
    assert (found.outcome, found.why) == ("changes_table", "widen column n to long")
    (found,) = forecast(spec, rows(wider), metadata(spec, by=("twice",)))
    assert found.outcome == "dead_letter"
    assert found.why == (
        "the table is not changed: the column twice, which the steps make, would have to be long, and the table is, or "
        "was, partitioned by identity(twice)"
    )
    assert found.level == "warn"
    # Its own column is no field that the version lacks; a field of its name is left out.
    assert forecast(spec, rows(SAME), metadata(spec)) == []


WITH_STEPS: dict[str, Any] = {
    "stream": "s",
    "source": {"topics": ["t"]},
    "decode": {"value": "protobuf", "schema": "registry"},
    "transform": [{"compute": {"twice": "n * 2"}}],
    "table": {"name": "n.s"},
}


def test_behind_steps_it_says_what_becomes_of_the_table() -> None:
    steps = [{"rename": {"n": "number"}}, {"compute": {"twice": "number * 2"}}, {"drop": "note"}]
    document = spec_of({}).model_dump(by_alias=True, exclude_unset=True) | {"transform": steps}
    spec = StreamSpec.model_validate(document)
    by_number = StreamSpec.model_validate(document | {"table": {"name": "n.s", "partition_by": ["number"]}})
    kept = decoded_properties({}, spec.stream, DecodedColumns(rows(TABLE)), None)
    text, schema = "id string not null, n long, note string, more long", spec.table_schema_of(rows(TABLE))

    def found(of: StreamSpec) -> dict[str, tuple[str, str]]:
        partitions = partition_spec(of.table.partition_by, schema)
        properties = {"format-version": "2", **kept}
        made = new_table_metadata(schema, partitions, UNSORTED_SORT_ORDER, "file:///nowhere", properties)
        return {each.difference.column: (each.outcome, each.why) for each in forecast(of, rows(text), made)}

    more = ("changes_table", "add column more long; decoded columns: add column more long")
    wider = "widen column number to long; widen column twice to long; decoded columns: widen column n to long"
    assert found(spec) == {"n": ("changes_table", wider), "more": more}
    refused = found(by_number)
    assert (refused["more"], refused["n"][0]) == (more, "dead_letter")
    assert "the table is, or was, partitioned by identity(number)" in refused["n"][1]
