"""A table is altered as its stream's file says: in one commit, on what was seen, and never by a guess."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, StringType

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.pipeline import record_pipeline
from jobs.quality.schema_checks.alteration import (
    Alteration,
    alter_table,
    declared_alteration,
    proposed_alteration,
)
from jobs.quality.schema_checks.declared import declared_contract, identifier_sentence
from jobs.records.schema.difference import RenamedColumn, parse_rename, renamed_schema
from jobs.records.schema.iceberg_schema import iceberg_schema, with_null
from jobs.records.schema.identifier_fields import identifier_names
from jobs.records.schema.name_matching import NAME_MAPPING, aliases_of
from jobs.records.schema.needs import Coordinates
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.schema_change import SchemaChange
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.tables.commit.schema.schema_history import schema_history
from jobs.tables.write.partitioning import partition_spec

BEFORE = "id string not null, n int, f float, at timestamptz not null, o struct<a int>, items list<struct<sku string>>"


def spec_of(columns: str, partition_by: tuple[str, ...] = ()) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": {"value": "json", "schema": columns},
            "table": {"name": "n.s", "partition_by": list(partition_by)},
        }
    )


class Place:
    """A catalog with the stream's table as it was before."""

    def __init__(self, home: Path, before: str = BEFORE, partition_by: tuple[str, ...] = ()) -> None:
        self.catalog: Catalog = connect_catalog(Settings.embedded(home))
        self.catalog.create_namespace("n")
        spec = spec_of(before, partition_by)
        schema = spec.table_schema
        self.catalog.create_table("n.s", schema, partition_spec=partition_spec(spec.table.partition_by, schema))

    @property
    def table(self) -> Table:
        return self.catalog.load_table("n.s")

    def apply(self, spec: StreamSpec, *renames: RenamedColumn, schema_id: int = 0) -> Alteration:
        asked = (lambda now: declared_alteration(spec, now, renames), schema_id, "me@here")
        return alter_table(self.catalog, spec, *asked)[1]

    def columns(self) -> dict[str, str]:
        schema = self.table.schema()
        return {field.name: with_null(field) for field in schema.fields if not field.name.startswith("_kafka")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


AFTER = (
    "id string, n long, f double, at timestamptz not null, o struct<a long, b date>, "
    "items list<struct<sku string, amount decimal(9,2)>>, note string, deep struct<x list<int>>"
)


def test_one_commit_brings_the_table_to_the_file(place: Place) -> None:
    spec = spec_of(AFTER)
    ids = {field.name: field.field_id for field in place.table.schema().fields}
    made = place.apply(spec)
    assert made.sentences == [
        "let column id be null",
        "widen column n to long",
        "widen column f to double",
        "widen column o.a to long",
        "add column o.b date",
        "add column items.element.amount decimal(9,2)",
        "add column note string",
        "add column deep struct<x list<int>>",
    ]
    table = place.table
    assert declared_contract(spec, table.schema()).findings == ()
    assert len(table.metadata.schemas) == 2
    assert table.metadata.snapshots == []
    assert {field.name: field.field_id for field in table.schema().fields if field.name in ids} == ids
    assert [field.name for field in table.schema().fields][-4:] == [
        "_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp",
    ]  # fmt: skip
    (record,) = schema_history(table.metadata.properties)
    assert (record.by, record.schema, record.changes) == ("me@here", 1, tuple(made.sentences))


def test_nothing_is_dropped_or_renamed_by_guess(place: Place) -> None:
    place.apply(spec_of("id string not null, at timestamptz not null, number int"))
    assert set(place.columns()) == {"id", "n", "f", "at", "o", "items", "number"}


def test_a_column_is_renamed_where_somebody_says_so(place: Place) -> None:
    spec = spec_of(BEFORE.replace("n int", "number long").replace("sku string", "code string"))
    before = place.table.schema().find_field("n").field_id
    made = place.apply(spec, parse_rename("n=number"), parse_rename("items.element.sku=code"))
    assert made.sentences == [
        "rename column n to number",
        "rename column items.element.sku to items.element.code",
        "widen column number to long",
    ]
    assert place.table.schema().find_field("number").field_id == before
    assert declared_contract(spec, place.table.schema()).findings == ()


def test_a_column_that_no_table_can_have_is_neither_added_nor_made_by_a_rename(tmp_path: Path) -> None:
    place = Place(tmp_path, partition_by=("day(at)",))
    added = declared_alteration(spec_of(f"{BEFORE}, AT_DAY string, _pos int", ("day(at)",)), place.table.metadata)
    assert added.changes == ()
    assert [each.partition("; ")[2].partition(" ")[0] for each in added.refused] == ["a", "_pos"]
    spec = spec_of(BEFORE.replace("n int", "at_day int"), ("month(at)",))
    renamed = declared_alteration(spec, place.table.metadata, [parse_rename("n=at_day")])
    assert renamed.refused == (
        "a partition field is called at_day, and Spark loads no table with a column of that name",
    )


def test_a_name_mapping_keeps_the_old_name_beside_the_new_one(place: Place) -> None:
    mapping = place.table.schema().name_mapping.model_dump_json()
    with place.table.transaction() as change:
        change.set_properties({NAME_MAPPING: mapping})
    place.apply(spec_of(BEFORE.replace("n int", "number int")), parse_rename("n=number"))
    text = place.table.properties[NAME_MAPPING]
    assert ["n", "number"] in [field.names for field in parse_mapping_from_json(text).root]


def names_of(table: Table) -> dict[str, list[str]]:
    """The names that the mapping has for each column at the top."""
    fields = parse_mapping_from_json(table.properties[NAME_MAPPING]).root
    columns = {field.field_id: field.name for field in table.schema().fields}
    return {columns[field.field_id]: field.names for field in fields if field.field_id is not None}


def test_a_table_without_a_name_mapping_gets_one_when_a_column_is_renamed(place: Place) -> None:
    place.apply(spec_of(BEFORE.replace("n int", "m int, number int")), parse_rename("n=number"))
    found = names_of(place.table)
    assert (found["number"], found["m"], found["id"]) == (["n", "number"], ["m"], ["id"])
    # Another change of a table's columns makes none.
    assert "n" not in found


def test_a_table_that_is_not_renamed_gets_no_name_mapping(place: Place) -> None:
    place.apply(spec_of(BEFORE + ", more string"))
    assert NAME_MAPPING not in place.table.properties


def test_a_name_mapping_knows_added_columns_as_pyiceberg_would(place: Place) -> None:
    mapping = place.table.schema().name_mapping.model_dump_json()
    place.catalog.create_table("n.twin", place.table.schema())
    for table in (place.table, twin := place.catalog.load_table("n.twin")):
        with table.transaction() as change:
            change.set_properties({NAME_MAPPING: mapping})
    place.apply(spec_of(BEFORE.replace("o struct<a int>", "o struct<a int, b int>") + ", more list<string>"))
    with twin.update_schema() as update:
        update.add_column(("o", "b"), IntegerType())
        update.add_column("more", ListType(0, StringType(), element_required=False))
    found, expected = (
        {field.names[0]: field.fields for field in parse_mapping_from_json(each.properties[NAME_MAPPING]).root}
        for each in (place.table, twin)
    )
    assert {name: str(fields) for name, fields in found.items()} == {n: str(f) for n, f in expected.items()}


def test_a_name_given_to_a_new_column_is_no_name_of_another_any_more(place: Place) -> None:
    place.apply(spec_of(BEFORE.replace("n int", "number int")), parse_rename("n=number"))
    place.apply(spec_of(BEFORE.replace("n int", "number int, n int")), schema_id=1)
    found = names_of(place.table)
    assert (found["number"], found["n"]) == (["number"], ["n"])


def test_columns_that_the_mapping_did_not_name_keep_their_old_name_too(place: Place) -> None:
    sku = place.table.schema().find_field("items.element.sku").field_id
    with place.table.transaction() as change:
        change.set_properties({NAME_MAPPING: '[{"field-id": 1, "names": ["key"]}]'})
    after = BEFORE.replace("sku", "article").replace("id string", "ident string")
    place.apply(spec_of(after), parse_rename("items.element.sku=article"), parse_rename("id=ident"))
    table = place.table
    assert dict(aliases_of(table.schema(), table.properties, "n.s")) == {
        ("ident",): ("key", "id"),
        ("items", "element", "article"): ("sku",),
    }
    assert table.schema().find_field("items.element.article").field_id == sku


def landed(place: Place, spec: StreamSpec, *values: str) -> tuple[list[dict[str, Any]], list[tuple[str, str | None]]]:
    """The rows that the table has once a pipeline of the stream has read these values; and why others failed."""
    table = place.table
    count = len(values)
    records = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([each.encode() for each in values], pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        }
    )
    block = record_pipeline(spec, table).run(records)
    table.append(pa.Table.from_batches([block.rows]))
    rows = place.table.scan().to_arrow().select([each.name for each in spec.declared_rows.fields]).to_pylist()
    return rows, [(each.error_class, each.field) for each in block.failures]


