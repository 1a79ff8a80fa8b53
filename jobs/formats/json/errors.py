"""Errors of msgspec's JSON decoder, as problems with frazil's classes and messages."""

from __future__ import annotations

import re

from jobs.formats.json.record_types import entries_of
from jobs.formats.problems import (
    MALFORMED_JSON,
    MISSING_FIELD,
    NOT_AN_OBJECT,
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    WRONG_TYPE,
    ValueProblem,
)
from jobs.schema.declared import DeclaredType, ListType, MapType, StructType

_PATH = re.compile(r" - at `(\$.*)`$", re.DOTALL)
_TYPE = re.compile(r"Expected `[^`]*`, got `(\w+)`")
_LENGTH = re.compile(r"Expected `array` of length 2")
_BOUND = re.compile(r"Expected `\w+` [<>]= |(?:Number|Integer value) out of range")
_MISSING = re.compile(r"Object missing required field `(.*)`$", re.DOTALL)

_FOUND = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number with a fraction or exponent",
    "bool": "a boolean",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


def problem_of(text: str, declared: StructType) -> ValueProblem:
    """What the text of a msgspec.DecodeError means.

    The texts relied upon are pinned by a test; one that is not known is malformed_json and shown as it is.

    Args:
        text: `str(error)`.
        declared: The record, for what is needed at the error's path.
    """
    match = _PATH.search(text)
    path, reason = ("$", text) if match is None else (match.group(1), text[: match.start()])
    needed = _needed(declared, path[1:])
    if found := _TYPE.match(reason):
        kind = _FOUND.get(found.group(1), found.group(1))
        if path == "$":
            return ValueProblem(NOT_AN_OBJECT, f"needs a JSON object, found {kind}")
        error_class = NULL_IN_REQUIRED if found.group(1) == "null" else WRONG_TYPE
        return ValueProblem(error_class, f"needs {needed}, found {kind}", path)
    if _LENGTH.match(reason):
        return ValueProblem(WRONG_TYPE, f"needs {needed}, found an array of another length", path)
    if _BOUND.match(reason):
        return ValueProblem(OUT_OF_RANGE, f"needs {needed}, found a number beyond its range", path)
    if missing := _MISSING.match(reason):
        field = f"{path}.{missing.group(1)}"
        return ValueProblem(MISSING_FIELD, f"needs {_needed(declared, field[1:])}, found no such key", field)
    if reason == "Input data was truncated":
        return ValueProblem(MALFORMED_JSON, "needs one complete JSON object, but the text ends before it does")
    return ValueProblem(MALFORMED_JSON, f"needs one valid JSON object: {reason.removeprefix('JSON is malformed: ')}")


def _needed(declared: DeclaredType, path: str) -> str:
    """What is declared at a path without its `$`, as in `.items[0].sku` or `.map[...]`."""
    if path:
        match declared:
            case StructType(fields):
                for field in sorted(fields, key=lambda field: -len(field.name)):
                    rest = path.removeprefix("." + field.name)
                    if rest != path and rest[:1] in ("", ".", "["):
                        return _needed(field.type, rest)
            case ListType(element):
                return _needed(element, path[path.find("]") + 1 :])
            case MapType(key, value, carried="pairs"):
                _, inside, rest = path.partition("]")
                if rest and inside:
                    return _needed(key if rest.startswith("[0]") else value, rest[3:])
                return "an array of a key and a value"
            case MapType(carried="entries"):
                return _needed(entries_of(declared), path)
            case MapType(_, value):
                return _needed(value, path[path.find("]") + 1 :])
            case _:
                pass
    match declared:
        case StructType():
            return "an object"
        case ListType():
            return "an array"
        case MapType(carried="pairs"):
            return "an array of keys and values (a map)"
        case MapType(carried="entries"):
            return "an array of objects (a map)"
        case MapType():
            return "an object (a map)"
        case _:
            return str(declared)
