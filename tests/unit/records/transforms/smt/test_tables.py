"""Every committed case of Kafka Connect's transforms: frazil gives what the real class gave, or says what it does.

What is meant to differ stands in the case as `frazil:`: `refused` (when the spec is validated), or by record the class
of a dead letter, `tombstone`, or the row; for both ways of the step, or below `strict` and `lenient`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg import types as ice

from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.columns import same as same_type
from jobs.records.transforms.transform import StepProblem
from tests.smt.case import CASES, TABLES, Case, cases, table
from tests.smt.frazil_side import KEY, Landed, column_kinds, expected_value, header_text, landed, same

EVERY = list(cases())


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_frazil_gives_what_connect_gave(case: Case, lenient: bool) -> None:
    connect = table(case.file)[case.name]
    said = case.raw.get("frazil", {})
    said = said if "strict" not in said and "lenient" not in said else said.get("lenient" if lenient else "strict", {})
    if "refused" in said or "config_error" in connect:
        with pytest.raises((TransformProblem, StepProblem), match=said.get("refused")):
            landed(case, lenient=lenient)
        return
    found = landed(case, lenient=lenient)
    for at, result in enumerate(connect["results"]):
        _compare(case, at, said.get(at), result, found)
    if case.file != "mongo_keys":
        # The sink makes another type for each document.
        _compare_types(connect["results"], found, said)


def _compare(case: Case, at: int, said: Any, result: dict[str, Any], found: Landed) -> None:
    told = f"{case}, record {at}: Connect {result}"
    row = found.rows.get(at)
    if row is not None and case.file == "mongo_keys":
        # The sink changes the key as well.
        row = {name: each for name, each in row.items() if name != KEY}
    if said == "tombstone" or case.records[at].value is None:
        # A record without a value reaches no step in frazil.
        assert at in found.tombstones, told
    elif isinstance(said, str):
        assert found.failures.get(at) == said, told
        assert "value" in result or "error" in result, "Connect says nothing of it, either"
    elif isinstance(said, dict):
        assert same(said, row), f"{told}, frazil {row}, {found.failures.get(at)}"
    elif "error" in result:
        assert at in found.failures, told
    elif result.get("dropped"):
        assert at in found.filtered, told
    elif result["value"] is None:
        assert at in found.tombstones, told
    else:
        expected = expected_value(result["value"], result["value_schema"])
        if KEY in found.columns.names and isinstance(expected, dict) and case.file != "mongo_keys":
            expected |= {KEY: expected_value(result["key"], result["key_schema"])}
        if not isinstance(expected, dict) and found.rows:
            # A whole value that is no struct is one column.
            (only,) = found.columns.names
            expected = {only: expected}
        assert same(expected, row), f"{told}, frazil {row}, {found.failures.get(at)}"
        assert found.topics[at] == result["topic"], told
        if found.keys:
            key = found.keys[at]
            if isinstance(result["key"], dict):
                # A key of several columns is their JSON.
                assert key is not None and json.loads(key) == result["key"], told
            else:
                assert key == (result["key"] and str(result["key"])), told
        if case.file in ("headers", "outbox", "keys", "outbox_expanded", "header_to_value"):
            assert found.headers[at] == [(each["key"], header_text(each["value"])) for each in result["headers"]], told


def _compare_types(results: list[dict[str, Any]], found: Landed, said: dict[Any, Any]) -> None:
    """With a schema, columns are of the types that Connect's schema has; a field that all rows have is in it."""
    if any(isinstance(each, dict) for each in said.values()):
        return
    for result in results:
        if result.get("value_schema") and isinstance(result.get("value"), dict):
            kinds = column_kinds(result["value_schema"])
            there = {each.name: each.field_type for each in found.columns}
            assert kinds.keys() <= there.keys()
            kinds = {name: _of_any_record(kind, there[name]) for name, kind in kinds.items()}
            key = there.get(KEY)
            if isinstance(key, ice.StructType) and isinstance(result.get("key"), dict):
                kinds |= column_kinds(result["key_schema"])
                there |= {each.name: each.field_type for each in key.fields}
            assert all(same_type(kind, there[name]) for name, kind in kinds.items()), (kinds, there)


def _of_any_record(kind: ice.IcebergType, there: ice.IcebergType) -> ice.IcebergType:
    """The sink makes a type for each record, in which `_cdc` has a key or none; a column has to do for all records."""
    names = [each.name for each in kind.fields] if isinstance(kind, ice.StructType) else []
    if names[:2] != ["op", "ts"] or not isinstance(kind, ice.StructType) or not isinstance(there, ice.StructType):
        return kind
    fields = [each.model_copy(update={"required": each.required and each.name != "key"}) for each in kind.fields]
    if "key" not in names:
        fields += [each for each in there.fields if each.name == "key"]
    return ice.StructType(*fields)


def test_every_case_has_a_result_and_every_result_a_case() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == {path.stem for path in TABLES.glob("*.json")}
    for file in {each.file for each in EVERY}:
        assert [each.name for each in EVERY if each.file == file] == list(table(file))


def test_topics_of_cases_are_apart() -> None:
    assert len({each.topic for each in EVERY}) == len(EVERY)
