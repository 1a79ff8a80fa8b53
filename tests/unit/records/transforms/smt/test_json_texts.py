"""JSON in Java's words, and the two ways that objects become columns, which give the same."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.java import float_texts
from jobs.records.transforms.smt.json_to_map import java_text, parsed_object
from jobs.records.transforms.smt.smt import Smt
from tests.unit.records.transforms.rows import columns_of, left, rows_of

NODES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@given(st.floats())
def test_a_float_is_written_as_a_column_of_floats_is(number: float) -> None:
    (text,) = float_texts(pa.array([number], pa.float64(), from_pandas=False)).to_pylist()
    assert java_text([number]) == (f"[{text}]" if math.isfinite(number) else f'["{text}"]')


@given(st.dictionaries(st.text(max_size=3), NODES, max_size=4))
def test_a_value_comes_back_from_its_text(found: dict[str, Any]) -> None:
    assert json.loads(java_text(found)) == found
    again = parsed_object(java_text(found), lenient=False)
    assert again == found and java_text(again) == java_text(found)


@pytest.mark.parametrize(
    ("text", "strict", "lenient"),
    [
        ('{"a": 0.1}', {"a": 0.1}, {"a": 0.1}),
        ('{"a": 0.10}', {"a": 0.1}, {"a": 0.1}),
        ('{"a": 1e2}', {"a": 100.0}, {"a": 100.0}),
        ('{"a": 0.1234567890123456789}', "precision_loss", {"a": 0.12345678901234568}),
        ('{"a": 1e999}', "precision_loss", {"a": math.inf}),
        ('\n{"a": 1} ', {"a": 1}, {"a": 1}),
        ('{"a": 1} {"a": 2}', "malformed_json", {"a": 1}),
        ('{"a": NaN}', "malformed_json", "malformed_json"),
        ('{"a": "\\ud800"}', "malformed_json", "malformed_json"),
        ("[1]", "not_an_object", "not_an_object"),
        ("", "malformed_json", "malformed_json"),
        ("[" * 100_000, "malformed_json", "malformed_json"),
    ],
)
def test_what_java_changes_in_silence_is_refused(text: str, strict: Any, lenient: Any) -> None:
    for asked, expected in ((False, strict), (True, lenient)):
        try:
            found: Any = parsed_object(text, lenient=asked)
        except ValueProblem as problem:
            found = problem.error_class
        assert found == expected


SCHEMA = "id long, name string, tags map<string, string>, list list<string>"


@pytest.mark.parametrize("odd", [0, 3, 97])
def test_objects_as_declared_and_others_give_rows_side_by_side(odd: int) -> None:
    documents = [
        {"id": n, "name": n if n < odd else str(n), "tags": {"a": n if n < odd else str(n)}, "list": [str(n), None]}
        for n in range(100)
    ]
    rows = rows_of("v string", [{"v": json.dumps(each)} for each in documents])
    made = left(Smt("JsonToMapTransform", (("schema", SCHEMA),)), rows)
    assert made == [{"id": n, "name": str(n), "tags": [("a", str(n))], "list": [str(n), "null"]} for n in range(100)]


def test_a_text_is_named_where_there_are_several_and_null_stays_null() -> None:
    rows = rows_of("k string, v string", [{"k": "a", "v": '{"x": 1}'}, {"k": "b", "v": None}])
    root = Smt("JsonToMapTransform", (("json.root", "true"), ("column", "v")))
    assert left(root, rows) == [{"k": "a", "payload": [("x", "1")]}, {"k": "b", "payload": None}]
    columns = Smt("JsonToMapTransform", (("schema", "x string"), ("column", "v")))
    assert left(columns, rows) == [{"k": "a", "x": "1"}, {"k": "b", "x": None}]
    for more, said in (((), "name it by column, one of k, v"), ((("column", "w"),), "no column 'w'")):
        with pytest.raises(TransformProblem, match=said):
            Smt("JsonToMapTransform", (("json.root", "true"), *more)).output(columns_of("k string, v string"))


@pytest.mark.parametrize(
    ("document", "made"),
    [
        ({"v": {"$numberDouble": "1.5"}}, 1.5),
        ({"v": {"$numberInt": "7"}}, 7.0),
        ({"v": {"$numberLong": "x"}}, "wrong_type"),
        ({"v": {"$minKey": 1}}, "wrong_type"),
        ({"v": {"$date": {"$numberLong": "0"}}}, "wrong_type"),
        ({"v": {"$oid": 5}}, "wrong_type"),
        ({"v": {"$binary": "!"}}, "wrong_type"),
        ({"v": {"$numberDouble": "NaN"}}, "out_of_range"),
        ({"v": math.inf}, "out_of_range"),
    ],
)
def test_values_of_mongodb(document: Any, made: Any) -> None:
    rows = rows_of("before string, after string", [{"before": None, "after": json.dumps(document)}])
    found = Smt("MongoDebeziumTransform", (("schema", "v double"),)).apply(rows)
    if isinstance(made, str):
        assert [each.error_class for each in found.failures] == [made]
    else:
        assert found.rows.batch.to_pylist() == [{"before": None, "after": {"v": made}}]


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        ("struct<removedFields: list<string>>", {"removedFields": ["a", None]}, ".removedFields"),
        ("struct<removedFields: list<long>>", {"removedFields": [1]}, ".removedFields"),
        ("struct<removedFields: string>", {"removedFields": "a"}, ".removedFields"),
        ("struct<updatedFields: struct<a: int>>", {"updatedFields": {"a": 1}}, ".updatedFields"),
        ("struct<truncatedArrays: list<struct<field: string>>>", {"truncatedArrays": [None]}, ""),
        ("json", "{}", ""),
    ],
)
def test_an_update_that_is_described_otherwise_fails_alone(kind: str, value: Any, path: str) -> None:
    update = {"before": "{}", "updateDescription": value}
    rows = rows_of(f"before string, after string, updateDescription {kind}", [update, update | {"after": "{}"}])
    found = Smt("MongoDebeziumTransform", (("schema", "v double"),)).apply(rows)
    assert [(each.row, each.error_class, each.path) for each in found.failures] == [
        (0, "wrong_type", f"$.updateDescription{path}")
    ]


def test_columns_of_mongodb_have_to_be_declared() -> None:
    with pytest.raises(TransformProblem, match="declare the document's beside its properties"):
        Smt("MongoDebeziumTransform").output(columns_of("before string, after string"))
    with pytest.raises(TransformProblem, match="takes events of MongoDB"):
        Smt("MongoDebeziumTransform").output(columns_of("id string"))
