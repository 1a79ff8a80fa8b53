"""Tables are made once, with frazil's properties."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, ListType, LongType, NestedField, StringType, StructType, UUIDType

from jobs.base.errors import FrazilError
from jobs.config.values.partitioning import parse_partition_expr
from jobs.tables.write.dry_run import check_new_table_writable
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table

SCHEMA = Schema(NestedField(7, "id", LongType(), required=True), NestedField(3, "text", StringType()))


def test_properties_and_what_the_spec_says_over_them() -> None:
    properties = create_table_properties({"write.parquet.compression-level": "3", "owner": "team"})
    assert properties["write.parquet.compression-level"] == "3"
    assert properties["owner"] == "team"
    assert properties["write.parquet.compression-codec"] == "zstd"
    assert properties["write.target-file-size-bytes"] == "134217728"
    assert (properties["commit.retry.num-retries"], properties["commit.retry.max-wait-ms"]) == ("20", "2000")


def test_compaction_is_told_to_write_uuids_as_frazil_does() -> None:
    inner = NestedField(5, "l", ListType(6, UUIDType()))
    schema = Schema(NestedField(1, "a b", UUIDType()), NestedField(2, "s", StructType(inner)), *SCHEMA.fields[:1])
    made = create_table_properties({"write.parquet.stats-enabled.column.a b": "true"}, schema)
    assert {key: value for key, value in made.items() if ".column." in key} == {
        "write.parquet.stats-enabled.column.a b": "true",
        "write.parquet.dict-encoding-enabled.column.a b": "false",
        "write.parquet.stats-enabled.column.s.l.element": "false",
        "write.parquet.dict-encoding-enabled.column.s.l.element": "false",
    }


@pytest.mark.parametrize("version", ["1", "3"])
def test_another_format_version_is_refused(version: str) -> None:
    with pytest.raises(FrazilError, match=f"format-version {version}"):
        create_table_properties({"format-version": version})


def test_a_table_without_sequence_numbers_is_refused_with_the_way_out(catalog: SqlCatalog) -> None:
    catalog.create_namespace("old")
    catalog.create_table("old.payments", SCHEMA, properties={"format-version": "1"})
    with pytest.raises(FrazilError, match="is of Iceberg's format version 1") as refused:
        ensure_table(catalog, "old.payments", SCHEMA, UNPARTITIONED_PARTITION_SPEC, create_table_properties({}))
    assert "ALTER TABLE old.payments" in (refused.value.fix or "")


def test_a_table_is_made_with_its_namespace_and_then_loaded(catalog: SqlCatalog) -> None:
    spec = partition_spec([parse_partition_expr("bucket(4, text)")], SCHEMA)
    made = ensure_table(catalog, "a.b.payments", SCHEMA, spec, create_table_properties({}))
    assert made.metadata.format_version == 2
    assert made.properties["commit.manifest-merge.enabled"] == "true"
    assert [(str(f.transform), made.schema().find_column_name(f.source_id)) for f in made.spec().fields] == [
        ("bucket[4]", "text")
    ]
    again = ensure_table(catalog, "a.b.payments", Schema(), UNPARTITIONED_PARTITION_SPEC, {})
    assert again.metadata.table_uuid == made.metadata.table_uuid
    assert again.metadata_location == made.metadata_location


def test_a_table_that_engines_do_not_read_is_not_made(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "at", DateType()), NestedField(2, "AT_DAY", StringType()), NestedField(3, "_pos", LongType())
    )
    by = partition_spec([parse_partition_expr("day(at)")], schema)
    with pytest.raises(FrazilError, match=r"table a.b cannot be made: a partition field is called AT_DAY.*; _pos is a"):
        ensure_table(catalog, "a.b", schema, by, create_table_properties({}))
    named = partition_spec([parse_partition_expr("day(at) as by_day")], schema)
    with pytest.raises(FrazilError, match="cannot be made: _pos is a metadata column of Iceberg"):
        check_new_table_writable("a.b", schema, named, {})
    assert not catalog.namespace_exists("a")
    # One that is there goes on.
    catalog.create_namespace("a")
    catalog.create_table("a.b", schema)
    assert ensure_table(catalog, "a.b", schema, by, {}).schema().find_field("_pos").field_type == LongType()


def test_of_many_at_once_all_get_the_same_table(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/race.db"
    SqlCatalog("first", uri=uri, warehouse=f"file://{tmp_path}/wh").close()
    start = Barrier(6)

    def one(number: int) -> str:
        own = SqlCatalog("first", uri=uri, warehouse=f"file://{tmp_path}/wh", init_catalog_tables="false")
        start.wait(timeout=30)
        made = ensure_table(own, "orders.payments", SCHEMA, UNPARTITIONED_PARTITION_SPEC, create_table_properties({}))
        own.close()
        return str(made.metadata.table_uuid)

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(one, range(6)))) == 1


def test_hive_puts_a_new_namespace_into_the_warehouse_of_the_settings(tmp_path: Path) -> None:
    hive = type("HiveCatalog", (SqlCatalog,), {"__module__": "pyiceberg.catalog.hive"})
    with hive("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse/") as catalog:
        table = ensure_table(catalog, "a.t", SCHEMA, UNPARTITIONED_PARTITION_SPEC, create_table_properties({}))
        assert catalog.load_namespace_properties("a")["location"] == f"file://{tmp_path}/warehouse/a.db"
        assert table.location() == f"file://{tmp_path}/warehouse/a.db/t"


def test_a_name_without_a_namespace_is_refused(catalog: SqlCatalog) -> None:
    with pytest.raises(FrazilError, match="no namespace"):
        ensure_table(catalog, "payments", SCHEMA, UNPARTITIONED_PARTITION_SPEC, {})
