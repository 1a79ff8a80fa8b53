"""Schema of JSON Schema records: what a schema and those that it refers to say of records, as declared types.

Types, titles and `connect.…` properties mean what Confluent's JsonSchemaConverter makes of them. What has no one type
(a choice of several, no type at all, an object without properties) is left out: records' keys of it are unknown fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from jobs.formats.connect_json.schema import checked_names, logical_type, of_place
from jobs.formats.json.writer_decoder import VALUE_COLUMN, JsonWriterTypes
from jobs.formats.writer_schema import BadWriterSchema, WriterSchema
from jobs.schema.declared import DeclaredType, Field, ListType, MapType, Primitive, StructType, column_paths
from jobs.schema.parser import MAX_NESTING

_INT8, _INT16 = Primitive("int", encoding="int8"), Primitive("int", encoding="int16")
_PRIMITIVES: Mapping[tuple[str, str | None], tuple[str, Primitive]] = {
    ("boolean", None): ("boolean", Primitive("boolean")),
    ("string", None): ("string", Primitive("string")),
    ("string", "bytes"): ("bytes", Primitive("binary", encoding="base64")),
    ("integer", None): ("int64", Primitive("long")),
    ("number", None): ("float64", Primitive("double")),
    **{(kind, "int8"): ("int8", _INT8) for kind in ("integer", "number")},
    **{(kind, "int16"): ("int16", _INT16) for kind in ("integer", "number")},
    **{(kind, "int32"): ("int32", Primitive("int")) for kind in ("integer", "number")},
    **{(kind, "int64"): ("int64", Primitive("long")) for kind in ("integer", "number")},
    ("number", "float32"): ("float32", Primitive("float")),
    ("number", "float64"): ("float64", Primitive("double")),
}
"""By the type of a schema and its `connect.type`: Connect's word for it, and the declared type."""
_MOST_SCHEMAS = 20_000


class _Read(NamedTuple):
    """What a schema says.

    Attributes:
        type: None of what has no one type.
        nullable: Whether null is a value.
    """

    type: DeclaredType | None
    nullable: bool


class _At(NamedTuple):
    """Where reading is.

    Attributes:
        document: The text that local references are within.
        path: Of the record's field.
        followed: The references that lead here; one that leads to itself has no end.
    """

    document: str
    path: str = ""
    depth: int = 0
    followed: frozenset[tuple[str, str]] = frozenset()

    def field(self, name: str) -> _At:
        return self._replace(path=f"{self.path}.{name}" if self.path else name, depth=self.depth + 1)


def json_schema_types(schema: WriterSchema) -> JsonWriterTypes:
    """What a JSON Schema says of its records.

    Raises:
        BadWriterSchema: It is none, or its records have no columns.
    """
    read = _Reader(schema).read(_parsed(schema.text), _At("", followed=frozenset({("", "")})))
    if read.type is None:
        raise BadWriterSchema("its records have no one type, or no properties, so there is nothing to land")
    if isinstance(read.type, StructType):
        types = JsonWriterTypes(read.type)
    else:
        types = JsonWriterTypes(StructType((Field(VALUE_COLUMN, read.type, not read.nullable),)), single=True)
    paths = list(column_paths(types.declared))
    if len(set(paths)) < len(paths):
        raise BadWriterSchema("two of its properties have the same path")
    return types


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise BadWriterSchema("it is nested too deep") from None
    except ValueError:
        raise BadWriterSchema("it is no JSON") from None


