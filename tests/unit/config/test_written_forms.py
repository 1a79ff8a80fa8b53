"""Forms that messages give to write: every key of every model, with the shapes that people write by mistake."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import core_schema

from jobs.config.documents.base import SpecModel
from jobs.config.documents.judgement import judge
from jobs.config.documents.sentences import SENTENCES
from jobs.config.documents.written_forms import joined_items, shown_form, written_form
from jobs.config.settings.settings import SettingsFile
from jobs.config.stream.models import StreamSpec


def models_in(annotation: Any) -> Iterator[type[SpecModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        assert issubclass(annotation, SpecModel)
        yield annotation
    for argument in typing.get_args(annotation):
        yield from models_in(argument)


def all_models() -> list[type[SpecModel]]:
    pending, known = [StreamSpec, SettingsFile], dict[type[SpecModel], None]()
    while pending:
        model = pending.pop()
        if model in known:
            continue
        known[model] = None
        pending += [below for field in model.model_fields.values() for below in models_in(field.annotation)]
    return list(known)


def kind_of(field: Any) -> str:
    """What a key takes, by its annotation: the most telling of a union."""
    texts = repr(field.metadata)
    arguments = [field.annotation]
    while arguments and typing.get_origin(arguments[0]) in (typing.Union, types.UnionType, typing.Annotated):
        origin, inner = typing.get_origin(arguments[0]), typing.get_args(arguments[0])
        texts += repr(inner[1:]) if origin is typing.Annotated else ""
        arguments = [*(inner[:1] if origin is typing.Annotated else inner), *arguments[1:]]
    kinds = [each for each in arguments if each is not type(None)]
    first = kinds[0]
    if any(isinstance(each, type) and issubclass(each, BaseModel) for each in kinds) and first is not str:
        return "model"
    if first is timedelta:
        return "duration"
    if first is int:
        return "size" if "parse_size" in texts else "integer"
    if first is float:
        return "ratio"
    if first is bool:
        return "flag" if len(kinds) == 1 else "other"
    if typing.get_origin(first) is tuple or typing.get_origin(first) is list:
        return "list"
    if typing.get_origin(first) in (dict, Mapping):
        return "mapping"
    return "text" if first is str else "other"


WRONG: dict[str, list[Any]] = {
    "model": ["60s", 5, True, ["a"]],
    "duration": ["5 minutes", "PT5M", 90, "1h30m"],
    "size": ["128 megabytes", 1024, "1.5GB"],
    "integer": ["7", " 1 0 ", 12.0],
    "ratio": ["5%", "0,05"],
    "flag": ["yes", "off", "True "],
    "list": ["x.y", 5],
    "mapping": ["a=b", ["a=b"]],
    "text": [17, True],
}
# Their keys are names of expectations, or what they take is a matter of other keys.
APART = {"Expectation", "DeadLetterExpectation", "Route.recreate", "ConnectJsonOptions.schema.content"}
HINT = re.compile(
    r"\bwrite |such as |did you mean|put it in quotes|an example is|needs a unit|must be [^;]* or |there are "
)


def cases() -> Iterator[Any]:
    for model in all_models():
        for name, field in model.model_fields.items():
            key = field.alias or name
            if not key.startswith("@") and APART.isdisjoint({model.__name__, f"{model.__name__}.{key}"}):
                for value in WRONG.get(kind_of(field), ()):
                    yield pytest.param(model, key, value, id=f"{model.__name__}.{key}={value}")


@pytest.mark.parametrize(("model", "key", "value"), list(cases()))
def test_a_wrong_shape_is_answered_with_a_form_to_write(model: type[SpecModel], key: str, value: Any) -> None:
    _, found = judge({key: value}, model, context={}, show_values=True)
    said = [text for place, text in found if place[:1] == (key,)]
    for text in said:
        assert HINT.search(text), text


@pytest.mark.parametrize(
    ("data", "form"),
    [
        ({"trigger": "60s"}, "trigger: …; write {every: 60s}"),
        ({"trigger": 60}, "trigger: …; write {every: 60s}"),
        ({"freshness": "5m"}, "freshness: …; write {warn: 5m, fail: 1h}"),
        ({"freshness": 90}, "freshness: …; write {warn: 90s, fail: 1h}"),
        ({"slo": {"dead_letter_ratio": "5%"}}, "slo.dead_letter_ratio: …; write 0.05"),
        ({"slo": {"dead_letter_ratio": 5}}, "slo.dead_letter_ratio: …; write 0.05"),
        ({"slo": {"lag_records": "10k"}}, "slo.lag_records: …; write 10000"),
        ({"slo": {"lag_records": "1,000"}}, "slo.lag_records: …; write 1000"),
        ({"slo": {"lag_time": "PT1H30M"}}, "slo.lag_time: …; write 90m"),
        ({"slo": {"lag_time": "2 weeks"}}, "slo.lag_time: …; write 14d"),
        ({"source": {"max_bytes_per_batch": "1.5GB"}}, "source.max_bytes_per_batch: …; write 1536MB"),
        ({"source": {"topics": "payments, refunds"}}, "source.topics: …; write [payments, refunds]"),
        ({"owner": {"value": None}}, "owner: …; write '{value}'"),
        ({"owner": 17}, "owner: …; put it in quotes; write '17'"),
        ({"table": {"force_optional": "yes"}}, "table.force_optional: …; write true"),
        ({"table": {"properties": ["a=b"]}}, "table.properties: …; write {a: b}"),
        ({"table": "orders.payments"}, "table: …; write {name: orders.payments}"),
        ({"changes": {"op": ["kind"]}}, "changes.op: …; write kind"),
        ({"decode": {"value": "JSON"}}, "decode.value: …; did you mean 'json'?"),
        ({"restart": "7"}, "restart: …; write {max_restarts: 7}"),
        ({"maintenance": {"compact": True}}, "maintenance.compact: …; write {enabled: true}"),
        ({"publish": True}, "publish: …; an example is {gate: contract, every: 10m}"),
        ({"route": {"by": "topic", "tables": {"match": "a", "table": "b.c"}}},
         "route.tables: …; write [{match: a, table: b.c}]"),
    ],
)  # fmt: skip
def test_forms_for_this_very_value(data: dict[str, Any], form: str) -> None:
    _, found = judge(data, StreamSpec, context={}, show_values=True)
    key, _, end = form.partition(": …")
    said = [text for place, text in found if ".".join(map(str, place)) == key]
    assert len(said) == 1, found
    assert said[0].endswith(end)


def test_brackets_that_yaml_has_split_are_one_mistake() -> None:
    data = {"table": {"name": "a.b", "partition_by": ["bucket(16", "id)", "nope("]}, "decode": 1}
    _, found = judge(data, StreamSpec, context={}, show_values=True)
    of_list = [each for each in found if each[0][:2] == ("table", "partition_by")]
    assert [place[-1] for place, _ in of_list] == [0, 1, 2]
    data["table"]["partition_by"].pop()
    _, found = judge(data, StreamSpec, context={}, show_values=True)
    (only,) = [each for each in found if each[0][:2] == ("table", "partition_by")]
    assert only[1] == "is several entries, as YAML reads commas; put it in quotes: ['bucket(16, id)']"


def test_a_form_shows_no_text_of_a_file_with_secrets() -> None:
    data: dict[str, Any] = {
        "kafka": {"bootstrap_servers": "b:1", "security": "hunter2", "request_timeout": "5 seconds"}
    }
    data |= {"registry": {"url": "https://r", "basic": "hunter2"}, "catalog": "hunter2", "sources": ["shop=hunter2"]}
    data["spark"] = {"conf": "hunter2=="}
    data["drivers"] = {"environment": ["hunter2=="]}
    _, found = judge(data, SettingsFile, context={}, show_values=False)
    assert "hunter2" not in str(found)
    assert (
        ("kafka", "request_timeout"),
        "must be a whole number with a unit, such as 60s, 5m, 2h or 1d; write 5s",
    ) in found


def test_no_form_is_a_guess() -> None:
    assert written_form("5 minutes", (), lambda form: form == "5m") == "5m"
    assert written_form("5 minutes", (), lambda _: False) is None
    assert written_form("pay ments", (), lambda _: True, words=False) == ["pay ments"]
    assert joined_items(["a", "b"]) is None
    assert joined_items(["decimal(10", "2)", "x"]) == ["decimal(10, 2)", "x"]
    assert shown_form({"a": "secret", "b": 5, "c": "5m"}, show_values=False, keys="abc") == "{a: …, b: 5, c: 5m}"
    assert shown_form({"secret": 5}, show_values=False) == "{…: 5}"


def schema_nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield node
        for value in node.values():
            yield from schema_nodes(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from schema_nodes(value)


# By the type of a core schema, what pydantic may report of a value.
ERRORS: dict[str, tuple[str, ...]] = {
    "str": ("string_type", "string_unicode"),
    "int": ("int_type", "int_parsing", "int_from_float", "int_parsing_size", "finite_number"),
    "float": ("float_type", "float_parsing", "finite_number"),
    "bool": ("bool_type", "bool_parsing"),
    "model": ("model_type",),
    "model-fields": ("model_attributes_type", "missing", "invalid_key"),
    "dict": ("dict_type", "mapping_type"),
    "list": ("list_type", "iteration_error"),
    "tuple": ("tuple_type", "iteration_error"),
    "datetime": ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid"),
    "date": ("date_type", "date_parsing", "date_from_datetime_parsing", "date_from_datetime_inexact"),
    "timedelta": ("time_delta_type", "time_delta_parsing"),
    "is-instance": ("is_instance_of",),
    "definition-ref": ("recursion_loop",),
}
BOUNDS = {
    "gt": "greater_than",
    "ge": "greater_than_equal",
    "lt": "less_than",
    "le": "less_than_equal",
    "min_length": "too_short",
    "max_length": "too_long",
    "tz_constraint": "timezone_aware",
}
# They report nothing of their own: they hand a value on, or have a sentence of ours (`frazil_…`, a ValueError).
SILENT = {
    *(
        "any",
        "default",
        "nullable",
        "definitions",
        "model-field",
        "none",
        "json-or-python",
        "chain",
        "literal",
        "union",
    ),
    *("function-before", "function-after", "function-wrap", "function-plain", "tagged-union", "no-info", "with-info"),
    *("function-plain-ser", "function-wrap-ser", "custom-error", "include-exclude-sequence", "format-ser", "enum"),
}


def test_each_error_type_of_pydantic_has_a_sentence_of_ours() -> None:
    possible: set[str] = set()
    for model in all_models():
        for node in schema_nodes(model.__pydantic_core_schema__):
            kind = node["type"]
            if kind in SILENT or kind not in core_schema_types():
                continue
            assert kind in ERRORS, kind
            possible.update(ERRORS[kind])
            text = kind == "str"
            for bound, error in BOUNDS.items():
                if bound in node:
                    possible.add(f"string_{error}" if text and bound in ("min_length", "max_length") else error)
            assert "pattern" not in node, node
            if kind == "tagged-union":
                assert "custom_error_type" in node
    assert possible <= SENTENCES.keys(), possible - SENTENCES.keys()
    values: dict[str, Any] = dict.fromkeys(("gt", "ge", "lt", "le", "min_length", "max_length"), 3)
    for sentence in SENTENCES.values():
        said = sentence if isinstance(sentence, str) else sentence(values)
        assert "Input" not in said
        assert "should" not in said


def core_schema_types() -> frozenset[str]:
    return frozenset(typing.get_args(core_schema.CoreSchemaType))
