"""Words for the types of YAML keys: what a field's annotation and validators accept, as a reader would say it."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jobs.config.documents.base import MAX_INT64
from jobs.config.documents.secrets import Secret
from jobs.config.documents.units import format_duration, format_size

_DURATION = "duration such as `60s`"
_SIZE = "size such as `128MB`"
_COLUMN = "column or path"
# By module and name of the validator. An empty text: the validator says no more than the annotation does.
WORDS: Mapping[str, str] = {
    "jobs.config.contract.contract._named_by_table": "",
    "jobs.config.contract.contract.cron_text": "cron expression, or `@hourly` and its like",
    "jobs.config.documents.base.local_path": "path on this machine",
    "jobs.config.documents.secrets._properties": "mapping of properties to values or secrets",
    "jobs.config.documents.secrets.text_or_secret": "text or secret",
    "jobs.config.documents.units.parse_duration": _DURATION,
    "jobs.config.documents.units.parse_size": _SIZE,
    "jobs.config.services.catalog._name": "letters, digits and `_`",
    "jobs.config.services.drivers._http_url": "URL with `http` or `https`",
    "jobs.config.services.drivers._matching.<locals>.check": "",
    "jobs.config.services.kafka_options._checked": "mapping of options to values",
    "jobs.config.services.maintenance_policy._above_the_floor": f"{_DURATION}, at least `3d`",
    "jobs.config.services.maintenance_policy._fragment": "share such as `1/8` or `0.125`",
    "jobs.config.services.maintenance_policy._none_or_duration": f"{_DURATION}, or `none`",
    "jobs.config.services.maintenance_policy._table_or_namespace": "`namespace.table` or `namespace.*`",
    "jobs.config.services.maintenance_policy.parse_window": "time window such as `22:00-05:00`",
    "jobs.config.services.monitoring._address": "e-mail address",
    "jobs.config.services.monitoring._name": "small letters, digits, `_` and `-`",
    "jobs.config.services.monitoring._not_empty": "",
    "jobs.config.services.monitoring._several": "one or a list of them",
    "jobs.config.services.monitoring._url": "URL with `http` or `https`",
    "jobs.config.services.monitoring._url_or_secret": "URL or secret",
    "jobs.config.services.registry._url": "URL with `http` or `https`",
    "jobs.config.services.registry._urls": "URL, or a list of URLs",
    "jobs.config.services.security._keytab": "absolute path",
    "jobs.config.services.security._mechanism": "",
    "jobs.config.services.security._plain": "",
    "jobs.config.services.security._principal": "Kerberos principal",
    "jobs.config.services.security._token_url": "URL with `https`",
    "jobs.config.services.services._source_name": "small letters, digits, `_` and `-`",
    "jobs.config.services.services._source_url": "URL with `postgresql`",
    "jobs.config.services.services._store_url": "URL with `s3` or `postgresql`",
    "jobs.config.services.services.state_settings": "path, or a mapping",
    "jobs.config.services.trigger._a_minute": f"{_DURATION}, at least `1m`, or `none`",
    "jobs.config.services.trigger._default_group": "small letters, digits, `_` and `-`",
    "jobs.config.services.trigger._group_name": "small letters, digits, `_` and `-`; or `own`",
    "jobs.config.settings.settings._ip_address": "IP address",
    "jobs.config.settings.settings._matching.<locals>.check": "",
    "jobs.config.steps.smt_step._predicates": "mapping of aliases to `type` and properties",
    "jobs.config.steps.step_models._listed": "one or a list of them",
    "jobs.config.steps.step_models._pattern": "regular expression",
    "jobs.config.steps.step_models._some": "",
    "jobs.config.steps.step_models._text": "",
    "jobs.config.steps.steps._function_name": "module and function, as `shop.steps:clean`",
    "jobs.config.steps.steps._rule_name": "small letters, digits, `_` and `-`",
    "jobs.config.stream.changes._at_least_a_week": f"{_DURATION}, at least `7d`",
    "jobs.config.stream.changes._listed": "one or a list of them",
    "jobs.config.stream.changes._schema": "schema text",
    "jobs.config.stream.changes._words": "value, or a list of values",
    "jobs.config.stream.error_handling._at_least_a_day": f"{_DURATION}, at least `1d`",
    "jobs.config.stream.error_handling._letter_topic": "name of a topic, or a mapping",
    "jobs.config.stream.error_handling._retry_timeout": f"{_DURATION}, `0s` or `forever`",
    "jobs.config.stream.error_handling._stop_above": "mapping, or `off`",
    "jobs.config.stream.event_time._column": _COLUMN,
    "jobs.config.stream.event_time._json_path": "path such as `$.debug`, or `$`",
    "jobs.config.stream.event_time._late": "`land`, `dead_letter`, `table`, or a mapping",
    "jobs.config.stream.event_time._named": "name of a table, with `{table}` in it",
    "jobs.config.stream.event_time._zone": "time zone such as `Asia/Tokyo`",
    "jobs.config.stream.mirror._name_or_pattern": "`namespace.table`, with `{table}` in it",
    "jobs.config.stream.mirror._source_table": "`schema.table`",
    "jobs.config.stream.route._by": "column or path, `topic`, `header:NAME`, or SQL expression",
    "jobs.config.stream.route._match": "regular expression, or a list of texts",
    "jobs.config.stream.route._on_table_error": "",
    "jobs.config.stream.route._unmatched": "`dead_letter`, `drop`, `fail`, or a mapping",
    "jobs.config.stream.source._group": "name of a consumer group",
    "jobs.config.stream.source._instant": "time with its zone, such as `2026-01-31T08:00:00Z`",
    "jobs.config.stream.source._pattern": "regular expression",
    "jobs.config.stream.source._source_topic": "name of a topic",
    "jobs.config.stream.source.topic_name": "name of a topic",
    "jobs.config.stream.table._column_name": "`true`, `false`, or a name",
    "jobs.config.stream.table._path": _COLUMN,
    "jobs.config.values.decode._into": "column, with `not null` or without",
    "jobs.config.values.decode._named": "",
    "jobs.config.values.decode._schema": "schema text, `registry`, `table` or `infer`",
    "jobs.config.values.fields._branch_name": "letters, digits, `_` and `-`",
    "jobs.config.values.fields._partition_expr": "partition expression",
    "jobs.config.values.fields._servers": "`host:port`, several as a list or with commas",
    "jobs.config.values.fields._stream_id": "small letters, digits, `_` and `-`; at most 63",
    "jobs.config.values.fields._table_location": "URI or absolute path",
    "jobs.config.values.fields._table_properties": "mapping of properties to values",
    "jobs.config.values.fields.table_name": "`namespace.table`",
    "jobs.config.values.mask._header": "name of a header",
    "jobs.config.values.mask._path": "path of a field",
    "jobs.config.values.partitioning.parse_sort_expr": "sort expression",
    "jobs.config.values.table_columns._columns": "list of columns, or a mapping",
    "jobs.config.values.table_columns._path": _COLUMN,
    "jobs.config.values.targets._to": "name of a table with `{value}` in it",
    "jobs.config.values.value_format._connect_schema": "schema in Connect's JSON",
    "jobs.config.values.value_format._fractions": "`double` or `decimal(P,S)`",
    "jobs.config.values.value_format._logical_type": "name of a logical type",
}
_PLAIN: Mapping[Any, str] = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    str: "text",
    date: "date such as `2026-01-31`",
    datetime: "time with its zone",
    timedelta: _DURATION,
    Path: "path",
    Secret: "secret such as `${env:NAME}`",
    Any: "any value",
}


@cache
def field_annotations(model: type[BaseModel]) -> dict[str, Any]:
    """The whole annotation of each field of a model, by the field's name."""
    hints = typing.get_type_hints(model, include_extras=True)
    return {name: hints[name] for name in model.model_fields}


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a value of an annotation may be, or may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def validators(annotation: Any) -> Iterator[str]:
    """Module and name of each validator of an annotation, from the outermost."""
    if get_origin(annotation) is Annotated:
        for mark in reversed(annotation.__metadata__):
            function = getattr(mark, "func", None)
            if type(mark).__name__.endswith("Validator") and function is not None:
                yield f"{getattr(function, '__module__', 'builtins')}.{function.__qualname__}"
    for argument in get_args(annotation):
        yield from validators(argument)


