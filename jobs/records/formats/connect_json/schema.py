"""Schema of Connect's JSON: the schema that a record carries, as declared types of its payload.

The words are those of `org.apache.kafka.connect.json.JsonSchema`. Fields of a known logical type
(`jobs.records.formats.connect_types`) become what they mean; other names, versions and documentation are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.records.formats.connect_types import (
    DECIMAL,
    JSON,
    LOGICAL_TYPES,
    MOST_DIGITS,
    decimal_scale,
)
from jobs.records.formats.interface.problems import shown, shown_key
from jobs.records.formats.interface.writer_schema import BadWriterSchema, NoSchema
from jobs.records.formats.json.defaults import ELEMENT, VALUE, Defaults
from jobs.records.formats.json.keys import can_be_extra
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.writer_decoder import VALUE_COLUMN, JsonWriterTypes
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
    column_paths,
)
from jobs.records.schema.parser import MAX_NESTING

_PRIMITIVES: Mapping[str, Primitive] = {
    "boolean": Primitive("boolean"),
    "int8": Primitive("int", encoding="int8"),
    "int16": Primitive("int", encoding="int16"),
    "int32": Primitive("int"),
    "int64": Primitive("long"),
    "float": Primitive("float"),
    "double": Primitive("double"),
    "bytes": Primitive("binary", encoding="base64"),
    "string": Primitive("string"),
}
_TYPES = (*_PRIMITIVES, "array", "map", "struct")

_ENCODINGS: Mapping[tuple[str, str], str] = {
    ("date", "days"): "epoch_days",
    ("time", "ms"): "millis_of_day",
    ("time", "us"): "micros_of_day",
    ("time", "ns"): "nanos_of_day",
    ("timestamp", "ms"): "epoch_ms",
    ("timestamp", "us"): "epoch_us",
    ("timestamp", "ns"): "epoch_ns",
    ("timestamptz", "ms"): "epoch_ms",
    ("timestamptz", "iso"): "iso",
}


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Read(NamedTuple):
    """A schema that was read.

    Attributes:
        type: Its type; None for a struct without fields, which gives no column.
        optional: Whether null is a value.
        default: The default as JSON; None if there is none.
        inside: The defaults within it.
    """

    type: DeclaredType | None
    optional: bool
    default: str | None
    inside: Defaults


def connect_types(text: str, *, defaults: bool = False, as_sent: Collection[str] = ()) -> JsonWriterTypes:
    """Return the types of payloads from a schema in Connect's JSON.

    Args:
        text: The schema's JSON.
        defaults: Whether null and missing members take the schema's defaults.
        as_sent: Names of logical types whose values stay texts, numbers or bytes.

    Raises:
        BadWriterSchema: The text is no such schema; the message names the place.
    """
    try:
        schema = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_refused)
    except RecursionError:
        raise BadWriterSchema("it is nested too deep") from None
    except ValueError:
        raise NoSchema("it is no JSON") from None
    read = _Reader(defaults=defaults, as_sent=as_sent).read(schema, "", 0)
    if read.type is None:
        raise BadWriterSchema("it has no fields, so there is nothing to land")
    if isinstance(read.type, StructType):
        types = JsonWriterTypes(read.type, False, read.inside or None)
    else:
        kept = _defaults({VALUE_COLUMN: read}) if defaults else Defaults()
        types = JsonWriterTypes(StructType((Field(VALUE_COLUMN, read.type, not read.optional),)), True, kept or None)
    paths = list(column_paths(types.declared))
    if len(set(paths)) < len(paths):
        raise BadWriterSchema("two of its fields have the same path")
    return types


def logical_type(name: str, carrier: str, parameters: Mapping[str, str], place: str) -> Primitive | None:
    """Return the JSON type of values of a named schema; None if the name is that of no logical type.

    Args:
        name: Name of the schema.
        carrier: Type of the schema.
        parameters: Parameters of the schema.
        place: Place of the schema, for messages.

    Raises:
        BadWriterSchema: The schema has another type than the logical type, or a decimal has no scale.
    """
    if (name, carrier) == (JSON, "string"):
        return Primitive("string", encoding="json")
    logical = LOGICAL_TYPES.get(name)
    if logical is None:
        return None
    if logical.carrier != carrier:
        raise BadWriterSchema(f"{place} is {name}, which is of the type {logical.carrier}, not {carrier}")
    if name == DECIMAL:
        scale = decimal_scale(parameters)
        if scale is None:
            raise BadWriterSchema(f"{place} is {name} without a scale from 0 to {MOST_DIGITS} in its parameters")
        return Primitive("decimal", MOST_DIGITS, scale, "unscaled")
    if logical.unit is None:
        return Primitive(logical.type)
    return Primitive(logical.type, encoding=_ENCODINGS[logical.type, logical.unit])


def checked_names(names: list[str], place: str) -> None:
    """Refuse field names that records cannot be matched with.

    Raises:
        BadWriterSchema: Two names differ only by case, or one must be escaped in JSON.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not can_be_extra(name):
            raise BadWriterSchema(f"{place} has a field {shown(name)}, whose name cannot be matched")
        if (other := seen.setdefault(name.casefold(), name)) != name or names.count(name) > 1:
            how = "twice" if other == name else f"and {shown_key(other)}, which differ by case only"
            raise BadWriterSchema(f"{place} has the field {shown_key(name)} {how}")