def test_records_under_the_former_names_still_land_after_a_rename(tmp_path: Path) -> None:
    before = "id string, n int, payer struct<name string>"
    place = Place(tmp_path, before)
    rows, _ = landed(place, spec_of(before), '{"id":"a","n":1,"payer":{"name":"x"}}')
    assert rows == [{"id": "a", "n": 1, "payer": {"name": "x"}}]
    spec = spec_of("id string, number int, customer struct<full_name string>")
    renames = map(parse_rename, ["n=number", "payer=customer", "customer.name=customer.full_name"])
    place.apply(spec, *renames)
    rows, failures = landed(
        place,
        spec,
        '{"id":"b","n":2,"payer":{"name":"y"}}',
        '{"id":"c","number":3,"customer":{"full_name":"z"}}',
        '{"id":"d","n":4,"customer":{"name":"w"}}',
        '{"id":"e","n":5,"number":null}',
        '{"id":"f","n":6,"number":7}',
    )
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": "a", "number": 1, "customer": {"full_name": "x"}},
        {"id": "b", "number": 2, "customer": {"full_name": "y"}},
        {"id": "c", "number": 3, "customer": {"full_name": "z"}},
        {"id": "d", "number": 4, "customer": {"full_name": "w"}},
        {"id": "e", "number": 5, "customer": None},
    ]
    assert failures == [("ambiguous_field", "$.number")]


