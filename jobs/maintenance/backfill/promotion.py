"""Promotion of a rescued field: its column, the column's type, and the change of the table that adds it."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.alteration import Alteration
from jobs.records.schema.column_names import partition_names
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
    quoted,
)
from jobs.records.schema.evolution import judged
from jobs.records.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.records.schema.needs import (
    Coordinates,
    EvolutionPolicy,
    Path,
    RecordNeed,
    column_name,
)
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.schema.schema_change import columns_of
from jobs.records.schema.tokens import SchemaTextError, default_encoding

_NOBODYS = Coordinates("", -1, -1)
_SHAPES = "write it as '$.field' or '$.payer.field', names with other signs in backticks: '$.`order-id`'"
_SPARK: dict[type[ice.IcebergType], str] = {
    ice.BooleanType: "boolean",
    ice.IntegerType: "int",
    ice.LongType: "bigint",
    ice.FloatType: "float",
    ice.DoubleType: "double",
    ice.DateType: "date",
    ice.TimestampType: "timestamp_ntz",
    ice.TimestamptzType: "timestamp",
    ice.StringType: "string",
    ice.UUIDType: "string",
}


@dataclass(frozen=True, slots=True)
class Promotion:
    """A rescued field and its column.

    Attributes:
        path: Path of the field in a record, and of the column in the table.
        type: Type of the column, and its form in JSON.
        new: Path of what the table lacks: the column, or the outermost struct that has to be added for it; None if the
            table has the column.
    """

    path: Path
    type: DeclaredType
    new: Path | None

    @property
    def place(self) -> str:
        """JSON path of the field."""
        return ".".join(["$", *map(quoted, self.path)])

    @property
    def column(self) -> str:
        """Name of the column in Iceberg and SQL."""
        return column_name(self.path)

    @property
    def record(self) -> StructType:
        """A record with nothing but the field."""
        return _around(self.path, self.type)

    def undeclared(self, spec: StreamSpec) -> tuple[Path, str] | None:
        """Field that a stream's file still has to declare: its top-level column, and the field's text.

        None if the file has it, or declares no columns.
        """
        if spec.decode.schema_source != "declared":
            return None
        found: DeclaredType = parse_schema(spec.decode.schema_text)
        for depth, name in enumerate(self.path):
            inner = {each.name: each.type for each in found.fields} if isinstance(found, StructType) else {}
            if name not in inner:
                return self.path[:depth], _around(self.path[depth:], self.type).text
            found = inner[name]
        return None

    def alteration(self, metadata: TableMetadata, spec: StreamSpec) -> Alteration:
        """The change of a table that adds the column.

        Args:
            metadata: Metadata of the table, which may have the column by now.
        """
        schema = metadata.schema()
        new = first_new(schema, self.path)
        if new is None:
            return Alteration()
        kind = iceberg_schema(_around(self.path[len(new) - 1 :], self.type)).fields[0].field_type
        need = RecordNeed("add", new, kind, _NOBODYS)
        policy = EvolutionPolicy(add="auto", columns=spec.evolution.columns, depth=spec.evolution.depth)
        partitions = partition_names(schema, metadata.partition_specs)
        found = judged([need], schema, policy, maintained=spec.maintenance.enabled, partitions=partitions)
        return Alteration(
            found.changes, refused=tuple(f"{column_name(each.path)}: {each.why}" for each in found.refused)
        )


def parse_field(text: str) -> Path:
    """Parse the path of a field, such as `$.payer.name`.

    Raises:
        FrazilError: The text is no path, or the field is in a list or a map.
    """
    if not text.startswith("$."):
        raise FrazilError(f"'{text}' is no path of a field.", fix=_SHAPES)
    names, rest = [], text[1:]
    while rest:
        if not rest.startswith("."):
            raise FrazilError(f"'{text}' is no path of a field of an object: '{rest}' is left over.", fix=_SHAPES)
        rest = rest[1:]
        if rest.startswith("`"):
            end = rest.find("`", 1)
            while end >= 0 and rest[end : end + 2] == "``":
                end = rest.find("`", end + 2)
            if end < 0:
                raise FrazilError(f"'{text}' has a backtick that nothing closes.", fix=_SHAPES)
            name, rest = rest[1:end].replace("``", "`"), rest[end + 1 :]
        else:
            end = min((at for at in (rest.find("."), rest.find("["), rest.find("{")) if at >= 0), default=len(rest))
            name, rest = rest[:end], rest[end:]
        if not name:
            raise FrazilError(f"'{text}' has a name without letters.", fix=_SHAPES)
        names.append(name)
    return tuple(names)


def parse_type(text: str, path: Path) -> DeclaredType:
    """Parse the type of a field, such as `decimal(12,2)` or `timestamptz as epoch_ms`.

    Raises:
        FrazilError: The text is no type, or has `not null`.
    """
    try:
        (found,) = parse_schema(f"{quoted(path[-1])} {text}").fields
    except (SchemaTextError, ValueError) as problem:
        raise FrazilError(f"--as {text}: no type of a column: {problem}", fix="frazil schema apply --help") from None
    if found.required:
        raise FrazilError(
            f"--as {text}: a new column accepts null, because the rows before have none.",
            fix="leave `not null` out; a stream's file may say it, for new records",
        )
    return found.type


def first_new(schema: Schema, path: Path) -> Path | None:
    """Outermost part of a path that a table lacks; None if it has all of it.

    Raises:
        FrazilError: A parent of the field is no struct.
    """
    columns = dict(columns_of(schema))
    for length in range(1, len(path) + 1):
        column = columns.get(path[:length])
        if column is None:
            return path[:length]
        if length < len(path) and not isinstance(column.field_type, ice.StructType):
            raise FrazilError(
                f"column {column_name(path[:length])} is {schema_text(column.field_type)}, and no column can be made "
                f"in it: only structs are promoted into.",
                fix="promote a field that lies in objects alone",
            )
    return None


def promotion(spec: StreamSpec, schema: Schema, path: Path, asked: DeclaredType | None) -> Promotion | None:
    """Promotion of a rescued field; None if its type is neither given nor in the table.

    Args:
        spec: A stream that rescues fields.
        schema: Schema of its table.
        path: Path of the field.
        asked: The requested type.

    Raises:
        FrazilError: The field cannot be promoted, or not with this type.
    """
    _refuse(spec, schema, path)
    new = first_new(schema, path)
    if new is None:
        return Promotion(path, _type_in(spec, schema, path, asked), None)
    if asked is None:
        return None
    if not _free_to_say(spec) and (plain := _plain(path, asked)) != asked:
        raise FrazilError(
            f"--as {asked}: the columns of stream {spec.stream} are its table's, and such a column is read as "
            f"{plain}; only a file that declares the columns can set how values are carried.",
            fix=f"--as '{schema_text(iceberg_schema(_around(path[-1:], asked)).fields[0].field_type)}'",
        )
    return Promotion(path, asked, new)


def _refuse(spec: StreamSpec, schema: Schema, path: Path) -> None:
    if EXTRA_COLUMN not in {each.name for each in schema.fields}:
        raise FrazilError(
            f"table {spec.table.name} has no column {EXTRA_COLUMN}, in which fields would be kept.",
            fix=f"set decode.unknown_fields: keep in streams/{spec.stream}.yaml",
        )
    if spec.shapes or (spec.chain and spec.decode.declared is not None):
        file = f"streams/{spec.stream}.yaml"
        declare = f"declare the field in decode.schema of {file}, then frazil schema apply {spec.stream}"
        follow = f"set decode.unknown_fields: ignore in {file}, by which new fields become columns"
        raise FrazilError(
            f"stream {spec.stream} has transforms, and what is kept in {EXTRA_COLUMN} is of the record before them: "
            "which column a field becomes is for the steps to say.",
            fix=follow if spec.shapes else declare,
        )
    if path[0] in spec.columns_from_elsewhere | {EXTRA_COLUMN}:
        raise FrazilError(f"column {path[0]} of table {spec.table.name} is not from the records' values.")


def _type_in(spec: StreamSpec, schema: Schema, path: Path, asked: DeclaredType | None) -> DeclaredType:
    """Type of an existing column, with its form in JSON by the stream's file."""
    column = dict(columns_of(schema))[path]
    text = schema_text(column.field_type)
    if asked is not None:
        kind = iceberg_schema(_around(path[-1:], asked)).fields[0].field_type
        if schema_text(kind) != text:
            raise FrazilError(
                f"column {column_name(path)} of table {spec.table.name} is {text}, and not {asked}.",
                fix="leave --as out",
            )
        return asked
    declared = _declared_at(spec, path)
    if declared is not None:
        kind = iceberg_schema(_around(path[-1:], declared)).fields[0].field_type
        if schema_text(kind) == text:
            return declared
    return parse_schema(f"c {text}").fields[0].type


