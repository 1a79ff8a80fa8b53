"""A table as Kafka Connect's Iceberg sink leaves it: its types, its snapshots' summaries, and nothing of frazil's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import manifest
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.typedef import Record

from jobs.tables.commit.protocol.snapshot_producers import producer_of
from jobs.tables.commit.schema.operations import RowDelta

CONTROL, GROUP = "control-iceberg", "connect-payments"
# As the sink makes columns of Connect's types: decimals have 38 digits, all times a zone; optionality is copied.
SINK_COLUMNS = Schema(
    ice.NestedField(1, "id", ice.LongType(), required=True),
    ice.NestedField(2, "amount", ice.DecimalType(38, 2), required=False),
    ice.NestedField(3, "createdAt", ice.TimestamptzType(), required=False),
    ice.NestedField(4, "ref", ice.UUIDType(), required=False),
    ice.NestedField(
        5, "payer", ice.StructType(ice.NestedField(6, "name", ice.StringType(), required=False)), required=False
    ),
)
SINK_ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "amount": Decimal(f"{number}.25"),
        "createdAt": datetime(2026, 3, 1, 12, number, tzinfo=UTC),
        "ref": uuid.UUID(int=number).bytes,
        "payer": {"name": f"p{number}"},
    }
    for number in range(1, 4)
]


def sink_table(
    catalog: Catalog,
    name: str,
    rows: Sequence[Mapping[str, Any]] = (),
    schema: Schema = SINK_COLUMNS,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Create a table as the sink does, and commit each row as a commit of its own, with the sink's summary."""
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    table = catalog.create_table(name, schema, partition_spec=spec, properties=dict(properties or {}))
    for number, row in enumerate(rows, 1):
        summary = {
            f"kafka.connect.offsets.{CONTROL}.{GROUP}": json.dumps({"0": 3 * number}),
            "kafka.connect.commit-id": str(uuid.UUID(int=number)),
            "kafka.connect.task-id": "payments-0",
            "kafka.connect.valid-through-ts": f"2026-03-01T12:{number:02}:00Z",
        }
        table.append(pa.Table.from_pylist([dict(row)], schema=table.schema().as_arrow()), snapshot_properties=summary)
    return table


def upsert_by_value(table: Table, row: Mapping[str, Any], key: str = "id") -> None:
    """Commit a row as Tabular's sink did in its mode for upserts: an equality delete of its key, and the row."""
    schema, field = table.schema(), table.schema().find_field(key)
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    keys = pa.table(
        {key: pa.array([row[key]], schema.as_arrow().field(key).type)},
        schema=pa.schema([schema.as_arrow().field(key).with_metadata({"PARQUET:field_id": str(field.field_id)})]),
    )
    with table.io.new_output(path).create() as out:
        pq.write_table(keys, out)
    deletes = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=len(table.io.new_input(path)),
        equality_ids=[field.field_id],
    )
    deletes.spec_id = table.metadata.default_spec_id
    rows = pa.Table.from_pylist([dict(row)], schema=schema.as_arrow())
    files = list(_dataframe_to_data_files(table.metadata, rows, table.io, uuid.uuid4()))
    head = table.metadata.current_snapshot_id
    assert head is not None
    producer = producer_of(RowDelta(MAIN_BRANCH, head, files, [deletes]), table, {})
    with patch.dict(manifest.DATA_FILE_TYPE, {version: _with_int_ids(of) for version, of in DATA_FILE_TYPE.items()}):
        updates, requirements = producer._commit()
    table.catalog.commit_table(table, requirements, updates)
    table.refresh()


def _with_int_ids(of: ice.StructType) -> ice.StructType:
    """The type of data files in manifests with `equality_ids` as Java writes and reads them; PyIceberg writes longs."""
    ids = ice.ListType(136, ice.IntegerType(), element_required=True)
    fields = [
        ice.NestedField(135, each.name, ids, required=each.required) if each.field_id == 135 else each
        for each in of.fields
    ]
    return ice.StructType(*fields)
