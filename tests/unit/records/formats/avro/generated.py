"""Generated Avro schemas with records of them, and an encoder that knows nothing of either decoder."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st


class Kind(NamedTuple):
    """A schema, and what draws the bytes of its values."""

    schema: Any
    values: st.SearchStrategy[bytes]


def number(value: int) -> bytes:
    """A number as Avro writes it."""
    found, value = bytearray(), (value << 1) ^ (value >> 63)
    value &= 2**64 - 1
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def sized(data: bytes) -> bytes:
    """Bytes with their number before them."""
    return number(len(data)) + data


def _ints(bits: int) -> st.SearchStrategy[bytes]:
    limits = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.one_of(st.integers(-100, 100), st.integers(*limits), st.sampled_from(limits)).map(number)


_TIMES = st.one_of(
    st.integers(-100, 86_400_001),
    st.sampled_from([86_399_999_999, 86_400_000_000, -62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999]),
    st.sampled_from([253_402_300_800_000, -62_135_596_800_000_000, 253_402_300_799_999_999, 2**63 - 1, -(2**63)]),
    st.integers(-(2**63), 2**63 - 1),
).map(number)
_DAYS = st.sampled_from([-719_162, -719_163, 2_932_896, 2_932_897, 0, -1, 2**31 - 1, 86_399_999, 86_400_000]).map(
    number
)
_UNSCALED = st.one_of(
    st.binary(max_size=20),
    st.integers(-(10**5), 10**5).map(lambda n: n.to_bytes(4, signed=True)),
    st.sampled_from([10**38, 10**38 - 1, -(10**38), 1 - 10**38, 0]).map(lambda n: n.to_bytes(17, signed=True)),
)
_UUIDS = st.one_of(st.uuids().map(str), st.uuids().map(lambda u: str(u).upper()), st.text(max_size=4))
_TEXTS = st.text(max_size=6).map(str.encode)

PLAIN: list[Kind] = [
    Kind("boolean", st.sampled_from([b"\x00", b"\x01"])),
    Kind("int", _ints(32)),
    Kind("long", _ints(64)),
    Kind("float", st.floats(width=32, allow_nan=False).map(lambda v: struct.pack("<f", v))),
    Kind("double", st.floats(allow_nan=False).map(lambda v: struct.pack("<d", v))),
    Kind("bytes", st.binary(max_size=6).map(sized)),
    Kind("string", _TEXTS.map(sized)),
]
LOGICAL: list[Kind] = [
    Kind({"type": "int", "logicalType": "date"}, _DAYS),
    Kind({"type": "int", "logicalType": "time-millis"}, _DAYS),
    *(
        Kind({"type": "long", "logicalType": name}, _TIMES)
        for name in (
            *("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
            *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
        )
    ),
    Kind({"type": "long", "connect.name": "io.debezium.time.NanoTime"}, _TIMES),
    Kind({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, _UNSCALED.map(sized)),
    Kind({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 9}, _UNSCALED.map(sized)),
    Kind({"type": "string", "logicalType": "uuid"}, _UUIDS.map(lambda text: sized(text.encode()))),
    Kind(
        {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
        st.sampled_from(["2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00+09:00", "x", ""]).map(
            lambda t: sized(t.encode())
        ),
    ),
]


@st.composite
def schemas(draw: st.DrawFn, *, plain: bool = False) -> Kind:
    """A record of a few fields, nested some deep; if plain, without logical types and unions of several types."""
    names = iter(range(1_000_000))
    fields = draw(st.integers(1, 4))
    return _record([draw(_kinds(2, names, plain)) for _ in range(fields)], names)


@st.composite
def _kinds(draw: st.DrawFn, depth: int, names: Any, plain: bool) -> Kind:
    choice = draw(st.integers(0, (8 if plain else 9) if depth else 5))
    if choice < 3:
        return draw(st.sampled_from(PLAIN if plain else PLAIN + LOGICAL))
    if choice == 3:
        size = draw(st.integers(1, 17))
        schema = {"type": "fixed", "name": f"n{next(names)}", "size": size}
        if not plain and draw(st.booleans()):
            schema |= {"logicalType": "decimal", "precision": min(38, max(1, 2 * size)), "scale": 1}
        return Kind(schema, st.binary(min_size=size, max_size=size))
    if choice == 4:
        symbols = [f"s{n}" for n in range(draw(st.integers(1, 3)))]
        schema = {"type": "enum", "name": f"n{next(names)}", "symbols": symbols}
        return Kind(schema, st.integers(0, len(symbols) - 1).map(number))
    below = _kinds(max(depth - 1, 0), names, plain)
    if choice == 5:
        return _union(["null", draw(below)] if draw(st.booleans()) else [draw(below), "null"], draw)
    if choice == 6:
        inner = draw(below)
        return Kind({"type": "array", "items": inner.schema}, _blocks(inner.values))
    if choice == 7:
        inner = draw(below)
        return Kind(
            {"type": "map", "values": inner.schema}, _blocks(st.tuples(_TEXTS.map(sized), inner.values).map(b"".join))
        )
    if choice == 8:
        return _record([draw(below) for _ in range(draw(st.integers(1, 3)))], names)
    return _union(
        [*draw(st.sampled_from([[], ["null"]])), *(draw(below) for _ in range(draw(st.integers(1, 3))))], draw
    )


def _record(kinds: list[Kind], names: Any) -> Kind:
    fields = [{"name": f"f{n}", "type": each.schema} for n, each in enumerate(kinds)]
    schema = {"type": "record", "name": f"n{next(names)}", "fields": fields}
    return Kind(schema, st.tuples(*(each.values for each in kinds)).map(b"".join))


def _union(given: list[Any], draw: st.DrawFn) -> Kind:
    kinds = [Kind("null", st.just(b"")) if each == "null" else each for each in given]
    # A union holds no union, and no type twice but named ones.
    chosen: dict[Any, Kind] = {}
    for each in kinds:
        if isinstance(each.schema, list):
            continue
        name = each.schema if isinstance(each.schema, str) else each.schema.get("name", each.schema["type"])
        chosen.setdefault(name, each)
    kinds = list(chosen.values())
    if all(each.schema == "null" for each in kinds):
        kinds.append(Kind("string", _TEXTS.map(sized)))
    values = st.integers(0, len(kinds) - 1).flatmap(lambda n: kinds[n].values.map(lambda data: number(n) + data))
    return Kind([each.schema for each in kinds], values)


def _blocks(items: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """A list's or a map's items in blocks, some with their size."""

    def block(pair: tuple[list[bytes], bool]) -> bytes:
        data = b"".join(pair[0])
        return number(-len(pair[0])) + number(len(data)) + data if pair[1] else number(len(pair[0])) + data

    one = st.tuples(st.lists(items, min_size=1, max_size=3), st.booleans()).map(block)
    return st.lists(one, max_size=2).map(lambda blocks: b"".join(blocks) + b"\x00")


def hostile(data: bytes) -> st.SearchStrategy[bytes]:
    """A record that was changed: cut, longer, with other bytes, or none at all."""
    ways: list[Callable[[int, bytes], bytes]] = [
        lambda at, _: data[: at % (len(data) + 1)],
        lambda _, more: data + more,
        lambda at, more: data[: at % (len(data) + 1)] + more + data[at % (len(data) + 1) :],
        lambda at, more: data[: at % (len(data) + 1)] + more + data[at % (len(data) + 1) + len(more) :],
        lambda _, more: more,
    ]
    numbers = st.sampled_from([2**31, 2**31 - 1, -1, 2**63 - 1, -(2**63), 2**40, 1, 2]).map(number)
    more = st.one_of(st.binary(max_size=5), numbers, st.just(b"\xff" * 11), st.just(b"\x82\x80\x00"))
    return st.builds(lambda way, at, extra: way(at, extra), st.sampled_from(ways), st.integers(0, 1000), more)


def text(kind: Kind) -> str:
    """The schema as a registry has it."""
    return json.dumps(kind.schema)
