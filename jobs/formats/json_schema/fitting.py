"""Fitting of values: whether a value is one of a schema's, as far as types, keys and listed values say it.

Other rules of a schema (`minimum`, `pattern`, `if` and the like) are not looked at: a value that breaks only one of
these fits. What is no schema says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jobs.formats.json_schema.references import At, Documents
from jobs.formats.writer_schema import BadWriterSchema


def kind_of(value: Any) -> str:
    """JSON Schema's word for the type of a parsed value; a number is an integer if it is written as one."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def kinds_of(schema: Any, documents: Documents, at: At) -> frozenset[str]:
    """The types that a schema's values may have by what it says itself."""
    while isinstance(schema, dict) and "$ref" in schema:
        try:
            schema, at = documents.referred(schema["$ref"], at)
        except BadWriterSchema:
            return frozenset()
    words = schema.get("type") if isinstance(schema, dict) else None
    named = {one for one in (words if isinstance(words, list) else [words]) if isinstance(one, str)}
    # Connect writes bytes as texts, decimals among them, which are numbers to the schema.
    bytes_ = {"string"} if isinstance(schema, dict) and schema.get("connect.type") == "bytes" else set()
    return frozenset(named | bytes_ | ({"integer"} if "number" in named else set()))


def fits(value: Any, schema: Any, documents: Documents, at: At) -> bool:
    """Whether a parsed value is one of a schema's."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        return True
    if "$ref" in schema:
        try:
            found, there = documents.referred(schema["$ref"], at)
        except BadWriterSchema:
            # Of a part that no column is of, so nobody has looked at it before.
            return True
        return fits(value, found, documents, there)
    kinds = kinds_of(schema, documents, at)
    if kinds and kind_of(value) not in kinds:
        return False
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(listed, list) and not any(_equal(value, one) for one in listed):
        return False
    # Within a value references may come again.
    inside = at._replace(followed=frozenset())
    if isinstance(value, dict) and not _object_fits(value, schema, documents, inside):
        return False
    if isinstance(value, list) and not _all_fit(value, schema.get("items"), documents, inside):
        return False
    if not all(fits(value, one, documents, at) for one in _schemas(schema, "allOf")):
        return False
    return all(
        any(fits(value, one, documents, at) for one in _schemas(schema, word))
        for word in ("oneOf", "anyOf")
        if _schemas(schema, word)
    )


def _all_fit(values: Iterable[Any], schema: Any, documents: Documents, at: At) -> bool:
    return all(fits(one, schema, documents, at) for one in values)


def _object_fits(value: dict[str, Any], schema: Mapping[str, Any], documents: Documents, at: At) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    required = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set[str]()
    if not required <= value.keys():
        return False
    others = [one for name, one in value.items() if name not in properties]
    if not schema.get("patternProperties") and not _all_fit(
        others, schema.get("additionalProperties", True), documents, at
    ):
        return False
    # As decoders take it: what is not required may be null.
    told = ((name, one) for name, one in value.items() if name in properties and (one is not None or name in required))
    return all(fits(one, properties[name], documents, at) for name, one in told)


def _schemas(schema: Mapping[str, Any], word: str) -> list[Any]:
    found = schema.get(word)
    return found if isinstance(found, list) else []


def _equal(value: Any, listed: Any) -> bool:
    return value == listed and isinstance(value, bool) == isinstance(listed, bool)
