"""What may be promoted, to which column; and that a running driver takes the new column up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.backfill.backfill import backfill
from jobs.maintenance.backfill.promotion import (
    Promotion,
    coalesce_sql,
    parse_field,
    parse_type,
    promotion,
)
from jobs.quality.schema_checks.alteration import alter_table
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import with_extra_column
from jobs.tables.commit.schema.schema_history import schema_history
from tests.helpers.evolving_stream import EvolvingStream

TABLE = with_extra_column(iceberg_schema(parse_schema("id string, o struct<a int>, items list<struct<sku string>>")))


def spec_of(schema: str = "id string", value: Any = "json", keep: str = "keep") -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": {"value": value, "schema": schema, "unknown_fields": keep},
            "table": {"name": "n.s"},
        }
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$.a", ("a",)),
        ("$.a.b", ("a", "b")),
        ("$.`a.b`.c", ("a.b", "c")),
        ("$.`a``b`", ("a`b",)),
        ("$.order-id", ("order-id",)),
    ],
)
def test_paths(text: str, path: tuple[str, ...]) -> None:
    assert parse_field(text) == path


@pytest.mark.parametrize("text", ["a", "$", "$.", "$..a", "$.a[]", "$.a[0].b", "$.a{}", "$.`a", "$.`a`b", "$a"])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(FrazilError):
        parse_field(text)


@pytest.mark.parametrize(
    ("path", "new"), [(("x",), ("x",)), (("o", "b"), ("o", "b")), (("p", "q", "r"), ("p",)), (("o", "a"), None)]
)
def test_the_outermost_new_part_is_made(path: tuple[str, ...], new: tuple[str, ...] | None) -> None:
    found = promotion(spec_of(), TABLE, path, parse_type("int", path))
    assert found is not None
    assert found.new == new
    inside, text = found.undeclared(spec_of("id string, o struct<c int>")) or ((), "")
    assert (inside, text) == {
        ("x",): ((), "x int"),
        ("o", "b"): (("o",), "b int"),
        ("p", "q", "r"): ((), "p struct<q struct<r int>>"),
        ("o", "a"): (("o",), "a int"),
    }[path]


def test_how_json_carries_it_can_only_be_said_in_a_file() -> None:
    asked = parse_type("timestamptz as epoch_ms", ("at",))
    declared = promotion(spec_of(), TABLE, ("at",), asked)
    assert declared is not None
    assert declared.undeclared(spec_of()) == ((), "at timestamptz as epoch_ms")
    assert declared.undeclared(spec_of("id string, at timestamptz as epoch_ms")) is None
    assert declared.undeclared(spec_of("table")) is None
    with pytest.raises(FrazilError, match="its table's") as told:
        promotion(spec_of("table"), TABLE, ("at",), asked)
    assert told.value.fix == "--as 'timestamptz'"


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        (("o", "a", "b"), "int", "only structs"),
        (("items", "x"), "int", "only structs"),
        (("_extra",), "string", "not from the records"),
        (("o", "a"), "string", "is int, and not string"),
    ],
)
def test_what_cannot_be_promoted(path: tuple[str, ...], kind: str, message: str) -> None:
    with pytest.raises(FrazilError, match=message):
        promotion(spec_of(), TABLE, path, parse_type(kind, path))


@pytest.mark.parametrize("kind", ["long not null", "number", "a, b int", ""])
def test_what_is_no_type(kind: str) -> None:
    with pytest.raises(FrazilError):
        parse_type(kind, ("x",))


def test_a_table_without_the_column_has_nothing_to_promote() -> None:
    with pytest.raises(FrazilError, match="no column _extra"):
        promotion(spec_of(), iceberg_schema(parse_schema("id string")), ("x",), None)


@pytest.mark.parametrize(
    ("path", "kind", "sql"),
    [
        (("x",), "long", 'coalesce(x, cast(get_json_object(_extra, "$.x") as bigint))'),
        (("o", "b"), "string", 'coalesce(o.b, get_json_object(_extra, "$.o.b"))'),
        (
            ("order-id",),
            "decimal(9,2)",
            """coalesce(`order-id`, cast(get_json_object(_extra, "$['order-id']") as decimal(9,2)))""",
        ),
        (("x",), "timestamptz as epoch_ms", None),
        (("x",), "list<int>", None),
        (("x",), "binary", None),
    ],
)
def test_sql_for_both(path: tuple[str, ...], kind: str, sql: str | None) -> None:
    assert coalesce_sql(Promotion(path, parse_type(kind, path), path[:1])) == sql


def promoted(one: EvolvingStream, field: str, kind: str) -> Promotion:
    path, table = parse_field(field), one.table
    found = promotion(one.spec, table.schema(), path, parse_type(kind, path))
    assert found is not None
    asked = (lambda now: found.alteration(now, one.spec), table.metadata.current_schema_id, "me@here")
    alter_table(one.catalog, one.spec, *asked)
    return found


@pytest.mark.parametrize("source", ["infer", "table"])
def test_a_running_driver_takes_the_column_up(tmp_path: Path, source: str) -> None:
    one = EvolvingStream(tmp_path, decode={"schema": source, "unknown_fields": "keep"})
    one.land({"id": "a", "x": "1", "y": 1})
    found = promoted(one, "$.x", "string")
    # The files that it is writing fit the table as it is now; its next batch is decoded for that.
    one.land({"id": "b", "x": "2", "y": 2}, batch=1)
    assert one.rows[-1] == {"id": "b", "_extra": '{"x":"2","y":2}'}
    one.land({"id": "c", "x": "3"}, batch=2)
    assert one.rows[-1] == {"id": "c", "x": "3"}
    done = backfill(one.table, found, one.spec.kafka_columns.coordinates, verify=lambda: None)
    assert done.rows == 2
    # Its chain of stamps goes on over the backfill.
    one.land({"id": "d", "x": None, "z": 1}, batch=3)
    assert one.rows == [
        {"id": "a", "x": "1", "_extra": '{"y":1}'},
        {"id": "b", "x": "2", "_extra": '{"y":2}'},
        {"id": "c", "x": "3"},
        {"id": "d", "_extra": '{"z":1}'},
    ]
    assert schema_history(one.table.properties)[-1].by == "me@here"


def test_a_driver_of_a_file_goes_on_keeping_until_the_file_declares_it(tmp_path: Path) -> None:
    decode = {"schema": "id string, n int", "unknown_fields": "keep"}
    one = EvolvingStream(tmp_path, decode=decode)
    one.land({"id": "a", "x": "1"})
    found = promoted(one, "$.x", "string")
    one.land({"id": "b", "x": "2"}, batch=1)
    assert one.rows[-1] == {"id": "b", "_extra": '{"x":"2"}'}
    later = EvolvingStream(tmp_path, epoch=2, decode=decode | {"schema": "id string, n int, x string"})
    later.log = [*one.log]
    later.land({"id": "c", "x": "3"})
    assert backfill(one.table, found, one.spec.kafka_columns.coordinates, verify=lambda: None).rows == 2
    assert later.rows == [{"id": "a", "x": "1"}, {"id": "b", "x": "2"}, {"id": "c", "x": "3"}]


def test_a_name_mapping_learns_the_column(tmp_path: Path) -> None:
    one = EvolvingStream(tmp_path, decode={"unknown_fields": "keep"})
    one.land({"id": "a", "x": {"y": "1"}})
    with one.table.transaction() as change:
        change.set_properties({NAME_MAPPING: one.table.schema().name_mapping.model_dump_json()})
    promoted(one, "$.x.y", "string")
    mapping = one.table.name_mapping()
    assert mapping is not None
    (x,) = [each for each in mapping.root if each.names == ["x"]]
    assert [each.field_id for each in x.fields] == [one.table.schema().find_field("x.y").field_id]


def test_names_that_differ_by_case_are_refused(tmp_path: Path) -> None:
    one = EvolvingStream(tmp_path, decode={"unknown_fields": "keep"})
    with one.table.update_schema() as update:
        update.add_column("Note", StringType())
    found = promotion(one.spec, one.table.schema(), ("note",), parse_type("string", ("note",)))
    assert found is not None
    assert "only by case" in found.alteration(one.table.metadata, one.spec).refused[0]