def type_words(annotation: Any) -> str:
    """What a key may hold, in words; allowed values stand in code type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotated_words(arguments[0], annotation.__metadata__)
    if origin in (Union, types.UnionType):
        return _either(list(dict.fromkeys(_alternatives(annotation))))
    if origin is Literal:
        return _either(list(_alternatives(annotation)))
    if origin in (tuple, list):
        inner = type_words(arguments[0])
        return "list of mappings" if inner == "mapping" else f"list of {_plural(inner)}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = type_words(arguments[1])
        return (
            "mapping" if inner == "any value" else f"mapping of {_plural(type_words(arguments[0]))} to {_plural(inner)}"
        )
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _PLAIN[annotation]


def _alternatives(annotation: Any) -> Iterator[str]:
    """Words for each type of a union, and each allowed value."""
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        for each in arguments:
            if each is not type(None):
                yield from _alternatives(each)
    elif get_origin(annotation) is Literal:
        yield from (f"`{each}`" for each in arguments)
    elif get_origin(annotation) is Annotated and get_origin(arguments[0]) in (Union, types.UnionType, Literal):
        words = type_words(annotation)
        yield from [words] if words in WORDS.values() else _alternatives(arguments[0])
    else:
        yield type_words(annotation)


def _annotated_words(inner: Any, metadata: tuple[Any, ...]) -> str:
    for mark in reversed(metadata):
        function = getattr(mark, "func", None)
        named = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        if words := WORDS.get(named):
            return f"{_one_or_list(inner)}" if words.startswith("one or") else words
    return type_words(inner) + _bounds(metadata)


def _one_or_list(inner: Any) -> str:
    one = type_words(get_args(inner)[0])
    return f"{one}, or a list of {_plural(one)}"


def _bounds(metadata: tuple[Any, ...]) -> str:
    """Bounds of a number as words; those of the machine's integers are left out."""
    marks = [mark for given in metadata for mark in (given.metadata if isinstance(given, FieldInfo) else [given])]
    words: list[str] = []
    for name, text in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        bound = next((getattr(mark, name) for mark in marks if hasattr(mark, name)), None)
        if bound is not None and bound not in (MAX_INT64, 2**31 - 1, 2**32):
            words.append(f"{text} {bound}")
    return f", {', '.join(words)}" if words else ""


