"""Transforms of Kafka Connect for keys, `…$Key`: each is its class for values, on the column with the key.

The column is the one that `decode.key` puts keys into. Without one, no row holds data that such a class changes: its
properties are checked by name, and it does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import NULL_IN_REQUIRED
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    column,
    no_column,
    renamed,
    retyped,
)
from jobs.records.transforms.record_parts import DropHeaders
from jobs.records.transforms.set_columns import last_header, text_of
from jobs.records.transforms.smt.cast import CAST, ConnectCast
from jobs.records.transforms.smt.known import InOrder, Known, Properties
from jobs.records.transforms.smt.records import FIELDS, HEADER_FROM, path_of_field
from jobs.records.transforms.smt.timestamp_converter import TIMESTAMP_CONVERTER, converter
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)


def fields_of_key(columns: Columns, name: str) -> Columns | None:
    """Return the fields of the key as columns; None for a key that is a single value.

    Args:
        columns: Columns at this step.
        name: The column with the key.

    Raises:
        TransformProblem: The column does not exist.
    """
    if name not in columns.names:
        hint = "which has the key: an earlier step left it out, or key_column has its new name"
        raise TransformProblem(f"{no_column(name, columns.names)}, {hint}", ())
    kind = columns.field(name).field_type
    return Columns(kind.fields) if isinstance(kind, ice.StructType) else None


@dataclass(frozen=True, slots=True)
class WithinStruct(Transform):
    """Take steps on the fields of a key, as if it were the row. A key that is null stays null.

    Attributes:
        column: The key's column, a struct.
        steps: Steps on its fields.
    """

    name: ClassVar[str] = "within_struct"
    column: str
    steps: tuple[Transform, ...]

    @property
    def asks(self) -> frozenset[str]:
        return InOrder(self.steps).asks

    def output(self, columns: Columns) -> Columns:
        """Return the columns, with the key's fields behind the steps."""
        fields = fields_of_key(columns, self.column)
        assert fields is not None
        kind = ice.StructType(*InOrder(self.steps).output(fields).fields)
        return Columns.of(retyped(each, kind) if each.name == self.column else each for each in columns)

    def apply(self, rows: Rows) -> Applied:
        """Take the steps on the fields as separate rows of the same records."""
        into, at = rows.columns.behind(self), rows.columns.index(self.column)
        fields, keys = fields_of_key(rows.columns, self.column), rows.batch.column(at)
        assert fields is not None
        arrays = [pc.struct_field(keys, [number]) for number in range(len(fields.fields))]
        made = InOrder(self.steps).apply(
            Rows(fields, pa.RecordBatch.from_arrays(arrays, schema=fields.arrow), rows.frame)
        )
        left = rows if made.kept is None else rows.take(made.kept)
        kind = into.arrow.field(at).type
        mask = left.batch.column(at).is_null()
        struct = pa.StructArray.from_arrays(made.rows.batch.columns, fields=list(kind), mask=mask)
        batch = left.with_batch(into, _replaced(left, at, struct)).batch
        failures = [
            each._replace(path=f"$.{self.column}" + (each.path or "$").removeprefix("$")) for each in made.failures
        ]
        return Applied(Rows(into, batch, made.rows.frame, left.tombstones), made.kept, failures)


@dataclass(frozen=True, slots=True)
class FieldInPlace(Transform):
    """Replace a key by one of its fields.

    Attributes:
        column: The key's column, a struct.
        path: The names down to the field.
    """

    name: ClassVar[str] = "field_in_place"
    column: str
    path: tuple[str, ...]

    def output(self, columns: Columns) -> Columns:
        """Return the columns, with the field's type for the key; optional if a struct above it may be null."""
        above = columns.field(self.column)
        found, required = above, above.required
        for name in self.path:
            kind = found.field_type
            if not isinstance(kind, ice.StructType):
                raise TransformProblem(f"'{found.name}' of the key has no fields, so none is '{name}'", ("field",))
            names = [each.name for each in kind.fields]
            if name not in names:
                raise TransformProblem(no_column(name, names, found.name), ("field",))
            found = next(each for each in kind.fields if each.name == name)
            required = required and found.required
        made = column(self.column, found.field_type, required=required)
        return Columns.of(made if each is above else each for each in columns)

    def apply(self, rows: Rows) -> Applied:
        """Replace the key; it is null where there is no key."""
        at = rows.columns.index(self.column)
        found = pc.struct_field(rows.batch.column(at), list(self.path))
        return Applied(rows.with_batch(rows.columns.behind(self), _replaced(rows, at, found)))


