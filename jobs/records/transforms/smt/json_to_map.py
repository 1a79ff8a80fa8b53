"""JsonToMapTransform of the Iceberg sink: the text of a JSON object as a map of texts, or as columns.

Numbers are written as Java writes them. Values that Java would change silently (a float with more digits than it has,
text behind the object) are refused, unless the step is lenient."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import (
    MALFORMED_JSON,
    NOT_AN_OBJECT,
    PRECISION_LOSS,
    ValueProblem,
)
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    column,
    no_column,
)
from jobs.records.transforms.parse_json import ParseJson
from jobs.records.transforms.smt.java import float_text
from jobs.records.transforms.smt.known import Known, Properties, quoted
from jobs.records.transforms.smt.sink import ICEBERG
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

_ESCAPES = {number: f"\\u{number:04X}" for number in range(32)} | {
    ord(each): text
    for each, text in zip('"\\\b\f\n\r\t', (r"\"", r"\\", r"\b", r"\f", r"\n", r"\r", r"\t"), strict=True)
}


def parsed_object(text: str, *, lenient: bool, constants: bool = False) -> dict[str, Any]:
    """Return a text's JSON object; if a key comes twice, the last value counts.

    Args:
        text: The JSON.
        lenient: Whether values are changed as Java silently changes them.
        constants: Whether NaN, Infinity and -Infinity are numbers.

    Raises:
        ValueProblem: The text is no object, or Java would change its values.
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
    """Return a value as text: text unchanged, anything else as JSON in Java's form."""
    return node if isinstance(node, str) else _java_json(node)


def for_kind(node: Any, kind: ice.IcebergType) -> Any:
    """Return a value with text wherever its column's type is text; an empty object or array is null."""
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


def _java_json(node: Any) -> str:
    match node:
        case None:
            return "null"
        case bool():
            return "true" if node else "false"
        case int():
            return str(node)
        case float():
            # Jackson writes infinities and NaN as text.
            return float_text(node) if math.isfinite(node) else f'"{float_text(node)}"'
        case str():
            return f'"{node.translate(_ESCAPES)}"'
        case list():
            return f"[{','.join(map(_java_json, node))}]"
        case _:
            return "{" + ",".join(f"{_java_json(key)}:{_java_json(each)}" for key, each in node.items()) + "}"


def _exact(text: str) -> float:
    found = float(text)
    if text == repr(found):
        return found
    if not math.isfinite(found) or Decimal(repr(found)) != Decimal(text):
        raise ValueProblem(PRECISION_LOSS, "needs a number that a double can store, found another", None)
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


_NAME = "JsonToMapTransform"
_PAYLOAD = "payload"
_FIRST = 64
_MAP = ice.MapType(1, ice.StringType(), 2, ice.StringType(), value_required=False)


@dataclass(frozen=True, slots=True)
class JsonToMap(Transform):
    """Convert a text of a JSON object to the map `payload`, from names to values as text.

    Attributes:
        column: The column of the text.
        lenient: See `parsed_object`.
    """

    name: ClassVar[str] = "json_to_map"
    column: str
    lenient: bool

    def output(self, columns: Columns) -> Columns:
        stay = [each for each in columns if each.name != self.column]
        return Columns.of((*stay, column(_PAYLOAD, _MAP)))

    def apply(self, rows: Rows) -> Applied:
        """Read each text separately: the types of its values are not known before."""
        into = rows.columns.behind(self)
        maps: list[list[tuple[str, str]] | None] = []
        failures: list[RowFailure] = []
        for row, text in enumerate(rows.batch.column(rows.columns.index(self.column)).to_pylist()):
            try:
                found = None if text is None else parsed_object(text, lenient=self.lenient)
                maps.append(None if found is None else [(key, java_text(each)) for key, each in found.items()])
            except ValueProblem as problem:
                maps.append(None)
                failures.append(RowFailure(row, problem.error_class, problem.message, f"$.{self.column}"))
        stay = [rows.batch.column(name) for name in rows.columns.names if name != self.column]
        made = pa.array(maps, rows_arrow_type(_MAP))
        return settled(rows.with_batch(into, [*stay, made]), failures)


