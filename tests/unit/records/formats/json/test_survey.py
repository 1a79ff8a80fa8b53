"""A survey of JSON records: exact until one needs another column, and from there on it finds all that they need."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import DecimalType, DoubleType, LongType

from jobs.records.formats.interface.decoder import Decoded, ValueDecoder
from jobs.records.formats.interface.decoder_spec import SURVEY, resolved_rows
from jobs.records.formats.json import evolving
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.column_changes import changed_columns
from jobs.records.formats.json.inference import first_columns
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.rescued_json import members_without_column
from jobs.records.formats.json.seen_values import Place, SeenValues
from jobs.records.formats.json_texts import canonical
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.needs import EvolutionPolicy, Need
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import with_extra_column

TABLE = "id string not null, n int, d decimal(4,2), f float, s struct<a int not null>, m map<string, int>"
NO_MAP = TABLE.replace(", m map<string, int>", "")
"""Such records are read side by side."""
PLAIN = {"id": "a", "n": 1, "d": 1.5, "f": 0.5, "s": {"a": 1}, "m": {"p": 1}}


def decoder(
    *, surveys: bool = True, table: str = TABLE, evolve: EvolutionPolicy | None = None, **options: Any
) -> ValueDecoder:
    rows = iceberg_schema(parse_schema(table))
    policy = evolve or EvolutionPolicy("auto", "auto", "auto")
    given_options = {
        "unknown_fields": "ignore",
        **options,
        **policy.as_options(),
        **({SURVEY: True} if surveys else {}),
    }
    return FORMATS["json"].block(resolved_rows("json", rows, given_options).decoder)


def values(records: list[Any]) -> pa.BinaryArray:
    return pa.array(
        [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in records], pa.binary()
    )


def paths(decoded: Decoded) -> set[tuple[str, str, str]]:
    return {(each.change, ".".join(each.path), str(each.type or "")) for each in decoded.needs}


def same(one: Decoded, other: Decoded) -> bool:
    return (
        one.rows.schema.equals(other.rows.schema)
        # As texts: NaN != NaN, and -0.0 == 0.0.
        and repr(one.rows.to_pylist()) == repr(other.rows.to_pylist())
        and one.positions.tolist() == other.positions.tolist()
        and (one.failures, one.unknown_fields, set(one.needs))
        == (other.failures, other.unknown_fields, set(other.needs))
        and one.tombstones.tolist() == other.tombstones.tolist()
    )


@pytest.mark.parametrize("table", [TABLE, NO_MAP], ids=["with a map", "without"])
@pytest.mark.parametrize(
    ("change", "need"),
    [
        ({"n": 2**40}, ("widen", "n", "long")),
        ({"f": 1e300}, ("widen", "f", "double")),
        ({"d": 12345.5}, ("widen", "d", "decimal(7, 2)")),
        ({"id": None}, ("relax", "id", "")),
        ({"s": {}}, ("relax", "s.a", "")),
    ],
    ids=str,
)
def test_a_block_that_needs_a_change_is_undecided_and_so_are_those_behind_it(
    table: str, change: dict[str, Any], need: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, seen = decoder(table=table), list[int]()
    exact = JsonReferenceDecoder.decode

    def counted(self: JsonReferenceDecoder, values: pa.BinaryArray) -> Decoded:
        seen.append(len(values))
        return exact(self, values)

    monkeypatch.setattr(JsonReferenceDecoder, "decode", counted)
    record = PLAIN if table == TABLE else {name: value for name, value in PLAIN.items() if name != "m"}
    plain, needing = values([record] * 300), values([record | change] * 5_000)
    assert not one.decode(plain).undecided
    seen.clear()
    found = one.decode(needing)
    assert found.undecided and paths(found) == {need}
    assert (found.rows.num_rows, len(found.positions), found.failures, len(found.tombstones)) == (0, 0, [], 0)
    if table == NO_MAP and "f" not in change:
        # A number with an exponent is the reference's in any case.
        assert sum(seen) < 500, "most of the records are not looked at one by one"
    behind = one.decode(plain)
    assert behind.undecided and behind.needs == () and behind.rows.num_rows == 0


def test_what_only_a_few_of_the_records_need_is_found_too() -> None:
    """The first ones tell of one column; behind it other records need a wider one, another, and a new one."""
    records: list[Any] = [PLAIN | {"n": 2**40} for _ in range(4_000)]
    records[1_500] |= {"d": 123456.5}
    records[2_500] |= {"d": 123456789.5, "id": None}
    records[3_500] |= {"new": True}
    one = decoder()
    wider = {("widen", "n", "long"), ("widen", "d", "decimal(11, 2)"), ("relax", "id", ""), ("add", "new", "boolean")}
    assert wider <= paths(one.decode(values(records)))
    assert {need.row for need in one.decode(values(records)).needs if need.change == "add"} == {3_500}


def test_records_that_no_change_lets_land_are_failures_as_ever() -> None:
    beyond = values([PLAIN | {"n": 2**70} for _ in range(3_000)] + [PLAIN])
    assert same(decoder().decode(beyond), decoder(surveys=False).decode(beyond))
    # One among them that a change does let land is found all the same.
    late = values([PLAIN | {"n": 2**70} for _ in range(3_000)] + [PLAIN | {"id": None}])
    assert paths(decoder().decode(late)) == {("relax", "id", "")}


def test_a_kept_field_whose_column_is_not_there_is_a_need_of_a_survey_too() -> None:
    policy = EvolutionPolicy("ignore", "auto", "auto")
    one = decoder(evolve=policy, unknown_fields="keep", extra_column=False)
    found = one.decode(values([PLAIN | {"n": 2**40, "x": 1}] * 300))
    assert paths(found) == {("widen", "n", "long"), ("add", "_extra", "string")}


CHANGES = st.sampled_from(
    [
        {},
        {},
        {"n": 2**40},
        {"n": 2**70},
        {"n": "x"},
        {"d": 123.5},
        {"d": 1234567.5},
        {"d": 1.234},
        {"f": 1e300},
        {"id": None},
        {"id": 5},
        {"s": {}},
        {"s": {"a": 2**40}},
        {"m": {"q": 2**40}},
        {"new": 1},
        {"s": {"a": 1, "b": []}},
    ]
)
RECORDS = st.lists(
    st.one_of(st.tuples(CHANGES, CHANGES).map(lambda two: PLAIN | two[0] | two[1]), st.none()), max_size=30
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(RECORDS, min_size=1, max_size=3),
    st.integers(1, 12),
    st.sampled_from([1, 256]),
    st.sampled_from([TABLE, NO_MAP]),
)
def test_a_survey_is_exact_until_it_is_undecided_and_misses_no_need(
    blocks: list[list[Any]], sample: int, smallest: int, table: str
) -> None:
    policy = EvolutionPolicy("auto", "auto", "auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evolving, "_SAMPLE", sample)
        patch.setattr(evolving, "_MANY", 2 * sample)
        patch.setitem(JsonBlockDecoder.__init__.__kwdefaults__ or {}, "smallest", smallest)
        one, exact = decoder(evolve=policy, table=table), decoder(surveys=False, evolve=policy, table=table)
        undecided, told, due = False, list[Need](), list[Need]()
        for records in blocks:
            found, wanted = one.decode(values(records)), exact.decode(values(records))
            changed = any(need.change != "add" for need in wanted.needs)
            assert found.undecided == (undecided or changed)
            undecided = found.undecided
            assert undecided or same(found, wanted)
            told += found.needs
            due += wanted.needs
            assert widest(due) <= widest(told)


def widest(needs: list[Need]) -> set[tuple[str, str, str]]:
    """Needs, of several decimals for one column the widest."""
    ordered = sorted(needs, key=lambda each: str(each.type).zfill(20))
    last = {(each.change, each.path, type(each.type) is DecimalType or each.type): each for each in ordered}
    return {(each.change, ".".join(each.path), str(each.type)) for each in last.values()}


@pytest.mark.parametrize(
    ("before", "need", "after"),
    [
        ("a int", Need("widen", ("a",), LongType()), "a long"),
        ("a float", Need("widen", ("a",), DoubleType()), "a double"),
        ("a decimal(4,2) not null", Need("widen", ("a",), DecimalType(9, 2)), "a decimal(9,2) not null"),
        ("a list<decimal(4,2)>", Need("widen", ("a", "element"), DecimalType(9, 2)), "a list<decimal(9,2)>"),
        ("a string not null", Need("relax", ("a",)), "a string"),
    ],
    ids=str,
)
def test_columns_with_a_need_met_are_those_that_the_table_will_have(before: str, need: Need, after: str) -> None:
    """Down to how JSON carries their values, which no need says."""
    assert changed_columns(parse_schema(before), [need]) == parse_schema(after)


def columns(*records: Any, **infer: Any) -> str | None:
    seen = SeenValues()
    for number, record in enumerate(records):
        seen.add(record, Place("t", 0, number))
    found = first_columns(seen, infer)
    return found.text if found else None


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"a": 1, "b": None}, {"c": []}, {"d": {}}], "a long"),
        ([{"a": {"b": None, "c": 1}}], "a struct<c long>"),
        ([{"a": {"b": None}}, {"l": [None]}, {"l": [[]]}], None),
        ([{"a": [{"x": None, "y": "t"}]}], "a list<struct<y string>>"),
        ([], None),
        # Iceberg calls the field b in a by the name of the other one.
        ([{"a": {"b": 1}, "a.b": 2, "l.element": 1, "l": [1]}], "a struct<b long>, `l.element` long"),
        ([{"s": {"a": {"b": 1}, "a.b": 2}}], None),
    ],
)
def test_what_says_nothing_has_no_column(records: list[Any], expected: str | None) -> None:
    assert columns(*records) == expected


def test_what_is_asked_for() -> None:
    record = {"t": "2026-01-31", "o": {"p": 1, "q": 2}, "s": {"p": 1, "q": "x"}}
    assert columns(record, times=True, objects="map") == "t date, o map<string, long>, s struct<p long, q string>"
    assert columns({"n": 1}, fractions="decimal(9,2)") == "n long"


FIRST_COLUMNS_TABLE = parse_schema("id string, s struct<a int>, l list<struct<x int>>, m map<string, struct<y int>>")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b'{"id":"a"}', None),
        (b'{"id":"a","b":1.10,"a":[1, {"z":1e5,"y":null}]}', '{"a":[1,{"y":null,"z":1e5}],"b":1.10}'),
        (b' {"s":{"a":1,"b":2}} ', '{"s":{"b":2}}'),
        (b'{"l":[{"x":1},{"q":true},{}]}', '{"l":[null,{"q":true},null]}'),
        (b'{"m":{"k":{"y":1,"z":"u"},"j":{}}}', '{"m":{"k":{"z":"u"}}}'),
        (b'{"s":null,"n":null,"\\u00fc":"\\u00fc"}', '{"n":null,"ü":"ü"}'),
        (b'{"x":1,"x":2}', '{"x":2}'),
    ],
)
def test_members_without_column(record: bytes, expected: str | None) -> None:
    assert members_without_column(FIRST_COLUMNS_TABLE, record) == expected


first_columns_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "x", "b c"]), inner, max_size=2),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.sampled_from(["id2", "b", "ü"]), first_columns_values), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_nothing_of_a_record_is_lost(records: list[dict[str, Any]]) -> None:
    rows = with_extra_column(iceberg_schema(FIRST_COLUMNS_TABLE))
    spec = resolved_rows("json", rows, {"unknown_fields": "keep"}).decoder
    block = [json.dumps({"id": str(n), **each}).encode() for n, each in enumerate(records)]
    for make in (FORMATS["json"].reference, FORMATS["json"].block):
        decoded = make(spec).decode(pa.array(block, pa.binary()))
        assert not decoded.failures and not decoded.unknown_fields
        kept = decoded.rows.column("_extra").to_pylist()
        assert kept == [canonical(json.dumps(each).encode()).decode() if each else None for each in records]
