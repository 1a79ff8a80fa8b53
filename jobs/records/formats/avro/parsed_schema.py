"""Parser of Avro schemas: it turns the text of a writer schema and its references into nodes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeGuard, get_args

from pyiceberg import types as ice

from jobs.records.formats.avro.nodes import (
    Array,
    Branch,
    Enum,
    FieldNode,
    Fixed,
    Logical,
    Map,
    Node,
    Null,
    Plain,
    PlainName,
    Record,
    Union,
    Within,
)
from jobs.records.formats.avro.options import AvroOptions
from jobs.records.formats.connect_types import (
    DECIMAL,
    JSON,
    LOGICAL_TYPES,
    MOST_DIGITS,
    decimal_scale,
)
from jobs.records.formats.interface.writer_schema import BadWriterSchema, NoSchema, WriterSchema

_CONNECT_NAMES: Mapping[str, str] = {"int": "int32", "long": "int64", "string": "string", "bytes": "bytes"}
_TYPES: Mapping[str, ice.PrimitiveType] = {
    "date": ice.DateType(),
    "time": ice.TimeType(),
    "timestamp": ice.TimestampType(),
    "timestamptz": ice.TimestamptzType(),
}
_AVRO: Mapping[tuple[str, str], Logical] = {
    ("int", "date"): Logical(ice.DateType(), "days"),
    ("int", "time-millis"): Logical(ice.TimeType(), "ms"),
    ("long", "time-micros"): Logical(ice.TimeType(), "us"),
    ("long", "timestamp-millis"): Logical(ice.TimestamptzType(), "ms"),
    ("long", "timestamp-micros"): Logical(ice.TimestamptzType(), "us"),
    ("long", "timestamp-nanos"): Logical(ice.TimestamptzType(), "ns"),
    ("long", "local-timestamp-millis"): Logical(ice.TimestampType(), "ms"),
    ("long", "local-timestamp-micros"): Logical(ice.TimestampType(), "us"),
    ("long", "local-timestamp-nanos"): Logical(ice.TimestampType(), "ns"),
    ("string", "uuid"): Logical(ice.UUIDType(), "uuid"),
}


def logical_type(name: str, attributes: Mapping[str, Any], size: int | None = None) -> Logical | None:
    """Return the logical type of a schema; None if it has none.

    Args:
        name: Name of the type: a primitive one, or `fixed`.
        attributes: Attributes of the schema.
        size: Size of a fixed in bytes.

    Raises:
        BadWriterSchema: A decimal has more digits after the point than a column can hold.
    """
    if (known := _by_connect_name(name, attributes)) is not None:
        return known
    match attributes.get("logicalType"):
        case "decimal" if name in ("bytes", "fixed"):
            return _decimal(attributes, size)
        case "uuid" if size == 16:
            return Logical(ice.UUIDType(), "same")
        case str() as logical:
            return _AVRO.get((name, logical))
        case _:
            return None


def _by_connect_name(name: str, attributes: Mapping[str, Any]) -> Logical | None:
    connect_name = attributes.get("connect.name")
    known = LOGICAL_TYPES.get(connect_name) if isinstance(connect_name, str) else None
    if known is None or known.carrier != _CONNECT_NAMES.get(name):
        return None
    if connect_name == DECIMAL:
        return _connect_decimal(attributes)
    if known.type == "uuid":
        return Logical(ice.UUIDType(), "uuid")
    return Logical(_TYPES[known.type], known.unit or "iso")


def _connect_decimal(attributes: Mapping[str, Any]) -> Logical | None:
    """Return Connect's decimal, with the precision of Avro or of Debezium's parameter, if a column can hold it."""
    given = attributes.get("connect.parameters")
    parameters = {key: text for key, text in given.items() if isinstance(text, str)} if isinstance(given, dict) else {}
    scale: Any = decimal_scale(parameters)
    if scale is None:
        scale = attributes.get("scale", 0)
    if not _whole(scale) or scale < 0:
        return None
    said = parameters.get("connect.decimal.precision", "")
    precision: Any = int(said) if said.isascii() and said.isdigit() and len(said) < 4 else attributes.get("precision")
    if _whole(precision) and max(scale, 1) <= precision <= MOST_DIGITS:
        return _decimal_of(precision, scale)
    return _decimal_of(MOST_DIGITS, scale)


def _decimal(attributes: Mapping[str, Any], size: int | None) -> Logical | None:
    precision, scale = attributes.get("precision"), attributes.get("scale", 0)
    if not _whole(precision) or not _whole(scale) or precision < 1 or not 0 <= scale <= precision:
        return None
    # Most digits of a number with so many bits, one of them for the sign.
    if size is not None and precision > (8 * size - 1) * math.log10(2):
        return None
    return _decimal_of(min(precision, MOST_DIGITS), scale)


def _decimal_of(precision: int, scale: int) -> Logical:
    if scale > MOST_DIGITS:
        raise BadWriterSchema(f"a decimal with {scale} digits after the point: a column has at most {MOST_DIGITS}")
    return Logical(ice.DecimalType(precision, scale), "unscaled")


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


LARGEST_FIXED = 65_536
"""Limit of bytes of a fixed; each null takes as many bytes in memory."""

_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_PLAIN = frozenset(get_args(PlainName))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEVER = re.compile(r'["\\\x00-\x1f\x7f]')


def parsed_schema(schema: WriterSchema, options: AvroOptions) -> tuple[Node, Mapping[str, Record]]:
    """Return the nodes of a writer schema, and all records that it and its references define, by name.

    Raises:
        BadWriterSchema: The text is no schema, or has names that no column can have.
    """
    parser = _Parser(options)
    try:
        for name, text in schema.references:
            parser.node(_json(text, f"the reference {name!r}"), None)
        node = parser.node(_json(schema.text, "the schema"), None)
    except RecursionError:
        raise BadWriterSchema("a schema that is nested too deep") from None
    return node, parser.records


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # A schema that is only a name may be stored without quotation marks.
        if _NAME.fullmatch(text.strip()):
            return text.strip()
        raise NoSchema(f"{what} is no JSON: {error.msg} at character {error.pos}") from None


class _Parser:
    """Parser that remembers the named types.

    Args:
        options: Options of the stream.
    """

    def __init__(self, options: AvroOptions) -> None:
        self._options: AvroOptions = options
        # None for a type that is being parsed.
        self._named: dict[str, Node | None] = {}

    @property
    def records(self) -> dict[str, Record]:
        """The parsed records, by name."""
        return {name: node for name, node in self._named.items() if isinstance(node, Record)}

    def node(self, schema: Any, namespace: str | None) -> Node:
        """Return the node of a schema.

        Args:
            schema: Parsed JSON of the schema.
            namespace: Namespace of the enclosing type.
        """
        match schema:
            case str():
                return self._by_name(schema, {}, namespace)
            case list():
                return self._union(schema, namespace)
            case {"type": "record" | "error"}:
                return self._record(schema, namespace)
            case {"type": "enum"}:
                return self._enum(schema, namespace)
            case {"type": "fixed"}:
                return self._fixed(schema, namespace)
            case {"type": "array", "items": items}:
                return Array(self.node(items, namespace))
            case {"type": "map", "values": values}:
                return Map(self.node(values, namespace))
            case {"type": str() as name}:
                return self._by_name(name, schema, namespace)
            case {"type": dict() | list() as inner}:
                return self.node(inner, namespace)
            case _:
                raise NoSchema("a type that is none: neither a name, nor a union, nor an object with a type")

    def _by_name(self, name: str, attributes: Mapping[str, Any], namespace: str | None) -> Node:
        if name == "null":
            return Null()
        if name in _PLAIN:
            json_text = name == "string" and attributes.get("connect.name") == JSON
            as_sent = attributes.get("connect.name") in self._options.as_sent
            logical = None if as_sent else logical_type(name, attributes)
            return Plain(name, logical, json_text)  # pyright: ignore[reportArgumentType]
        for full in (_full_name(name, namespace), name):
            if full in self._named:
                return self._named[full] or Within(full)
        raise NoSchema(f"the type {name!r} is not defined, and no reference defines it")

    def _union(self, schemas: list[Any], namespace: str | None) -> Union:
        if not schemas:
            raise NoSchema("a union without types")
        branches = tuple(self._branch(each, namespace) for each in schemas)
        if len({type(each.node) if isinstance(each.node, Null) else each.name for each in branches}) < len(branches):
            self._refuse_double(branches)
        filled = [each.node for each in branches if not isinstance(each.node, Null)]
        flat = len(filled) == 1 and (len(branches) > 1 or self._options.flatten_singleton_unions)
        return Union(branches, filled[0] if flat else None)

    def _branch(self, schema: Any, namespace: str | None) -> Branch:
        node = self.node(schema, namespace)
        match node:
            case Null():
                return Branch("null", node)
            case Plain(name):
                return Branch(name, node)
            case Array() | Map():
                return Branch(type(node).__name__.lower(), node)
            case Record(name) | Enum(name) | Fixed(name) | Within(name):
                short = name if self._options.enhanced_avro_schema_support else name.rpartition(".")[2]
                return Branch(self._usable(short, f"the type {name!r}"), node)
            case _:
                raise NoSchema("a union within a union")

    def _refuse_double(self, branches: tuple[Branch, ...]) -> None:
        names = [each.name for each in branches]
        double = next(name for name in names if names.count(name) > 1)
        message = f"a union with two types {double!r}"
        if any(isinstance(each.node, Record | Enum | Fixed) for each in branches if each.name == double):
            message += ": `enhanced.avro.schema.support: true` distinguishes them by their full names"
        raise BadWriterSchema(message)

    def _record(self, schema: Mapping[str, Any], namespace: str | None) -> Record:
        name, fields = self._begun(schema, namespace), schema.get("fields")
        if not isinstance(fields, list):
            raise NoSchema(f"the record {name!r} has no list of fields")
        read = tuple(self._field(each, name) for each in fields)
        lower = [each.name.lower() for each in read]
        if double := next((each.name for each in read if lower.count(each.name.lower()) > 1), None):
            raise BadWriterSchema(f"the record {name!r} has two fields {double!r}, but for case")
        scaled = None
        if _VARIABLE_SCALE in (name, schema.get("connect.name")) and _is_scaled(read):
            scaled = self._options.scaled
        self._named[name] = found = Record(name, read, scaled)
        return found

    def _field(self, field: Any, record: str) -> FieldNode:
        match field:
            case {"name": str() as name, "type": kind}:
                usable = self._usable(name, f"the field {name!r} of the record {record!r}")
                return FieldNode(usable, self.node(kind, record.rpartition(".")[0] or None))
            case _:
                raise NoSchema(f"the record {record!r} has a field without a name or a type")

    def _enum(self, schema: Mapping[str, Any], namespace: str | None) -> Enum:
        name, symbols = self._begun(schema, namespace), schema.get("symbols")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(each, str) for each in symbols):
            raise NoSchema(f"the enum {name!r} has no symbols")
        self._named[name] = found = Enum(name, tuple(symbols))
        return found

    def _fixed(self, schema: Mapping[str, Any], namespace: str | None) -> Fixed:
        name, size = self._begun(schema, namespace), schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LARGEST_FIXED:
            raise NoSchema(f"the fixed {name!r} has a size that is not from 1 to {LARGEST_FIXED} bytes")
        as_sent = schema.get("connect.name") in self._options.as_sent
        self._named[name] = found = Fixed(name, size, None if as_sent else logical_type("fixed", schema, size))
        return found

    def _begun(self, schema: Mapping[str, Any], namespace: str | None) -> str:
        """Return the full name of a type whose definition begins here."""
        name = schema.get("name")
        if not isinstance(name, str) or not name.strip("."):
            raise NoSchema(f"a type {schema['type']} without a name")
        own = schema.get("namespace")
        full = _full_name(name, own or None if isinstance(own, str) else namespace)
        if full in self._named or full in _PLAIN:
            raise NoSchema(f"the type {full!r} is defined twice")
        self._named[full] = None
        return full

    def _usable(self, name: str, what: str) -> str:
        if _NAME.fullmatch(name):
            return name
        if self._options.scrub_invalid_names and name:
            scrubbed = re.sub(r"[^A-Za-z0-9_]", "_", name)
            return f"_{scrubbed}" if scrubbed[0].isdigit() else scrubbed
        if not name.strip() or _NEVER.search(name):
            message = f"{what} has a name that no column can have; `scrub.invalid.names: true` changes it"
            raise BadWriterSchema(message)
        return name


def _full_name(name: str, namespace: str | None) -> str:
    return name if "." in name or namespace is None else f"{namespace}.{name}"


def _is_scaled(fields: tuple[FieldNode, ...]) -> bool:
    kinds = {each.name: each.node for each in fields}
    return kinds == {"scale": Plain("int"), "value": Plain("bytes")}