@dataclass(frozen=True, slots=True)
class IntoField(Transform):
    """Replace a key by a struct with the key as its one field. A key that is null stays null.

    Attributes:
        column: The key's column.
        field: The field's name.
    """

    name: ClassVar[str] = "into_field"
    column: str
    field: str

    def output(self, columns: Columns) -> Columns:
        return Columns.of(
            retyped(each, ice.StructType(renamed(each, self.field))) if each.name == self.column else each
            for each in columns
        )

    def apply(self, rows: Rows) -> Applied:
        into, at = rows.columns.behind(self), rows.columns.index(self.column)
        keys, kind = rows.batch.column(at), into.arrow.field(at).type
        struct = pa.StructArray.from_arrays([keys], fields=list(kind), mask=keys.is_null())
        return Applied(rows.with_batch(into, _replaced(rows, at, struct)))


@dataclass(frozen=True, slots=True)
class WholeColumn(Transform):
    """Take steps on a key that is a single value, as if it were the only column of the row.

    Attributes:
        column: The key's column.
        steps: Steps on this column.
    """

    name: ClassVar[str] = "whole_column"
    column: str
    steps: tuple[Transform, ...]

    def output(self, columns: Columns) -> Columns:
        (made,) = InOrder(self.steps).output(Columns((columns.field(self.column),))).fields
        return Columns.of(made if each.name == self.column else each for each in columns)

    def apply(self, rows: Rows) -> Applied:
        into, at = rows.columns.behind(self), rows.columns.index(self.column)
        alone = Columns((rows.columns.fields[at],))
        batch = pa.RecordBatch.from_arrays([rows.batch.column(at)], schema=alone.arrow)
        made = InOrder(self.steps).apply(Rows(alone, batch, rows.frame))
        left = rows if made.kept is None else rows.take(made.kept)
        return Applied(left.with_batch(into, _replaced(left, at, made.rows.batch.column(0))), made.kept, made.failures)


@dataclass(frozen=True, slots=True)
class NeedsKey(Transform):
    """Refuse a record without a key.

    Attributes:
        column: The key's column.
    """

    name: ClassVar[str] = "needs_key"
    column: str

    def output(self, columns: Columns) -> Columns:
        return columns

    def apply(self, rows: Rows) -> Applied:
        absent = np.flatnonzero(rows.batch.column(self.column).is_null().to_numpy(zero_copy_only=False))
        said = "needs a key, found null"
        return settled(rows, [RowFailure(int(row), NULL_IN_REQUIRED, said, f"$.{self.column}") for row in absent])


def _replaced(rows: Rows, at: int, array: pa.Array) -> Sequence[pa.Array]:
    return [array if number == at else each for number, each in enumerate(rows.batch.columns)]


KEY_COLUMN = "key_column"
"""Frazil's own property for the column with the key; by default that of `decode.key.into`."""


def of_key(type_: str) -> bool:
    """Return whether a class, by any of its names, changes keys."""
    return type_.endswith("$Key")


