from __future__ import annotations

import pickle
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import refs

from jobs.config.documents.validation import SpecError
from jobs.config.services.trigger import Every
from jobs.config.settings.loading import load_stream, load_streams
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.error_handling import DEFAULT_STOP
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source, StartOffsets, StartTimestamp
from jobs.config.values.targets import MAIN_BRANCH
from jobs.streaming.driver.process.query import kafka_source_options
from tests.helpers.problem_places import without_columns
from tests.helpers.tasks import stream_spec

# ruff: noqa: E501 (a table reads best with one case a line)


REPOSITORY = Path(__file__).parents[3]

GOOD = """\
# a comment first
stream: payments
source:
  topics: [payments]
decode:
  value: json
  schema: |
    id string not null,
    amount decimal(12,2),
    at timestamptz
table:
  name: orders.payments
  partition_by:
    - day(at)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of each test, so that messages show `streams/payments.yaml`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams").mkdir()
    return tmp_path


def written(text: str, name: str = "payments.yaml") -> Path:
    path = Path("streams") / name
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(text: str) -> list[str]:
    with pytest.raises(SpecError) as error:
        load_stream(written(text))
    assert str(error.value).endswith("Next: frazil validate")
    return [without_columns(problem) for problem in error.value.problems]


def test_defaults() -> None:
    spec = load_stream(written(GOOD))
    assert spec.stream == "payments"
    assert spec.source.topics == ("payments",)
    assert spec.source.start == "earliest"
    assert spec.source.max_records_per_batch == 1_000_000
    assert spec.decode.unknown_fields == "ignore"
    assert [field.name for field in spec.resolved.schema.fields] == ["id", "amount", "at"]
    assert spec.table.kafka_columns is True
    assert spec.errors.tolerance == "data"
    assert spec.errors.stop_above == DEFAULT_STOP
    assert spec.dead_letter_table == "orders.payments_dead"
    assert spec.trigger == Every(every=timedelta(seconds=60))
    assert spec.continuous is True
    assert spec.freshness is None
    assert spec.restart.max_restarts == 7


@pytest.mark.parametrize(
    ("text", "trigger", "continuous"),
    [
        ("available_now", "available_now", False),
        ("as_fast_as_possible", "as_fast_as_possible", True),
        ("{every: 10s}", Every(every=timedelta(seconds=10)), True),
        ("{}", Every(every=timedelta(seconds=60)), True),
    ],
)
def test_triggers(text: str, trigger: object, continuous: bool) -> None:
    spec = load_stream(written(GOOD + f"trigger: {text}\n"))
    assert (spec.trigger, spec.continuous) == (trigger, continuous)


def test_a_batch_may_wait_for_records_up_to_a_delay() -> None:
    bounds = "[payments]\n  min_records_per_batch: 500\n  max_delay: 5m\n  max_records_per_batch: "
    source = load_stream(written(GOOD.replace("[payments]", bounds + "500"))).source
    assert (source.min_records_per_batch, source.max_delay) == (500, timedelta(minutes=5))
    (problem,) = problems_of(GOOD.replace("[payments]", bounds + "499"))
    assert problem.endswith("source.min_records_per_batch: is above max_records_per_batch (499)")


def test_everything_given() -> None:
    spec = load_stream(
        written(
            """
stream: p-1
description: d
owner: team:x
source:
  topics_pattern: 'payments\\.\\d{8}'
  start: {offsets: {payments.20260131: {0: 17, 1: 0}}}
  max_records_per_batch: 50_000
decode: {value: json, schema: [id string not null, 'm map<string, decimal(9,2)>'], unknown_fields: fail}
table:
  name: a.b.c
  partition_by: ['bucket(16, id)', _kafka_topic]
  kafka_columns: true
  properties: {write.parquet.compression-level: 3, x.y: true, z: text}
errors:
  tolerance: none
  dead_letters: {table: a.dead}
  stop_above: {ratio: 0.05, min_records: 10}
