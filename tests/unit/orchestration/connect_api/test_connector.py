"""A stream as a connector: every state, and its file as a flat configuration and back."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.documents.judgement import judge
from jobs.config.settings.loading import load_stream
from jobs.config.settings.stream_rules import STREAM_RULES
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import FINAL, State
from orchestration.connect_api.connector import CLASS, STATES, VERSION, _flat, _value, flat_config, nested_config
from orchestration.connect_api.plugin import is_plugin, plugins, validated
from orchestration.reconcile.stream_state import state_word

ROOT = Path(__file__).resolve().parents[4]
FULL = """\
stream: payments
description: "2026-01-01"
source:
  topics: [payments.v1, refunds.v1]
  options: {client.rack: rack-a}
decode:
  value: json
  schema: id string not null, amount decimal(12,2) not null, created_at timestamptz not null
transform:
  - set: {doubled: "amount * 2"}
table:
  name: lake.payments
  partition_by: [day(created_at), "bucket(16, id)"]
  properties: {write.parquet.compression-codec: zstd}
trigger: {every: 30s}
freshness: {warn: 5m, fail: 15m}
"""


def spec_of(folder: Path, text: str) -> StreamSpec:
    file = folder / "payments.yaml"
    file.write_text(text)
    return load_stream(file)


def test_every_word_for_a_stream_has_a_state() -> None:
    words = set(re.findall(r"`([a-z ]+)`", inspect.getdoc(state_word) or ""))
    words -= {"frazil run", "never ran"}
    assert len(words) > 12
    assert words | {*get_args(State)} <= STATES.keys()
    assert STATES.keys() >= FINAL


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ({"running", "waiting", "retrying", "draining"}, "RUNNING"),
        ({"paused"}, "PAUSED"),
        ({"stopped", "idle", "finished"}, "STOPPED"),
        ({"failed", "halted", "fenced", "frozen", "stalled"}, "FAILED"),
        ({"dead", "terminated", "unknown"}, "UNASSIGNED"),
        ({"starting", "stopping"}, "RESTARTING"),
    ],
)
def test_states(words: set[str], state: str) -> None:
    assert {word for word, each in STATES.items() if each == state} == words


def test_a_file_is_flat_texts_and_comes_back(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, FULL)
    config = flat_config(spec)
    assert list(config)[:4] == ["connector.class", "name", "tasks.max", "topics"]
    assert config["connector.class"] == CLASS
    assert config["topics"] == "payments.v1,refunds.v1"
    assert config["decode.value"] == "json"
    assert config["description"] == "2026-01-01"
    assert config["source.options"] == '{"client.rack": "rack-a"}'
    assert all(isinstance(value, str) for value in config.values())
    read, problems = judge(
        nested_config(config), StreamSpec, context={"base": tmp_path}, show_values=True, rules=STREAM_RULES
    )
    assert problems == []
    assert read == spec


@pytest.mark.parametrize("path", sorted((ROOT / "streams").glob("*.yaml")), ids=lambda path: path.stem)
def test_files_of_the_repository_come_back(path: Path) -> None:
    spec = load_stream(path)
    read, problems = judge(
        nested_config(flat_config(spec)),
        StreamSpec,
        context={"base": path.parent},
        show_values=True,
        rules=STREAM_RULES,
    )
    assert problems == []
    assert read is not None
    assert read.model_dump() == spec.model_dump()


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))))
def test_a_text_comes_back_as_it_was(text: str) -> None:
    ((_, flat),) = _flat({"key": text})
    assert _value(flat) == text


def test_a_pattern_is_topics_regex(tmp_path: Path) -> None:
    text = yaml.safe_dump({**yaml.safe_load(FULL), "source": {"topics_pattern": r"pay\.\d+"}})
    config = flat_config(spec_of(tmp_path, text))
    assert config["topics.regex"] == r"pay\.\d+"
    assert "topics" not in config
    assert nested_config(config)["source"] == {"topics_pattern": r"pay\.\d+"}


def test_a_secret_stays_the_reference_that_the_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", "a-very-secret-value-of-a-key")
    masked = FULL.replace('  - set: {doubled: "amount * 2"}', "  - mask: {columns: id, hash: '${env:MASK_KEY}'}")
    shown = str(flat_config(spec_of(tmp_path, masked)))
    assert "${env:MASK_KEY}" in shown
    assert "a-very-secret" not in shown


def test_validation_names_what_is_wrong_by_key(tmp_path: Path) -> None:
    config = flat_config(spec_of(tmp_path, FULL))
    assert validated(config, tmp_path)["error_count"] == 0
    wrong = {**config, "decode.value": "jason", "freshness.warn": "soon", "topics": "", "nonsense": "1"}
    answer = validated(wrong, tmp_path)
    errors = {each["value"]["name"]: each["value"]["errors"] for each in answer["configs"]}
    assert answer["error_count"] == sum(map(len, errors.values()))
    assert {key for key, each in errors.items() if each} == {"decode.value", "freshness.warn", "topics", "nonsense"}
    assert "jason" not in str(errors["decode.value"])


def test_validation_of_next_to_nothing(tmp_path: Path) -> None:
    answer = validated({"db.password": "hunter2"}, tmp_path)
    errors = {each["value"]["name"]: each["value"]["errors"] for each in answer["configs"]}
    assert errors["connector.class"] == [f"is required and missing; it is {CLASS}"]
    assert "hunter2" not in str(answer)
    assert errors["name"]


def test_the_plugin() -> None:
    assert plugins() == [{"class": CLASS, "type": "sink", "version": VERSION}]
    assert is_plugin(CLASS)
    assert is_plugin("Stream")
    assert not is_plugin("org.apache.iceberg.connect.IcebergSinkConnector")
