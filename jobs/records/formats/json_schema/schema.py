"""Schema of JSON Schema records: the declared types that a schema and its references give.

Types, titles and `connect.…` properties mean the same as to Confluent's JsonSchemaConverter. Schemas that apply
together (`allOf`, and a choice beside properties) are one struct of all their properties; any other choice of several
types is a struct with a column for each. A property without a type (no type given, or an object without properties) is
left out: records' keys for it are unknown fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.records.formats.connect_json.schema import checked_names, logical_type, of_place
from jobs.records.formats.interface.writer_schema import BadWriterSchema, NoSchema, WriterSchema
from jobs.records.formats.json.writer_decoder import VALUE_COLUMN, JsonWriterTypes
from jobs.records.formats.json_schema.choices import (
    Alternative,
    Choice,
    Choices,
    InElements,
    InFields,
    InValues,
    rewriter,
)
from jobs.records.formats.json_schema.options import JsonSchemaOptions
from jobs.records.formats.json_schema.references import (
    ROOT,
    At,
    Documents,
    WithinItself,
)
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
"""Connect's word for the type and the declared type, by the type of a schema and its `connect.type`."""
_LISTED: Mapping[frozenset[type], str] = {
    frozenset({bool}): "boolean",
    frozenset({str}): "string",
    frozenset({int}): "integer",
    frozenset({float}): "number",
    frozenset({int, float}): "number",
}
"""JSON Schema's word for the type of listed values."""
_MOST_SCHEMAS = 20_000


def json_schema_types(schema: WriterSchema, options: JsonSchemaOptions | None = None) -> JsonWriterTypes:
    """Return the types of a JSON Schema's records.

    Raises:
        BadWriterSchema: The text is no JSON Schema, or its records have no columns.
    """
    documents = Documents(schema)
    try:
        read = _Reader(documents, options or JsonSchemaOptions()).read(documents.root, ROOT)
    except RecursionError:
        raise BadWriterSchema("its schemas are within each other too deep") from None
    if read.type is None:
        raise BadWriterSchema("its records have no one type, or no properties, so there is nothing to land")
    if isinstance(read.type, StructType):
        types = JsonWriterTypes(read.type, rewrite=rewriter(read.choices, "$") if read.choices else None)
    else:
        declared = StructType((Field(VALUE_COLUMN, read.type, not read.nullable),))
        rewrite = rewriter(read.choices, f"$.{VALUE_COLUMN}") if read.choices else None
        types = JsonWriterTypes(declared, single=True, rewrite=rewrite)
    paths = list(column_paths(types.declared))
    if len(set(paths)) < len(paths):
        raise BadWriterSchema("two of its properties have the same path")
    return types


