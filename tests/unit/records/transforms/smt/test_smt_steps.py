from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pydantic import ValidationError

from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import load_stream
from jobs.config.stream.models import StreamSpec
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.smt import (
    KNOWN,
    REFUSED,
    Smt,
    known_smt,
)
from jobs.streaming.pipeline.row_steps import row_steps_of
from tests.unit.records.transforms.rows import (
    applied,
    columns_of,
    left,
    rows_of,
)

KAFKA = "org.apache.kafka.connect.transforms."
BASE: dict[str, Any] = {
    "stream": "payments",
    "source": {"topics": ["payments"]},
    "decode": {"value": "json", "schema": "id string not null, p struct<at string, n long>, kind string"},
    "transform": [
        {"smt": {"type": f"{KAFKA}Flatten$Value", "delimiter": "_"}},
        {"smt": {"type": "Cast$Value", "spec": "p_n:int32", "lenient": True}},
        {
            "smt": {
                "type": "InsertField$Value",
                "static.field": "source",
                "static.value": 5,
                "predicate": {"type": "TopicNameMatches", "pattern": "pay.*"},
                "negate": True,
            }
        },
    ],
    "table": {"name": "orders.payments"},
}


def problems(tmp_path: Path, change: Any) -> list[str]:
    data = copy.deepcopy(BASE)
    change(data["transform"])
    path = tmp_path / "payments.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    try:
        load_stream(path)
    except SpecError as problem:
        lines = path.read_text().splitlines()
        found = [each.partition(":")[2] for each in problem.problems]
        return [f"{lines[int(each.partition(':')[0]) - 1].strip()} | {each.partition(': ')[2]}" for each in found]
    return []


def test_smt_steps_stand_in_a_streams_file(tmp_path: Path) -> None:
    assert problems(tmp_path, lambda _: None) == []
    spec = StreamSpec.model_validate(BASE)
    assert [(each.name, str(each.field_type)) for each in spec.table_schema.fields[:5]] == [
        ("id", "string"),
        ("p_at", "string"),
        ("p_n", "int"),
        ("kind", "string"),
        ("source", "string"),
    ]
    steps = row_steps_of(spec)
    assert pickle.loads(pickle.dumps(steps)) == steps
    again = StreamSpec.model_validate(spec.model_dump(mode="json", exclude_defaults=True))
    assert again.transform == spec.transform
    assert again.config_hash == spec.config_hash


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t[0]["smt"].update(type="Flaten$Value"),
         "type: Flaten$Value | transform[0].smt.type: there is no transform 'Flaten$Value'; did you mean 'Flatten"),
        (lambda t: t[0]["smt"].update(delimeter="."), "delimeter: . | transform[0].smt.delimeter: Flatten$Value has no "
         "property 'delimeter'; did you mean 'delimiter'?"),
        (lambda t: t[1]["smt"].update(spec="p_n:int33"), "spec: p_n:int33 | transform[1].smt.spec: 'int33' in spec "
         "is no type that Cast makes; did you mean 'int32'?"),
        (lambda t: t[2]["smt"]["predicate"].update(pattern="("), "pattern: ( | transform[2].smt.predicate.pattern:"),
        (lambda t: t[2]["smt"]["predicate"].update(type="TopicMatches"), "did you mean 'TopicNameMatches'?"),
        (lambda t: t[2]["smt"].update(predicate="isTest"), "'isTest' is no alias under predicates; write"),
        (lambda t: t[1]["smt"].update(negate=True), "negate needs a predicate"),
        (lambda t: t[1]["smt"].update(spec={"a": 1}), "needs a text, a number, true or false"),
        (lambda t: t[1]["smt"].pop("type"), "needs type, such as ReplaceField$Value"),
        (lambda t: t[1]["smt"].update(type="io.debezium.transforms.ContentBasedRouter"), "write an SQL expression"),
        (lambda t: t[1]["smt"].update(type="io.debezium.transforms.Filter"), "where: "),
        (lambda t: t[1]["smt"].update(type=f"{KAFKA}Cast$Key", spek="x"), "Cast$Key has no property 'spek'; did you"),
    ],
)  # fmt: skip
def test_a_wrong_smt_is_told_with_its_line(tmp_path: Path, change: Any, says: str) -> None:
    found = problems(tmp_path, change)
    assert any(says in each for each in found), found
    assert len(found) == 1, found