@dataclass(frozen=True, slots=True)
class JsonToColumns(Transform):
    """Convert a text of a JSON object to columns; other values become text where the column is text.

    Attributes:
        parse: Parses objects whose values already have the columns' types.
        lenient: See `parsed_object`.
    """

    name: ClassVar[str] = "json_to_columns"
    parse: ParseJson
    lenient: bool

    def output(self, columns: Columns) -> Columns:
        return self.parse.output(columns)

    def apply(self, rows: Rows) -> Applied:
        """Parse all objects together, and those with other values than declared once more, one by one."""
        if rows.count > _FIRST and self._mostly_other(rows.take(np.arange(_FIRST))):
            made = self.parse.apply(self._rewritten(rows, range(rows.count)))
        else:
            made = self.parse.apply(rows)
            if made.failures:
                made = self.parse.apply(self._rewritten(rows, [each.row for each in made.failures]))
        others = len(made.rows.columns.fields) - len(self.parse.fields)
        arrays = [each if at < others else _as_sink(each) for at, each in enumerate(made.rows.batch.columns)]
        return replace(made, rows=made.rows.with_batch(made.rows.columns, arrays))

    def _mostly_other(self, rows: Rows) -> bool:
        """Return whether most objects have other values than declared: then parsing all together is skipped."""
        return 2 * len(self.parse.apply(rows).failures) > rows.count

    def _rewritten(self, rows: Rows, at: Sequence[int]) -> Rows:
        index = rows.columns.index(self.parse.column.strip("`"))
        texts = rows.batch.column(index)
        kinds = {each.name: each.field_type for each in self.parse.fields}
        written = np.full(rows.count, -1, np.int64)
        others: list[str] = []
        for row in at:
            given = texts[row].as_py()
            if given is None:
                continue
            try:
                found = parsed_object(given, lenient=self.lenient)
                found = {key: for_kind(each, kinds[key]) for key, each in found.items() if key in kinds}
                text = json.dumps(found, allow_nan=False)
            except (ValueProblem, ValueError):
                continue
            written[row] = len(texts) + len(others)
            others.append(text)
        order = np.where(written < 0, np.arange(rows.count), written)
        together = pa.concat_arrays([texts, pa.array(others, texts.type)]).take(pa.array(order))
        arrays = [together if number == index else each for number, each in enumerate(rows.batch.columns)]
        return rows.with_batch(rows.columns, arrays)


def _as_sink(array: pa.Array) -> pa.Array:
    """Return a column as the sink has it: null in maps and lists of text is the text `null`, an empty one is null."""
    kind = array.type
    if not (pa.types.is_map(kind) or pa.types.is_list(kind)):
        return array
    empty = pc.or_(array.is_null(), pc.equal(_lengths(array), 0))
    return _rebuilt(array, empty)


def _rebuilt(array: pa.Array, mask: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, _texts(array.items), type=kind, mask=mask)
    return pa.ListArray.from_arrays(array.offsets, _texts(array.values), type=kind, mask=mask)


def _texts(values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        return pc.fill_null(values, "null")
    if pa.types.is_map(values.type) or pa.types.is_list(values.type):
        return _rebuilt(values, values.is_null())
    return values


def _lengths(array: pa.Array) -> pa.Array:
    offsets = array.offsets.to_numpy()
    return pa.array(np.diff(offsets))


def _steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    texts = [each.name for each in columns if isinstance(each.field_type, ice.StringType)]
    name = properties.text("column") or (texts[0] if len(texts) == 1 else "")
    if name not in texts:
        if name:
            raise TransformProblem(no_column(name, texts), ("column",))
        raise TransformProblem(f"{_NAME} takes a text: name it by column, one of {', '.join(texts) or 'none'}", ())
    if properties.choice("json.root", ("true", "false"), "false") == "true":
        return [JsonToMap(name, lenient)]
    if "schema" not in properties:
        raise TransformProblem(
            f"{_NAME} without json.root: true guesses columns from every record; declare them beside its properties, "
            "such as schema: 'id long, tags map<string, string>'",
            (),
        )
    return [JsonToColumns(ParseJson(quoted(name), properties.needed("schema")), lenient)]


JSON_TO_MAP = Known(f"{ICEBERG}JsonToMapTransform", ("json.root", "schema", "column"), _steps)
