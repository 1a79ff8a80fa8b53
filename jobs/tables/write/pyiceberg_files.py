"""PyIceberg's functions for data files. No other module of `jobs.tables.write` uses its internals for this.

Relied upon, and pinned by `tests/unit/tables/write/test_pyiceberg_files.py`: `schema_to_pyarrow` puts
`PARQUET:field_id` on every level; `sanitize_column_names` keeps the ids; `_get_parquet_writer_kwargs` gives keyword
arguments of `pyarrow.parquet.ParquetWriter`; `match_metrics_mode` reads a metrics mode; location providers ask a
`PartitionKey` for its `to_path()` and nothing else; `DataFile.from_args` takes the fields of a v2 manifest entry by
name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    _get_parquet_writer_kwargs,
    match_metrics_mode,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from jobs.tables.write.column_statistics import ColumnMode, ColumnStatistics

# A path component may have 255 bytes on common file systems, and a key 1,024 on S3. The path only helps people: readers
# take partition values from the manifest.
MAX_COMPONENT_BYTES = 128

_CODECS_WITH_LEVEL = frozenset({"zstd", "gzip", "brotli"})


def schema_in_files(schema: Schema) -> Schema:
    """The schema with the names that Iceberg writes into files: letters, digits and underscores, the ids unchanged."""
    return sanitize_column_names(schema)


def arrow_schema_in_files(file_schema: Schema) -> pa.Schema:
    """The Arrow schema of a data file, Iceberg's field ids on every level, with Arrow's ordinary (not large) types."""
    converted = schema_to_pyarrow(file_schema, include_field_ids=True)
    return pa.schema([_ordinary_field(field) for field in converted])


def _ordinary_field(field: pa.Field) -> pa.Field:
    return field.with_type(_ordinary(field.type))


def _ordinary(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_ordinary_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_ordinary_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_ordinary_field(kind.key_field), _ordinary_field(kind.item_field))
    return kind


def parquet_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """The table's `write.parquet.*` properties as arguments of Arrow's Parquet writer, as PyIceberg reads them."""
    # PyIceberg warns that it does not support these. The target writer implements the first; bloom filters are optional
    # for a writer.
    skipped = (TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES, "write.parquet.bloom-filter-")
    options = _get_parquet_writer_kwargs({k: v for k, v in properties.items() if not k.startswith(skipped)})
    if str(options["compression"]).lower() not in _CODECS_WITH_LEVEL:
        options["compression_level"] = None  # Arrow refuses a level for a codec without levels.
    return options


def metrics_mode(properties: Mapping[str, str], column: str) -> ColumnMode:
    """The metrics mode of a column: its own property, else the table's default, else `truncate(16)`."""
    text = properties.get(f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{column}") or properties.get(
        TableProperties.DEFAULT_WRITE_METRICS_MODE, TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT
    )
    mode = match_metrics_mode(text)
    return ColumnMode(
        counts=mode.type is not MetricModeTypes.NONE,
        bounds=mode.type in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL),
        length=mode.length,
    )


def locations(metadata: TableMetadata) -> LocationProvider:
    """Location provider of the table's data files: `write.data.path`, object storage hashing, or a custom provider."""
    return load_location_provider(table_location=metadata.location, table_properties=metadata.properties)


class PartitionDirectory(PartitionKey):
    """A partition in the form that location providers use.

    PyIceberg's own class refuses two fields on one source column. It also makes paths that file systems refuse, from
    long values and from dates past the year 9999.
    """

    def __init__(self, values: Record, spec: PartitionSpec, schema: Schema) -> None:
        super().__init__(field_values=[], partition_spec=spec, schema=schema)
        object.__setattr__(self, "values", values)

    @cached_property
    def partition(self) -> Record:
        values: Record = self.__dict__["values"]
        return values

    def to_path(self) -> str:
        return "/".join(self._component(position) for position in range(len(self.partition_spec.fields)))

    def _component(self, position: int) -> str:
        field = self.partition_spec.fields[position]
        one = PartitionSpec(field, spec_id=self.partition_spec.spec_id)
        try:
            text = one.partition_to_path(Record(self.partition[position]), self.schema)
        except (OverflowError, ValueError):
            text = f"{field.name}={self.partition[position]}"
        if len(text) <= MAX_COMPONENT_BYTES:
            return text
        # Cut outside of a percent escape, so that the rest stays decodable.
        kept = text[: MAX_COMPONENT_BYTES - 20]
        for back in (1, 2):
            if kept[-back] == "%":
                kept = kept[:-back]
                break
        return f"{kept}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def new_data_file(
    *,
    path: str,
    size: int,
    partition: Record,
    spec_id: int,
    statistics: ColumnStatistics,
    content: DataFileContent = DataFileContent.DATA,
) -> DataFile:
    """Descriptor of a Parquet data file, as a manifest entry of format v2.

    Args:
        partition: Values in Iceberg's internal form (days, microseconds, bytes), in the order of the spec's fields.
        spec_id: Partition spec of the values.
        content: Rows, or deleted positions.
    """
    data_file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=statistics.record_count,
        file_size_in_bytes=size,
        column_sizes=dict(statistics.column_sizes),
        value_counts=dict(statistics.value_counts),
        null_value_counts=dict(statistics.null_value_counts),
        nan_value_counts={},
        lower_bounds=dict(statistics.lower_bounds),
        upper_bounds=dict(statistics.upper_bounds),
        split_offsets=list(statistics.split_offsets),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    # `from_args` silently drops a spec id, as it is no field of the manifest entry.
    data_file.spec_id = spec_id
    return data_file
