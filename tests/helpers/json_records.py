"""Generated schemas, and records of them: good ones, bad ones and hostile ones."""

from __future__ import annotations

import json
import string
from base64 import b64encode
from datetime import datetime

from hypothesis import strategies as st

from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.parser import parse_schema

PATTERNED = [
    field.type
    for field in parse_schema(
        "a date as 'dd.MM.yyyy' or iso, b timestamp as 'yyyy-MM-dd''T''HH:mm:ss.SSS' or 'd MMM yyyy', "
        "c time as 'HHmmss', d timestamptz as 'yyyy/MM/dd HH:mm:ss' or iso in Europe/Paris, "
        "e timestamptz as 'yyyyMMddHHmmssX'"
    ).fields
    if isinstance(field.type, Primitive)
]
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
    st.sampled_from(["base64", "hex"]).map(lambda encoding: Primitive("fixed", encoding=encoding, length=3)),
    st.sampled_from(["iso", "millis_of_day", "micros_of_day", "nanos_of_day"]).map(
        lambda way: Primitive("time", encoding=way)
    ),
    st.just(Primitive("uuid")),
    st.integers(0, len(PATTERNED) - 1).map(lambda index: PATTERNED[index]),
    st.just(Primitive("json", encoding="canonical")),
    st.tuples(st.sampled_from(["int", "long"]), st.sampled_from(["number", "text"])).map(
        lambda pair: Primitive(pair[0], encoding=pair[1])
    ),
    st.sampled_from(["float", "double"]).map(lambda name: Primitive(name, encoding="text")),
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
"""Types of a stream's file."""

writers_primitives = st.one_of(
    primitives,
    st.sampled_from(["int8", "int16"]).map(lambda encoding: Primitive("int", encoding=encoding)),
    st.tuples(st.integers(0, 19), st.integers(0, 19)).map(
        lambda sizes: Primitive("decimal", max(sum(sizes), 1), sizes[0], "unscaled")
    ),
)
writers_kinds: st.SearchStrategy[DeclaredType] = st.recursive(
    writers_primitives,
    lambda inner: st.one_of(
        structs(inner),
        st.builds(ListType, inner, st.booleans()),
        st.builds(MapType, st.just(Primitive("string")), inner, st.booleans()),
        st.builds(MapType, writers_primitives, inner, st.booleans(), st.sampled_from(["pairs", "entries"])),
    ),
    max_leaves=4,
)
"""Types of a stream's file, and of writers' schemas."""

_WHOLE = ["{}.0", "{}.00e2", "{}e3", "{}0E-1", "{}.5", "{}e-1", "{}.25e2", "{}e9", "{}e18", "{}e19"]
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
unscaled = st.binary(max_size=18).map(lambda data: b64encode(data).decode())
uuids = st.one_of(
    st.uuids().map(str), st.uuids().map(lambda each: str(each).upper()), st.uuids().map(lambda each: each.hex)
)
clocks = st.one_of(
    st.times().map(lambda at: at.isoformat()),
    st.times().map(lambda at: at.isoformat("minutes")),
    st.builds(lambda at, more: at.isoformat("microseconds") + more, st.times(), digits),
    st.sampled_from(
        ["24:00:00", "23:60:00", "23:59:60", "1:00:00", "12", "12:00:00Z", "12:00:00.", "12:00:00.5000000"]
    ),
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
        case MapType(key, value, carried="pairs" | "entries" as carried):
            entries = draw(st.lists(st.tuples(tokens(key), tokens(value)), max_size=3))
            form = "[%s,%s]" if carried == "pairs" else '{"key":%s,"value":%s}'
            return "[" + ",".join(form % entry for entry in entries) + "]"
        case MapType(_, value):
            entries = draw(st.lists(st.tuples(strings, tokens(value)), max_size=3))
            return "{" + ",".join(f"{key}:{token}" for key, token in entries) + "}"
        case Primitive("boolean"):
            return draw(st.sampled_from(["true", "false"]))
        case Primitive("uuid"):
            spoiled = st.sampled_from(["{%s}", "urn:uuid:%s", "%s ", "%s0"])
            return draw(
                st.one_of(uuids, uuids, st.builds(lambda form, text: form % text, spoiled, uuids)).map(json.dumps)
            )
        case Primitive(encoding="pattern"):
            forms = st.sampled_from(["%d.%m.%Y", "%Y-%m-%dT%H:%M:%S.123", "%d %b %Y", "%H%M%S", "%Y/%m/%d %H:%M:%S"])
            by_form = st.builds(lambda at, form: at.strftime(form), moments, forms)
            return draw(st.one_of(by_form, moments.map(lambda at: f"{at:%Y%m%d%H%M%S}+02"), iso).map(json.dumps))
        case Primitive("time", encoding="iso"):
            return draw(clocks.map(json.dumps))
        case Primitive("binary" | "fixed", encoding=encoding):
            write = bytes.hex if encoding == "hex" else lambda data: b64encode(data).decode()
            return draw(st.one_of(st.binary(max_size=6).map(write).map(json.dumps), strings))
        case Primitive("decimal", encoding="unscaled"):
            return draw(st.one_of(unscaled.map(json.dumps), numbers, strings))
        case Primitive("json"):
            return draw(anything)
        case Primitive("int" | "long" | "float" | "double", encoding="text"):
            words = st.sampled_from(["NaN", "Infinity", "-Infinity", "nan", "+1", "007", " 1", "1_000"])
            return draw(st.one_of(numbers, st.integers(-1000, 1000).map(str), words).map(json.dumps))
        case Primitive("int" | "long", encoding="number"):
            written = st.builds(lambda n, form: form.format(n), st.integers(-9, 9), st.sampled_from(_WHOLE))
            return draw(st.one_of(numbers, written))
        case Primitive("decimal", encoding="text"):
            return draw(numbers.map(json.dumps))
        case Primitive("string"):
            return draw(strings)
        case Primitive(_, encoding="iso"):
            return draw(iso.map(json.dumps))
        case Primitive("time"):
            return draw(st.one_of(st.integers(0, 86_400_000).map(str), st.integers(0, 10**11).map(str), numbers))
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


blocks = structs(writers_kinds).flatmap(
    lambda schema: st.tuples(st.just(schema), st.lists(records(schema), max_size=8))
)