@pytest.mark.parametrize(
    ("declared", "partition_by", "refused"),
    [
        ("id long, n int", (), "id: long is another type than the table's string"),
        ("ID string, n int", (), "ID: the table calls it id"),
        ("id string, n long", ("truncate(10, n)",), "partitioned by truncate[10](n)"),
        ("id string, n long", ("n",), "partitioned by identity(n)"),
        ("id string, n long", ("bucket(4, n)",), ""),
    ],
)
def test_what_stands_in_the_way_is_told(
    tmp_path: Path, declared: str, partition_by: tuple[str, ...], refused: str
) -> None:
    place = Place(tmp_path, "id string, n int", partition_by)
    found = declared_alteration(spec_of(declared), place.table.metadata)
    assert (refused in "; ".join(found.refused)) if refused else not found.refused


def test_a_schema_that_was_changed_meanwhile_is_left_alone(place: Place) -> None:
    with place.table.update_schema() as update:
        update.add_column("theirs", StringType())
    with pytest.raises(FrazilError, match="changed meanwhile: it was schema 0, and is schema 1"):
        place.apply(spec_of(AFTER))
    assert "note" not in place.columns()


def test_commits_that_come_between_do_not_matter(place: Place) -> None:
    moved = False

    def decide(now):
        nonlocal moved
        if not moved:
            moved = True
            with place.table.transaction() as change:
                change.set_properties({"somebody": "else"})
            place.table.append(place.table.scan().to_arrow())
        return declared_alteration(spec_of(AFTER), now)

    alter_table(place.catalog, spec_of(AFTER), decide, 0, "me")
    assert "note" in place.columns()
    assert len(schema_history(place.table.properties)) == 1


@pytest.mark.parametrize("text", ["", "a", "a=", "=b", "a=a", "a.b=c.d", "a..b=c", "a=b.c"])
def test_what_renames_nothing_is_refused(text: str) -> None:
    with pytest.raises(FrazilError):
        parse_rename(text)


