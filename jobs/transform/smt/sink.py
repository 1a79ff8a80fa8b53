"""Transforms that come with the Iceberg sink of Kafka Connect: a copied column, and where a record came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyiceberg import types as ice

from jobs.schema.arrow_schema import rows_arrow_type
from jobs.transform.columns import Columns, TransformProblem, column, no_column, renamed
from jobs.transform.smt.known import Known, Properties
from jobs.transform.transform import Applied, Rows, Transform

ICEBERG = "org.apache.iceberg.connect.transforms."
_PARTS: tuple[tuple[str, ice.IcebergType], ...] = (
    ("topic", ice.StringType()),
    ("partition", ice.IntegerType()),
    ("offset", ice.LongType()),
    ("timestamp", ice.LongType()),
)


@dataclass(frozen=True, slots=True)
class CopyColumn(Transform):
    """A column once more under another name, behind the others.

    Attributes:
        source: At the top.
        target: The new one.
    """

    name: ClassVar[str] = "copy"
    source: str
    target: str

    def output(self, columns: Columns) -> Columns:
        return Columns.of((*columns, renamed(columns.field(self.source, ("source.field",)), self.target)))

    def apply(self, rows: Rows) -> Applied:
        into = rows.columns.behind(self)
        copied = rows.batch.column(rows.columns.index(self.source))
        return Applied(rows.with_batch(into, [*rows.batch.columns, copied]))


@dataclass(frozen=True, slots=True)
class KafkaMetadata(Transform):
    """Topic, partition, offset and timestamp (ms since 1970) of the record, and perhaps a constant.

    Attributes:
        prefix: Of the columns' names; the name of the one column, where they are nested.
        nested: Whether they are fields of a struct.
        constant: Name and text of one more.
    """

    name: ClassVar[str] = "kafka_metadata"
    prefix: str
    nested: bool
    constant: tuple[str, str] | None

    @property
    def adds(self) -> frozenset[str]:
        """The struct, or a column for each part."""
        if self.nested:
            return frozenset({self.prefix})
        names = [name for name, _ in _PARTS] + ([self.constant[0]] if self.constant else [])
        return frozenset(f"{self.prefix}_{name}" for name in names)

    def output(self, columns: Columns) -> Columns:
        parts = [*_PARTS, *([(self.constant[0], ice.StringType())] if self.constant else [])]
        if self.nested:
            fields = [column(name, kind, required=name != "timestamp") for name, kind in parts]
            return Columns.of((*columns, column(self.prefix, ice.StructType(*fields), required=True)))
        more = [column(f"{self.prefix}_{name}", kind, required=name != "timestamp") for name, kind in parts]
        return Columns.of((*columns, *more))

    def apply(self, rows: Rows) -> Applied:
        """The topic as steps left it; all else is the record's own."""
        into = rows.columns.behind(self)
        arrays = [rows.frame.part(name) for name, _ in _PARTS[:3]]
        arrays.append(rows.frame.part("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64()))
        if self.constant:
            arrays.append(pa.repeat(pa.scalar(self.constant[1], pa.string()), rows.count))
        if self.nested:
            kind = rows_arrow_type(into.fields[-1].field_type)
            arrays = [pa.StructArray.from_arrays(arrays, fields=list(kind))]
        return Applied(rows.with_batch(into, [*rows.batch.columns, *arrays]))


def _copy(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    source, target = properties.needed("source.field"), properties.needed("target.field")
    if source not in columns.names:
        raise TransformProblem(no_column(source, columns.names), ("source.field",))
    if target in columns.names:
        raise TransformProblem(f"there is a column '{target}' already", ("target.field",))
    return [CopyColumn(source, target)]


def _metadata(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    external = properties.text("external_field")
    name, comma, value = (part.strip() for part in external.partition(","))
    if external and not (comma and name and value):
        raise TransformProblem(f"'{external}' is no name and value such as site,eu", ("external_field",))
    nested = properties.flag("nested", default=False)
    return [
        KafkaMetadata(properties.text("field_name", "_kafka_metadata"), nested, (name, value) if external else None)
    ]


SINK = (
    Known(f"{ICEBERG}CopyValue", ("source.field", "target.field"), _copy),
    Known(f"{ICEBERG}KafkaMetadataTransform", ("field_name", "nested", "external_field"), _metadata, leaves=True),
)
