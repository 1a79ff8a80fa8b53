"""What a block of JSON records needs of a table: the same as its records one by one, found at once or singly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import DecimalType, DoubleType, LongType

from jobs.records.formats.interface.decoder import ValueDecoder
from jobs.records.formats.json import evolving
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.column_changes import changed_columns
from jobs.records.formats.json.evolving import EvolvingJsonDecoder
from jobs.records.formats.json.new_fields import NewFieldTypes
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.seen_values import parsed
from jobs.records.schema.needs import EvolutionPolicy, Need
from jobs.records.schema.parser import parse_schema
from tests.unit.records.formats.json.test_evolving import AUTO, needs

FAULTY = parse_schema(
    "id string not null, n int not null, d decimal(4,2) not null, f float, s struct<a int not null, b float not null>, "
    "l list<struct<x int not null, d decimal(4,2)> not null>, m map<string, int not null>, t timestamptz not null"
)
numbers = st.sampled_from([None, 1, 2**40, 2**70, -(2**31), -(2**31) - 1, "x", True])
decimals = st.sampled_from([None, 1, 1.5, 123.5, -99999.5, 1e30, 1e37, 1.234, "x"])
floats_ = st.sampled_from([None, 1, 1e30, -1e39, 1e300, 1e400, "x"])
faulty_records = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.sampled_from(["a", None, 5]),
            "n": numbers,
            "d": decimals,
            "f": floats_,
            "s": st.none() | st.fixed_dictionaries({}, optional={"a": numbers, "b": floats_}),
            "l": st.none()
            | st.lists(st.none() | st.fixed_dictionaries({}, optional={"x": numbers, "d": decimals}), max_size=3),
            "m": st.none() | st.dictionaries(st.sampled_from("pq"), numbers, max_size=2),
            "t": st.sampled_from([None, "2026-01-01T00:00:00Z"]),
        },
    ),
    min_size=1,
    max_size=6,
)


@given(faulty_records, st.sampled_from(["auto", "ignore"]), st.sampled_from(["auto", "ignore"]))
@settings(max_examples=60, deadline=None)
def test_a_record_lands_with_the_changes_that_it_needs_and_with_none_fewer(
    records: list[dict[str, Any]], widen: Any, relax: Any
) -> None:
    decoder = EvolvingJsonDecoder(
        JsonReferenceDecoder(FAULTY),
        FAULTY,
        policy=EvolutionPolicy("auto", widen, relax),
        refused={},
        types=NewFieldTypes(),
        reference=JsonReferenceDecoder,
    )
    allowed = [need for need in EVERY_CHANGE if (relax if need.change == "relax" else widen) == "auto"]
    texts = [json.dumps(each).encode() for each in records]
    together = widest_of(decoder.decode(pa.array(texts, pa.binary())).needs)
    for text in texts:
        found = list(decoder.decode(pa.array([text], pa.binary())).needs)
        assert lands(text, found) if found else lands(text, []) == lands(text, allowed)
        assert all(together[key] >= digits for key, digits in widest_of(found).items())
        for need in found:
            others = [each for each in found if (each.change, each.path) != (need.change, need.path)]
            assert not lands(text, others)


def lands(text: bytes, changes: list[Need]) -> bool:
    decoded = JsonReferenceDecoder(changed_columns(FAULTY, changes)).decode(pa.array([text], pa.binary()))
    return len(decoded.positions) == 1


EVERY_CHANGE = [
    *(Need("relax", tuple(path.split("."))) for path in ("id", "n", "d", "s.a", "s.b", "t")),
    *(Need("relax", path) for path in (("l", "element"), ("l", "element", "x"), ("m", "value"))),
    *(Need("widen", path, LongType()) for path in (("n",), ("s", "a"), ("l", "element", "x"), ("m", "value"))),
    *(Need("widen", path, DoubleType()) for path in (("f",), ("s", "b"))),
    *(Need("widen", path, DecimalType(38, 2)) for path in (("d",), ("l", "element", "d"))),
]


def widest_of(needs: Iterable[Need]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for need in needs:
        digits = need.type.precision if isinstance(need.type, DecimalType) else 0
        found[(need.change, need.path)] = max(found.get((need.change, need.path), 0), digits)
    return found


COLUMNS = parse_schema("id string not null, n int, s struct<a int>, l list<struct<x double>>")
RULES = [NewFieldTypes(), NewFieldTypes((9, 3), True, "map")]
REFUSED = [{}, {"$.x": "no room"}, {"$.s.x": "no room"}, {"*": "too many"}]
leaves = st.sampled_from(
    [
        st.integers(-(10**19), 10**19),
        st.integers(-5, 5),
        st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**18 - 1, 10**18, 10**38, 10**40, 7]),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([0.5, 1.0, -0.0, 3, 1e300]),
        st.booleans(),
        st.text(st.characters(codec="utf-8"), max_size=4),
        st.sampled_from(["2026-01-31", "2026-01-31T12:00:00Z", "", "a"]),
        st.none(),
    ]
)
names = st.sampled_from(["x", "y", "b c", "N", "element", "$.x", "a"])
shapes = st.recursive(
    leaves,
    lambda inner: inner.map(lambda one: st.lists(one, max_size=3))
    | st.dictionaries(names, inner, max_size=3).map(lambda named: st.fixed_dictionaries({}, optional=named)),
    max_leaves=4,
).map(lambda shape: shape | st.none())  # fmt: skip


@st.composite
def alike(draw: st.DrawFn) -> list[bytes | None]:
    """Records that look alike, most of them."""
    extra = draw(st.dictionaries(names, shapes, max_size=3))
    below = draw(st.dictionaries(names, shapes, max_size=2))
    structs = st.fixed_dictionaries({}, optional={"a": st.integers(0, 2**33), **below})
    lists = st.lists(
        st.fixed_dictionaries({}, optional={"x": st.integers(0, 9) | st.floats(0, 9), **below}), max_size=3
    )
    record = st.fixed_dictionaries(
        {"id": st.sampled_from(["a", "b", "c", None])},
        optional={"n": st.integers(0, 2**33), "s": structs, "l": lists, **extra},
    )
    texts = record.map(lambda made: json.dumps(made, separators=(",", ":")).encode())
    odd = st.sampled_from([None, b"", b'{"id":"a","x":1e400}', b'{"id":"a","x":-0}', b'{"id":"a","x":1,"x":"t"}'])
    return draw(st.lists(texts | texts | texts | odd, min_size=1, max_size=12))


def around(inner: ValueDecoder, **given_: Any) -> EvolvingJsonDecoder:
    asked = {"policy": AUTO, "refused": {}, "types": NewFieldTypes(), **given_}
    return EvolvingJsonDecoder(inner, COLUMNS, reference=JsonReferenceDecoder, **asked)


@given(alike(), st.sampled_from(RULES), st.sampled_from(["auto", "fail", "propose"]), st.sampled_from(REFUSED))
@settings(max_examples=150, deadline=None)
def test_a_block_needs_what_its_records_need_one_by_one(
    records: list[bytes | None], rules: NewFieldTypes, add: Any, refused: dict[str, str]
) -> None:
    policy = EvolutionPolicy(add, "auto", "auto")
    block = around(JsonBlockDecoder(COLUMNS, smallest=1), policy=policy, refused=refused, types=rules)
    plain = around(JsonReferenceDecoder(COLUMNS), policy=policy, refused=refused, types=rules)
    values = pa.array(records, pa.binary())
    for _ in range(2):
        found, expected = block.decode(values), plain.decode(values)
        assert needs(found) == needs(expected)
        assert found.positions.tolist() == expected.positions.tolist()
        assert found.failures == expected.failures
        assert found.rows.schema.equals(expected.rows.schema)
        # As texts: NaN != NaN, and -0.0 == 0.0.
        assert repr(found.rows.to_pylist()) == repr(expected.rows.to_pylist())


def test_records_that_look_alike_are_not_looked_at_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []
    monkeypatch.setattr(evolving, "parsed", lambda record: looked.append(record) or parsed(record))
    record = '{"id":"%d","x":%d,"o":{"p":"t","q":[true,null]},"s":{"b":null}}'
    records = [(record % (row, row)).encode() for row in range(1000)]
    records[700] = (record % (700, 2**63)).encode()
    records[900] = records[900].replace(b'{"b":null}', b'{"b":"t"}')
    found = around(JsonBlockDecoder(COLUMNS)).decode(pa.array(records, pa.binary()))
    assert needs(found) == [
        "add o struct<p string> 0",
        "add o struct<q list<boolean>> 0",
        "add s.b string 900",
        "add x decimal(38,0) 700",
        "add x long 0",
    ]
    # The first one for the names of its fields, whatever it needs.
    assert sorted(set(looked)) == sorted([records[0], records[700], records[900]]) and len(looked) <= 5