@pytest.mark.parametrize(
    ("rename", "why"),
    [("nothing=x", "has no column nothing"), ("n=F", "there is a column f already"), ("o.x=o.y", "has no column o.x"),
     ("items.sku=items.code", "has no column"), ("items.element=items.code", "has no column")],
)  # fmt: skip
def test_a_column_that_cannot_be_renamed_is_named(rename: str, why: str) -> None:
    schema: Schema = iceberg_schema(parse_schema(BEFORE))
    with pytest.raises(FrazilError, match=why):
        renamed_schema(schema, [parse_rename(rename)])


def test_frazils_own_columns_keep_their_names(place: Place) -> None:
    with pytest.raises(FrazilError, match="frazil's own"):
        declared_alteration(spec_of(BEFORE), place.table.metadata, [parse_rename("_kafka_offset=at_offset")])


def test_a_new_uuid_column_is_written_by_compaction_as_by_frazil(place: Place) -> None:
    place.apply(spec_of(f"{BEFORE}, u uuid"))
    properties = place.table.properties
    switches = ("write.parquet.stats-enabled.column.u", "write.parquet.dict-encoding-enabled.column.u")
    assert [properties[switch] for switch in switches] == ["false", "false"]


INFERRED = spec_of("infer")


def proposed(change: Any, name: str, kind: Any, at: int) -> SchemaChange:
    return SchemaChange(change, (name,), kind, Coordinates("t", 0, at))


def test_proposals_for_one_field_are_one_column(place: Place) -> None:
    """They were written down at different times, each for the table as it was then."""
    asked = [proposed("add", "x", DoubleType(), 5), proposed("add", "x", LongType(), 3)]
    made = proposed_alteration(INFERRED, place.table.metadata, asked)
    assert made.sentences == ["add column x double"] and made.refused == ()
    alter_table(place.catalog, INFERRED, lambda now: proposed_alteration(INFERRED, now, asked), 0, "me@here")
    assert place.columns()["x"] == "double"
    assert proposed_alteration(INFERRED, place.table.metadata, asked).sentences == []


def test_what_a_table_does_not_take_any_more_is_refused(place: Place) -> None:
    asked = [
        proposed("add", "x", LongType(), 1),
        proposed("add", "X", LongType(), 2),
        proposed("widen", "n", LongType(), 3),
    ]
    with place.table.update_spec() as update:
        update.add_field("n", IdentityTransform())
    made = proposed_alteration(INFERRED, place.table.metadata, asked)
    assert made.sentences == ["add column x long"]
    assert made.refused == (
        "add X: the name differs from x only by case",
        "widen n: the table is, or was, partitioned by identity(n)",
    )


def test_a_name_mapping_has_the_columns_that_come(place: Place) -> None:
    mapping = place.table.schema().name_mapping.model_dump_json()
    with place.table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})
    place.apply(spec_of(BEFORE.replace("n int", "m int, note string")), parse_rename("n=m"))
    names = parse_mapping_from_json(place.table.properties["schema.name-mapping.default"]).root
    assert {"n", "m"} in [set(each.names) for each in names] and {"note"} in [set(each.names) for each in names]


def with_identifier_columns(spec: StreamSpec, *columns: str) -> StreamSpec:
    return spec.model_copy(update={"table": spec.table.model_copy(update={"identifier_fields": columns})})


def test_identifier_fields_of_the_file_are_set_beside_other_changes(place: Place) -> None:
    spec = with_identifier_columns(spec_of(BEFORE.replace("id string", "ident string") + ", more int"), "at", "ident")
    assert identifier_sentence(spec, place.table.schema()) == (
        "the identifier fields of table n.s are not set; the stream's file has at, ident"
    )
    done = place.apply(spec, parse_rename("id=ident"))
    assert done.sentences[-1] == "set identifier fields at, ident"
    assert identifier_names(place.table.schema()) == ["at", "ident"]
    assert identifier_sentence(spec, place.table.schema()) is None
    fewer = with_identifier_columns(spec, "ident")
    assert place.apply(fewer, schema_id=1).identifiers == ("ident",)
    assert identifier_names(place.table.schema()) == ["ident"]
    # A file that names none says nothing of those that the table has.
    silent = with_identifier_columns(spec)
    assert declared_alteration(silent, place.table.metadata) == Alteration()


def test_a_column_that_accepts_null_in_the_table_identifies_no_row(place: Place) -> None:
    spec = with_identifier_columns(spec_of(BEFORE.replace("n int", "n int not null")), "n")
    found = declared_alteration(spec, place.table.metadata)
    assert found.identifiers is None
    assert "'n' may be null" in found.refused[0]


