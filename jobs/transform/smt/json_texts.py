"""JSON as the Iceberg sink's transforms read it: objects whose values become text where text is wanted.

Numbers are written as Java writes them. What Java would change in silence (a float with more digits than it has, text
behind the object) is refused, unless it is asked for.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

from pyiceberg import types as ice

from jobs.formats.problems import MALFORMED_JSON, NOT_AN_OBJECT, PRECISION_LOSS, ValueProblem

_ESCAPES = {number: f"\\u{number:04X}" for number in range(32)} | {
    ord(each): text
    for each, text in zip('"\\\b\f\n\r\t', (r"\"", r"\\", r"\b", r"\f", r"\n", r"\r", r"\t"), strict=True)
}


def parsed_object(text: str, *, lenient: bool, constants: bool = False) -> dict[str, Any]:
    """A text's JSON object; of a key that comes twice the last counts.

    Args:
        text: The JSON.
        lenient: Whether what Java would change in silence is changed.
        constants: Whether NaN, Infinity and -Infinity are numbers.

    Raises:
        ValueProblem: It is none, or Java would change what it says.
    """
    decoder = _DECODERS[lenient, constants]
    try:
        found, end = decoder.raw_decode(text, len(text) - len(text.lstrip(" \t\r\n")))
        rest = text[end:].strip(" \t\r\n")
        if r"\u" in text:
            # Half of a surrogate pair is no text.
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ValueProblem(MALFORMED_JSON, "needs JSON, found something else", None) from None
    if rest and not lenient:
        raise ValueProblem(MALFORMED_JSON, "needs nothing behind the JSON object, found more", None)
    if not isinstance(found, dict):
        raise ValueProblem(NOT_AN_OBJECT, "needs a JSON object, found another value", None)
    return found


def java_text(node: Any) -> str:
    """A value as text: text as it is, anything else as JSON in Java's words."""
    return node if isinstance(node, str) else _json(node)


def for_kind(node: Any, kind: ice.IcebergType) -> Any:
    """A value with text wherever the type of its column wants text; an empty object or array is null."""
    if node is None or (node in ({}, []) and isinstance(kind, ice.MapType | ice.ListType)):
        return None
    return _within(node, kind)


def _within(node: Any, kind: ice.IcebergType) -> Any:
    match kind:
        case ice.StringType():
            return java_text(node)
        case ice.ListType() if isinstance(node, list):
            return [_within(each, kind.element_type) for each in node]
        case ice.MapType() if isinstance(node, dict):
            return {key: _within(each, kind.value_type) for key, each in node.items()}
        case ice.StructType() if isinstance(node, dict):
            kinds = {each.name: each.field_type for each in kind.fields}
            return {key: for_kind(each, kinds[key]) if key in kinds else each for key, each in node.items()}
        case _:
            return node


def _json(node: Any) -> str:
    match node:
        case None:
            return "null"
        case bool():
            return "true" if node else "false"
        case int():
            return str(node)
        case float():
            # Jackson writes what is no number as text.
            return float_text(node) if math.isfinite(node) else f'"{float_text(node)}"'
        case str():
            return f'"{node.translate(_ESCAPES)}"'
        case list():
            return f"[{','.join(map(_json, node))}]"
        case _:
            return "{" + ",".join(f"{_json(key)}:{_json(each)}" for key, each in node.items()) + "}"


def float_text(number: float) -> str:
    """As `java_numbers.float_texts` has it, of one number."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    first, *others = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(others) or '0'}E{len(others) + int(exponent)}"


def _exact(text: str) -> float:
    found = float(text)
    if text == repr(found):
        return found
    if not math.isfinite(found) or Decimal(repr(found)) != Decimal(text):
        raise ValueProblem(PRECISION_LOSS, "needs a number that a double holds, found another", None)
    return found


def _refused(text: str) -> float:
    raise ValueError(text)


_DECODERS = {
    (lenient, constants): json.JSONDecoder(
        parse_float=float if lenient else _exact, parse_constant=float if constants else _refused
    )
    for lenient in (False, True)
    for constants in (False, True)
}
