"""The reference decoder against the plain meaning of the JSON text, over generated schemas and hostile records."""

from __future__ import annotations

import binascii
import json
import re
import string
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.decode.json_reference import JsonReferenceDecoder
from jobs.schema.declared import DeclaredType, Field, ListType, MapType, Primitive, StructType, parse_schema

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
        case MapType(_, inner, required), Pairs():
            return [(key, nullable(inner, required, one, path + "{}", unknown)) for key, one in dict(value).items()]
        case Primitive(), _:
            return leaf(kind, value)
        case _:
            raise Bad(f"{kind} from {value!r}")


def nullable(kind: DeclaredType, required: bool, value: Any, path: str, unknown: set[str]) -> Any:
    if value is None:
        return refuse("null") if required else None
    return plain(kind, value, path, unknown)


def leaf(kind: Primitive, value: Any) -> Any:
    number = value if isinstance(value, Number) else None
    text = value if isinstance(value, str) and number is None else None
    match kind.name, kind.encoding:
        case "boolean", _:
            return value if isinstance(value, bool) else refuse("not a boolean")
        case (("int" | "long"), _):
            return whole(number, 31 if kind.name == "int" else 63)
        case (("float" | "double"), _):
            with np.errstate(over="ignore"):
                near = float(number if number is not None else refuse("not a number"))
                near = float(np.float32(near)) if kind.name == "float" else near
            return near if abs(near) != float("inf") else refuse("too great")
        case "string", _:
            return str(text) if text is not None else refuse("not a string")
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


def required_text(text: str | None) -> str:
    return text if text is not None else refuse("not a string")


def strictly(convert: Any) -> Any:
    try:
        return convert()
    except (ValueError, OverflowError) as error:
        raise Bad(str(error)) from error


# --- generated schemas and records ---

NAMES = ["a", "B", "some name", "d.e", "é", "type", "f0", "`x`"]

primitives = st.one_of(
    st.sampled_from([Primitive(name) for name in ("boolean", "int", "long", "float", "double", "string")]),
    st.tuples(st.integers(1, 38), st.integers(0, 38), st.sampled_from(["number", "text"]))
    .filter(lambda sizes: sizes[1] <= sizes[0])
    .map(lambda sizes: Primitive("decimal", *sizes)),
    st.tuples(
        st.sampled_from(["timestamp", "timestamptz"]),
        st.sampled_from(["iso", "iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]),
    ).map(lambda pair: Primitive(pair[0], encoding=pair[1])),
    st.sampled_from(["iso", "epoch_days"]).map(lambda encoding: Primitive("date", encoding=encoding)),
    st.sampled_from(["base64", "hex"]).map(lambda encoding: Primitive("binary", encoding=encoding)),
)


def structs(kinds: st.SearchStrategy[DeclaredType]) -> st.SearchStrategy[StructType]:
    fields = st.builds(Field, st.sampled_from(NAMES), kinds, st.booleans())
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda field: field.name).map(
        lambda chosen: StructType(tuple(chosen))
    )


kinds: st.SearchStrategy[DeclaredType] = st.recursive(
    primitives,
    lambda inner: st.one_of(
        structs(inner),
        st.builds(ListType, inner, st.booleans()),
        st.builds(MapType, st.just(Primitive("string")), inner, st.booleans()),
    ),
    max_leaves=4,
)

digits = st.text("0123456789", min_size=1, max_size=40).map(lambda text: text.lstrip("0") or "0")
numbers = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.integers(-1000, 1000).map(str),
    st.integers(-(10**15), 10**15).map(lambda n: f"{n // 100}.{abs(n) % 100:02d}"),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds(lambda a, b, c: f"{a}.{b}e{c}", digits, digits, st.integers(-60, 60)),
    st.sampled_from(["-0", "-0.0", "1e400", "3.4028236e38", "1.0", "1." + "0" * 41, "1795169472123456000"]),
)
zones = st.sampled_from(["", "Z", "+09:00", "-0330", "+24:00", "+05", " Z"])
moments = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31, 23, 59, 59))
iso = st.one_of(
    st.builds(lambda at, zone: at.isoformat() + zone, moments, zones),
    st.builds(lambda at, zone: at.isoformat(" ", "minutes") + zone, moments, zones),
    st.builds(lambda at, more, zone: at.isoformat(timespec="microseconds") + more + zone, moments, digits, zones),
    moments.map(lambda at: at.date().isoformat()),
    st.sampled_from(["2023-02-29", "2024-02-29", "2024-02-29T00:00:00", "2024-02-30T00:00:00Z", "0000-01-01"]),
)
texts = st.one_of(st.text(max_size=8), iso, st.binary(max_size=6).map(lambda data: b64encode(data).decode()), numbers)
strings = st.builds(json.dumps, texts, ensure_ascii=st.booleans())
anything = st.one_of(
    numbers,
    strings,
    st.sampled_from(["null", "true", "{}", "[]", '{"a":1e999,"a":[null]}', "[[1]]", "01", "NaN", r'"\ud800"', r'"\q"']),
)


