from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from jobs.config.documents.validation import SpecError
from jobs.config.settings.correction import parse_correction
from jobs.config.settings.loading import load_stream
from jobs.config.stream.models import StreamSpec
from jobs.streaming.pipeline.row_steps import row_steps_of

BASE: dict[str, Any] = {
    "stream": "payments",
    "source": {"topics": ["payments"]},
    "decode": {
        "value": "json",
        "schema": "id string not null, p struct<card string, at string, amount string>, kind string",
        "headers": {"trace": "string"},
    },
    "transform": [
        "flatten",
        {"rename": {"p_at": "at", "p_amount": "amount"}},
        {"parse_timestamp": {"column": "at", "format": "yyyy/MM/dd HH:mm:ss", "zone": "Asia/Tokyo"}},
        {"cast": {"amount": "decimal(12,2)"}},
        {"mask": {"columns": "p_card", "hash": "${env:CARD_KEY}"}},
        {"drop": "kind", "when": {"topic": "p.*"}},
    ],
    "table": {"name": "orders.payments", "partition_by": ["day(at)"], "identifier_fields": ["id"]},
}


def with_(change: Any) -> dict[str, Any]:
    data = copy.deepcopy(BASE)
    change(data)
    return data


def problems(tmp_path: Path, data: dict[str, Any]) -> list[str]:
    path = tmp_path / "payments.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    try:
        load_stream(path)
    except SpecError as problem:
        lines = path.read_text().splitlines()
        found = [each.partition(":")[2] for each in problem.problems]
        return [f"{lines[int(each.partition(':')[0]) - 1].strip()} | {each.partition(': ')[2]}" for each in found]
    return []


def test_the_table_has_the_columns_behind_the_steps() -> None:
    spec = StreamSpec.model_validate(BASE)
    assert [(each.name, str(each.field_type), each.required) for each in spec.table_schema.fields[:6]] == [
        ("id", "string", True),
        ("p_card", "string", False),
        ("at", "timestamptz", False),
        ("amount", "decimal(12, 2)", False),
        ("trace", "string", False),
        ("kind", "string", False),
    ]
    assert spec.table_schema.fields[6].name == "_kafka_topic"
    assert spec.disagreements_with(spec.table_schema) == []
    assert spec.resolved_for(spec.table_schema).schema == spec.resolved.schema
    steps = row_steps_of(spec)
    assert pickle.loads(pickle.dumps(steps)) == steps


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["transform"].insert(1, {"cast": {"p_amunt": "long"}}),
         "p_amunt: long | transform[1].cast.p_amunt: there is no column 'p_amunt' at this step; did you mean"),
        (lambda d: d["transform"][4]["mask"].update(columns=["id", "x"]),
         "- x | transform[4].mask.columns[1]: there is no column 'x' at this step; there are id"),
        (lambda d: d["transform"].append({"keep": ["id", "y"]}),
         "- y | transform[6].keep[1]: there is no column 'y'"),
        (lambda d: d["transform"][2]["parse_timestamp"].update(format="yyyy"), "parse_timestamp.format: the pattern"),
        (lambda d: d["transform"][2]["parse_timestamp"].update(formt="x"), "unknown key; did you mean 'format'?"),
        (lambda d: d["transform"].append({"flaten": {}}), "transform[6].flaten: unknown key; did you mean 'flatten'?"),
        (lambda d: d["transform"].append({"flatten": {}, "drop": "id"}), "must be one step with its options"),
        (lambda d: d["transform"][5]["when"].update(topic="("), "is no regular expression"),
        (lambda d: d["transform"][4]["mask"].update(hash="plain"), "a secret must not be in the file"),
        (lambda d: d["transform"].append({"drop": "at"}), "table.partition_by[0]:"),
        (lambda d: d["transform"].append({"set": {"_kafka_topic": "x"}}), "is a column behind the transforms"),
        (lambda d: d["decode"].update(schema="table"),
         "- flatten | transform[0].flatten: changes or replaces columns, and with decode.schema 'table'"),
        (lambda d: (d["decode"].update(unknown_fields="keep"), d["transform"].append({"drop": "_extra"})),
         "decode.unknown_fields: is keep, and behind the steps there is no text column _extra"),
        (lambda d: d["transform"].append({"filter": {}}), "needs the rows to keep"),
        (lambda d: d["transform"].append({"set": {"a": {"from": "tpic"}}}), "must be topic, partition"),
    ],
)  # fmt: skip
def test_a_wrong_step_is_told_with_its_line(tmp_path: Path, change: Any, says: str) -> None:
    found = problems(tmp_path, with_(change))
    assert any(says in each for each in found), found
    assert len(found) == 1, found


def test_the_configuration_hash_covers_the_steps_and_no_secret() -> None:
    hashes = {StreamSpec.model_validate(BASE).config_hash}
    for change in (
        lambda d: d["transform"].reverse() or d["transform"].sort(key=lambda each: each != "flatten"),
        lambda d: d["transform"][4]["mask"].update(hash="${env:OTHER}"),
        lambda d: d["transform"][1].update(rename={"p_amount": "amount", "p_at": "at"}),
        lambda d: d["transform"][5].pop("when"),
    ):
        data = with_(change)
        try:
            hashes.add(StreamSpec.model_validate(data).config_hash)
        except ValueError:
            hashes.add(str(change))
    assert len(hashes) == 5
    same = with_(lambda d: d["transform"][4]["mask"].update(columns=["p_card"]))
    assert StreamSpec.model_validate(same).config_hash == StreamSpec.model_validate(BASE).config_hash