def _steps(of: Known, properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    name = properties.text(KEY_COLUMN)
    if not name:
        return []
    class_ = of.name.removesuffix("$Value")
    if class_ == "SetSchemaMetadata":
        return of.steps(properties, columns, lenient)
    if not columns.names:
        # The caller asks only for added columns, with unknown ones before: it changes one.
        return [WholeColumn(name, ())]
    fields = fields_of_key(columns, name)
    if class_ == "HoistField":
        return [IntoField(name, properties.needed("field"))]
    if fields is None:
        return [WholeColumn(name, _whole(class_, properties, columns, name, lenient=lenient))]
    if class_ == "ExtractField":
        return [FieldInPlace(name, path_of_field(properties))]
    _fields_only(class_, properties, schema_text(columns.field(name).field_type))
    within = WithinStruct(name, tuple(of.steps(properties, fields, lenient)))
    return [NeedsKey(name), within] if class_ == "HeaderFrom" else [within]


def _whole(class_: str, properties: Properties, columns: Columns, name: str, *, lenient: bool) -> tuple[Transform, ...]:
    """Return the steps on a key that is a single value."""
    if class_ == "Cast" and ":" not in properties.needed("spec"):
        return (ConnectCast.of(((name, properties.text("spec").strip()),), lenient=lenient),)
    if class_ == "TimestampConverter" and not properties.text("field"):
        return (converter(properties, name, lenient=lenient),)
    kind = schema_text(columns.field(name).field_type)
    raise TransformProblem(f"the key in '{name}' is a single value, {kind}, and {class_}$Key changes fields", ())


def _fields_only(class_: str, properties: Properties, kind: str) -> None:
    if class_ == "Cast" and ":" not in properties.needed("spec"):
        raise TransformProblem(f"the key is {kind}: write FIELD:{properties.text('spec')}", ("spec",))
    if class_ == "TimestampConverter" and not properties.text("field"):
        raise TransformProblem(f"the key is {kind}: name its field by field", ())


def _key(of: Known) -> Known:
    type_ = of.type.replace("$Value", "$Key")
    return Known(type_, (*of.properties, KEY_COLUMN), partial(_steps, of), of.asks, (KEY_COLUMN,), leaves=True)


KEYS = tuple(map(_key, (CAST, *FIELDS, HEADER_FROM, TIMESTAMP_CONVERTER)))


_HEADERS = frozenset({"headers"})


@dataclass(frozen=True, slots=True)
class FromHeader(Transform):
    """Put a header's text in a column; the last of several headers of one name counts. An existing column keeps its
    value if a record has no such header.

    Attributes:
        header: Name of the header.
        column: Name of the column at the top.
    """

    name: ClassVar[str] = "from_header"
    header: str
    column: str

    @property
    def asks(self) -> frozenset[str]:
        return _HEADERS

    def output(self, columns: Columns) -> Columns:
        if self.column not in columns.names:
            return Columns.of((*columns, column(self.column, ice.StringType())))
        kind = columns.field(self.column).field_type
        if not isinstance(kind, ice.StringType):
            raise TransformProblem(
                f"the column '{self.column}' is {schema_text(kind)}, and a header is text: write another name, and "
                "cast it behind",
                ("fields",),
            )
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Set the column; a row fails if its header is no text."""
        into = rows.columns.behind(self)
        found, bad = text_of(last_header(rows.frame, self.header))
        arrays = list(rows.batch.columns)
        if self.column in rows.columns.names:
            at = rows.columns.index(self.column)
            arrays[at] = pc.coalesce(found, arrays[at])
        else:
            arrays.append(found)
        failures = [RowFailure(each.index, each.error_class, each.message, f"$.{self.column}") for each in bad]
        return settled(rows.with_batch(into, arrays), failures)


def _header_steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    headers, fields = properties.needed_names("headers"), properties.needed_names("fields")
    move = properties.choice("operation", ("move", "copy")) == "move"
    if len(headers) != len(fields):
        raise TransformProblem(f"there are {len(headers)} headers and {len(fields)} fields", ("fields",))
    steps: list[Transform] = []
    made: set[str] = set()
    for header, field in zip(headers, fields, strict=True):
        names = field.split(".")
        if names[0] in made:
            raise TransformProblem(
                f"two headers in '{names[0]}', which no column is yet: write names at the top, and hoist them",
                ("fields",),
            )
        if len(names) > 1 and names[0] not in columns.names:
            made.add(names[0])
        more = _header_placed(header, names, columns)
        for each in more:
            columns = Columns.of(each.output(columns).fields)
        steps += more
    return [*steps, DropHeaders(tuple(dict.fromkeys(headers)))] if move else steps


def _header_placed(header: str, names: Sequence[str], columns: Columns) -> list[Transform]:
    """Return the steps that put a header at a path; missing structs are added."""
    top, within = names[0], names[1:]
    if not all(names):
        raise TransformProblem(f"'{'.'.join(names)}' is no path of a field", ("fields",))
    if not within or top not in columns.names:
        return [FromHeader(header, top), *(IntoField(top, each) for each in reversed(within))]
    kind = columns.field(top).field_type
    if not isinstance(kind, ice.StructType):
        raise TransformProblem(f"the column '{top}' is {schema_text(kind)}, which has no fields", ("fields",))
    return [WithinStruct(top, tuple(_header_placed(header, within, Columns(kind.fields))))]


HEADER_TO_VALUE = Known(
    "io.debezium.transforms.HeaderToValue", ("headers", "fields", "operation"), _header_steps, _HEADERS
)