@st.composite
def tokens(draw: st.DrawFn, kind: DeclaredType) -> str:
    luck = draw(st.integers(0, 59))
    if luck == 0:
        return draw(anything)
    if luck == 1:
        return "null"
    match kind:
        case StructType(fields):
            members = [
                (draw(st.sampled_from([name.upper(), name.lower()])) if draw(st.integers(0, 60)) == 0 else name, token)
                for name, token in ((field.name, draw(tokens(field.type))) for field in fields)
                if draw(st.integers(0, 19))
            ]
            if draw(st.integers(0, 9)) == 0:
                members.append((draw(st.sampled_from([*NAMES, "zz", "A"])), draw(anything)))
            space = draw(st.sampled_from(["", "", " ", "\n\t"]))
            written = (f"{space}{json.dumps(name)}{space}:{space}{token}" for name, token in members)
            return "{" + ",".join(written) + space + "}"
        case ListType(element):
            return "[" + ", ".join(draw(st.lists(tokens(element), max_size=3))) + "]"
        case MapType(_, value):
            entries = draw(st.lists(st.tuples(strings, tokens(value)), max_size=3))
            return "{" + ",".join(f"{key}:{token}" for key, token in entries) + "}"
        case Primitive("boolean"):
            return draw(st.sampled_from(["true", "false"]))
        case Primitive("binary", encoding=encoding):
            write = bytes.hex if encoding == "hex" else lambda data: b64encode(data).decode()
            return draw(st.one_of(st.binary(max_size=6).map(write).map(json.dumps), strings))
        case Primitive("decimal", encoding="text"):
            return draw(numbers.map(json.dumps))
        case Primitive("string"):
            return draw(strings)
        case Primitive(_, encoding="iso"):
            return draw(iso.map(json.dumps))
        case Primitive("int" | "long" | "date"):
            return draw(st.one_of(st.integers(-1000, 1000).map(str), st.integers(-1000, 1000).map(str), numbers))
        case _:
            return draw(numbers)


@st.composite
def records(draw: st.DrawFn, schema: StructType) -> bytes | None:
    luck = draw(st.integers(0, 19))
    if luck == 0:
        return draw(st.sampled_from([None, b"", b" ", b"null", b"[]", b'{"a":1}{"a":2}', b"\xff"]))
    record = draw(tokens(schema)).encode("utf-8", "surrogatepass")
    if luck in (1, 2) and record:
        at = draw(st.integers(0, len(record) - 1))
        junk = draw(st.one_of(st.binary(max_size=2), st.sampled_from([c.encode() for c in string.punctuation])))
        return record[:at] + junk + record[at + draw(st.integers(0, 2)) :] if luck == 1 else record[:at]
    return record


blocks = structs(kinds).flatmap(lambda schema: st.tuples(st.just(schema), st.lists(records(schema), max_size=8)))


@settings(max_examples=250)
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


@settings(max_examples=100)
@given(blocks)
def test_a_block_is_its_records_each_alone(block: tuple[StructType, list[bytes | None]]) -> None:
    schema, values = block
    decoder = JsonReferenceDecoder(schema)
    whole_block = decoder.decode(pa.array(values, pa.binary()))
    rows, failures, unknown = [], [], Counter[str]()
    for row, value in enumerate(values):
        alone = JsonReferenceDecoder(schema).decode(pa.array([value], pa.binary()))
        again = decoder.decode(pa.array([value], pa.binary()))
        assert (again.rows, again.failures, again.unknown_fields) == (
            alone.rows,
            alone.failures,
            alone.unknown_fields,
        ), "what the decoder has met before must not matter"
        rows += alone.rows.to_pylist()
        failures += [(row, one.error_class, one.message, one.field) for one in alone.failures]
        unknown.update(alone.unknown_fields)
    assert whole_block.rows.to_pylist() == rows
    assert [(one.row, one.error_class, one.message, one.field) for one in whole_block.failures] == failures
    assert whole_block.unknown_fields == unknown


@settings(max_examples=100)
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