@pytest.mark.parametrize("schema", ["infer", "table"])
@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"type": "InsertField$Value", "statik.field": "x"}, "InsertField$Value has no property 'statik.field'"),
        ({"type": "RegexRouter", "regex": "x"}, "RegexRouter needs 'replacement'"),
        ({"type": "Cast$Value", "spek": "x"}, "Cast$Value has no property 'spek'; did you mean 'spec'?"),
    ],
)
def test_wrong_properties_are_found_where_no_column_is_declared(step: dict[str, str], says: str, schema: str) -> None:
    document = {
        "stream": "s",
        "source": {"topics": ["t"]},
        "decode": {"value": "json", "schema": schema},
        "table": {"name": "a.b"},
        "transform": [{"smt": step}],
    }
    with pytest.raises(ValidationError) as wrong:
        StreamSpec.model_validate(document)
    assert says in str(wrong.value)


def test_the_configuration_hash_covers_every_property() -> None:
    hashes = {StreamSpec.model_validate(BASE).config_hash}
    for change in (
        lambda t: t[0]["smt"].update(delimiter="__"),
        lambda t: t[1]["smt"].pop("lenient"),
        lambda t: t[2]["smt"].pop("negate"),
        lambda t: t[2]["smt"]["predicate"].update(pattern="x"),
        lambda t: t[2]["smt"].update({"static.value": 6}),
    ):
        data = copy.deepcopy(BASE)
        change(data["transform"])
        hashes.add(StreamSpec.model_validate(data).config_hash)
    assert len(hashes) == 6


@pytest.mark.parametrize("type_", [*KNOWN])
def test_a_class_is_known_by_both_names(type_: str) -> None:
    assert known_smt(type_) is KNOWN[type_]
    assert known_smt(KNOWN[type_].name).name == KNOWN[type_].name


@pytest.mark.parametrize("type_", [*REFUSED])
def test_a_refused_class_says_what_to_write(type_: str) -> None:
    with pytest.raises(TransformProblem, match="write"):
        known_smt(type_)


def test_a_predicate_lets_the_others_pass() -> None:
    spec = StreamSpec.model_validate(BASE)
    step = spec.transform[2].transform()
    rows = rows_of("id string", [{"id": "a"}, {"id": "b"}], topic=["payments", "other"])
    assert left(step, rows) == [{"id": "a", "source": None}, {"id": "b", "source": "5"}]


@pytest.mark.parametrize("type_", ["io.debezium.transforms.outbox.EventRouter", "DebeziumTransform"])
def test_a_change_at_a_time_beyond_the_calendar_is_refused(type_: str) -> None:
    row = "struct<id string, aggregatetype string, aggregateid string, payload string>"
    after = {"id": "a", "aggregatetype": "t", "aggregateid": "1", "payload": "p"}
    rows = rows_of(
        f"op string, before {row}, after {row}, source struct<db string, table string>, ts_ms long",
        [{"op": "c", "after": after, "ts_ms": at} for at in (0, 1_731_508_712_229_224, 2**62)],
    )
    failures = applied(Smt(type_, ()), rows).failures
    assert [(each.row, each.error_class, each.path) for each in failures] == [
        (1, "out_of_range", "$.ts_ms"),
        (2, "out_of_range", "$.ts_ms"),
    ]


def test_an_outbox_event_with_a_time_of_its_own_asks_no_other_one() -> None:
    row = "struct<id string, aggregatetype string, aggregateid string, payload string, at long>"
    after = {"id": "a", "aggregatetype": "t", "aggregateid": "1", "payload": "p"}
    times = [(1_000, 2**62), (None, 2**62), (2**62, 1_000), (None, 1_000)]
    rows = rows_of(
        f"op string, after {row}, ts_ms long",
        [{"op": "c", "after": {**after, "at": own}, "ts_ms": change} for own, change in times],
    )
    smt = Smt("io.debezium.transforms.outbox.EventRouter", (("table.field.event.timestamp", "at"),))
    made = applied(smt, rows)
    assert [(each.row, each.path) for each in made.failures] == [(1, "$.ts_ms"), (2, "$.after.at")]
    at = made.rows.frame.part("timestamp").cast(pa.int64()).to_pylist()
    assert at == [1_000_000, 1_000_000]


def test_a_chain_keeps_rows_and_their_records_together() -> None:
    smt = Smt("org.apache.kafka.connect.transforms.Cast$Value", (("spec", "a:int8,b:boolean"),))
    rows = rows_of("a long, b string", [{"a": n, "b": "true" if n % 3 else "yes"} for n in range(120, 140)])
    assert [each["a"] for each in left(Smt("Cast$Value", smt.properties, lenient=True), rows)][6:10] == [
        126,
        127,
        -128,
        -127,
    ]
    made = smt.apply(rows)
    assert made.kept is not None
    assert made.rows.frame.part("offset").to_pylist() == made.kept.tolist() == [1, 2, 4, 5, 7]
    assert {each.row for each in made.failures} == set(range(20)) - {1, 2, 4, 5, 7}


