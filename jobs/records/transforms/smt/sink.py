"""Transforms of the Iceberg sink of Kafka Connect: a copied column, a record's source, and rows of changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import NULL_IN_REQUIRED, WRONG_TYPE, shown
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    column,
    no_column,
    renamed,
)
from jobs.records.transforms.smt.debezium_envelope import (
    before_and_after,
    kind_at,
    row_fields,
    value_of,
)
from jobs.records.transforms.smt.keys import KEY_COLUMN
from jobs.records.transforms.smt.known import Known, Properties
from jobs.records.transforms.timestamps import instants_of
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

ICEBERG = "org.apache.iceberg.connect.transforms."
_PARTS: tuple[tuple[str, ice.IcebergType], ...] = (
    ("topic", ice.StringType()),
    ("partition", ice.IntegerType()),
    ("offset", ice.LongType()),
    ("timestamp", ice.LongType()),
)


@dataclass(frozen=True, slots=True)
class CopyColumn(Transform):
    """Copy a column under another name, behind the others.

    Attributes:
        source: Name of the column at the top.
        target: Name of the copy.
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
    """Add topic, partition, offset and timestamp (ms since 1970) of the record, and perhaps a constant.

    Attributes:
        prefix: Prefix of the columns' names, or the name of the struct if they are nested.
        nested: Whether they are fields of a struct.
        constant: Name and text of a further column.
    """

    name: ClassVar[str] = "kafka_metadata"
    prefix: str
    nested: bool
    constant: tuple[str, str] | None

    @property
    def adds(self) -> frozenset[str]:
        """Return the name of the struct, or of a column for each part."""
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
        """Add the columns; the topic is as steps left it, all else is the record's own."""
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


_CDC = "_cdc"
_DEBEZIUM_OPS: Mapping[str, str] = {"c": "I", "r": "I", "u": "U", "d": "D"}
_DMS_OPS: Mapping[str, str] = {"insert": "I", "load": "I", "update": "U", "delete": "D"}
_DMS_FIELDS = ("operation", "timestamp", "schema-name", "table-name")
_PLACEHOLDER = re.compile(r"(\{db\}|\{table\})")


@dataclass(frozen=True, slots=True)
class DebeziumChange(Transform):
    """Replace an event of Debezium by its row, with operation, time, offset, source and target of the change.

    Attributes:
        target: Parts of the target's name, with `{db}` and `{table}` among them.
        lenient: Whether an unknown operation is an insertion.
        key: The column with the record's key, which `_cdc` gets as well; None if it does not.
    """

    name: ClassVar[str] = "debezium"
    target: tuple[str, ...]
    lenient: bool
    key: str | None = None

    def output(self, columns: Columns) -> Columns:
        fields = [
            column("op", ice.StringType(), required=True),
            column("ts", ice.TimestamptzType(), required=True),
            column("offset", ice.LongType()),
            column("source", ice.StringType(), required=True),
            column("target", ice.StringType(), required=True),
        ]
        if self.key is not None:
            fields.append(renamed(columns.field(self.key, (KEY_COLUMN,)), "key"))
        return Columns.of(
            (
                *row_fields(columns, "DebeziumTransform", deleted=True),
                column(_CDC, ice.StructType(*fields), required=True),
            )
        )

    def apply(self, rows: Rows) -> Applied:
        """Convert the events; a deletion gives the row before it."""
        into = rows.columns.behind(self)
        ops, failures = _operations(value_of(rows, ("op",)), _DEBEZIUM_OPS, "$.op", lenient=self.lenient)
        deleted = pc.equal(ops, "D")
        state = pc.if_else(deleted, *before_and_after(rows, into))
        times, odd = instants_of(value_of(rows, ("ts_ms",)), "$.ts_ms")
        failures += odd + _missing(state, "$.before or $.after") + _missing(times, "$.ts_ms")
        db = value_of(rows, _database(rows.columns))
        table = value_of(rows, ("source", "table"))
        named = {"{db}": db, "{table}": table}
        parts = [named.get(each, pa.repeat(pa.scalar(each, pa.string()), rows.count)) for each in self.target]
        target = pc.binary_join_element_wise(*parts, "")
        cdc = [ops, times, rows.frame.part("offset"), pc.binary_join_element_wise(db, table, "."), target]
        if self.key is not None:
            cdc.append(rows.batch.column(rows.columns.index(self.key)))
        kind = rows_arrow_type(into.fields[-1].field_type)
        struct = pa.StructArray.from_arrays(cdc, fields=list(kind))
        arrays = [pc.struct_field(state, [number]) for number in range(state.type.num_fields)]
        return settled(rows.with_batch(into, [*arrays, struct]), failures)


