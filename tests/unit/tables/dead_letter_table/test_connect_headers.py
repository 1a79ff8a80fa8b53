"""Dead letters in Kafka Connect's dialect, byte for byte."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from jobs.records.formats.interface import problems
from jobs.tables.dead_letter_table.kafka_record import (
    EXCEPTION_MESSAGE,
    LONGEST_TRACE,
    POINTER,
    STACK_TRACE,
    TIMESTAMP,
    KafkaRecord,
    RecordLimits,
    connect_record,
    connect_stage,
)

NOW = 1_790_000_000_000
ANY = RecordLimits()


def letter(**changed: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "stream": "payments",
        "topic": "pay.in",
        "partition": 3,
        "offset": 2**40,
        "timestamp": datetime(2026, 11, 1, 10, 0, 0, 123_999, UTC),
        "timestamp_type": "CreateTime",
        "key": b"k\xff",
        "value": b"\x00{",
        "headers": [{"key": "trace", "value": b"\x01"}, {"key": "trace", "value": None}],
        "stage": "decode_value",
        "error_class": "wrong_type",
        "message": "needs a decimal, found “x”",
        "field": "$.amount",
        "config_hash": "0123456789ab",
        "batch_id": 7,
        "epoch": 2,
        "first_seen": datetime(2026, 11, 1, 10, 0, 1, tzinfo=UTC),
    }
    return row | changed


def record(limits: RecordLimits = ANY, **changed: Any) -> KafkaRecord:
    made = connect_record(letter(**changed), "orders.payments_dead", limits, NOW)
    assert made is not None
    return made


def last(made: KafkaRecord) -> dict[str, bytes | None]:
    return dict(made.headers)


def test_a_letter_to_the_letter() -> None:
    made = record()
    assert (made.key, made.value, made.timestamp_ms) == (b"k\xff", b"\x00{", 1_793_527_200_123)
    exception = "frazil.errors.wrong_type"
    said = "needs a decimal, found “x”"
    assert made.headers == (
        ("trace", b"\x01"),
        ("trace", None),
        ("__connect.errors.topic", b"pay.in"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"1099511627776"),
        ("__connect.errors.connector.name", b"payments"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"TASK_PUT"),
        ("__connect.errors.class.name", b"frazil.write.TableWriter"),
        ("__connect.errors.exception.class.name", exception.encode()),
        ("__connect.errors.exception.message", said.encode()),
        (
            "__connect.errors.exception.stacktrace",
            f"{exception}: {said}\n\tat frazil.write.TableWriter($.amount)\n".encode(),
        ),
        ("__frazil.error_class", b"wrong_type"),
        ("__frazil.stage", b"decode_value"),
        ("__frazil.field", b"$.amount"),
        ("__frazil.config", b"0123456789ab"),
        ("__frazil.epoch", b"2"),
        ("__frazil.batch", b"7"),
        ("__frazil.first_seen", b"2026-11-01T10:00:01.000Z"),
        ("__frazil.timestamp_type", b"CreateTime"),
        ("__frazil.table", b"orders.payments_dead"),
    )


CONVERTED = {
    *(problems.MALFORMED_JSON, problems.EMPTY_VALUE, problems.INVALID_UTF8, problems.TOO_DEEP),
    *(problems.WRONG_LENGTH, problems.NO_SCHEMA_ID, problems.UNKNOWN_SCHEMA, problems.BAD_SCHEMA),
    *(problems.MALFORMED_AVRO, problems.MALFORMED_PROTOBUF, problems.BAD_ENVELOPE),
    # A decoder of one's own.
    *(problems.OWN_CODE_FAILED, problems.OWN_CODE_REFUSED),
}
CLASSES = [v for k, v in vars(problems).items() if k.isupper() and not k.startswith("_") and v.isidentifier()]


@pytest.mark.parametrize("error_class", CLASSES)
def test_what_connect_s_converter_takes_is_refused_by_its_sink(error_class: str) -> None:
    found = last(record(error_class=error_class))
    expected = b"VALUE_CONVERTER" if error_class in CONVERTED else b"TASK_PUT"
    assert (found["__connect.errors.stage"], found["__frazil.stage"]) == (expected, b"decode_value")


def test_what_is_not_there_is_null_or_left_out_as_connect_has_it() -> None:
    made = record(
        message=None,
        field=None,
        config_hash=None,
        timestamp_type=None,
        timestamp=None,
        headers=None,
        key=None,
        value=None,
    )
    assert (made.key, made.value, made.timestamp_ms) == (None, None, None)
    assert len([name for name, _ in made.headers if name.startswith("__connect.errors.")]) == 10
    found = last(made)
    assert EXCEPTION_MESSAGE in found
    assert found[EXCEPTION_MESSAGE] is None
    assert found[STACK_TRACE] == b"frazil.errors.wrong_type\n\tat frazil.decode.ValueDecoder(record)\n"
    assert {"__frazil.field", "__frazil.config", "__frazil.timestamp_type"}.isdisjoint(found)


def test_empty_key_and_value_stay_empty() -> None:
    made = record(key=b"", value=b"")
    assert (made.key, made.value) == (b"", b"")


@pytest.mark.parametrize(
    ("stage", "connect", "class_name"),
    [
        ("decode_value", "VALUE_CONVERTER", "frazil.decode.ValueDecoder"),
        ("decode_key", "KEY_CONVERTER", "frazil.decode.KeyDecoder"),
        ("key", "KEY_CONVERTER", "frazil.decode.KeyDecoder"),
        ("headers", "HEADER_CONVERTER", "frazil.decode.HeaderDecoder"),
        ("decode_headers", "HEADER_CONVERTER", "frazil.decode.HeaderDecoder"),
        ("transform", "TRANSFORMATION", "frazil.transform.Transform"),
        ("transform.2", "TRANSFORMATION", "frazil.transform.Transform"),
        ("table_type", "TASK_PUT", "frazil.write.TableWriter"),
        ("required", "TASK_PUT", "frazil.write.TableWriter"),
        ("write", "TASK_PUT", "frazil.write.TableWriter"),
        ("of a later version", "TASK_PUT", "frazil.write.TableWriter"),
    ],
)
def test_stages(stage: str, connect: str, class_name: str) -> None:
    assert connect_stage(stage, "malformed_json", None) == (connect, class_name)
    found = last(record(stage=stage, error_class="malformed_json"))
    assert found["__connect.errors.stage"] == connect.encode()
    assert found["__connect.errors.class.name"] == class_name.encode()


def test_a_value_of_one_column_is_its_converter_s() -> None:
    assert connect_stage("decode_value", "wrong_type", None)[0] == "VALUE_CONVERTER"
    assert connect_stage("decode_value", "wrong_type", "$.n")[0] == "TASK_PUT"
    assert connect_stage("transform[3].cast", "wrong_type", "$.n")[0] == "TRANSFORMATION"
    assert connect_stage("rules[0].positive", "rule_violated", None)[0] == "TASK_PUT"
    assert connect_stage("decode_key", "wrong_type", None)[0] == "KEY_CONVERTER"
    assert connect_stage("decode_header", "out_of_range", "$.attempts")[0] == "HEADER_CONVERTER"


def test_a_second_trip_appends() -> None:
    first = record()
    again = record(headers=[{"key": name, "value": value} for name, value in first.headers], topic="pay.dead", offset=4)
    assert again.headers[: len(first.headers)] == first.headers
    topics = [value for name, value in again.headers if name == "__connect.errors.topic"]
    assert topics == [b"pay.in", b"pay.dead"]


def test_a_long_message_is_whole_and_its_trace_is_cut_between_characters() -> None:
    found = last(record(message="é" * 10_000))
    assert found[EXCEPTION_MESSAGE] == ("é" * 10_000).encode()
    trace = found[STACK_TRACE]
    assert trace is not None
    assert LONGEST_TRACE - 4 < len(trace) <= LONGEST_TRACE
    assert trace.decode().endswith("…\n\tat frazil.write.TableWriter($.amount)\n")


def test_too_large_loses_trace_then_message_then_value_then_key_then_headers() -> None:
    big = {
        "key": b"k" * 2000,
        "value": b"v" * 20_000,
        "message": "m" * 3000,
        "headers": [{"key": "h", "value": b"h" * 1500}],
    }
    whole = record(**big)
    assert record(RecordLimits(whole.size), **big) == whole

    no_trace = record(RecordLimits(whole.size - 1), **big)
    assert STACK_TRACE not in last(no_trace)
    assert (last(no_trace)[EXCEPTION_MESSAGE], no_trace.value) == (b"m" * 3000, b"v" * 20_000)

    cut = record(RecordLimits(no_trace.size - 1), **big)
    message = last(cut)[EXCEPTION_MESSAGE]
    assert message is not None
    assert (message, len(message)) == (b"m" * 253 + "…".encode(), 256)
    assert (cut.key, cut.value, POINTER in last(cut)) == (b"k" * 2000, b"v" * 20_000, False)

    pointed = record(RecordLimits(cut.size - 1), **big)
    assert (pointed.key, pointed.value) == (b"k" * 2000, None)
    pointer = last(pointed)[POINTER]
    assert pointer is not None
    assert json.loads(pointer) == {
        "table": "orders.payments_dead",
        "stream": "payments",
        "topic": "pay.in",
        "partition": 3,
        "offset": 2**40,
    }

    keyless = record(RecordLimits(pointed.size - 1), **big)
    assert (keyless.key, keyless.value, keyless.headers[0]) == (None, None, ("h", b"h" * 1500))

    bare = record(RecordLimits(keyless.size - 1), **big)
    assert (bare.key, bare.value, "h" in last(bare), bare.timestamp_ms) == (None, None, False, whole.timestamp_ms)
    assert connect_record(letter(**big), "orders.payments_dead", RecordLimits(bare.size - 1), NOW) is None


def test_the_trace_of_an_earlier_trip_is_the_records_own_header() -> None:
    earlier = {"key": STACK_TRACE, "value": b"java.lang.Exception"}
    whole = record(headers=[earlier])
    small = record(RecordLimits(whole.size - 1), headers=[earlier])
    assert [value for name, value in small.headers if name == STACK_TRACE] == [b"java.lang.Exception"]


@pytest.mark.parametrize(
    ("timestamp", "limits", "expected"),
    [
        (datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC), ANY, 1),
        (datetime(1970, 1, 1, tzinfo=UTC), ANY, None),
        (datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), ANY, None),
        (datetime(2999, 1, 1, tzinfo=UTC), ANY, 32_472_144_000_000),
        (datetime(2999, 1, 1, tzinfo=UTC), RecordLimits(after_ms=3_600_000), None),
        (datetime(1970, 1, 1, tzinfo=UTC), RecordLimits(before_ms=3_600_000), None),
    ],
)
def test_timestamps(timestamp: datetime, limits: RecordLimits, expected: int | None) -> None:
    made = record(limits, timestamp=timestamp)
    assert made.timestamp_ms == expected
    refused = expected is None and timestamp.year >= 1970
    assert (TIMESTAMP in last(made)) == refused