def _declared_at(spec: StreamSpec, path: Path) -> DeclaredType | None:
    """Type that a stream's file declares for a field."""
    if not _free_to_say(spec):
        return None
    found: DeclaredType = parse_schema(spec.decode.schema_text)
    for name in path:
        if not isinstance(found, StructType):
            return None
        inner = next((each.type for each in found.fields if each.name == name), None)
        if inner is None:
            return None
        found = inner
    return found


def _free_to_say(spec: StreamSpec) -> bool:
    return spec.decode.schema_source == "declared" and spec.decode.format == "json"


def _plain(path: Path, declared: DeclaredType) -> DeclaredType:
    """The type as in a table, without its form in JSON."""
    kind = iceberg_schema(_around(path[-1:], _optional(declared))).fields[0].field_type
    return parse_schema(f"c {schema_text(kind)}").fields[0].type


def _optional(declared: DeclaredType) -> DeclaredType:
    match declared:
        case StructType(fields):
            return StructType(tuple(Field(each.name, _optional(each.type)) for each in fields))
        case ListType(element):
            return ListType(_optional(element))
        case MapType(key, value, _, carried):
            return MapType(key, _optional(value), carried=carried)
        case Primitive():
            return declared


def _around(path: Path, declared: DeclaredType) -> StructType:
    for name in reversed(path[1:]):
        declared = StructType((Field(name, declared),))
    return StructType((Field(path[0], declared),))


def coalesce_sql(promotion: Promotion) -> str | None:
    """Spark SQL expression that returns the field of every row from the column or the rescued data.

    None if no short one does: for structs, lists and maps, for bytes, and for other forms in JSON.
    """
    kind = promotion.type
    if not isinstance(kind, Primitive) or kind.encoding not in (None, default_encoding(kind.name)):
        return None
    column = iceberg_schema(StructType(promotion.record.fields)).find_field(promotion.column).field_type
    if isinstance(column, ice.DecimalType):
        spark = f"decimal({column.precision},{column.scale})"
    elif (found := _SPARK.get(type(column))) is not None:
        spark = found
    else:
        return None
    if any("'" in name or "`" in name or "]" in name for name in promotion.path):
        return None
    place = "$" + "".join(f".{name}" if _is_identifier(name) else f"['{name}']" for name in promotion.path)
    columns = ".".join(name if _is_identifier(name) else f"`{name}`" for name in promotion.path)
    text = f'get_json_object({EXTRA_COLUMN}, "{place}")'
    return f"coalesce({columns}, {text if spark == 'string' else f'cast({text} as {spark})'})"


def _is_identifier(name: str) -> bool:
    return name.isascii() and name.isidentifier()