@dataclass(frozen=True, slots=True)
class DmsChange(Transform):
    """Replace a record of AWS DMS by its row, with operation, time and source of the change.

    Attributes:
        lenient: Whether an unknown operation is an insertion.
    """

    name: ClassVar[str] = "dms"
    lenient: bool

    def output(self, columns: Columns) -> Columns:
        data = kind_at(columns, ("data",))
        if not isinstance(data, ice.StructType):
            raise TransformProblem(f"DmsTransform takes a struct 'data'; there are {', '.join(columns.names)}", ())
        for name in _DMS_FIELDS:
            if not isinstance(kind_at(columns, ("metadata", name)), ice.StringType):
                raise TransformProblem(f"DmsTransform needs metadata.{name} as string", ())
        fields = [column(name, ice.StringType()) for name in ("op", "ts", "source")]
        return Columns.of((*data.fields, column(_CDC, ice.StructType(*fields), required=True)))

    def apply(self, rows: Rows) -> Applied:
        """Convert the records; the time stays a text."""
        into = rows.columns.behind(self)
        operation, at, schema, table = (value_of(rows, ("metadata", name)) for name in _DMS_FIELDS)
        ops, failures = _operations(operation, _DMS_OPS, "$.metadata.operation", lenient=self.lenient)
        data = value_of(rows, ("data",))
        failures += _missing(data, "$.data")
        kind = rows_arrow_type(into.fields[-1].field_type)
        source = pc.binary_join_element_wise(schema, table, ".")
        struct = pa.StructArray.from_arrays([ops, at, source], fields=list(kind))
        arrays = [pc.struct_field(data, [number]) for number in range(data.type.num_fields)]
        return settled(rows.with_batch(into, [*arrays, struct]), failures)


def _operations(
    found: pa.Array, known: Mapping[str, str], path: str, *, lenient: bool
) -> tuple[pa.Array, list[RowFailure]]:
    """Return the letters of operations, and the rows with an unknown one; each distinct one is looked up once."""
    encoded = pc.dictionary_encode(found)
    words = encoded.dictionary.to_pylist()
    letters = pa.array([known.get(each, "I") for each in words], pa.string()).take(encoded.indices)
    letters = pc.fill_null(letters, "I")
    if lenient:
        return letters, []
    odd = pa.array([each not in known for each in words], pa.bool_()).take(encoded.indices)
    rows = np.flatnonzero(pc.fill_null(odd, True).to_numpy(zero_copy_only=False))
    said = f"needs {', '.join(known)}, found"
    return letters, [
        RowFailure(int(row), WRONG_TYPE, f"{said} {shown(str(found[int(row)].as_py()))}", path) for row in rows
    ]


def _missing(array: pa.Array, path: str) -> list[RowFailure]:
    """Return failures of the rows without a value that every change has."""
    rows = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
    return [RowFailure(int(row), NULL_IN_REQUIRED, "needs a value, found null", path) for row in rows]


def _database(columns: Columns) -> tuple[str, str]:
    return ("source", "schema") if kind_at(columns, ("source", "schema")) is not None else ("source", "db")


def _debezium(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    row_fields(columns, "DebeziumTransform", deleted=True)
    for path, kind in (
        (("ts_ms",), ice.LongType),
        (_database(columns), ice.StringType),
        (("source", "table"), ice.StringType),
    ):
        if not isinstance(kind_at(columns, path), kind):
            raise TransformProblem(f"DebeziumTransform needs {'.'.join(path)} as {kind()}", ())
    parts = _PLACEHOLDER.split(properties.text("cdc.target.pattern", "{db}.{table}"))
    return [DebeziumChange(tuple(part for part in parts if part), lenient, properties.text(KEY_COLUMN) or None)]


def _dms(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    return [DmsChange(lenient)]


CHANGES = (
    Known(f"{ICEBERG}DebeziumTransform", ("cdc.target.pattern", KEY_COLUMN), _debezium),
    Known(f"{ICEBERG}DmsTransform", (), _dms),
)
