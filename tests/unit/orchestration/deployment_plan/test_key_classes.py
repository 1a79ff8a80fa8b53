"""Every key of a stream's file, and of the settings, has a class; it says when a driver restarts."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from jobs.config.documents.base import row_meanings
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, SettingsFile
from jobs.config.stream.models import StreamSpec
from orchestration.deployment_plan.change import STOPPING, ChangeClass
from orchestration.deployment_plan.file_changes import changed_keys, file_changes
from orchestration.deployment_plan.key_classes import SETTINGS_KEYS, STREAM_KEYS, KeyRule, key_rule

# Blocks whose entries are of many kinds, and mean one thing together.
WHOLE = {"transform", "rules", "predicates"}
BASE: dict[str, Any] = {
    "stream": "payments",
    "source": {"topics": ["payments.v1"]},
    "decode": {"value": "json", "schema": "id string not null, n long, at timestamptz"},
    "table": {"name": "orders.payments"},
    "errors": {"dead_letters": {"table": "orders.dead"}},
    "event_time": {"column": "at"},
}
# A key with another value; all of them together are about every top-level key that a declared stream may have.
OTHERWISE: list[tuple[str, Any]] = [
    ("description", "other"),
    ("owner", "team:other"),
    ("source.topics", ["payments.v2"]),
    ("source.start", "latest"),
    ("source.max_records_per_batch", 5),
    ("source.max_bytes_per_batch", "2MB"),
    ("source.group", "seen"),
    ("source.options", {"client.rack": "a"}),
    ("decode.schema", "id string not null, n long, at timestamptz, note string"),
    ("decode.unknown_fields", "fail"),
    ("decode.case_insensitive", True),
    ("decode.headers", {"trace": "string"}),
    ("decode.key", {"format": "string", "into": "key"}),
    ("transform", [{"drop": ["n"]}]),
    ("rules", [{"name": "positive", "expect": "n > 0"}]),
    ("table.name", "orders.others"),
    ("table.partition_by", ["day(at)"]),
    ("table.kafka_columns", False),
    ("table.branch", "audited"),
    ("table.properties", {"write.parquet.compression-level": "2"}),
    ("table.location", "file:///elsewhere"),
    ("table.sort_by", ["id"]),
    ("table.identifier_fields", ["id"]),
    ("errors.tolerance", "none"),
    ("errors.retry.timeout", "1h"),
    ("errors.stop_above", {"count": 5}),
    ("errors.dead_letters.table", "orders.letters"),
    ("errors.dead_letters.keep", "90d"),
    ("errors.dead_letters.mask", {"columns": ["id"]}),
    ("errors.replay.automatic", True),
    ("trigger", "as_fast_as_possible"),
    ("group", "small"),
    ("freshness", {"warn": "5m", "fail": "10m"}),
    ("slo.lag_records", 5),
    ("restart.max_restarts", 2),
    ("restart.stalled_after", "1h"),
    ("maintenance.enabled", False),
    ("event_time.column", "_kafka_timestamp"),
    ("event_time.grace", "1h"),
    ("event_time.closes", "hour"),
    ("event_time.idle_after", "9m"),
    ("contract", {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]}),
]


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a field may hold, wherever they stand in its type."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for part in typing.get_args(annotation):
        if not isinstance(part, str | int):
            yield from models(part)


def keys_of(model: type[BaseModel], depth: int, before: tuple[str, ...] = ()) -> Iterator[str]:
    """The keys of a model as a file writes them, so many levels deep."""
    for name, field in model.model_fields.items():
        here = (*before, field.alias or name)
        yield ".".join(here)
        if depth > 1 and here[0] not in WHOLE:
            for part in dict.fromkeys(models(field.annotation)):
                yield from keys_of(part, depth - 1, here)


def without_forms(keys: Iterator[str]) -> list[str]:
    """The keys without those of the forms that a value may have, which mean one thing together."""
    whole = ("decode.value.", "decode.headers.", "source.start.")
    return [each for each in dict.fromkeys(keys) if not each.startswith(whole)]


def rule_of_file(keys: typing.Mapping[str, KeyRule], model: type[BaseModel]) -> list[str]:
    return [each for each in without_forms(keys_of(model, 2)) if each not in keys]


def test_every_key_of_a_streams_file_has_a_class_of_its_own() -> None:
    assert rule_of_file(STREAM_KEYS, StreamSpec) == []
    for key in keys_of(StreamSpec, 9):
        assert key_rule(STREAM_KEYS, key)


def test_every_key_of_the_settings_has_a_class_of_its_own() -> None:
    assert rule_of_file(SETTINGS_KEYS, SettingsFile) == []
    for key in keys_of(SettingsFile, 9):
        assert key_rule(SETTINGS_KEYS, key)


@pytest.mark.parametrize(("keys", "model"), [(STREAM_KEYS, StreamSpec), (SETTINGS_KEYS, SettingsFile)])
def test_no_class_is_of_a_key_that_is_gone(keys: typing.Mapping[str, KeyRule], model: type[BaseModel]) -> None:
    free = {"catalog.properties.type", "catalog.properties.uri", "catalog.properties.warehouse"}
    assert {*keys} - {*keys_of(model, 9)} - free == set()


def test_what_stops_an_apply_says_what_to_do() -> None:
    for keys in (STREAM_KEYS, SETTINGS_KEYS):
        for key, rule in keys.items():
            assert rule.fix or rule.kind not in STOPPING or key == "stream", key
            assert rule.sentence[0].islower() or rule.sentence.startswith(("Dagster", "Kafka")), key
            assert not rule.sentence.endswith("."), key


def test_an_unknown_key_has_no_class() -> None:
    with pytest.raises(KeyError):
        key_rule(STREAM_KEYS, "sauce.topics")


def loaded(folder: Path, document: dict[str, Any]) -> StreamSpec:
    path = folder / "payments.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_stream(path)


def otherwise(key: str, value: Any) -> dict[str, Any]:
    document = deepcopy(BASE)
    *blocks, name = key.split(".")
    block = document
    for each in blocks:
        block = block.setdefault(each, {})
    block[name] = value
    return document


@pytest.mark.parametrize(("key", "value"), OTHERWISE, ids=[key for key, _ in OTHERWISE])
def test_a_driver_starts_anew_for_what_changes_the_generation(tmp_path: Path, key: str, value: Any) -> None:
    settings = Settings.embedded(tmp_path)
    before, after = loaded(tmp_path, BASE), loaded(tmp_path, otherwise(key, value))
    keys = changed_keys(before, after)
    assert keys
    assert all(f"{each}.".startswith(f"{key}.") for each in keys), keys
    rules = [key_rule(STREAM_KEYS, each) for each in keys]
    assert any(rule.restarts for rule in rules) == (generation(before, settings) != generation(after, settings))
    rows = row_meanings(before) != row_meanings(after)
    assert rows == (before.config_hash != after.config_hash) or not rows
    if rows:
        assert all(rule.restarts for rule in rules)
    for live in (True, False):
        for change in file_changes(before, after, live=live):
            assert change.stops == (change.kind in STOPPING)
            assert change.pending or live or change.kind is ChangeClass.NOTHING
    assert file_changes(before, before, live=True) == []


def test_the_sample_is_about_every_block_that_a_declared_stream_may_have() -> None:
    others = {"stream", "decode", "changes", "predicates", "evolve", "publish", "route", "mirrors"}
    assert {key.split(".")[0] for key, _ in OTHERWISE} | others == {*StreamSpec.model_fields}