class _Reader:
    def __init__(self, schema: WriterSchema) -> None:
        self._documents: dict[str, Any] = {"": _parsed(schema.text)}
        self._documents.update({name: _parsed(text) for name, text in schema.references})
        self._count: int = 0

    def read(self, schema: Any, at: _At) -> _Read:
        self._count += 1
        if self._count > _MOST_SCHEMAS:
            raise BadWriterSchema(f"it is more than {_MOST_SCHEMAS} schemas within each other")
        if at.depth > MAX_NESTING:
            raise BadWriterSchema(f"its types are nested more than {MAX_NESTING} deep")
        if isinstance(schema, bool):
            return _Read(None, True)
        if not isinstance(schema, dict):
            raise BadWriterSchema(f"{of_place(at.path)} is no schema")
        if "$ref" in schema:
            return self.read(*self._referred(schema["$ref"], at))
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self._choice(schema[word], at)
        if "allOf" in schema:
            return self._all(schema, at)
        return self._typed(schema, at)

    def _referred(self, reference: Any, at: _At) -> tuple[Any, _At]:
        if not isinstance(reference, str):
            raise BadWriterSchema(f"{of_place(at.path)} has a reference that is no text")
        name, _, pointer = reference.partition("#")
        document = name or at.document
        if document not in self._documents:
            raise BadWriterSchema(f"{of_place(at.path)} refers to a schema that is not among its references")
        if (document, pointer) in at.followed:
            raise BadWriterSchema(f"{of_place(at.path)} is within itself, without an end")
        found = self._documents[document]
        for part in unquote(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise BadWriterSchema(f"{of_place(at.path)} refers to what is not there")
            found = found[key]
        return found, at._replace(document=document, followed=at.followed | {(document, pointer)})

    def _choice(self, schemas: Any, at: _At) -> _Read:
        """Null or something is that, and may be null; of a choice between several there is no one type."""
        if not isinstance(schemas, list):
            raise BadWriterSchema(f"{of_place(at.path)} is a choice that is no array")
        others = [one for one in schemas if not (isinstance(one, dict) and one.get("type") == "null")]
        nullable = len(others) < len(schemas)
        if len(others) != 1:
            return _Read(None, nullable)
        read = self.read(others[0], at)
        return _Read(read.type, nullable or read.nullable)

    def _all(self, schema: dict[str, Any], at: _At) -> _Read:
        """Schemas that hold together: the type is that of the only one among them that has one."""
        if not isinstance(schema["allOf"], list):
            raise BadWriterSchema(f"{of_place(at.path)} holds together what is no array")
        own = {name: value for name, value in schema.items() if name != "allOf"}
        read = [self.read(one, at) for one in (own, *schema["allOf"])]
        typed = [one for one in read if one.type is not None]
        return typed[0] if len(typed) == 1 else _Read(None, True)

    def _typed(self, schema: dict[str, Any], at: _At) -> _Read:
        words = schema.get("type")
        named = words if isinstance(words, list) else [words]
        kinds = [one for one in named if one != "null"]
        nullable = len(kinds) < len(named)
        if kinds == [None]:
            values = schema.get("enum", [schema["const"]] if "const" in schema else None)
            texts = isinstance(values, list) and values and all(isinstance(one, str) for one in values)
            return _Read(Primitive("string") if texts else None, not texts)
        if len(kinds) != 1 or not isinstance(kinds[0], str):
            return _Read(None, nullable)
        return _Read(self._kind(schema, kinds[0], at), nullable)

    def _kind(self, schema: dict[str, Any], kind: str, at: _At) -> DeclaredType | None:
        connect = schema.get("connect.type")
        match kind:
            case "object":
                return self._map(schema, at) if connect == "map" else self._struct(schema, at)
            case "array" if connect == "map":
                return self._entries(schema, at)
            case "array":
                items = schema.get("items", True)
                element = _Read(None, True) if isinstance(items, list) else self.read(items, at.field("element"))
                return None if element.type is None else ListType(element.type, not element.nullable)
            case _:
                return self._primitive(schema, kind, connect, at)

    def _primitive(self, schema: dict[str, Any], kind: str, connect: Any, at: _At) -> Primitive:
        place, title = of_place(at.path), schema.get("title")
        parameters = schema.get("connect.parameters")
        texts = {str(name): str(value) for name, value in parameters.items()} if isinstance(parameters, dict) else {}
        if kind == "number" and connect == "bytes":
            made = logical_type(title, "bytes", texts, place) if isinstance(title, str) else None
            if made is None:
                raise BadWriterSchema(f"{place} is bytes as a number, but no decimal")
            return made
        found = _PRIMITIVES.get((kind, connect if isinstance(connect, str) else None)) or _PRIMITIVES.get((kind, None))
        if found is None:
            raise BadWriterSchema(f"{place} has a type that JSON Schema does not know")
        word, declared = found
        # A title is free text to people who write schemas by hand, so it counts only where Connect has written it.
        logical = logical_type(title, word, texts, place) if isinstance(title, str) and connect else None
        return logical or declared

    def _struct(self, schema: dict[str, Any], at: _At) -> DeclaredType | None:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise BadWriterSchema(f"{of_place(at.path)} has properties that are no object, or required of no array")
        checked_names(list(properties), of_place(at.path))
        fields: list[Field] = []
        for name, one in sorted(properties.items(), key=_index):
            read = self.read(one, at.field(name))
            if read.type is not None:
                fields.append(Field(name, read.type, name in required and not read.nullable))
        return StructType(tuple(fields)) if fields else None

    def _map(self, schema: dict[str, Any], at: _At) -> DeclaredType | None:
        value = self.read(schema.get("additionalProperties", True), at.field("value"))
        return None if value.type is None else MapType(Primitive("string"), value.type, not value.nullable)

    def _entries(self, schema: dict[str, Any], at: _At) -> DeclaredType | None:
        items = schema.get("items")
        properties = items.get("properties") if isinstance(items, dict) else None
        if not isinstance(properties, dict):
            raise BadWriterSchema(f"{of_place(at.path)} is a map without keys and values")
        key = self.read(properties.get("key"), at.field("key"))
        value = self.read(properties.get("value"), at.field("value"))
        if not isinstance(key.type, Primitive):
            raise BadWriterSchema(f"{of_place(at.path)} is a map whose keys are no single values")
        return None if value.type is None else MapType(key.type, value.type, not value.nullable, "entries")


def _index(named: tuple[str, Any]) -> int:
    """Where Connect had the property; those without an index keep their order, at the end."""
    index = named[1].get("connect.index") if isinstance(named[1], dict) else None
    return index if isinstance(index, int) else _MOST_SCHEMAS
