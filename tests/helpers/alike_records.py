"""Blocks of records that look alike, as the records of one stream do, with a few among them that do not."""

from __future__ import annotations

import base64
import json
import random
import struct
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from uuid import UUID

from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from tests.helpers.json_records import PATTERNED

_NAMES = ["a", "B", "some name", "d.e", "é", "type", "f0", "identification_number", "x1", "`x`", "cafeteria"]
_UNKNOWN = ["zz", "other key", "ü", "A", "tYpe", "a_rather_long_key_that_is_not_declared", "z1", "z2"]
_PRIMITIVES = [
    *("boolean", "int", "long", "float", "double", "string", "string", "decimal", "decimal", "date", "binary"),
    *("timestamp", "timestamptz", "uuid", "time", "fixed"),
]
_ENCODINGS: dict[str, list[str | None]] = {
    "int": [None, None, "int8", "int16", "number", "text"],
    "long": [None, None, "number", "text"],
    "float": [None, None, "text"],
    "double": [None, None, "text"],
    "time": ["iso", "millis_of_day", "micros_of_day", "nanos_of_day"],
    "date": ["iso", "epoch_days"],
    "binary": ["base64", "hex"],
    "fixed": ["base64", "hex"],
    "timestamp": ["iso", "iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"],
    "timestamptz": ["iso", "iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"],
}
_ODD_TOKENS = [
    *(
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1.5",
        "1e2",
        "1E-2",
        "01",
        "-",
        "1.",
        ".5",
        "+1",
        "0x1",
        "NaN",
    ),
    *("Infinity", "-Infinity", "1e400", "1e-400", "9" * 18, "9" * 19, "9" * 20, "9" * 39, "9" * 45, "0." + "3" * 39),
    *("0." + "3" * 17, "1." + "0" * 41, "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "9007199254740993", "9007199254740992.5", "0.1", "123456.789"),
    *("18446744073709551615", "18446744073709551616", "18446744073709551617", "36893488147419103233", "3.4028236e38"),
    *('""', '"x"', '"1.25"', '"null"', '"\\""', '"\\u0041"', '"a\\\\"', '"\\ud800"', '"\x01"', '"é"', '"a,b:c{}[]"'),
    *(
        '"24:00:00"',
        '"12:00:00.0000001"',
        '"0F8FAD5B-d9cb-469f-a165-70867728950e"',
        '"0f8fad5bd9cb469fa16570867728950e"',
    ),
    *('"2026-02-29T00:00:00Z"', '"2024-02-29T00:00:00Z"', '"2026-01-01"', '"0000-01-01T00:00:00Z"', '"AP8="', '"00fg"'),
    *("{}", "[]", "[1]", '{"a":1}', "[[]]", "[,]", "{,}", "nul", "truee", "[null]", '{"a":null}', "tru", "1 ", " 1"),
]
_ODD_RECORDS: list[bytes | None] = [
    *(
        None,
        None,
        b"",
        b" ",
        b"{}",
        b"{ }",
        b"{",
        b"}",
        b"null",
        b"[]",
        b'{"a":1}{"a":2}',
        b'{"a":1}\n{"a":2}',
        b"{}null{}",
    ),
    *(
        b'{"a":[{}',
        b"{}]}",
        b'{"a":"}',
        b'{"}',
        b"\xef\xbb\xbf{}",
        b"{}\x00",
        b"{}\x00}",
        b'{"a":"\xff"}',
        b"\xff",
        b"{\xff}",
    ),
    *(
        b'{"a":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"zz":' + b'{"q":' * 300 + b"1" + b"}" * 300 + b"}",
        b"{},{}",
        b"{}}",
    ),
    *(b'{"a":1,"a":2}', b'{"\\u0061":1}', b'{"a" :1}', b"\t{}\r\n", b'{"":1}', b'{"\xed\xa0\x80":1}', b'{"a":1,}'),
]


@dataclass
class _Look:
    comma: str
    colon: str
    chance: random.Random
    absent: float
    null: float
    odd: float
    lists: int
    sizes: dict[str, int] = field(default_factory=dict)


def alike_blocks(seed: int) -> tuple[StructType, list[list[bytes | None]]]:
    """A schema and some blocks, the same for the same seed."""
    chance = random.Random(seed)
    schema = _struct(chance, 0, maps=chance.random() < 0.05)
    look = _Look(
        *chance.choice([(",", ":"), (",", ":"), (", ", ": "), (",", ": ")]),
        chance,
        absent=chance.choice([0, 0, 0.1, 0.5]),
        null=chance.choice([0, 0, 0.1, 0.5]),
        odd=chance.choice([0, 0, 0.005, 0.03]),
        lists=chance.choice([0, 1, 2, 4]),
    )
    extras = {
        "$": [(name, _type(chance, 1, maps=True)) for name in chance.sample(_UNKNOWN, chance.choice([0, 0, 1, 3]))]
    }
    blocks = [[_record(schema, look, extras) for _ in range(chance.choice([1, 3, 8, 8, 20, 50]))] for _ in range(3)]
    return schema, blocks


def _struct(chance: random.Random, depth: int, *, maps: bool = False) -> StructType:
    names = chance.sample(_NAMES, chance.randint(1, 5 if depth == 0 else 3))
    return StructType(tuple(Field(name, _type(chance, depth + 1, maps=maps), chance.random() < 0.4) for name in names))


def _type(chance: random.Random, depth: int, *, maps: bool = False) -> DeclaredType:
    luck = chance.random()
    if depth < 3 and luck < 0.12:
        return _struct(chance, depth, maps=maps)
    if depth < 3 and luck < 0.25:
        return ListType(_type(chance, depth + 1, maps=maps), chance.random() < 0.3)
    if maps and luck < 0.3:
        return MapType(Primitive("string"), _type(chance, depth + 2), chance.random() < 0.3)
    name = chance.choice(_PRIMITIVES)
    if chance.random() < 0.1:
        return chance.choice(PATTERNED)
    if name == "decimal":
        precision = chance.choice([1, 3, 9, 12, 18, 19, 38])
        return Primitive(name, precision, chance.randint(0, min(precision, chance.choice([0, 2, 38]))), _way(chance))
    length = 4 if name == "fixed" else None
    return Primitive(name, encoding=chance.choice(_ENCODINGS[name]) if name in _ENCODINGS else None, length=length)


def _way(chance: random.Random) -> str:
    return chance.choice(["number", "number", "text", "unscaled"])


def _record(schema: StructType, look: _Look, extras: dict[str, list[tuple[str, DeclaredType]]]) -> bytes | None:
    chance = look.chance
    if look.odd and chance.random() < 0.05:
        return chance.choice(_ODD_RECORDS)
    written = _object(schema, look, "$", extras)
    if look.odd and chance.random() < 0.05:
        written = _disturbed(written, chance)
    record = written.encode("utf-8", "surrogatepass")
    if look.odd and chance.random() < 0.03 and record:
        at = chance.randrange(len(record))
        return record[:at] + bytes([chance.randrange(256)]) + record[at + chance.randrange(2) :]
    return record


def _disturbed(written: str, chance: random.Random) -> str:
    at = chance.randrange(len(written) + 1)
    match chance.randrange(5):
        case 0:
            return written[:at]
        case 1:
            return written[:at] + chance.choice('",:{}[]\\ 0-.e\n\x00') + written[at:]
        case 2:
            return written[:at] + written[at + 1 :]
        case 3:
            return chance.choice(["", " ", "\n"]) + written + chance.choice([" ", "\n", "}", "{}", " null"])
        case _:
            other = chance.randrange(len(written) + 1)
            return written[: min(at, other)] + written[max(at, other) :] + written[min(at, other) : max(at, other)]


def _object(declared: StructType, look: _Look, path: str, extras: dict[str, list[tuple[str, DeclaredType]]]) -> str:
    chance = look.chance
    members = [(one.name, one.type, one.required) for one in declared.fields]
    members += [(name, kind, False) for name, kind in extras.get(path, [])]
    order = random.Random(path).sample(members, len(members))
    if look.odd and chance.random() < look.odd:
        chance.shuffle(order)
    if look.odd and order and chance.random() < look.odd:
        order.append(chance.choice([order[0], (chance.choice(_UNKNOWN), Primitive("string"), False)]))
    parts = []
    for name, kind, required in order:
        if chance.random() < (look.odd if required else look.absent):
            continue
        key = json.dumps(name.swapcase() if chance.random() < look.odd / 4 else name, ensure_ascii=False)
        parts.append(key + look.colon + _token(kind, look, f"{path}.{name}", required=required))
    return "{" + look.comma.join(parts) + "}"


def _token(kind: DeclaredType, look: _Look, path: str, *, required: bool = False) -> str:
    chance = look.chance
    if chance.random() < look.odd:
        return chance.choice(_ODD_TOKENS)
    if chance.random() < (look.odd if required else look.null):
        return "null"
    match kind:
        case StructType():
            return _object(kind, look, path, {})
        case ListType(element, one_required):
            count = look.sizes.setdefault(path, chance.randint(0, look.lists))
            count = count if chance.random() < 0.6 else chance.randint(0, look.lists)
            parts = [_token(element, look, path, required=one_required) for _ in range(count)]
            return "[" + look.comma.join(parts) + "]"
        case MapType(_, value):
            keys = chance.sample(_NAMES, chance.randint(0, 2))
            parts = [json.dumps(key) + look.colon + _token(value, look, path) for key in keys]
            return "{" + look.comma.join(parts) + "}"
        case Primitive():
            return _leaf(kind, look, path)


def _leaf(kind: Primitive, look: _Look, path: str) -> str:
    chance = look.chance
    match kind.name, kind.encoding:
        case "boolean", _:
            return chance.choice(["true", "false"])
        case _, "pattern":
            at = datetime(1, 1, 1) + timedelta(microseconds=chance.randrange(10**6 * 86400 * 3_652_058))
            if chance.random() < 0.5:
                at = datetime(2026, 10, 25, chance.randrange(24), chance.randrange(60), chance.randrange(60))
            form = {"date": "%d.%m.%Y", "timestamp": "%Y-%m-%dT%H:%M:%S.123", "time": "%H%M%S"}.get(kind.name)
            return json.dumps(at.strftime(form or chance.choice(["%Y/%m/%d %H:%M:%S", "%Y%m%d%H%M%SZ"])))
        case ("int" | "long" | "float" | "double") as name, "text":
            return json.dumps(_leaf(Primitive(name), look, path))
        case ("int" | "long") as name, "number":
            number = _leaf(Primitive(name), look, path)
            return chance.choice([number, f"{number}.0", f"{number}.00", f"{number}.5", f"{number}e0"])
        case "int", "int8" | "int16" as encoding:
            return str(chance.randint(-129, 128) if encoding == "int8" else chance.randint(-(2**15), 2**15))
        case "time", "iso":
            at = datetime(1, 1, 1) + timedelta(microseconds=chance.randrange(86_400 * 10**6))
            return json.dumps(at.time().isoformat(chance.choice(["seconds"] * 3 + ["auto", "minutes"])))
        case "time", encoding:
            return str(
                chance.randrange(86_400_000) * {"millis_of_day": 1, "micros_of_day": 1000}.get(str(encoding), 10**6)
            )
        case "decimal", "unscaled" if chance.random() < 0.9:
            number = int(_decimal(kind, chance).replace(".", ""))
            return json.dumps(base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, signed=True)).decode())
        case "int", _:
            return str(chance.choice([chance.randint(-(2**31), 2**31 - 1), chance.randint(0, 20)]))
        case "long", _:
            return str(chance.choice([chance.randint(-(2**63), 2**63 - 1), chance.randint(0, 10**10)]))
        case (("float" | "double"), _):
            exact = struct.unpack("d", chance.randbytes(8))[0]
            odd = exact if exact == exact and abs(exact) < 1e300 else 1.5
            return chance.choice([f"{chance.random() * 1000:.4f}", repr(chance.random()), repr(odd), "7", "-3.25"])
        case "decimal", encoding:
            return json.dumps(_decimal(kind, chance)) if encoding == "text" else _decimal(kind, chance)
        case "uuid", _:
            return json.dumps(str(UUID(bytes=chance.randbytes(16))))
        case ("binary" | "fixed") as name, encoding:
            data = chance.randbytes(4 if name == "fixed" and chance.random() < 0.9 else chance.randrange(9))
            return json.dumps(data.hex() if encoding == "hex" else base64.b64encode(data).decode())
        case "string", _:
            size = look.sizes.setdefault(path, chance.choice([-1, 0, 5, 7, 8, 9, 16, 32, 100]))
            size = chance.choice([0, 3, 8, 20, 40]) if size < 0 or chance.random() < 0.05 else size
            letters = "abcdefgh0123 ,:{}[]" if chance.random() < 0.9 else "aé€😀\x7f"
            text = "".join(chance.choice(letters) for _ in range(size))
            return json.dumps(text + ('"\\/\n' if chance.random() < look.odd else ""), ensure_ascii=False)
        case "date", "iso":
            return json.dumps((date(1, 1, 1) + timedelta(days=chance.randrange(3_652_059))).isoformat())
        case "date", _:
            return str(chance.randint(-800_000, 3_000_000))
        case name, "iso":
            at = datetime(1, 1, 1) + timedelta(microseconds=chance.randrange(10**6 * 86400 * 3_652_058))
            written = at.isoformat(chance.choice("TTTT "), chance.choice(["milliseconds"] * 3 + ["auto", "minutes"]))
            zone = chance.choice(["Z", "Z", "Z", "+02:00", "-0330", "+05"]) if name == "timestamptz" else ""
            return json.dumps(written + zone)
        case _, encoding:
            return str(chance.randint(-(10**9), 4 * 10**9) * {"epoch_s": 1, "epoch_ms": 1000}.get(str(encoding), 10**6))


def _decimal(kind: Primitive, chance: random.Random) -> str:
    precision, scale = kind.precision or 1, kind.scale or 0
    whole = chance.randrange(10 ** chance.randint(0, precision - scale))
    fraction = "".join(chance.choice("0123456789") for _ in range(chance.randint(0, scale)))
    return chance.choice(["", "", "-"]) + str(whole) + (f".{fraction}" if fraction else "")
