"""An empty table that frazil made follows the declaration; one with rows, or that somebody altered, never does."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.types import StringType

from jobs.config.values.partitioning import parse_partition_expr
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.table_remake import remade_table
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.stamps import property_key
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table
from jobs.tables.write.table_remaking import as_made_property, differs, is_as_made
from jobs.tables.write.target_writer import TargetWriter

NAME = "orders.payments"
FIRST = ("id string, amount string, at timestamptz, who struct<a int>", ["day(at)"])


def declared(text: str, partition_by: list[str]) -> tuple[Schema, PartitionSpec]:
    schema = KAFKA_COLUMNS.added_to(iceberg_schema(parse_schema(text)))
    return schema, partition_spec([parse_partition_expr(each) for each in partition_by], schema)


def made(catalog: SqlCatalog, text: str = FIRST[0], partition_by: list[str] | None = None) -> Table:
    schema, spec = declared(text, FIRST[1] if partition_by is None else partition_by)
    return ensure_table(catalog, NAME, schema, spec, create_table_properties({}) | as_made_property("s"))


def claimed(table: Table) -> None:
    commit_once(table, Append(), summary={"frazil.stamp": "a claim"}, properties={"frazil.stamp.s": "a claim"})


def property_stamps(table: Table) -> dict[str, str]:
    return {key: value for key, value in table.properties.items() if key.startswith("frazil.stamp.")}


def columns(table: Table) -> list[tuple[str, str]]:
    return [(field.name, str(field.field_type)) for field in table.schema().fields if not field.name.startswith("_")]


@pytest.mark.parametrize(
    ("text", "partition_by"),
    [
        ("id string, amount decimal(12,2), at timestamptz, who struct<a int>", ["day(at)"]),
        ("id string not null, who struct<a long, b list<string>>", []),
        ("at date, id string", ["month(at)", "bucket(4, id)"]),
        (FIRST[0], ["amount"]),
    ],
)
@pytest.mark.parametrize("claims", [0, 2])
def test_it_has_what_is_declared_and_takes_rows(
    catalog: SqlCatalog, text: str, partition_by: list[str], claims: int
) -> None:
    table = made(catalog)
    for _ in range(claims):
        claimed(table)
    uuid, head = table.metadata.table_uuid, table.metadata.current_snapshot_id
    stamps = property_stamps(table)
    schema, spec = declared(text, partition_by)
    assert is_as_made(table.metadata, "s") and differs(table.metadata, schema, spec)
    again = remade_table(table, "s", schema, spec)
    assert not differs(again.metadata, schema, spec)
    assert is_as_made(again.metadata, "s")
    assert (again.metadata.table_uuid, property_stamps(again)) == (uuid, stamps)
    assert head is None or head in {each.snapshot_id for each in ancestors(again.metadata)}
    known = set(again.schema().field_ids)
    assert all(field.source_id in known for each in again.metadata.partition_specs for field in each.fields)
    assert not set(table.metadata.schemas[0].field_ids) & known, "no id means two things"
    # And once more, to the first one.
    back = remade_table(again, "s", *declared(*FIRST))
    assert not differs(back.metadata, *declared(*FIRST))
    last = remade_table(back, "s", schema, spec)
    writer = TargetWriter(last.metadata, last.io, file_prefix="x")
    writer.write(pa.record_batch({"id": ["a", "b"]}))
    commit_once(last, Append(writer.close()), summary={}, properties={})
    assert sorted(last.scan().to_arrow()["id"].to_pylist()) == ["a", "b"]
    assert not is_as_made(catalog.load_table(NAME).metadata, "s")


def test_a_table_of_another_stream_is_left_alone(catalog: SqlCatalog) -> None:
    assert not is_as_made(made(catalog).metadata, "other")


def test_the_same_declaration_changes_nothing(catalog: SqlCatalog) -> None:
    table = made(catalog)
    assert not differs(table.metadata, *declared(*FIRST))


def with_rows(table: Table) -> None:
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(pa.record_batch({"id": ["a"]}))
    commit_once(table, Append(writer.close()), summary={}, properties={})


def with_rows_that_were_deleted(table: Table) -> None:
    with_rows(table)
    table.delete()


def altered(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("more", StringType())


def repartitioned(table: Table) -> None:
    with table.update_spec() as update:
        update.add_identity("id")


def tagged(table: Table) -> None:
    claimed(table)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_tag(head.snapshot_id, "kept").commit()


def claimed_by_another(table: Table) -> None:
    commit_once(table, Append(), summary={}, properties={property_key("t"): "a claim"})


def of_an_earlier_version(table: Table) -> None:
    with table.transaction() as change:
        change.remove_properties("frazil.as-made")


@pytest.mark.parametrize(
    "happened",
    [
        with_rows,
        with_rows_that_were_deleted,
        altered,
        repartitioned,
        tagged,
        claimed_by_another,
        of_an_earlier_version,
    ],
)
def test_what_is_not_as_frazil_made_it_is_left_alone(catalog: SqlCatalog, happened: Callable[[Table], None]) -> None:
    table = made(catalog)
    happened(table)
    assert not is_as_made(catalog.load_table(NAME).metadata, "s")


def test_replays_of_the_stream_are_no_other_stream(catalog: SqlCatalog) -> None:
    table = made(catalog)
    commit_once(table, Append(), summary={}, properties={property_key("s~replay"): "a claim"})
    assert is_as_made(table.metadata, "s")


@pytest.mark.parametrize("claims", [0, 1])
def test_who_commits_to_a_branch_meanwhile_keeps_the_table_and_his_rows(catalog: SqlCatalog, claims: int) -> None:
    """Main's head, the schema and the partitions are as they were read."""
    table = made(catalog)
    for _ in range(claims):
        claimed(table)
    seen = catalog.load_table(NAME)
    # The first commit of a table goes to main as well.
    for rows in ([], ["a", "b"]):
        other = on_branch(catalog.load_table(NAME), "ingest")
        writer = TargetWriter(other.metadata, other.io, file_prefix="x")
        if rows:
            writer.write(pa.record_batch({"id": rows}))
        commit_once(other, Append(writer.close()), summary={}, properties={})
    found = remade_table(seen, "s", *declared("id string, more string", []))
    assert columns(found) == columns(seen)
    assert sorted(on_branch(found, "ingest").scan().to_arrow()["id"].to_pylist()) == ["a", "b"]


def test_a_branch_that_others_made_before_the_first_snapshot_of_main_keeps_the_table(catalog: SqlCatalog) -> None:
    seen = made(catalog)
    commit_once(on_branch(catalog.load_table(NAME), "ingest"), Append(), summary={}, properties={})
    now = catalog.load_table(NAME)
    now.catalog.commit_table(now, (), (RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}),))
    assert set(catalog.load_table(NAME).refs()) == {"ingest"}
    assert columns(remade_table(seen, "s", *declared("id string", []))) == columns(seen)


def test_who_commits_meanwhile_keeps_the_table(catalog: SqlCatalog) -> None:
    seen = made(catalog)
    with_rows(catalog.load_table(NAME))
    found = remade_table(seen, "s", *declared("id string", []))
    assert columns(found) == columns(seen)
    assert found.scan().to_arrow().num_rows == 1