def test_a_correction_may_change_the_steps(tmp_path: Path) -> None:
    path = tmp_path / "payments.yaml"
    path.write_text(yaml.safe_dump(BASE, sort_keys=False))
    steps = [*BASE["transform"][:3], {"cast": {"amount": "decimal(12,2)"}}, *BASE["transform"][4:]]
    corrected = parse_correction(path, yaml.safe_dump({"transform": steps}, sort_keys=False))
    assert corrected.spec.config_hash == StreamSpec.model_validate(BASE).config_hash
    with pytest.raises(SpecError, match=r"transform\[0\]\.cast\.x: there is no column 'x'"):
        parse_correction(path, yaml.safe_dump({"transform": [{"cast": {"x": "long"}}]}))


@pytest.mark.parametrize(
    ("step", "adds"),
    [
        ({"compute": {"a": "n", "b": "n + 1"}}, {"a", "b"}),
        ({"set": {"a": 1, "b": {"from": "topic"}}}, {"a", "b"}),
        ({"set": {"a": {"value": 1, "replace": True}}}, None),
        ({"where": "n > 1"}, set()),
        ({"filter": {"drop": {"topic": "x"}}}, set()),
        ({"mask": {"columns": "n"}}, set()),
        ({"to_key": "n"}, set()),
        ({"to_headers": {"h": "n"}}, set()),
        ({"drop_headers": ["h"]}, set()),
        ({"compute": {"a": "n"}, "when": {"topic": "x"}}, {"a"}),
        ({"flatten": {}}, None),
        ({"rename": {"n": "m"}}, None),
        ({"keep": ["n"]}, None),
        ({"drop": ["n"]}, None),
        ({"cast": {"n": "long"}}, None),
        ({"hoist": {"into": "s"}}, None),
        ({"extract": {"column": "s"}}, None),
        ({"parse_timestamp": {"column": "t", "format": "iso"}}, None),
        ({"format_timestamp": {"column": "t", "format": "iso"}}, None),
        ({"split": {"column": "t", "by": ",", "into": ["x", "y"]}}, None),
        ({"parse_json": {"column": "t", "schema": "x long"}}, None),
        ({"smt": {"type": "InsertField$Value", "topic.field": "a", "static.field": "b", "static.value": "c"}},
         {"a", "b"}),
        ({"smt": {"type": "InsertField$Value", "topic.field": "a", "lenient": True}}, None),
        ({"smt": {"type": "MaskField$Value", "fields": "n"}}, set()),
        ({"smt": {"type": "SetSchemaMetadata$Value", "schema.name": "x"}}, set()),
        ({"smt": {"type": "DropHeaders", "headers": "h"}}, set()),
        ({"smt": {"type": "InsertHeader", "header": "h", "value.literal": "x"}}, set()),
        ({"smt": {"type": "RegexRouter", "regex": "(.*)", "replacement": "x-$1"}}, set()),
        ({"smt": {"type": "TimestampRouter"}}, set()),
        ({"smt": {"type": "KafkaMetadataTransform", "external_field": "site,eu"}}, {
            "_kafka_metadata_topic", "_kafka_metadata_partition", "_kafka_metadata_offset",
            "_kafka_metadata_timestamp", "_kafka_metadata_site",
        }),
        ({"smt": {"type": "KafkaMetadataTransform", "nested": "true", "field_name": "k"}}, {"k"}),
        ({"smt": {"type": "Filter", "predicate": {"type": "HasHeaderKey", "name": "h"}}}, set()),
        ({"smt": {"type": "Flatten$Value"}}, None),
        ({"smt": {"type": "Cast$Value", "spec": "n:int8", "lenient": True}}, None),
        ({"smt": {"type": "ReplaceField$Value", "exclude": "n", "lenient": True}}, None),
        ({"smt": {"type": "ExtractNewRecordState"}}, None),
    ],
)  # fmt: skip
def test_which_steps_leave_the_columns_that_are_decoded(step: dict[str, Any], adds: set[str] | None) -> None:
    data = {key: BASE[key] for key in ("stream", "source")} | {"table": {"name": "n.t"}, "transform": [step]}
    data["decode"] = {"value": "json", "schema": "infer"}
    spec = StreamSpec.model_validate(data)
    assert spec.shapes == (adds is None)
    from_table = data | {"decode": {"value": "json", "schema": "table"}}
    if adds is None:
        said = r"changes or replaces columns, and with decode\.schema 'table' it is unknown .*or write 'infer'; or add"
        with pytest.raises(ValidationError, match=said):
            StreamSpec.model_validate(from_table)
        with pytest.raises(ValidationError, match=r"may lose the texts that evolve\.clash 'shadow' puts beside them"):
            StreamSpec.model_validate(data | {"evolve": {"clash": "shadow"}})
    else:
        assert spec.made_columns == StreamSpec.model_validate(from_table).made_columns == adds
