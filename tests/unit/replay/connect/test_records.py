"""Messages of a Connect queue that its own headers do not explain."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from jobs.replay.connect.records import lot_of


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
    lot = lot_of([message])
    assert lot.lacking.tolist() == [True]
    assert lot.place(0) == ("queue", 3, 41)
    assert lot.queue.tolist() == [41]
