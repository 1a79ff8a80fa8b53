"""Kafka Connect's dead letters as the records that they were, with and without headers that say which."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from jobs.dead_letters.connect_queue.records import Headers, origin, queue_records
from jobs.tables.dead_letter_table.kafka_record import RecordLimits, connect_record
from tests.helpers.dead_letters import BROKEN, DeadLetterWorld

PLACE = [
    ("__connect.errors.topic", b"payments"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"17"),
]


def test_place_reason_and_own_headers() -> None:
    found = origin(
        [
            ("trace", b"\x01"),
            ("none", None),
            *PLACE,
            ("__connect.errors.stage", b"VALUE_CONVERTER"),
            ("__connect.errors.exception.class.name", b"a.DataException"),
            ("__connect.errors.exception.message", b"no \xff good"),
            ("trace", b"\x02"),
        ]
    )
    assert found.place == ("payments", 3, 17)
    assert found.reason == "VALUE_CONVERTER, a.DataException: no \ufffd good"
    assert found.kind == "VALUE_CONVERTER, a.DataException"
    assert found.headers == [("trace", b"\x01"), ("none", None), ("trace", b"\x02")]


def test_after_a_second_trip_the_last_of_each_counts() -> None:
    first = [(name, b"9") for name, _ in PLACE]
    assert origin([*first, *PLACE]).place == ("payments", 3, 17)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        PLACE[:2],
        [*PLACE, ("__connect.errors.offset", None)],
        [*PLACE, ("__connect.errors.offset", b"-1")],
        [*PLACE, ("__connect.errors.offset", b"1e3")],
        [*PLACE, ("__connect.errors.partition", b"3000000000")],
        [*PLACE, ("__connect.errors.topic", b"")],
    ],
)
def test_without_all_three_there_is_no_place(headers: Headers) -> None:
    assert origin(headers).place is None
    assert (origin(headers).reason, origin(headers).kind) == (None, None)


def test_the_letters_that_frazil_publishes_are_read_the_same_way(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN])
    record = connect_record(dead_letters.lives()[0], "orders.payments_dead", RecordLimits(), 0)
    assert record is not None
    found = origin(record.headers)
    assert found.place == ("payments.v1", 0, 0)
    assert found.reason == "VALUE_CONVERTER, frazil.errors.was_broken: bad, connector payments"


class Said:
    """A message as the client gives it; its headers may raise what the client raises."""

    def __init__(self, headers: Any) -> None:
        self._headers: Any = headers

    def headers(self) -> Any:
        if isinstance(self._headers, BaseException):
            raise self._headers
        return self._headers

    def __getattr__(self, name: str) -> Any:
        values = {"key": b"k", "value": b"{}", "topic": "queue", "partition": 3, "offset": 41}
        return lambda: values.get(name, (TIMESTAMP_CREATE_TIME, 1_700_000_000_000))


@pytest.mark.parametrize(
    "headers",
    [None, [], [("trace", b"1")], UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), SystemError()],
    ids=str,
)
def test_a_message_without_its_origin_lacks_it_and_keeps_its_own_place(headers: Any) -> None:
    message: Any = Said(headers)
    made = queue_records([message])
    assert made.lacking.tolist() == [True]
    assert made.place(0) == ("queue", 3, 41)
    assert made.queue.tolist() == [41]
