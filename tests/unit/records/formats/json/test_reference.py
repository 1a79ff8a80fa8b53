"""The reference decoder against the plain meaning of the JSON text, over generated schemas and hostile records."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.formats.columns.pattern_times import pattern_times
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.parser import parse_schema
from tests.helpers.floats import nearest_float
from tests.helpers.json_records import blocks, kinds, numbers, structs

# --- the plain meaning, by Python's own json, one value at a time ---


class Bad(Exception):
    """The record is not what is declared."""


class Number(str):
    """A JSON number as it was written."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object with everything that was written in it."""


def refuse(what: str) -> Any:
    raise Bad(what)


def meaning(schema: StructType, record: bytes) -> tuple[dict[str, Any], set[str]]:
    try:
        parsed = json.loads(
            record.decode("utf-8"),
            parse_int=Number,
            parse_float=Number,
            parse_constant=refuse,
            object_pairs_hook=Pairs,
        )
        json.dumps(parsed, ensure_ascii=False).encode("utf-8")  # a lone surrogate is not text
    except ValueError as error:
        raise Bad(str(error)) from error
    unknown: set[str] = set()
    return plain(schema, parsed, "$", unknown), unknown


def plain(kind: DeclaredType, value: Any, path: str, unknown: set[str]) -> Any:
    match kind, value:
        case StructType(fields), Pairs():
            last, result = dict(value), {}
            names = {field.name.casefold(): field.name for field in fields}
            for key in last:
                declared = names.get(key.casefold())
                if declared != key:
                    if declared is not None and declared not in last:
                        raise Bad(f"{key} differs by case")
                    unknown.add(f"{path}.{key}")
            for field in fields:
                inner = last.get(field.name)
                result[field.name] = nullable(field.type, field.required, inner, f"{path}.{field.name}", unknown)
            return result
        case ListType(element, required), list() if not isinstance(value, Pairs):
            return [nullable(element, required, one, f"{path}[]", unknown) for one in value]
        case MapType(key, inner, required, "entries"), list() if not isinstance(value, Pairs):
            entry = StructType((Field("key", key, True), Field("value", inner, required)))
            entries = [nullable(entry, True, one, path + "[]", unknown) for one in value]
            return once([(one["key"], one["value"]) for one in entries])
        case MapType(key, inner, required, "pairs"), list() if not isinstance(value, Pairs):
            pairs = [one if type(one) is list and len(one) == 2 else refuse("no pair") for one in value]
            return once(
                [
                    (nullable(key, True, one, path, unknown), nullable(inner, required, other, path + "{}", unknown))
                    for one, other in pairs
                ]
            )
        case MapType(_, inner, required, "object"), Pairs():
            return [(key, nullable(inner, required, one, path + "{}", unknown)) for key, one in dict(value).items()]
        case Primitive(), _:
            return leaf(kind, value)
        case _:
            raise Bad(f"{kind} from {value!r}")


def nullable(kind: DeclaredType, required: bool, value: Any, path: str, unknown: set[str]) -> Any:
    if value is None:
        return refuse("null") if required else None
    return plain(kind, value, path, unknown)