trigger: available_now
freshness: {warn: 5m, fail: 1d}
"""
        )
    )
    assert spec.source.start == StartOffsets(offsets={"payments.20260131": {0: 17, 1: 0}})
    assert spec.source.reads("payments.20260131")
    assert not spec.source.reads("payments.20260131x")
    assert [field.name for field in spec.resolved.schema.fields] == ["id", "m"]
    assert spec.table.properties == {"write.parquet.compression-level": "3", "x.y": "true", "z": "text"}
    assert [str(expression) for expression in spec.table.partition_by] == ["bucket(16, id)", "_kafka_topic"]
    assert spec.dead_letter_table == "a.dead"
    assert spec.errors.stop_above is not None
    assert spec.errors.stop_above.ratio == 0.05
    assert spec.freshness is not None
    assert (spec.freshness.warn, spec.freshness.fail) == (timedelta(minutes=5), timedelta(days=1))


def test_start_at_a_time() -> None:
    spec = load_stream(
        written(GOOD.replace("[payments]", "[payments]\n  start: {timestamp: 2026-01-31T09:00:00+01:00}"))
    )
    assert spec.source.start == StartTimestamp(timestamp=datetime(2026, 1, 31, 8, tzinfo=UTC))


def test_a_spec_survives_json_and_pickle() -> None:
    spec = load_stream(written(GOOD + "freshness: {warn: 90s, fail: 2h}\n"))
    again = StreamSpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert again.config_hash == spec.config_hash
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_the_stream_in_the_repository_is_in_order() -> None:
    (spec,), _ = load_streams(REPOSITORY / "streams")
    assert spec.stream == "payments"
    assert spec.table.name == "orders.payments"
    assert spec.dead_letter_table == "orders.payments_dead"
    assert [str(expression) for expression in spec.table.partition_by] == ["day(created_at)"]
    assert {field.name: field.required for field in spec.resolved.schema.fields} == {
        "id": True, "payer": True, "amount": True, "created_at": True, "document": False, "type": False,
    }  # fmt: skip


# What stands in GOOD, what takes its place, the line and the field, and a part of the sentence.
ONE_PROBLEM = [
    ("  schema: |", "  shema: |", 7, "decode.shema", "unknown key; did you mean 'schema'?"),
    ("  schema: |", "  schema_text: |", 7, "decode.schema_text", "unknown key; did you mean 'schema'?"),
    ("stream: payments", "stream: payments\npartition_by: [a]", 3, "partition_by", "unknown key here; it belongs under 'table'"),
    ("stream: payments", "stream: payments\nqqq: 1", 3, "qqq", "unknown key; known here: stream, description, owner"),
    ("stream: payments\n", "", 2, "stream", "is required and missing"),
    ("  value: json\n", "", 5, "decode.value", "is required and missing"),
    ("stream: payments", "stream: Payments", 2, "stream", "must start with a small letter"),
    ("stream: payments", "stream: a" + 63 * "b", 2, "stream", "63 at most"),
    ("stream: payments", "stream: 17", 2, "stream", "must be text; found 17; put it in quotes"),
    ("stream: payments", "stream: true", 2, "stream", "must be text; found true; put it in quotes"),
    ("stream: payments", "stream:", 2, "stream", "must be text; found nothing"),
    ("stream: payments", "stream: payments\nowner: [a]", 3, "owner", "must be text; found a list"),
    ("  topics: [payments]", "  topics: payments", 4, "source.topics", "must be a list; found 'payments'"),
    ("  topics: [payments]", "  topics: []", 4, "source.topics", "must name at least one topic"),
    ("  topics: [payments]", "  topics:\n    - ok\n    - a b", 6, "source.topics[1]", "is not the name of a topic"),
    ("  topics: [payments]", "  topics:\n    - ok\n    - ok", 6, "source.topics[1]", "the topic 'ok' is here twice"),
    ("  topics: [payments]", "  start: latest", 3, "source", "needs topics, or topics_pattern"),
    ("  topics: [payments]", "  topics: [a]\n  topics_pattern: b", 5, "source.topics_pattern", "give one of them"),
    ("  topics: [payments]", "  topics_pattern: 'a('", 4, "source.topics_pattern", "is not a regular expression"),
    ("source:\n  topics: [payments]", "source:", 3, "source", "must be a mapping of keys to values; found nothing"),
    ("[payments]", "[payments]\n  start: erliest", 5, "source.start", "must be 'earliest' or 'latest'; found 'erliest'; did you mean 'earliest'?"),
    ("[payments]", "[payments]\n  start: 17", 5, "source.start", "must be earliest, latest, {timestamp: 2026-01-31T08:00:00Z} or {offsets: {topic: {0: 17}}}"),
    ("[payments]", "[payments]\n  start:\n    timestamp: 2026-01-31", 6, "source.start.timestamp", "must say its zone"),
    ("[payments]", "[payments]\n  start:\n    timestamp: soon", 6, "source.start.timestamp", "must be a time such as"),
    ("[payments]", "[payments]\n  start:\n    timestamp: 1700000000", 6, "source.start.timestamp", "must be a time such as"),
    ("[payments]", "[payments]\n  start:\n    offsets:\n      other: {0: 1}", 7, "source.start.offsets.other", "is not a topic of this stream"),
    ("[payments]", "[payments]\n  start:\n    offsets:\n      payments:\n        0: -1", 8, "source.start.offsets.payments[0]", "greater than or equal to 0; found -1"),
    ("[payments]", "[payments]\n  start:\n    offsets:\n      payments:\n        a: 1", 8, "source.start.offsets.payments.a", "must be a whole number"),
    ("[payments]", "[payments]\n  max_records_per_batch: 0", 5, "source.max_records_per_batch", "must be greater than 0; found 0"),
    ("[payments]", "[payments]\n  max_records_per_batch: 1e6", 5, "source.max_records_per_batch", "must be a whole number; found 1000000.0"),
    ("[payments]", "[payments]\n  max_records_per_batch: '5'", 5, "source.max_records_per_batch", "must be a whole number; found '5'"),
    ("value: json", "value: jsn", 6, "decode.value", "'float' or 'double'; found 'jsn'; did you mean 'json'?"),
    ("value: json", "value: long", 7, "decode.schema", "values as long are one column, such as 'value long', not 3"),
    ("value: json", "value: json\n  unknown_fields: fial", 7, "decode.unknown_fields", "did you mean 'fail'?"),
    ("    amount decimal", "    amount decimel", 9, "decode.schema", "did you mean 'decimal'?"),
    ("    at timestamptz", "    at timestamptz as epoch", 10, "decode.schema", "at line 3"),
    ("    at timestamptz", "    at", 10, "decode.schema", "The schema text is wrong at"),
    ("    at timestamptz", "    at timestamptz, ID string", 10, "decode.schema", "ID"),
    ("    id string not null", "    _kafka_x string", 8, "decode.schema", "_kafka"),
    ("name: orders.payments", "name: payments", 12, "table.name", "must be namespace.table"),
    ("name: orders.payments", "name: orders.pay/ments", 12, "table.name", "must be namespace.table"),
    ("    at timestamptz", "    at timestamptz, o struct<t time>", 7, "decode.schema", "no table with a column of the type time (o.t)"),
    ("    - day(at)", "    - day(att)", 14, "table.partition_by[0]", "no column 'att' in decode.schema; did you mean 'at'?"),
    ("    - day(at)", "    - id\n    - days(at)", 15, "table.partition_by[1]", "unknown transform 'days'"),
    ("    - day(at)", "    - day(at)\n  sort_by: [at desc, idd]", 15, "table.sort_by[1]", "no column 'idd' in decode.schema; did you mean 'id'?"),
    ("    - day(at)", "    - day(at)\n  location: payments", 15, "table.location", "must be a URI such as s3://bucket/orders/payments"),
    ("    - day(at)", "    - 17", 14, "table.partition_by[0]", "must be a partition expression such as day(created_at)"),
    ("    - day(at)", "    - _kafka_topic\n  kafka_columns: false", 14, "table.partition_by[0]", "kafka_columns is false"),
    ("    - day(at)", "    - id\n  kafka_columns: 'yes'", 15, "table.kafka_columns", "must be true or false; found 'yes'"),
    ("    - day(at)", "    - id\n  kafka_columns: off", 15, "table.kafka_columns", "must be true or false; found 'off'"),
    ("    - day(at)", "    - id\n  properties: {a: [1]}", 15, "table.properties.a", "must be a single value"),
    ("    - day(at)", "    - id\n  properties: {a: '${env:X}'}", 15, "table.properties.a", "secrets belong in frazil.yaml"),
    ("table:", "errors: {tolerance: al}\ntable:", 11, "errors.tolerance", "must be 'none', 'data' or 'all'; found 'al'; did you mean 'all'?"),
    ("table:", "errors: {dead_letters: {table: orders.payments}}\ntable:", 11, "errors.dead_letters.table", "must be another table"),
    ("table:", "errors: {dead_letters: {table: x}}\ntable:", 11, "errors.dead_letters.table", "must be namespace.table"),
    ("table:", "errors: {dead_letters: x.y}\ntable:", 11, "errors.dead_letters", "must be a mapping of keys to values; found 'x.y'"),
    ("table:", "errors: {stop_above: {ratio: 0}}\ntable:", 11, "errors.stop_above.ratio", "must be greater than 0"),
    ("table:", "errors: {stop_above: {ratio: 5}}\ntable:", 11, "errors.stop_above.ratio", "must be less than or equal to 1; found 5"),
    ("table:", "errors: {stop_above: {ratio: .nan}}\ntable:", 11, "errors.stop_above.ratio", "must be a finite number"),
    ("table:", "errors: {stop_above: {}}\ntable:", 11, "errors.stop_above", "needs ratio, count or window"),
    ("table:", "trigger: sometimes\ntable:", 11, "trigger", "must be 'available_now' or 'as_fast_as_possible'; found 'sometimes'"),
    ("table:", "trigger: 60\ntable:", 11, "trigger", "must be {every: 60s}, as_fast_as_possible or available_now"),
    ("table:", "trigger: {each: 60s}\ntable:", 11, "trigger.each", "unknown key; known here: every, while_red"),
    ("table:", "trigger: {every: 60s, while_red: 60s}\ntable:", 11, "trigger.while_red", "must be longer than every"),
    ("table:", "trigger: {every: 60}\ntable:", 11, "trigger.every", "needs a unit; write 60s, 60m, 60h or 60d"),
    ("[payments]", "[payments]\n  min_records_per_batch: 5", 5, "source.min_records_per_batch", "needs max_delay, such as 5m: the longest that records wait for others"),
    ("[payments]", "[payments]\n  max_delay: 5m", 5, "source.max_delay", "goes with min_records_per_batch; give both or none"),
    ("[payments]", "[payments]\n  group: ''", 5, "source.group", "is not the name of a consumer group: 1 to 249 letters, such as frazil-payments"),
    ("table:", "slo: {lag_records: 0}\ntable:", 11, "slo.lag_records", "must be greater than 0; found 0"),
    ("table:", "restart: {first_delay: 1h}\ntable:", 11, "restart.first_delay", "must not be longer than longest_delay"),
    ("table:", "freshness: {warn: 5, fail: 1h}\ntable:", 11, "freshness.warn", "needs a unit; write 5s, 5m, 5h or 5d"),
    ("table:", "freshness: {warn: 30s, fail: 1h}\ntable:", 11, "freshness.warn", "must be at least 60s"),
    ("table:", "freshness: {warn: 2h, fail: 1h}\ntable:", 11, "freshness.warn", "must be shorter than fail"),
    ("table:", "freshness: {warn: 2h}\ntable:", 11, "freshness.fail", "is required and missing"),
    ("stream: payments", "stream: payments\nstream: again", 3, "", "the key 'stream' is here twice (first in line 2)"),
    ("  value: json", "  value: json\n  value: json", 7, "", "the key 'value' is here twice (first in line 6)"),
    ("stream: payments", "stream: [payments", 3, "", "is not YAML"),
    ("stream: payments", "stream: payments\n\tx: 1", 3, "", "is not YAML"),
    ("stream: payments", "stream: *missing", 2, "", "is not YAML"),
    ("stream: payments", "stream: a\x07b", 2, "", "is not YAML: the character U+0007 is not allowed"),
    ("stream: payments", 'stream: payments\ndescription: "x\\ud800"', 3, "", "is not YAML: an escape such as"),
    ("stream: payments", "? [a]\n: b\nstream: payments", 2, "", "is not YAML"),
    ("table:", "---\ntable:", 11, "", "is not YAML: expected a single document"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "field", "told"), ONE_PROBLEM, ids=lambda value: str(value)[:30])
def test_a_problem_names_file_line_and_field(old: str, new: str, line: int, field: str, told: str) -> None:
    assert GOOD.count(old) >= 1
    (problem,) = problems_of(GOOD.replace(old, new, 1))
    place = f"streams/payments.yaml:{line}: {field}: " if field else f"streams/payments.yaml:{line}: "
    assert problem.startswith(place)
    assert told in problem


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "streams/payments.yaml:1: the file is empty"),
        ("# nothing\n", "streams/payments.yaml:1: the file is empty"),
        ("- a\n", "streams/payments.yaml:1: must be a mapping of keys to values; found a list"),
        ("just text\n", "streams/payments.yaml:1: must be a mapping of keys to values; found 'just text'"),
        ("a: &a [*a]\n", "streams/payments.yaml:1: a: unknown key"),
        ("[" * 5000, "streams/payments.yaml: is nested too deeply"),
    ],
)
def test_files_that_are_no_stream_at_all(text: str, told: str) -> None:
    assert any(problem.startswith(told) for problem in problems_of(text))


def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(SpecError, match=r"^streams/none.yaml: cannot be read: No such file or directory"):
        load_stream(Path("streams/none.yaml"))
    Path("streams/latin.yaml").write_bytes(b"stream: caf\xe9\n")
    with pytest.raises(SpecError, match=r"^streams/latin.yaml: is not UTF-8 text \(at byte 11\)"):
        load_stream(Path("streams/latin.yaml"))


def test_all_problems_of_a_file_are_told_in_the_order_of_its_lines() -> None:
    text = GOOD.replace("stream: payments", "stream: Payments").replace(
        "  value: json", "  valeu: json\n  unknown_fields: x"
    )
    text = text.replace("- day(at)", "- days(at)") + "errors: {tolerance: some, stop_above: {ratio: 2}}\n"
    assert [problem.split(": ")[0:2] for problem in problems_of(text)] == [
        ["streams/payments.yaml:2", "stream"],
        ["streams/payments.yaml:6", "decode.valeu"],
        ["streams/payments.yaml:7", "decode.unknown_fields"],
        ["streams/payments.yaml:15", "table.partition_by[0]"],
        ["streams/payments.yaml:16", "errors.tolerance"],
        ["streams/payments.yaml:16", "errors.stop_above.ratio"],
    ]


def test_columns_are_checked_although_another_part_is_wrong() -> None:
    problems = problems_of(GOOD.replace("topics:", "topcs:").replace("day(at)", "day(att)"))
    assert [problem.split(": ")[1] for problem in problems] == ["source.topcs", "source", "table.partition_by[0]"][::2]


def test_a_problem_in_a_list_of_columns_is_placed_at_the_column() -> None:
    schema = "  schema:\n    - id string not null,\n    - amount decimal(12,2)\n    - at timestampt\n"
    text = GOOD[: GOOD.index("  schema")] + schema + GOOD[GOOD.index("table:") :]
    (problem,) = problems_of(text)
    assert problem.startswith("streams/payments.yaml:10: decode.schema[2]: The schema text is wrong at column 4: ")
    assert "timestamptz" in problem


def test_a_column_of_a_list_that_does_not_end_is_placed_at_its_end() -> None:
    schema = "  schema:\n    - id string not null\n    - amount decimal(12\n    - at timestamptz\n"
    text = GOOD[: GOOD.index("  schema")] + schema + GOOD[GOOD.index("table:") :]
    place = "streams/payments.yaml:9: decode.schema[1]: The schema text is wrong at column "
    assert problems_of(text)[0].startswith((f"{place}18: ", f"{place}19: "))


def test_yaml_of_1_2_keeps_texts_as_they_are_written() -> None:
    spec = load_stream(
        written(GOOD + "  properties: {a: no, b: 0123, c: 12:30, d: 2026-01-31, e: 0x1F, f: 1_0, g: 'a'}\n")
    )
    assert spec.table.properties == {
        "a": "no", "b": "0123", "c": "12:30", "d": "2026-01-31", "e": "0x1F", "f": "10", "g": "a"
    }  # fmt: skip


def test_a_character_that_json_escapes_in_two_halves_is_one() -> None:
    text = GOOD.replace("stream: payments", 'stream: payments\ndescription: "\\ud83d\\ude80 of ${env:X}"')
    assert load_stream(written(text)).description == "\N{ROCKET} of ${env:X}"


def test_merged_keys_are_found_on_their_own_lines() -> None:
    text = "base: &b {warn: 1h, fail: 2h}\n" + GOOD + "freshness:\n  <<: *b\n  warn: 3h\n"
    problems = problems_of(text)
    assert problems[0].startswith("streams/payments.yaml:1: base: unknown key")
    (problem,) = problems_of(GOOD + "freshness:\n  <<: {fail: 2h}\n  warn: 3h\n")
    assert problem.startswith("streams/payments.yaml:17: freshness.warn: must be shorter")


def other(stream: str, table: str, more: str = "") -> str:
    return (
        GOOD.replace("stream: payments", f"stream: {stream}").replace("name: orders.payments", f"name: {table}") + more
    )


def test_a_folder_of_streams_in_the_order_of_names() -> None:
    written(other("b", "x.b"), "b.yml")
    written(other("a", "x.a"), "a.yaml")
    written("not a stream", "notes.txt")
    assert [spec.stream for spec in load_streams(Path("streams"))[0]] == ["a", "b"]


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (other("payments", "x.b"), "streams/b.yaml:2: stream: the stream 'payments' is claimed by streams/a.yaml, too"),
        (other("b", "orders.payments", "errors: {dead_letters: {table: x.d}}\n"),
         "streams/b.yaml:12: table.name: the table 'orders.payments' is claimed by streams/a.yaml, too"),
        (other("b", "orders.payments_dead"), "streams/b.yaml:12: table.name: the table 'orders.payments_dead' is claimed"),
        (other("b", "x.b", "errors:\n  dead_letters:\n    table: orders.payments\n"),
         "streams/b.yaml:17: errors.dead_letters.table: the table 'orders.payments' is claimed"),
    ],
)  # fmt: skip
def test_what_two_files_claim_is_refused_in_both(second: str, told: str) -> None:
    written(GOOD, "a.yaml")
    written(second, "b.yaml")
    written(other("c", "x.c"), "c.yaml")
    specs, errors = load_streams(Path("streams"))
    assert [spec.stream for spec in specs] == ["c"]
    assert len(errors) == 2
    assert errors[0].problems[0].startswith("streams/a.yaml:")
    assert any(without_columns(problem).startswith(told) for problem in errors[1].problems)


def test_one_bad_file_does_not_stop_the_others() -> None:
    written(GOOD, "a.yaml")
    written("stream: X\n", "b.yaml")
    specs, errors = load_streams(Path("streams"))
    assert [spec.stream for spec in specs] == ["payments"]
    (error,) = errors
    assert all(problem.startswith("streams/b.yaml:1:1: ") for problem in error.problems)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("table:", "contract: {expectations: {0: {expect_column_to_exist: {column: id}}}}\ntable:"),
        ("table:", "contract: {expectations: [{0: 1}]}\ntable:"),
        ("source:\n  topics: [payments]", "source: ${env:TOPICS}"),
        ("value: json", "value: {format: [json]}"),
        ("value: json", "value: !!set {json}"),
        ("value: json", "value: !!int json"),
        ("value: json", "value: !!bool json"),
        ("value: json", "value: json\n  schema: []\nno:"),
    ],
)
def test_no_value_is_so_wrong_that_the_other_streams_are_not_read(old: str, new: str) -> None:
    assert old in GOOD
    written(GOOD, "a.yaml")
    written(GOOD.replace("stream: payments", "stream: other").replace(old, new, 1), "b.yaml")
    specs, (error,) = load_streams(Path("streams"))
    assert [spec.stream for spec in specs] == ["payments"]
    assert all(problem.startswith("streams/b.yaml:") for problem in error.problems)


def test_a_missing_folder_is_told() -> None:
    specs, (error,) = load_streams(Path("nowhere"))
    assert specs == []
    assert error.message.startswith("nowhere: the folder cannot be read: No such file")


def test_errors_survive_pickle() -> None:
    error = SpecError(["a:1: b", "c:2: d"])
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems
    assert str(again) == str(error) == "a:1: b\nc:2: d\n  Next: frazil validate"


def test_all_columns_that_are_wrong_are_told_each_with_its_line(folder: Path) -> None:
    (folder / "payments.yaml").write_text(
        "stream: payments\nsource: {topics: [payments]}\ndecode:\n  value: json\n  schema: |\n    id strin not null,\n"
        "    amount decimal(39,2),\n    fine int,\n    at tmestamp\ntable: {name: orders.payments}\n"
    )
    with pytest.raises(SpecError) as caught:
        load_stream(folder / "payments.yaml")
    assert [without_columns(problem).split(":")[1] for problem in caught.value.problems] == ["6", "7", "9"]
    assert ["strin" in caught.value.problems[0], "39" in caught.value.problems[1]] == [True, True]
    (folder / "payments.yaml").write_text(
        "stream: payments\nsource: {topics: [payments]}\ndecode:\n  value: json\n  schema:\n    - id strin\n"
        "    - fine int\n    - at tmestamp\ntable: {name: orders.payments}\n"
    )
    with pytest.raises(SpecError) as caught:
        load_stream(folder / "payments.yaml")
    assert [without_columns(problem).split(":")[1] for problem in caught.value.problems] == ["6", "8"]


def test_values_of_one_stream_name_no_table_of_another() -> None:
    written(other("a", "x.a", "route: {by: topic, to: 'y.{value}'}\n"), "a.yaml")
    written(other("b", "y.taken"), "b.yaml")
    specs, (error,) = load_streams(Path("streams"))
    assert [spec.stream for spec in specs] == ["b"]
    # Its own dead letters are in the other namespace.
    assert any(
        "route.to: a value may name the table 'y.taken', which streams/b.yaml claims" in p for p in error.problems
    )
    written(other("b", "z.fine"), "b.yaml")
    assert [spec.stream for spec in load_streams(Path("streams"))[0]] == ["a", "b"]


def test_late_rows_of_a_table_that_a_value_names_are_for_no_table_of_another_stream() -> None:
    written(
        "stream: a\nsource: {topics: [a]}\ndecode: {value: json, schema: infer}\ntable: {name: x.a}\n"
        "route: {by: topic, to: 'y.{value}'}\nevent_time: {column: _kafka_timestamp, late: {table: 'z.{table}'}}\n",
        "a.yaml",
    )
    written(other("b", "z.y.taken"), "b.yaml")
    _, (error,) = load_streams(Path("streams"))
    said = "event_time.late: the late rows of a table that a value names may be for 'z.y.taken', which streams/b.yaml"
    assert any(said in problem for problem in error.problems), error.problems


LOADS = """
import sys
import jobs.config.settings.generation, jobs.config.settings.loading
print(sorted(name for name in sys.modules if name.startswith(("pyiceberg.table", "pyiceberg.manifest"))))
"""


def test_it_is_icebergs() -> None:
    assert MAIN_BRANCH == refs.MAIN_BRANCH


def test_who_loads_a_streams_file_imports_nothing_that_reads_and_writes_tables() -> None:
    told = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


@pytest.mark.parametrize(
    ("pattern", "topic", "reads"),
    [
        (r"pax\.[a-z]", "pax.a", True),
        (r"pax\.[a-z]", "xpax.a", False),
        (r"pax\.[a-z]", "pax.ab", False),
        (r"payments\.\d{8}", "payments.20260131", True),
        (r"payments\.\d{8}", "payments.20260131.dead", False),
        (r"payments\.\d{8}", "old-payments.20260131", False),
        (r"a|b", "a", True),
        (r"a|b", "ab", False),
        (r"^a$", "a", True),
        (r"(?i)PAY.*", "payments", True),
        (r".*", "payments", True),
        (r".*", "__consumer_offsets", False),
        (r".*", "__transaction_state", False),
    ],
)
def test_a_pattern_means_the_whole_name(pattern: str, topic: str, reads: bool) -> None:
    assert Source(topics_pattern=pattern).reads(topic) is reads


names = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)


@given(st.lists(names, min_size=1, max_size=8, unique=True), names)
def test_spark_is_given_the_names_that_are_meant(topics: list[str], other: str) -> None:
    spec = stream_spec("id string")
    spec = spec.model_copy(update={"source": Source(topics_pattern=".*")})
    kafka = KafkaSettings(bootstrap_servers="b:1")
    options = kafka_source_options(spec, kafka, {}, topics, drain=True)
    assert "subscribe" not in options
    # Spark finds a match anywhere in a name.
    found = re.compile(options["subscribePattern"])
    assert all(found.search(topic) for topic in topics)
    for near in (other, f"x{topics[0]}", f"{topics[0]}x", topics[0].replace(".", "-")):
        assert (found.search(near) is not None) == (near in topics)


def test_names_are_given_as_names() -> None:
    options = kafka_source_options(
        stream_spec("id string"), KafkaSettings(bootstrap_servers="b:1"), {}, ["payments"], drain=True
    )
    assert (options["subscribe"], "subscribePattern" in options) == ("payments", False)
