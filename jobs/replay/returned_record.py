"""A letter as the record that it was, for a topic: bytes, key and headers, and behind them where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.deadletter.connect_headers import FRAZIL, Header, KafkaRecord

RETURNED = FRAZIL + "replay."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def returned_record(letter: Mapping[str, Any], replay: str) -> KafkaRecord:
    """One row of the dead-letter table as a record to be produced.

    Its time is that of publishing: one with the original's could be removed by the topic's retention at once. A record
    that was returned before has these headers twice, and the last ones count.

    Args:
        letter: The row, by column; with the key and the value as they were consumed.
        replay: The id of the replay.
    """
    own: list[Header] = [(header["key"] or "", header["value"]) for header in letter["headers"] or ()]
    timestamp = letter["timestamp"]
    texts = (
        ("id", replay),
        ("stream", letter["stream"]),
        ("topic", letter["topic"]),
        ("partition", letter["partition"]),
        ("offset", letter["offset"]),
        ("timestamp", None if timestamp is None else (timestamp - _EPOCH) // timedelta(milliseconds=1)),
        ("error_class", letter["error_class"]),
    )
    own += [(RETURNED + name, str(value).encode()) for name, value in texts if value is not None]
    return KafkaRecord(letter["key"], letter["value"], tuple(own), None)