class _Reader:
    def __init__(self, documents: Documents, options: JsonSchemaOptions) -> None:
        self._documents: Documents = documents
        self._options: JsonSchemaOptions = options
        self._count: int = 0

    def read(self, schema: Any, at: At) -> Read:
        self._count += 1
        if self._count > _MOST_SCHEMAS:
            raise BadWriterSchema(f"it is more than {_MOST_SCHEMAS} schemas within each other")
        if at.depth > MAX_NESTING:
            raise BadWriterSchema(f"its types are nested more than {MAX_NESTING} deep")
        if isinstance(schema, bool):
            return NO_TYPE
        if not isinstance(schema, dict):
            raise NoSchema(f"{of_place(at.path)} is no schema")
        if "$ref" in schema:
            try:
                found, there = self._documents.referred(schema["$ref"], at)
            except WithinItself:
                if not at.path:
                    raise
                return Read(Primitive("json"), True)
            return self.read(found, there)
        parts = [self._own(schema, at)]
        parts += [self.read(one, at) for one in _schemas(schema, "allOf", at)]
        parts += [self._choice(_schemas(schema, word, at), at) for word in ("oneOf", "anyOf") if word in schema]
        read = held_together(parts)
        checked_names(list(read.fields), of_place(at.path))
        return read

    def _choice(self, schemas: list[Any], at: At) -> Read:
        """Read a choice: null or a schema is that schema with null allowed; several types are a struct's columns."""
        read = [(one, self.read(one, at)) for one in schemas]
        others = [(one, each) for one, each in read if not each.is_null]
        nullable = any(each.nullable for _, each in read)
        alternatives = tuple(each for _, each in others)
        first = alternatives[0] if others else NO_TYPE
        if first.type is not None and all(
            (one.type, one.choices) == (first.type, first.choices) for one in alternatives
        ):
            required = frozenset.intersection(*(one.required for one in alternatives))
            return replace(first, nullable=nullable, required=required)
        # Choices within a value are read from its own schema on, so references may be followed once more.
        anew = at._replace(followed=frozenset())
        made = tuple(
            Alternative(self._options.alternative(number), each.type, one, anew, self._documents, each.choices)
            for number, (one, each) in enumerate(others)
            if each.type is not None
        )
        if not made or len(made) < len(others):
            return Read(None, nullable, alternatives=alternatives)
        declared = StructType(tuple(Field(each.name, each.type) for each in made))
        return Read(declared, nullable, Choice(made), alternatives)

    def _own(self, schema: dict[str, Any], at: At) -> Read:
        """Read a schema's own words, without the schemas in its `allOf` or its choices."""
        words = schema.get("type")
        if words is None:
            # No word of the schema excludes null.
            objects = "properties" in schema or "required" in schema
            return self._struct(schema, at).or_null(True) if objects else self._listed(schema, at)
        named = words if isinstance(words, list) else [words]
        kinds = [one for one in named if one != "null"]
        if not kinds:
            return Read(None, True, is_null=True)
        if len(kinds) > 1:
            own = {name: one for name, one in schema.items() if name not in ("oneOf", "anyOf", "allOf")}
            return self._choice([{**own, "type": one} for one in kinds], at).or_null(len(kinds) < len(named))
        return self._kind(schema, kinds[0], at).or_null(len(kinds) < len(named))

    def _listed(self, schema: dict[str, Any], at: At) -> Read:
        """Give a schema without a type the type of the values that it lists, if they have one."""
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if not isinstance(values, list) or not values:
            return NO_TYPE
        kinds = {type(one) for one in values if one is not None}
        if not kinds:
            return Read(None, True, is_null=True)
        word = _LISTED.get(frozenset(kinds))
        return NO_TYPE if word is None else self._kind({}, word, at).or_null(None in values)

    def _kind(self, schema: dict[str, Any], kind: Any, at: At) -> Read:
        connect = schema.get("connect.type")
        match kind:
            case "object" if connect == "map" or _is_map(schema):
                return self._map(schema, at)
            case "object":
                return self._struct(schema, at)
            case "array" if connect == "map":
                return self._entries(schema, at)
            case "array":
                items = schema.get("items", True)
                element = NO_TYPE if isinstance(items, list) else self.read(items, at.field("element"))
                if element.type is None:
                    return Read(None, False)
                inside = InElements(element.choices) if element.choices else None
                return Read(ListType(element.type, not element.nullable), False, inside)
            case _:
                return Read(_primitive(schema, kind, connect, at, self._options.as_sent), False)

    def _struct(self, schema: dict[str, Any], at: At) -> Read:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise NoSchema(f"{of_place(at.path)} has properties that are no object, or required of no array")
        fields = {name: self.read(one, at.field(name)) for name, one in sorted(properties.items(), key=_index)}
        names = [str(name) for name in required]
        return object_of(fields, names if self._options.use_optional_for_nonrequired else [*names, *fields])

    def _map(self, schema: dict[str, Any], at: At) -> Read:
        value = self.read(schema.get("additionalProperties", True), at.field("value"))
        if value.type is None:
            return Read(None, False)
        made = MapType(Primitive("string"), value.type, not value.nullable)
        return Read(made, False, InValues(value.choices) if value.choices else None)

    def _entries(self, schema: dict[str, Any], at: At) -> Read:
        items = schema.get("items")
        properties = items.get("properties") if isinstance(items, dict) else None
        if not isinstance(properties, dict):
            raise BadWriterSchema(f"{of_place(at.path)} is a map without keys and values")
        key = self.read(properties.get("key"), at.field("key"))
        value = self.read(properties.get("value"), at.field("value"))
        if not isinstance(key.type, Primitive):
            raise BadWriterSchema(f"{of_place(at.path)} is a map whose keys are no single values")
        if value.type is None:
            return Read(None, False)
        made = MapType(key.type, value.type, not value.nullable, "entries")
        return Read(made, False, InElements(InFields({"value": value.choices})) if value.choices else None)


