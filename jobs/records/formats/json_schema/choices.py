"""Choices of JSON Schemas: `oneOf` and `anyOf` of several types, a struct with a column for each alternative.

Records are rewritten before they are decoded: a value of a choice becomes an object with one member, named as the
alternative that the value fits, so that whatever decodes the record finds the columns of the struct.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from jobs.records.formats.interface.problems import TOO_DEEP, WRONG_TYPE, ValueProblem
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.json_schema.references import At, Documents
from jobs.records.schema.declared import DeclaredType, StructType


def kind_of(value: Any) -> str:
    """Return JSON Schema's word for the type of a parsed value; a number is an integer if it is written as one."""
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
    """Return the JSON types that a schema's own words allow for its values."""
    while isinstance(schema, dict) and "$ref" in schema:
        try:
            schema, at = documents.referred(schema["$ref"], at)
        except BadWriterSchema:
            return frozenset()
    words = schema.get("type") if isinstance(schema, dict) else None
    named = {one for one in (words if isinstance(words, list) else [words]) if isinstance(one, str)}
    # Connect writes bytes as texts; decimals are bytes, too, and numbers in the schema.
    bytes_ = {"string"} if isinstance(schema, dict) and schema.get("connect.type") == "bytes" else set()
    return frozenset(named | bytes_ | ({"integer"} if "number" in named else set()))


def fits(value: Any, schema: Any, documents: Documents, at: At) -> bool:
    """Return whether a parsed value is valid by a schema."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        return True
    if "$ref" in schema:
        try:
            found, there = documents.referred(schema["$ref"], at)
        except BadWriterSchema:
            # No column is made of this part, so nobody has looked at its schema before.
            return True
        return fits(value, found, documents, there)
    kinds = kinds_of(schema, documents, at)
    if kinds and kind_of(value) not in kinds:
        return False
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(listed, list) and not any(_equal(value, one) for one in listed):
        return False
    # Within a value the same references may be followed once more.
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
    # As decoders read it: a member that is not required may be null.
    told = ((name, one) for name, one in value.items() if name in properties and (one is not None or name in required))
    return all(fits(one, properties[name], documents, at) for name, one in told)


def _schemas(schema: Mapping[str, Any], word: str) -> list[Any]:
    found = schema.get(word)
    return found if isinstance(found, list) else []


def _equal(value: Any, listed: Any) -> bool:
    return value == listed and isinstance(value, bool) == isinstance(listed, bool)


_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value = msgspec.json.Decoder(msgspec.Raw).decode
_LONGEST_NUMBER = 400


@dataclass(frozen=True)
class Alternative:
    """One of the types of a choice.

    name: Name of its column.
        type: Type of its column.
        type: Of its column.
        schema: Schema of its values, at a place of the documents.
        inside: The choices within.
    """

    name: str
    type: DeclaredType
    schema: Any
    at: At
    documents: Documents
    inside: Choices | None

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Return the JSON types of its values."""
        return kinds_of(self.schema, self.documents, self.at)

    def takes(self, value: Any) -> bool:
        """Return whether a parsed value fits it."""
        return fits(value, self.schema, self.documents, self.at)

    def common(self, value: Any) -> int:
        """Return how many of an object's keys are fields of it."""
        if not (isinstance(value, dict) and isinstance(self.type, StructType)):
            return 0
        return sum(field.name in value for field in self.type.fields)


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of one of several types."""

    alternatives: tuple[Alternative, ...]

    def alternative(self, value: Any, path: str) -> Alternative:
        """Return the alternative that a parsed value fits; of several objects that with most of its keys, or the first.

        Raises:
            ValueProblem: The value fits none.
        """
        fitting = [one for one in self.alternatives if one.takes(value)]
        if not fitting:
            # If only one alternative has the value's type, that one's decoder reports the problem.
            fitting = [one for one in self.alternatives if kind_of(value) in one.kinds]
            if len(fitting) != 1:
                names = ", ".join(one.name for one in self.alternatives)
                message = f"needs a value of one of {len(self.alternatives)} alternatives ({names}), found another"
                raise ValueProblem(WRONG_TYPE, message, path)
        # Integers hold a whole number exactly, so they take it even if numbers stand before them.
        whole = kind_of(value) == "integer"
        return max(fitting, key=lambda one: (one.common(value), whole and "number" not in one.kinds))


@dataclass(frozen=True, slots=True)
class InFields:
    """Choices within the members of an object."""

    fields: Mapping[str, Choices]


@dataclass(frozen=True, slots=True)
class InElements:
    """Choices within the elements of an array."""

    element: Choices


@dataclass(frozen=True, slots=True)
class InValues:
    """Choices within the values of an object that is a map."""

    value: Choices


Choices: TypeAlias = Choice | InFields | InElements | InValues


def rewriter(choices: Choices, path: str) -> Callable[[bytes], bytes]:
    """Return the function that rewrites a record so that its choices are structs; bytes that are no JSON stay as they
    are.

    The function raises `ValueProblem` for a value that no alternative takes, and for one that is nested too deep.
    """

    def rewrite(record: bytes) -> bytes:
        try:
            record.decode()
            return _rewritten(choices, record, path)
        except RecursionError:
            raise ValueProblem(TOO_DEEP, "needs JSON that is nested less deep") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return record

    return rewrite


def _rewritten(choices: Choices, token: Any, path: str) -> bytes:
    raw = bytes(token).strip(b" \t\r\n")
    first = raw[:1]
    match choices:
        case Choice() if raw not in (b"", b"null"):
            # For a number only its kind counts, and whether it is listed.
            chosen = choices.alternative(json.loads(bytes(_value(raw)), parse_int=_whole), path)
            within = f"{path}.{chosen.name}"
            inner = raw if chosen.inside is None else _rewritten(chosen.inside, raw, within)
            return b'{"%s":%s}' % (chosen.name.encode(), inner)
        case InFields(fields) if first == b"{":
            members = _object(raw)
            for name, inner in fields.items():
                if name in members:
                    members[name] = msgspec.Raw(_rewritten(inner, members[name], f"{path}.{name}"))
            return msgspec.json.encode(members)
        case InElements(element) if first == b"[":
            elements = [_rewritten(element, one, f"{path}[{n}]") for n, one in enumerate(_array(raw))]
            return b"[" + b",".join(elements) + b"]"
        case InValues(value) if first == b"{":
            return msgspec.json.encode(
                {key: msgspec.Raw(_rewritten(value, one, f"{path}[...]")) for key, one in _object(raw).items()}
            )
        case _:
            return raw


def _whole(text: str) -> int:
    return int(text[:_LONGEST_NUMBER])
