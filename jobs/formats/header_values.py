"""Values of headers: the bytes of one header as a column of one type, exactly.

A header is text in UTF-8 that is read as JSON carries the type, without quotation marks, or bytes: `binary` takes them
as they are, and numbers may be big-endian, as Kafka's own serializers write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from jobs.formats.columns.primitive_columns import convert_leaf
from jobs.formats.columns.text_columns import Leaf
from jobs.formats.primitive.block import READERS
from jobs.formats.problems import OUT_OF_RANGE, WRONG_TYPE, BadValue, ValueProblem, shown
from jobs.schema.arrow_schema import arrow_type
from jobs.schema.declared import Primitive

TEXT_TYPES = (
    *("string", "binary", "boolean", "int", "long", "float", "double", "decimal"),
    *("date", "time", "timestamp", "timestamptz", "uuid"),
)
BYTES_TYPES = ("string", "binary", "boolean", "int", "long", "float", "double")
"""Types of headers whose bytes are as Kafka's serializers write them."""

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BITS = {"int": 32}
_LONGEST = 400


def header_values(declared: Primitive, values: Sequence[bytes | None], *, as_bytes: bool) -> Leaf:
    """The column of the values of a header.

    Args:
        declared: The column's type.
        values: One per record; null where there is none, or where it is null.
        as_bytes: Whether they are as Kafka's serializers write them, and not text.

    Returns:
        The array, null where a value was refused, and the refused values in ascending order.
    """
    read = _reader(declared, as_bytes=as_bytes)
    found: list[Any] = []
    bad: list[BadValue] = []
    for index, value in enumerate(values):
        try:
            found.append(None if value is None else read(value))
        except ValueProblem as problem:
            found.append(None)
            bad.append(BadValue(index, problem.error_class, problem.message))
    if as_bytes or declared.name == "binary":
        return pa.array(found, arrow_type(declared)), bad
    if declared.name in ("float", "double"):
        found = [b"null" if each is None else each for each in found]
    array, refused = convert_leaf(_as_text(declared), found, required=False)
    return array, sorted([*bad, *refused], key=lambda each: each.index)


def _as_text(declared: Primitive) -> Primitive:
    return replace(declared, encoding="text") if declared.name == "decimal" else declared


def _reader(declared: Primitive, *, as_bytes: bool) -> Callable[[bytes], Any]:
    if declared.name == "binary":
        return bytes
    if as_bytes or declared.name == "string":
        return READERS[declared.name]
    text = READERS["string"]
    match declared.name:
        case "boolean":
            return lambda value: _boolean(text(value))
        case "float" | "double":
            return lambda value: _number(declared, text(value)).encode()
        case "int" | "long":
            return lambda value: _whole(declared, text(value), _BITS.get(declared.name, 64))
        case _ if declared.encoding is not None and ("epoch" in declared.encoding or "_of_day" in declared.encoding):
            return lambda value: _whole(declared, text(value), 64)
        case _:
            return text


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueProblem(WRONG_TYPE, f"needs boolean, found {shown(text)}")
    return text == "true"


def _whole(declared: Primitive, text: str, bits: int) -> int:
    if len(text) > _LONGEST or not _WHOLE.fullmatch(text):
        raise ValueProblem(WRONG_TYPE, f"needs {declared}, found {shown(text)}")
    number = int(text)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueProblem(OUT_OF_RANGE, f"needs {declared}, found a number beyond its range")
    return number


def _number(declared: Primitive, text: str) -> str:
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        raise ValueProblem(WRONG_TYPE, f"needs {declared}, found {shown(text)}")
    return text
