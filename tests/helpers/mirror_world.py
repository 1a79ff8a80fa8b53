"""A changelog and its mirror in a catalog of their own, without streams: changes land, and are merged by Spark."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.mirrors.merge.merge import merge_increment
from jobs.mirrors.merge.mirror_table import MIRROR_PROPERTIES
from jobs.mirrors.merge.small_merge.small_merge import merge_small
from jobs.mirrors.model.merge_plan import (
    Deletes,
    MergePlan,
    MergeResult,
    MirrorState,
    Scope,
)
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.write.table_creation import create_table_properties
from jobs.tables.write.target_writer import TargetWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGELOG, MIRROR = "shop.customers_changes", "shop.customers"
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
_CHANGE_COLUMNS = (
    "_change_op string not null, _change_at timestamptz, _change_position string, _change_lineage string, "
    "_change_unavailable list<string>"
)
Row = dict[str, Any]
By = Literal["spark", "process", "either"]
"""What merges: Spark, this process if it can, or whichever of the two it is to a user."""


class MirrorWorld:
    """Changelog and mirror, with the mirror's progress.

    Args:
        home: Folder of the deployment.
        session: Spark session; None if Spark merges nothing.
        row: Columns of the source's row, as a spec declares them; key columns are required in the mirror.
        buckets: Number of buckets of the mirror's partitions, by the first column of the key.
        scattered: Whether records have no keys.
    """

    def __init__(
        self,
        home: Path,
        session: SparkSession | None,
        row: str,
        key: Sequence[str],
        *,
        deletes: Deletes = "hard",
        where: str | None = None,
        buckets: int = 4,
        scope: Scope = "source",
        scattered: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.session: SparkSession | None = session
        self.settings: Settings = Settings.embedded(home)
        self.catalog: Catalog = connect_catalog(self.settings)
        self.catalog.create_namespace("shop")
        self.key: tuple[str, ...] = tuple(key)
        self.deletes: Deletes = deletes
        self.scope: Scope = scope
        self.scattered: bool = scattered
        self.where: str | None = where
        self.state: MirrorState = MirrorState()
        self.attempts: int = 0
        self.files: list[DataFile] = []
        self.begins: dict[TopicPartition, int] = {}
        self.small: int = 0
        columns = iceberg_schema(parse_schema(row))
        old_key = ", ".join(f"`{name}` {columns.find_type(name)}" for name in key)
        changes = f"{row}, {_CHANGE_COLUMNS}, _change_old_key struct<{old_key}>"
        self.catalog.create_table(CHANGELOG, KAFKA_COLUMNS.added_to(iceberg_schema(parse_schema(changes))))
        self.columns: tuple[str, ...] = tuple(each.name for each in columns.fields)
        more = "_change_order string" + (", _change_deleted boolean" if deletes == "soft" else "")
        schema = iceberg_schema(parse_schema(f"{row}, {more}"))
        required = [each.model_copy(update={"required": True}) if each.name in key else each for each in schema.fields]
        source = schema.find_field(key[0]).field_id
        spec = PartitionSpec(PartitionField(source, 1000, BucketTransform(buckets), f"{key[0]}_bucket"))
        given = create_table_properties({**MIRROR_PROPERTIES, **(properties or {})})
        self.catalog.create_table(MIRROR, Schema(*required), partition_spec=spec, properties=given)
        self.mirror.append(rows_arrow_schema(self.mirror.schema()).empty_table())

    @property
    def mirror(self) -> Table:
        return self.catalog.load_table(MIRROR)

    @property
    def changelog(self) -> Table:
        return self.catalog.load_table(CHANGELOG)

    def land(self, changes: Sequence[Row]) -> None:
        """Changes land in the changelog in one commit; the next merge brings them."""
        wanted = rows_arrow_schema(self.changelog.schema())
        columns = {n: pa.array([each.get(n) for each in changes], wanted.field(n).type) for n in wanted.names}
        self.land_rows(pa.table(columns, schema=wanted))

    def land_rows(self, rows: pa.Table) -> None:
        """Rows of the changelog land in one commit."""
        table = self.changelog
        writer = TargetWriter(table.metadata, table.io, file_prefix=uuid.uuid4().hex)
        for batch in rows.to_batches():
            writer.write(batch)
        files = writer.close()
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in files:
                append.append_data_file(file)
        paths = {file.file_path for file in files}
        planned = [task.file for task in self.changelog.scan(AlwaysTrue()).plan_files()]
        self.files += [file for file in planned if file.file_path in paths]

    def expire(self, begins: Mapping[TopicPartition, int]) -> None:
        """Changes from before these offsets go."""
        assert not self.files
        for each, since in begins.items():
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Delete operation did not match any records")
                self.changelog.delete(f"_kafka_partition = {each.partition} and _kafka_offset < {since}")
        self.begins = dict(begins)

    def merged(
        self,
        *,
        files: Sequence[DataFile] | None = None,
        state: MirrorState | None = None,
        incomplete: bool = False,
        by: By = "spark",
    ) -> MergeResult:
        """Merge the newly landed changes, and publish the result."""
        self.attempts += 1
        branch = f"frazil-mirror-1-{self.attempts}"
        head = self.mirror.current_snapshot()
        assert head is not None
        self.mirror.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
        changelog = self.changelog
        newest = changelog.current_snapshot()
        plan = MergePlan(
            "shop",
            self.key,
            self.columns,
            self.state if state is None else state,
            newest.snapshot_id if newest else 0,
            self.deletes,
            self.where,
            self.scope,
            self.scattered,
            begins=self.begins,
            incomplete=incomplete,
        )
        chosen = self.files if files is None else files
        result = None
        if by != "spark":
            result = merge_small(changelog, chosen, self.mirror, branch, plan)
            self.small += result is not None
        if result is None and by != "process":
            assert self.session is not None
            result = merge_increment(self.session, self.settings, changelog, chosen, self.mirror, branch, plan)
        assert result is not None, "it is left to Spark"
        self.mirror.manage_snapshots().set_current_snapshot(ref_name=branch).commit()
        self.mirror.manage_snapshots().remove_branch(branch).commit()
        self.state, self.files = MirrorState.from_json(result.state.to_json()), []
        return result

    def rows(self) -> dict[Any, Row]:
        """The mirror's rows by key, without the column of the order."""
        found = self.mirror.scan().to_arrow().to_pylist()
        by_key = {tuple(row[name] for name in self.key): row for row in found}
        assert len(by_key) == len(found)
        return {key: {name: row[name] for name in row if name != "_change_order"} for key, row in by_key.items()}


def change(op: str, offset: int, position: int | None = None, /, *, partition: int = 0, **values: Any) -> Row:
    """A change as it stands in the changelog; `unavailable`, `old_key`, `lineage` and `at` are its own."""
    place = offset if position is None else position
    row: Row = {
        "_change_op": op,
        "_change_at": values.pop("at", BEGIN),
        "_change_position": f"{place:08x}",
        "_change_lineage": values.pop("lineage", "db"),
        "_change_unavailable": values.pop("unavailable", None),
        "_change_old_key": values.pop("old_key", None),
        "_kafka_topic": values.pop("topic", "shop"),
        "_kafka_partition": partition,
        "_kafka_offset": offset,
        "_kafka_timestamp": BEGIN,
    }
    return row | values