def _primitive(schema: dict[str, Any], kind: Any, connect: Any, at: At, as_sent: Collection[str]) -> Primitive:
    place, title = of_place(at.path), schema.get("title")
    parameters = schema.get("connect.parameters")
    texts = {str(name): str(value) for name, value in parameters.items()} if isinstance(parameters, dict) else {}
    if kind == "number" and connect == "bytes":
        made = logical_type(title, "bytes", texts, place) if isinstance(title, str) else None
        if made is None:
            raise BadWriterSchema(f"{place} is bytes as a number, but no decimal")
        return made
    words = (kind, connect if isinstance(connect, str) else None)
    found = _PRIMITIVES.get(words) or _PRIMITIVES.get((kind, None)) if isinstance(kind, str) else None
    if found is None:
        raise NoSchema(f"{place} has a type that JSON Schema does not know")
    word, declared = found
    # In schemas written by hand a title is free text, so it counts only if Connect has written it.
    if not isinstance(title, str) or not connect or title in as_sent:
        return declared
    return logical_type(title, word, texts, place) or declared


def _schemas(schema: dict[str, Any], word: str, at: At) -> list[Any]:
    found = schema.get(word, [])
    if not isinstance(found, list):
        raise NoSchema(f"{of_place(at.path)} has {word} that is no array")
    return found


def _is_map(schema: dict[str, Any]) -> bool:
    """Return whether an object has values of one type, whatever their keys, and nothing else."""
    others = schema.get("properties") or schema.get("patternProperties") or schema.get("required")
    return isinstance(schema.get("additionalProperties"), dict) and not others


def _index(named: tuple[str, Any]) -> int:
    """Return Connect's index of the property; properties without one keep their order, at the end."""
    index = named[1].get("connect.index") if isinstance(named[1], dict) else None
    return index if isinstance(index, int) else _MOST_SCHEMAS


_WHOLE, _NUMBER = Primitive("long"), Primitive("double")


@dataclass(frozen=True, slots=True)
class Read:
    """The meaning of a schema.

    Attributes:
        type: Its type; None if it has no single one.
        nullable: Whether null is a value.
        choices: Places of values of several types within.
        alternatives: Alternatives of a choice of several types.
        fields: Properties of an object, in the order of columns.
        required: Names of required properties.
        is_null: Whether null is the only value.
    """

    type: DeclaredType | None
    nullable: bool
    choices: Choices | None = None
    alternatives: tuple[Read, ...] = ()
    fields: Mapping[str, Read] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    is_null: bool = False

    def or_null(self, nullable: bool) -> Read:
        """Return the same meaning with another answer about null."""
        return replace(self, nullable=nullable)


NO_TYPE = Read(None, True)


def object_of(fields: Mapping[str, Read], required: Iterable[str], *, nullable: bool = False) -> Read:
    """Return an object with these properties; it has no type if none of them has one."""
    names = frozenset(required)
    columns = tuple(
        Field(name, one.type, name in names and not one.nullable)
        for name, one in fields.items()
        if one.type is not None
    )
    inside = {name: one.choices for name, one in fields.items() if one.choices is not None}
    made = StructType(columns) if columns else None
    return Read(made, nullable, InFields(inside) if inside else None, fields=fields, required=names)


def held_together(parts: Sequence[Read]) -> Read:
    """Combine schemas that all apply to a value.

    Objects become one with the properties of all. The alternatives of a choice among them add properties, too, which
    may be missing. In any other case all schemas with a type must have the same one.
    """
    if len(parts) == 1:
        return parts[0]
    nullable = all(part.nullable for part in parts)
    telling = [part for part in parts if part.type is not None or part.required or part.alternatives]
    typed = [part for part in telling if part.type is not None]
    if not typed:
        return Read(None, nullable, required=_all_required(telling))
    if len(telling) == 1:
        return typed[0].or_null(nullable)
    flat = [
        one
        for part in telling
        for one in ([replace(each, required=frozenset()) for each in part.alternatives] or [part])
    ]
    if all(one.fields or one.type is None for one in flat):
        return _one_object(flat, nullable=nullable)
    types = {one.type for one in typed}
    if types == {_WHOLE, _NUMBER}:
        return Read(_WHOLE, nullable)
    return typed[0].or_null(nullable) if len(types) == 1 else Read(None, nullable)


def _one_object(objects: Sequence[Read], *, nullable: bool) -> Read:
    found: dict[str, list[Read]] = {}
    for one in objects:
        for name, each in one.fields.items():
            found.setdefault(name, []).append(each)
    fields = {name: held_together(each) for name, each in found.items()}
    return object_of(fields, _all_required(objects), nullable=nullable)


def _all_required(parts: Sequence[Read]) -> frozenset[str]:
    return frozenset(name for part in parts for name in part.required)
