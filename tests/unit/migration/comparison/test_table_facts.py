"""Facts of two tables beside each other."""

# Of PyIceberg's models a type checker sees the aliases only.
# pyright: reportCallIssue=false

from __future__ import annotations

from typing import Any

from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform

from jobs.migration.comparison.table_facts import (
    column_facts,
    delete_files,
    equality_deletes,
    sink_marks,
    table_facts,
)

OURS = Schema(
    ice.NestedField(1, "id", ice.StringType(), required=True),
    ice.NestedField(2, "qty", ice.LongType()),
    ice.NestedField(3, "Name", ice.StringType()),
    ice.NestedField(4, "at", ice.TimestamptzType()),
    ice.NestedField(5, "part", ice.StructType(ice.NestedField(6, "a", ice.LongType()))),
    ice.NestedField(7, "tags", ice.ListType(8, ice.StringType())),
    ice.NestedField(9, "_kafka_offset", ice.LongType()),
    identifier_field_ids=[1],
)
THEIRS = Schema(
    ice.NestedField(1, "id", ice.StringType()),
    ice.NestedField(2, "qty", ice.IntegerType()),
    ice.NestedField(3, "name", ice.StringType()),
    ice.NestedField(4, "at", ice.TimestampType()),
    ice.NestedField(5, "part", ice.StringType()),
    ice.NestedField(7, "tags", ice.ListType(8, ice.LongType())),
    ice.NestedField(10, "extra", ice.MapType(11, ice.StringType(), 12, ice.LongType())),
)


def metadata(schema: Schema, properties: dict[str, str], *, partitioned: bool = False) -> TableMetadata:
    spec = PartitionSpec()
    order = UNSORTED_SORT_ORDER
    if partitioned:
        spec = PartitionSpec(
            PartitionField(4, 1000, DayTransform(), "at_day"), PartitionField(1, 1001, BucketTransform(16), "id_bucket")
        )
        order = SortOrder(SortField(source_id=4, transform=IdentityTransform()))
    return new_table_metadata(schema, spec, order, "memory://t", properties)


def snapshot(number: int, parent: int | None = None, /, **summary: Any) -> Snapshot:
    return Snapshot(
        snapshot_id=number, parent_snapshot_id=parent, sequence_number=number, timestamp_ms=number, manifest_list="m",
        summary=Summary(Operation.APPEND, **summary), schema_id=0,
    )  # fmt: skip


def test_columns_that_differ_are_named_with_what_it_means() -> None:
    found = {each.name: (each.ours, each.theirs, each.note) for each in column_facts(OURS, THEIRS)}
    assert found == {
        "column id": ("string not null", "string", "only the requirement of a value differs"),
        "column qty": ("long", "int", "the sink wraps numbers beyond 32 bits"),
        "column Name": ("string", "name: string", "the case of the name differs"),
        "column at": ("timestamptz", "timestamp", "the sink drops offsets of time zones"),
        "column part": ("struct", "string", "the sink writes objects as JSON"),
        "column part.a": ("long", None, "the table lacks it"),
        "column tags[]": ("string", "long", ""),
        "column _kafka_offset": ("long", None, "the table lacks it"),
        "column extra": (None, "map", "frazil's table lacks it"),
        "column extra{}": (None, "string to long", "frazil's table lacks it"),
    }
    assert list(column_facts(OURS, OURS)) == []


def test_everything_else_stands_side_by_side() -> None:
    ours = metadata(OURS, {"write.parquet.compression-codec": "zstd", "irrelevant": "1"}, partitioned=True)
    theirs = metadata(THEIRS, {"format-version": "2", "schema.name-mapping.default": "[" + "x" * 100})
    head = snapshot(7, **{"total-position-deletes": "3", "total-equality-deletes": "1200"})
    facts = {each.name: each for each in table_facts(ours, OURS, theirs, head) if not each.name.startswith("column")}
    assert (facts["partitioning"].ours, facts["partitioning"].theirs) == ("day(at), bucket[16](id)", "nothing")
    assert facts["sort order"].ours == "at asc nulls first" and facts["sort order"].theirs == "nothing"
    assert (facts["identifier fields"].ours, facts["identifier fields"].theirs) == ("id", "none")
    assert facts["format version"].same and facts["format version"].ours == "2"
    assert facts["delete files"].theirs == "3 position deletes and 1,200 equality deletes"
    assert facts["property write.parquet.compression-codec"].theirs is None
    mapping = facts["property schema.name-mapping.default"]
    assert mapping.ours is None and mapping.theirs is not None and len(mapping.theirs) == 61
    assert "property irrelevant" not in facts


def test_deletes_are_none_where_a_snapshot_says_nothing() -> None:
    assert delete_files(None) == delete_files(snapshot(1)) == "none"
    assert equality_deletes(None) == equality_deletes(snapshot(1)) == 0
    assert equality_deletes(snapshot(1, **{"total-equality-deletes": "5"})) == 5


def test_the_sinks_newest_marks_are_found_behind_other_snapshots() -> None:
    marks = {"kafka.connect.commit-id": "c", "kafka.connect.offsets.control.connect-s": '{"0":3}', "added-records": "1"}
    own = {**marks, "kafka.connect.task-id": "s-0"}
    snapshots = [snapshot(1, **own), snapshot(2, 1, **{"frazil.stamp": "x"})]
    theirs = metadata(THEIRS, {}).model_copy(update={"snapshots": snapshots})
    marks.pop("added-records")
    assert sink_marks(theirs, snapshots[1]) == marks
    assert sink_marks(theirs, None) == sink_marks(theirs, snapshot(3)) == {}
