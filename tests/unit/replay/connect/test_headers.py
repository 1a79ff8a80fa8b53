"""What the headers of Kafka Connect's dead letters say of the records that they were."""

from __future__ import annotations

import pytest

from jobs.deadletter.connect_headers import Limits, letter_record
from jobs.replay.connect.records import Headers, origin
from tests.unit.deadletter.letters_world import BROKEN, LettersWorld

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


def test_the_letters_that_frazil_publishes_are_read_the_same_way(world: LettersWorld) -> None:
    world.add([BROKEN])
    record = letter_record(world.lives()[0], "orders.payments_dead", Limits(), 0)
    assert record is not None
    found = origin(record.headers)
    assert found.place == ("payments.v1", 0, 0)
    assert found.reason == "VALUE_CONVERTER, frazil.errors.was_broken: bad, connector payments"