def _either(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


_PLURALS: Mapping[str, str] = {
    "text": "texts",
    "mapping": "mappings",
    "column or path": "columns or paths",
    "name of a topic": "topics",
    "name of a header": "names of headers",
    "path of a field": "paths of fields",
    "partition expression": "partition expressions",
    "sort expression": "sort expressions",
    "name of a logical type": "names of logical types",
    "time window such as `22:00-05:00`": "time windows such as `22:00-05:00`",
    "path such as `$.debug`, or `$`": "paths such as `$.debug`",
    "URL with `http` or `https`": "URLs",
    "e-mail address": "e-mail addresses",
    "`namespace.table`": "tables",
    "small letters, digits, `_` and `-`": "names",
}


def _plural(words: str) -> str:
    return _PLURALS.get(words, words)


def default_words(field: FieldInfo, annotation: Any) -> str:
    """The default of a key: in code type, `required`, or a dash where a block below has its own defaults."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, timedelta):
        return f"`{format_duration(value) if value else '0s'}`"
    if isinstance(value, int) and "jobs.config.documents.units.parse_size" in set(validators(annotation)):
        return f"`{format_size(value)}`"
    if isinstance(value, (tuple, list, dict, str)) and not value:
        return "empty"
    if isinstance(value, (list, tuple)):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value:_}`" if isinstance(value, int) else f"`{value}`"
