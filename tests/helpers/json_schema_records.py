"""Generated JSON Schemas, and records of them: good ones, bad ones and hostile ones."""

from __future__ import annotations

import json
import string
from typing import Any, NamedTuple

from hypothesis import strategies as st

NAMES = ["a", "B", "some name", "d.e", "é", "f0"]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
WHOLE = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


class Kind(NamedTuple):
    """A schema, and values that are valid by it."""

    schema: Any
    values: st.SearchStrategy[Any]


def _listed(values: list[Any]) -> Kind:
    return Kind({"enum": values} if len(values) > 1 else {"const": values[0]}, st.sampled_from(values))


def _array(kind: Kind) -> Kind:
    return Kind({"type": "array", "items": kind.schema}, st.lists(kind.values, max_size=3))


def _map(kind: Kind) -> Kind:
    schema = {"type": "object", "connect.type": "map", "additionalProperties": kind.schema}
    return Kind(schema, st.dictionaries(TEXTS, kind.values, max_size=3))


def _entries(kinds: tuple[Kind, Kind]) -> Kind:
    key, value = kinds
    entry = {"type": "object", "properties": {"key": key.schema, "value": value.schema}}
    values = st.dictionaries(key.values, value.values, max_size=3).map(
        lambda found: [{"key": one, "value": each} for one, each in found.items()]
    )
    return Kind({"type": "array", "connect.type": "map", "items": entry}, values)


@st.composite
def _object(draw: st.DrawFn, kinds: st.SearchStrategy[Kind]) -> Kind:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    fields = {name: draw(kinds) for name in names}
    required = [name for name in names if draw(st.booleans())]
    schema: dict[str, Any] = {"type": "object", "properties": {name: one.schema for name, one in fields.items()}}
    if required:
        schema["required"] = required
    if draw(st.booleans()):
        schema["additionalProperties"] = False
    if draw(st.integers(0, 4)) == 0:
        indexes = draw(st.permutations(range(len(names))))
        for name, index in zip(names, indexes, strict=True):
            if isinstance(schema["properties"][name], dict):
                schema["properties"][name] = {**schema["properties"][name], "connect.index": index}
    optional = {name: one.values for name, one in fields.items() if name not in required}
    return Kind(schema, st.fixed_dictionaries({name: fields[name].values for name in required}, optional=optional))


def _nullable(kind: Kind, word: str) -> Kind:
    return Kind({word: [{"type": "null"}, kind.schema]}, st.one_of(st.none(), kind.values))


def _choice(kinds: list[Kind], word: str) -> Kind:
    return Kind({word: [one.schema for one in kinds]}, st.one_of([one.values for one in kinds]))


def _together(kind: Kind) -> Kind:
    return Kind({"allOf": [kind.schema, {"description": "the same"}]}, kind.values)


def _types(kinds: list[str]) -> Kind:
    return Kind({"type": kinds}, st.one_of([_BY_WORD[kind] for kind in kinds]))


_BY_WORD: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "integer": WHOLE,
    "number": FLOATS,
    "boolean": st.booleans(),
    "null": st.none(),
}
PRIMITIVES = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean"]).map(lambda kind: Kind({"type": kind}, _BY_WORD[kind])),
    st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=3, unique=True).map(_listed),
    st.just(_listed([1, 2])),
    st.lists(st.sampled_from(list(_BY_WORD)), min_size=2, max_size=3, unique=True).map(_types),
)
KEYS = st.sampled_from([Kind({"type": "string"}, TEXTS), Kind({"type": "integer"}, WHOLE)])


def _nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    words = st.sampled_from(["oneOf", "anyOf"])
    return st.one_of(
        _object(inner),
        inner.map(_array),
        inner.map(_map),
        st.tuples(KEYS, inner).map(_entries),
        st.builds(_nullable, inner, words),
        st.builds(_choice, st.lists(inner, min_size=2, max_size=3), words),
        inner.map(_together),
    )


KINDS: st.SearchStrategy[Kind] = st.recursive(PRIMITIVES, _nested, max_leaves=6)
SCHEMAS = st.one_of(_object(KINDS), _object(KINDS), KINDS)
"""Mostly objects, as records are."""

_HOSTILE = [
    *(b"", b" ", b"null", b"{}", b"[]", b"1", b'"x"', b"\xff", b'{"a":1}{"a":2}', b"{", b"[" * 5000, b"\xef\xbb\xbf{}"),
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"a":NaN}',
    b'{"a":' + b"9" * 5000 + b"}",
]


@st.composite
def records(draw: st.DrawFn, kind: Kind, others: Kind) -> bytes:
    """A record of a schema: mostly a good one, written in one way or another."""
    luck = draw(st.integers(0, 11))
    if luck == 0:
        return draw(st.sampled_from(_HOSTILE))
    value = draw(others.values if luck == 1 else kind.values)
    written = json.dumps(value, ensure_ascii=luck % 2 == 0, separators=(",", ":") if luck > 4 else None)
    record = written.encode("utf-8", "surrogatepass")
    if luck == 2:
        at = draw(st.integers(0, len(record)))
        junk = draw(st.one_of(st.binary(max_size=2), st.sampled_from([c.encode() for c in string.punctuation])))
        return record[:at] + junk + record[at + draw(st.integers(0, 2)) :]
    if luck == 3 and record[:2] not in (b"{}", b"[]") and record[:1] == b"{":
        return record[:-1] + b"," + record[1:]
    return record