def test_a_predicate_may_have_an_alias(tmp_path: Path) -> None:
    data = copy.deepcopy(BASE)
    data["predicates"] = {"isPay": data["transform"][2]["smt"]["predicate"]}
    data["transform"][2]["smt"]["predicate"] = "isPay"
    spec, inline = StreamSpec.model_validate(data), StreamSpec.model_validate(BASE)
    assert spec.transform == inline.transform and spec.config_hash == inline.config_hash
    again = StreamSpec.model_validate(spec.model_dump(mode="json", exclude_defaults=True))
    assert (again.transform, again.predicates) == (spec.transform, spec.predicates)
    assert data["transform"][2]["smt"]["predicate"] == "isPay", "what was read stays as it is"
    path = tmp_path / "payments.yaml"
    data["predicates"] |= {"unused": {"type": "HasHeaderKy", "name": "x"}}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(SpecError, match=r"predicates\.unused\.type: there is no predicate 'HasHeaderKy'; did you mean"):
        load_stream(path)
    data["predicates"]["unused"] = "x"
    with pytest.raises(ValueError, match="needs type, such as"):
        StreamSpec.model_validate(data)


def test_a_column_that_only_some_connectors_name_is_found() -> None:
    columns = columns_of("a_b string, `c d` long")
    assert Smt("ReplaceField$Value", (("exclude", "c d"),)).output(columns).names == ("a_b",)


def with_key(key: dict[str, Any] | None, *steps: dict[str, Any]) -> dict[str, Any]:
    data = copy.deepcopy(BASE)
    data["decode"] |= {} if key is None else {"key": key}
    data["transform"] = list(steps)
    return data


CAST_KEY = {"smt": {"type": "Cast$Key", "spec": "n:int32"}}
COLUMNS = "id string not null, p struct<at string, n long>, kind string"


@pytest.mark.parametrize(
    ("key", "steps", "columns"),
    [
        (None, [CAST_KEY], None),
        ({"format": "json", "schema": "n string", "into": "k"}, [CAST_KEY], "k struct<n int>"),
        ({"format": "json", "schema": "n string", "into": "`k` not null"}, [CAST_KEY], "k struct<n int> not null"),
        ({"format": "string", "into": "k"}, [{"smt": {"type": "Cast$Key", "spec": "int64"}}], "k long"),
        ({"format": "string", "schema": "k string"}, [{"smt": {"type": "HoistField$Key", "field": "id"}}],
         "k struct<id string>"),
        ({"format": "json", "schema": "n string", "into": "k"},
         [{"rename": {"k": "of"}}, {"smt": {**CAST_KEY["smt"], "key_column": "of"}}], "of struct<n int>"),
        ({"format": "json", "schema": "n string, m long", "into": "k"},
         [{"smt": {"type": f"{KAFKA}ExtractField$Key", "field": "m"}}], "k long"),
    ],
)  # fmt: skip
def test_a_transform_of_keys_changes_the_column_that_holds_them(
    key: dict[str, Any] | None, steps: list[dict[str, Any]], columns: str | None
) -> None:
    spec = StreamSpec.model_validate(with_key(key, *steps))
    behind = row_steps_of(spec)
    assert behind is not None
    assert behind.columns.text == columns_of(COLUMNS if columns is None else f"{COLUMNS}, {columns}").text
    again = StreamSpec.model_validate(spec.model_dump(mode="json", exclude_defaults=True))
    assert again.transform == spec.transform
    assert again.config_hash == spec.config_hash


@pytest.mark.parametrize(
    ("key", "steps", "says"),
    [
        ({"format": "json", "schema": "n string"}, [CAST_KEY],
         "write into: key there, or change them as all others, by Cast$Value"),
        ({"format": "json", "schema": "n string", "into": "k"}, [{"drop": "k"}, CAST_KEY], "there is no column 'k'"),
        ({"format": "json", "schema": "n string", "into": "k"}, [{"to_key": "id"}, CAST_KEY],
         "the key is the one that to_key in transform[0] makes: write to_key: COLUMN"),
        (None,
         [{"smt": {"type": "ValueToKey", "fields": "id,kind"}}, {"smt": {"type": "ExtractField$Key", "field": "id"}}],
         "ValueToKey in transform[0]"),
    ],
)  # fmt: skip
def test_a_transform_of_keys_that_has_none_is_told(
    tmp_path: Path, key: dict[str, Any] | None, steps: list[dict[str, Any]], says: str
) -> None:
    path = tmp_path / "payments.yaml"
    path.write_text(yaml.safe_dump(with_key(key, *steps), sort_keys=False))
    with pytest.raises(SpecError) as problem:
        load_stream(path)
    (only,) = problem.value.problems
    assert says in only
    assert f"transform[{len(steps) - 1}].smt" in only