def once(entries: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return entries if len({key for key, _ in entries}) == len(entries) else refuse("a key twice")


def leaf(kind: Primitive, value: Any) -> Any:
    number = value if isinstance(value, Number) else None
    text = value if isinstance(value, str) and number is None else None
    match kind.name, kind.encoding:
        case _, "pattern":
            # What patterns mean is tested in tests/unit/records/formats/columns/test_pattern_times.py.
            array, bad = pattern_times(kind, pa.array([required_text(text)]))
            return refuse("in no form") if bad else array[0].as_py()
        case "boolean", _:
            return value if isinstance(value, bool) else refuse("not a boolean")
        case "json", _:
            return canonical_text(value)
        case (("int" | "long"), "number"):
            with localcontext(prec=2000):
                found = Decimal(number if number is not None else refuse("not a number"))
                return whole(f"{found:f}".partition(".")[0] if found == found.to_integral_value() else None, bits(kind))
        case (("int" | "long"), "text"):
            return whole(text, bits(kind))
        case (("float" | "double"), "text"):
            if text in ("NaN", "Infinity", "-Infinity"):
                return Same(float(text))
            if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", required_text(text)):
                raise Bad("not a number")
            return leaf(Primitive(kind.name), Number(text))
        case (("int" | "long"), _):
            return whole(number, 63 if kind.name == "long" else {"int8": 7, "int16": 15}.get(kind.encoding or "", 31))
        case (("float" | "double"), _):
            with np.errstate(over="ignore"):
                written = number if number is not None else refuse("not a number")
                near = nearest_float(written) if kind.name == "float" else float(written)
            return near if abs(near) != float("inf") else refuse("too great")
        case "string", _:
            return str(text) if text is not None else refuse("not a string")
        case "decimal", "unscaled" if number is None:
            data = strictly(lambda: binascii.a2b_base64(required_text(text), strict_mode=True))
            unscaled = int.from_bytes(data, signed=True)
            if not data or b64encode(data).decode() != text or abs(unscaled) >= 10 ** (kind.precision or 0):
                raise Bad("not an unscaled number")
            return Decimal(f"{unscaled}e-{kind.scale}")
        case "decimal", "unscaled":
            return exact(number, kind.precision or 0, kind.scale or 0)
        case "decimal", encoding:
            return exact(number if encoding == "number" else text, kind.precision or 0, kind.scale or 0)
        case "binary", "base64":
            data = strictly(lambda: binascii.a2b_base64(required_text(text), strict_mode=True))
            return data if b64encode(data).decode() == text else refuse("not canonical")
        case "binary", _:
            pairs = re.fullmatch("([0-9a-fA-F]{2})*", required_text(text))
            return bytes.fromhex(pairs.group()) if pairs else refuse("not hexadecimal")
        case "date", "iso":
            return instant(required_text(text), r"\d{4}-\d\d-\d\d").date()
        case "date", _:
            return strictly(lambda: datetime(1970, 1, 1).date() + timedelta(days=whole(number, 63)))
        case "uuid", _:
            parts = re.fullmatch("(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", required_text(text), re.ASCII)
            return UUID(parts.group()).bytes if parts else refuse("not canonical")
        case "fixed", encoding:
            data = leaf(Primitive("binary", encoding=encoding), value)
            return data if len(data) == kind.length else refuse("another length")
        case "time", "iso":
            return clock(required_text(text))
        case "time", encoding:
            nanos = (
                whole(number, 63) * {"millis_of_day": 10**6, "micros_of_day": 10**3, "nanos_of_day": 1}[str(encoding)]
            )
            if nanos % 1000 or not 0 <= nanos < 86_400 * 10**9:
                raise Bad("not within a day")
            return (datetime(1970, 1, 1) + timedelta(microseconds=nanos // 1000)).time()
        case _, "iso":
            return timestamp(required_text(text), zoned=kind.name == "timestamptz")
        case _, encoding:
            units = {"epoch_s": 10**6, "epoch_ms": 10**3, "epoch_us": 1}
            counted = whole(number, 63)
            micros = counted * units[encoding] if encoding in units else counted // 1000
            if encoding == "epoch_ns" and counted % 1000:
                raise Bad("below a microsecond")
            epoch = datetime(1970, 1, 1, tzinfo=UTC if kind.name == "timestamptz" else None)
            return strictly(lambda: epoch + timedelta(microseconds=micros))


class Same(float):
    """A double that equals NaN if it is NaN."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and (self is other or float(self) == other or (other != other and self != self))

    __hash__ = float.__hash__


def bits(kind: Primitive) -> int:
    return 63 if kind.name == "long" else 31


def canonical_text(value: Any) -> str:
    if isinstance(value, Pairs):
        members = (
            f"{json.dumps(key, ensure_ascii=False)}:{canonical_text(one)}" for key, one in sorted(dict(value).items())
        )
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical_text, value)) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def whole(number: str | None, bits: int) -> int:
    if number is None or not re.fullmatch("-?[0-9]+", number) or not -(2**bits) <= int(number) < 2**bits:
        raise Bad("not a whole number in range")
    return int(number)


def exact(text: str | None, precision: int, scale: int) -> Decimal:
    if text is None or not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text):
        raise Bad("not a number")
    with localcontext(prec=2000):
        value = Decimal(text)
        cut = value.quantize(Decimal(1).scaleb(-scale))
        if cut != value or abs(value) >= Decimal(10) ** (precision - scale):
            raise Bad("does not fit")
        return cut


def instant(text: str, pattern: str) -> datetime:
    if not re.fullmatch(pattern, text, re.ASCII):
        raise Bad("another form")
    return strictly(lambda: datetime.fromisoformat(text))


def timestamp(text: str, *, zoned: bool) -> datetime:
    shape = r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?<=:\d\d)(?:(?<=:\d\d:\d\d)\.(\d+))?(Z|[+-]\d\d(?::?\d\d)?)?"
    match = re.fullmatch(shape, text, re.ASCII)
    if match is None or (match.group(3) is not None) != zoned:
        raise Bad("another form")
    fraction = Decimal("0." + (match.group(2) or "0")) * 10**6
    if fraction != int(fraction):
        raise Bad("below a microsecond")
    local = strictly(lambda: datetime.fromisoformat(match.group(1))) + timedelta(microseconds=int(fraction))
    if not zoned:
        return local
    zone = match.group(3)
    digits = "0000" if zone == "Z" else zone[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > 23 or int(digits[2:]) > 59:
        raise Bad("no such zone")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:])) * (-1 if zone.startswith("-") else 1)
    return strictly(lambda: (local - offset).replace(tzinfo=UTC))


def clock(text: str) -> time:
    match = re.fullmatch(r"(\d\d:\d\d(?::\d\d)?)(?:(?<=:\d\d:\d\d)\.(\d+))?", text, re.ASCII)
    if match is None:
        raise Bad("another form")
    fraction = Decimal("0." + (match.group(2) or "0")) * 10**6
    if fraction != int(fraction):
        raise Bad("below a microsecond")
    # fromisoformat takes 24:00 for midnight.
    if match.group(1).startswith("24"):
        raise Bad("no such hour")
    return strictly(lambda: time.fromisoformat(match.group(1))).replace(microsecond=int(fraction))


def required_text(text: str | None) -> str:
    return text if text is not None else refuse("not a string")


def strictly(convert: Any) -> Any:
    try:
        return convert()
    except (ValueError, OverflowError) as error:
        raise Bad(str(error)) from error


@settings(max_examples=150)
@given(blocks)
def test_every_record_means_what_its_text_says(block: tuple[StructType, list[bytes | None]]) -> None:
    schema, values = block
    decoded = JsonReferenceDecoder(schema).decode(pa.array(values, pa.binary()))
    decoded.rows.validate(full=True)
    expected: dict[int, Any] = {}
    counts: Counter[str] = Counter()
    for row, value in enumerate(values):
        if value is not None:
            try:
                expected[row], unknown = meaning(schema, value)
                counts.update(unknown)
            except Bad:
                pass
    assert decoded.tombstones.tolist() == [row for row, value in enumerate(values) if value is None]
    assert decoded.positions.tolist() == list(expected), decoded.failures
    assert decoded.rows.to_pylist() == list(expected.values())
    everything = [*decoded.positions.tolist(), *decoded.tombstones.tolist(), *(one.row for one in decoded.failures)]
    assert sorted(everything) == list(range(len(values)))
    assert decoded.unknown_fields == counts


@settings(max_examples=70)
@given(blocks)
def test_a_block_is_its_records_each_alone(block: tuple[StructType, list[bytes | None]]) -> None:
    schema, values = block
    decoder = JsonReferenceDecoder(schema)
    whole_block = decoder.decode(pa.array(values, pa.binary()))
    rows, failures, unknown = [], [], Counter[str]()
    for row, value in enumerate(values):
        alone = JsonReferenceDecoder(schema).decode(pa.array([value], pa.binary()))
        again = decoder.decode(pa.array([value], pa.binary()))
        # As texts, since NaN is not NaN.
        assert repr(again.rows.to_pylist()) == repr(alone.rows.to_pylist())
        assert (again.failures, again.unknown_fields) == (
            alone.failures,
            alone.unknown_fields,
        ), "what the decoder has met before must not matter"
        rows += alone.rows.to_pylist()
        failures += [(row, one.error_class, one.message, one.field) for one in alone.failures]
        unknown.update(alone.unknown_fields)
    assert repr(whole_block.rows.to_pylist()) == repr(rows)
    assert [(one.row, one.error_class, one.message, one.field) for one in whole_block.failures] == failures
    assert whole_block.unknown_fields == unknown


@settings(max_examples=70)
@given(structs(kinds))
def test_a_schema_is_its_own_text(schema: StructType) -> None:
    assert parse_schema(schema.text).text == schema.text


@settings(max_examples=150)
@given(st.integers(1, 38), st.integers(0, 38), st.lists(numbers, max_size=30), st.sampled_from(["number", "text"]))
def test_decimals_are_exact_or_refused(precision: int, scale: int, written: list[str], encoding: str) -> None:
    scale = min(scale, precision)
    schema = StructType((Field("v", Primitive("decimal", precision, scale, encoding)),))
    tokens_of = written if encoding == "number" else [json.dumps(text) for text in written]
    decoded = JsonReferenceDecoder(schema).decode(
        pa.array([f'{{"v":{one}}}'.encode() for one in tokens_of], pa.binary())
    )
    landed = dict(zip(decoded.positions.tolist(), decoded.rows.column(0).to_pylist(), strict=True))
    for row, text in enumerate(written):
        try:
            assert landed.get(row) == exact(text, precision, scale)
        except Bad:
            assert row not in landed
