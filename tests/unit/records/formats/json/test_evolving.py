"""What JSON records need of a table, as both decoders tell it; and what a stream that asks for nothing pays."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import resolved_rows
from jobs.records.formats.json import evolving
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.records.schema.needs import EvolutionPolicy
from jobs.records.schema.parser import parse_schema

AUTO = EvolutionPolicy("auto", "auto", "auto")
TABLE = "id string not null, n int, d decimal(4,2), s struct<a int>, l list<struct<x float>>, m map<string, int>"


def decode(records: list[Any], *, block: bool = False, evolve: EvolutionPolicy = AUTO, **options: Any) -> Decoded:
    rows = iceberg_schema(parse_schema(TABLE))
    spec = (
        resolved_rows("json", rows, {"unknown_fields": "ignore", **options}).with_options(evolve.as_options()).decoder
    )
    made = FORMATS["json"].block(spec) if block else FORMATS["json"].reference(spec)
    values = [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in records]
    return made.decode(pa.array(values, pa.binary()))


def needs(decoded: Decoded) -> list[str]:
    told = (
        f"{each.change} {'.'.join(each.path)}{f' {schema_text(each.type)}' if each.type else ''} {each.row}"
        for each in decoded.needs
    )
    return sorted(told)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"x": 1}, ["add x long 1"]),
        ({"x": 2**70}, ["add x decimal(38,0) 1"]),
        ({"x": 1.5}, ["add x double 1"]),
        ({"x": "2026-01-01"}, ["add x string 1"]),
        ({"x": True}, ["add x boolean 1"]),
        ({"x": None}, []),
        ({"x": []}, []),
        ({"x": {}}, []),
        ({"x": [[], [None]]}, []),
        ({"x": [1, None, 2]}, ["add x list<long> 1"]),
        ({"x": {"p": 1, "q": None, "r": {"t": "u"}}}, ["add x struct<p long> 1", "add x struct<r struct<t string>> 1"]),
        ({"s": {"b": 1}}, ["add s.b long 1"]),
        ({"l": [{"x": 1}, {"y": 2}]}, ["add l.element.y long 1"]),
        ({"n": 2**31}, ["widen n long 1"]),
        ({"n": 2**63}, []),
        ({"n": 1.5}, []),
        ({"d": 123456.5}, ["widen d decimal(8,2) 1"]),
        ({"d": 1e37}, []),
        ({"d": 1.234}, []),
        ({"s": {"a": -(2**40)}}, ["widen s.a long 1"]),
        ({"l": [{"x": 1}, {"x": 1e200}]}, ["widen l.element.x double 1"]),
        ({"m": {"p": 1, "q": 2**40}}, ["widen m.value long 1"]),
        ({"id": None}, ["relax id 1"]),
        (b'{"n":1}', ["relax id 1"]),
        ({"id": None, "n": 2**40, "d": 999, "x": 1},
         ["add x long 1", "relax id 1", "widen d decimal(5,2) 1", "widen n long 1"]),
        # No cure for one fault: nothing is asked for.
        ({"id": 5, "n": 2**40, "x": 1}, []),
        (b'{"id":"a","x":1', []),
        ({"id": None, "x": 10**39}, []),
        (None, []),
    ],
    ids=str,
)  # fmt: skip
def test_needs(record: Any, expected: list[str]) -> None:
    given_ = {"id": "a", **record} if isinstance(record, dict) else record
    for block in (False, True):
        found = decode([{"id": "first"}, given_], block=block)
        assert needs(found) == expected
        assert len(found.positions) + len(found.failures) + len(found.tombstones) == 2


def test_of_many_records_the_first_with_each_type_is_told() -> None:
    found = decode([{"id": "a"}, {"id": "b", "x": 1}, {"id": "c", "x": 2}, {"id": "d", "x": 0.5}])
    assert needs(found) == ["add x double 3", "add x long 1"]


def test_a_record_that_failed_hides_none_before_it() -> None:
    found = decode([{"id": "a", "x": 1}, {"id": None, "x": 2}])
    assert needs(found) == ["add x long 0", "relax id 1"]


def test_what_new_fields_become_can_be_asked_for() -> None:
    infer = {"fractions": "decimal(9,3)", "times": True, "objects": "map"}
    record = {"id": "a", "x": 1.5, "t": "2026-01-31T12:00:00Z", "day": "2026-01-31", "o": {"p": 1}}
    found = decode([record], infer=infer)
    assert needs(found) == [
        "add day date 0",
        "add o map<string, long> 0",
        "add t timestamptz 0",
        "add x decimal(9,3) 0",
    ]


def test_a_refused_field_makes_its_records_fail() -> None:
    records = [{"id": "a"}, {"id": "b", "x": 1}, {"id": "c", "x": None}, {"id": "d", "s": {"y": 1}, "z": 1}]
    found = decode(records, refused=(("$.x", "no room"), ("$.s.y", "no room")))
    assert [(each.row, each.error_class, each.field) for each in found.failures] == [
        (1, "schema_change_refused", "$.x"),
        (3, "schema_change_refused", "$.s.y"),
    ]
    assert found.failures[0].message == "needs a change of the table that is not made: no room"
    assert found.positions.tolist() == [0, 2]
    assert found.unknown_fields == {"$.x": 1}
    assert found.rows.num_rows == 2


def test_proposed_changes_make_their_records_fail_and_are_told() -> None:
    found = decode(
        [{"id": "a"}, {"id": "b", "x": 1}, {"id": "c", "n": 2**40}, {"id": None}],
        evolve=EvolutionPolicy("propose", "propose", "ignore"),
    )
    assert [(each.row, each.error_class) for each in found.failures] == [
        (1, "schema_change_proposed"),
        (2, "schema_change_proposed"),
        (3, "null_in_required"),
    ]
    assert needs(found) == ["add x long 1", "widen n long 2"]


@pytest.mark.parametrize("evolve", [EvolutionPolicy(), EvolutionPolicy("ignore", "ignore", "auto")])
def test_what_is_ignored_is_not_told(evolve: EvolutionPolicy) -> None:
    found = decode([{"id": "a", "x": 1, "n": 2**40}, {"id": "b", "x": 2}], evolve=evolve)
    assert not found.needs
    assert found.unknown_fields == {"$.x": 1}


def test_nulls_are_seen_without_a_look_at_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(evolving, "parsed", lambda record: looked.append(record))
    decode([b'{"id":"a","x":null}', b'{"id":"b","x": null,"n":1}'])
    assert not looked
    for odd in (b'{"id":"a","\\u0078":1}', b'{"id":"a","x":1}', b'{"id":"a","q.x":1}', b'{"id":"x","x":null}'):
        decode([b'{"id":"a","x":null}', odd])
        assert looked, odd
        looked.clear()


@pytest.mark.parametrize(("clashes", "rescued"), [(1, 1), (9, 9), (10, 0)])
def test_a_record_with_too_many_clashing_values_asks_for_no_column_of_text(clashes: int, rescued: int) -> None:
    rows = iceberg_schema(parse_schema(", ".join(f"n{number} int" for number in range(12))))
    policy = EvolutionPolicy("auto", "auto", "auto", "shadow")
    decoder = FORMATS["json"].reference(resolved_rows("json", rows, policy.as_options()).decoder)
    record = {f"n{number}": "x" for number in range(clashes)}
    found = decoder.decode(pa.array([json.dumps(record).encode()], pa.binary()))
    assert needs(found) == [f"add n{number}_text string 0" for number in range(rescued)]
    assert [each.error_class for each in found.failures] == ["wrong_type"]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "x", "b c"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
some_records = st.lists(
    st.fixed_dictionaries({"id": st.none() | st.just("i")}, optional=dict.fromkeys("ndslmx", values)),
    min_size=1,
    max_size=6,
)  # fmt: skip


@given(some_records)
@settings(max_examples=200, deadline=None)
def test_rows_are_those_of_a_decoder_without_evolution(made: list[dict[str, Any]]) -> None:
    plain, found = decode(made, evolve=EvolutionPolicy()), decode(made)
    fails = {each.row for each in plain.failures}
    also = {each.row for each in found.failures} - fails
    assert found.positions.tolist() == [at for at in plain.positions.tolist() if at not in also]
    assert {each.error_class for each in found.failures if each.row in also} <= {"schema_change_refused"}
    assert all(0 <= need.row < len(made) for need in found.needs)