def of_place(path: str) -> str:
    """Return how a message names the schema at a path."""
    return f"the field {shown_key(path)}" if path else "it"


class _Reader:
    def __init__(self, *, defaults: bool, as_sent: Collection[str]) -> None:
        self._defaults: bool = defaults
        self._as_sent: Collection[str] = as_sent

    def read(self, schema: Any, path: str, depth: int) -> _Read:
        place = of_place(path)
        if depth > MAX_NESTING:
            raise BadWriterSchema(f"its types are nested more than {MAX_NESTING} deep")
        if not isinstance(schema, dict):
            raise NoSchema(f"{place} is no object")
        word = schema.get("type")
        if not isinstance(word, str) or isinstance(word, _Number):
            raise NoSchema(f"{place} has no type")
        declared, inside = self._type(schema, word, path, depth)
        default = schema.get("default")
        kept = _written(default) if self._defaults and default is not None else None
        return _Read(declared, schema.get("optional") is True, kept, inside)

    def _type(self, schema: dict[str, Any], word: str, path: str, depth: int) -> tuple[DeclaredType | None, Defaults]:
        place = of_place(path)
        match word:
            case "struct":
                return self._struct(schema.get("fields"), path, depth)
            case "array":
                element = self.read(schema.get("items"), f"{path}[]", depth + 1)
                if element.type is None:
                    return None, Defaults()
                return ListType(element.type, not element.optional), self._kept({ELEMENT: element})
            case "map":
                return self._map(schema, path, depth)
            case _ if word in _PRIMITIVES:
                name, parameters = schema.get("name"), schema.get("parameters")
                texts = _parameters(parameters, place)
                logical = None
                if isinstance(name, str) and name not in self._as_sent:
                    logical = logical_type(name, word, texts, place)
                return logical or _PRIMITIVES[word], Defaults()
            case _:
                raise NoSchema(f"{place} has the type {shown(word)}; the types are {', '.join(_TYPES)}")

    def _struct(self, fields: Any, path: str, depth: int) -> tuple[DeclaredType | None, Defaults]:
        place = of_place(path)
        if not isinstance(fields, list):
            raise NoSchema(f"{place} is a struct without an array of fields")
        read: dict[str, _Read] = {}
        names: list[str] = []
        for number, one in enumerate(fields):
            name = one.get("field") if isinstance(one, dict) else None
            if not isinstance(name, str) or isinstance(name, _Number):
                raise NoSchema(f"{place} has no name for field {number + 1}")
            names.append(name)
            read[name] = self.read(one, f"{path}.{name}" if path else name, depth + 1)
        checked_names(names, place)
        filled = {name: one for name, one in read.items() if one.type is not None}
        made = tuple(Field(name, one.type, not one.optional) for name, one in filled.items() if one.type is not None)
        return (StructType(made) if made else None), self._kept(filled)

    def _map(self, schema: dict[str, Any], path: str, depth: int) -> tuple[DeclaredType | None, Defaults]:
        key = self.read(schema.get("keys"), f"{path}.key" if path else "key", depth + 1)
        value = self.read(schema.get("values"), f"{path}.value" if path else "value", depth + 1)
        if not isinstance(key.type, Primitive):
            raise BadWriterSchema(f"{of_place(path)} is a map whose keys are no single values")
        if value.type is None:
            return None, Defaults()
        # String keys stay strings, whatever the name of their schema: a text of a logical type is no key of an object.
        text = schema["keys"].get("type") == "string"
        made = MapType(
            Primitive("string") if text else key.type, value.type, not value.optional, "object" if text else "pairs"
        )
        return made, self._kept({VALUE: value})

    def _kept(self, read: Mapping[str, _Read]) -> Defaults:
        return _defaults(read) if self._defaults else Defaults()


def _parameters(parameters: Any, place: str) -> dict[str, str]:
    if not isinstance(parameters, dict):
        return {}
    for name, text in parameters.items():
        if not isinstance(text, str) or isinstance(text, _Number):
            raise BadWriterSchema(f"{place} has the parameter {shown_key(name)}, which is no text")
    return parameters


def _defaults(read: Mapping[str, _Read]) -> Defaults:
    values = {name: _default(name, one, one.default) for name, one in read.items() if one.default is not None}
    return Defaults(values, {name: one.inside for name, one in read.items() if one.inside})


def _default(name: str, read: _Read, written: str) -> pa.Array:
    """Return an array of the one default."""
    assert read.type is not None
    declared = StructType((Field(VALUE_COLUMN, read.type, required=True),))
    inside = Defaults({}, {VALUE_COLUMN: read.inside} if read.inside else {})
    record = pa.array([f'{{"{VALUE_COLUMN}":{written}}}'.encode()], pa.binary())
    made = JsonReferenceDecoder(inside.optional(declared)).decode(record)
    if made.failures:
        where = (made.failures[0].field or "$").replace(f"$.{VALUE_COLUMN}", "", 1)
        raise BadWriterSchema(f"{of_place(name)} has a default that is none{where}: {made.failures[0].message}")
    return inside.fill(made.rows, declared).column(0)


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _written(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(key)}:{_written(one)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case _:
            return json.dumps(value)