def test_a_new_table_has_the_identifier_fields(tmp_path: Path) -> None:
    spec = with_identifier_columns(spec_of("id string not null, o struct<a int not null> not null"), "o.a", "id")
    catalog = connect_catalog(Settings.embedded(tmp_path))
    ensure_tables(spec, catalog)
    assert identifier_names(catalog.load_table("n.s").schema()) == ["id", "o.a"]
    # Without rows it is made as the file declares now.
    ensure_tables(with_identifier_columns(spec, "id"), catalog)
    assert identifier_names(catalog.load_table("n.s").schema()) == ["id"]


def test_columns_of_a_registry_are_optional_if_the_file_says_so_but_for_identifier_fields(tmp_path: Path) -> None:
    rows = iceberg_schema(parse_schema("id string not null, n int not null, o struct<a int not null> not null"))
    file = spec_of("id string").model_dump(mode="json")
    decode = {"value": "avro", "schema": "registry"}
    table = {"name": "n.s", "force_optional": True, "identifier_fields": ["id"], "partition_by": ["n"]}
    spec = StreamSpec.model_validate(file | {"decode": decode, "table": table})
    catalog = connect_catalog(Settings.embedded(tmp_path))
    ensure_tables(spec, catalog, lambda: NewColumns(rows))
    made = catalog.load_table("n.s").schema()
    assert {each.name: with_null(each) for each in made.fields[:3]} == {
        "id": "string not null",
        "n": "int",
        "o": "struct<a int>",
    }
    assert identifier_names(made) == ["id"]
    other = StreamSpec.model_validate(file | {"decode": decode, "table": {"name": "n.t", "identifier_fields": ["nn"]}})
    with pytest.raises(FrazilError, match="no column 'nn'; did you mean 'n'"):
        ensure_tables(other, catalog, lambda: NewColumns(rows))


def test_an_identifier_among_inferred_columns_is_always_there(tmp_path: Path) -> None:
    rows = iceberg_schema(parse_schema("id string, n long, o struct<a: long, b: double>"))
    file = spec_of("id string").model_dump(mode="json") | {"decode": {"value": "json", "schema": "infer"}}

    def inferring(*names: str, **more: Any) -> StreamSpec:
        return StreamSpec.model_validate(file | {"table": {"name": "n.s", "identifier_fields": list(names)}} | more)

    catalog = connect_catalog(Settings.embedded(tmp_path))
    ensure_tables(inferring("o.a", "id"), catalog, lambda: NewColumns(rows))
    made = catalog.load_table("n.s").schema()
    assert {each.name: with_null(each) for each in made.fields[:3]} == {
        "id": "string not null",
        "n": "long",
        "o": "struct<a long not null, b double> not null",
    }
    assert identifier_names(made) == ["id", "o.a"]
    for names, said in ((["x"], "no column 'x'"), (["o.b"], "Iceberg identifies no row by one")):
        other = inferring(*names, table={"name": "n.t", "identifier_fields": names})
        with pytest.raises(FrazilError, match=said):
            ensure_tables(other, catalog, lambda: NewColumns(rows))
    with pytest.raises(ValidationError, match="which is unknown for columns that steps make of inferred ones: declare"):
        inferring("id", transform=[{"drop": ["n"]}])


@pytest.mark.parametrize(
    ("decode", "table", "problem"),
    [
        ("id string", {"identifier_fields": ["id"]}, "'id' may be null"),
        ("id string not null", {"identifier_fields": ["idd"]}, "did you mean 'id'"),
        ("id string not null", {"identifier_fields": ["id."]}, "'id.' is not a column"),
        ("id string not null", {"force_optional": True}, "is for columns that a registry or the first records say"),
        ("table", {"force_optional": True}, "is for a table that frazil makes"),
    ],
)
def test_what_does_not_go_together_is_named(decode: str, table: dict[str, Any], problem: str) -> None:
    file = {"stream": "s", "source": {"topics": ["t"]}, "decode": {"value": "json", "schema": decode}}
    with pytest.raises(ValidationError, match=re.escape(problem)):
        StreamSpec.model_validate(file | {"table": {"name": "n.s", **table}})
