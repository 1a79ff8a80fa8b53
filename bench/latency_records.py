"""Latencies of records: when each was sent, with which snapshot it came, and what lies between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import Producer

Place = tuple[int, int]
"""Kafka's partition and offset."""

_FLUSH_SECONDS = 30.0


class Sender:
    """Producer of single records at given times, which notes their timestamps.

    Attributes:
        sent: Kafka's timestamp of each record by partition and offset, seconds since 1970: the time of the call.
    """

    def __init__(self, address: str, topic: str) -> None:
        self.sent: dict[Place, float] = {}
        self._topic: str = topic
        self._refused: str | None = None
        self._producer: Producer = Producer(
            {"bootstrap.servers": address, "acks": "all", "compression.type": "lz4", "log_level": 0}
        )

    def send(self, values: Iterable[bytes], pauses: Iterable[float], enough: threading.Event | None = None) -> None:
        """Produce the values, each so many seconds after the one before, and wait until the broker has them.

        Args:
            values: Values to send.
            pauses: Seconds before each value.
            enough: Event that ends the production early.

        Raises:
            SystemExit: The broker has not taken all of them.
        """
        due = time.monotonic()
        for value, pause in zip(values, pauses, strict=False):
            due += pause
            # Two or three at once, rather than a wake-up for each.
            while (wait := due - time.monotonic()) > 0.002:
                self._producer.poll(min(wait, 0.1))
            if enough is not None and enough.is_set():
                break
            self._producer.produce(self._topic, value, on_delivery=self._delivered)
        left = self._producer.flush(_FLUSH_SECONDS)
        if left or self._refused:
            raise SystemExit(f"the broker has not taken all records: {self._refused or f'{left} are not acknowledged'}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused = error.str()
        else:
            self.sent[message.partition(), message.offset()] = message.timestamp()[1] / 1000


@dataclass(frozen=True, slots=True)
class Arrival:
    """Snapshot with its records.

    Attributes:
        committed: Time of the snapshot, seconds since 1970. Both sides set it right before they call the catalog.
        seen: Time when a reader that polls the catalog had loaded the snapshot.
        records: Partition and offset of each record.
    """

    committed: float
    seen: float
    records: Sequence[Place]


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a record's timestamp to its being visible, over some records.

    Attributes:
        p50, p99: The least value that so many per cent of the records do not exceed.
    """

    records: int
    p50: float
    p99: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> Latency:
        """Latency from at least one value."""
        p50, p99 = np.percentile(np.asarray(values), (50, 99), method="inverted_cdf")
        return Latency(len(values), float(p50), float(p99), float(max(values)))


class MissingRecordsError(Exception):
    """Records have not arrived, or more than once, or nobody has sent them."""


def latencies(sent: Mapping[Place, float], arrivals: Iterable[Arrival]) -> tuple[list[float], list[float]]:
    """Seconds from each record's sending until its snapshot was committed, and until it was seen.

    Args:
        sent: Time when each measured record was sent; others may have arrived, too.
        arrivals: All arrivals since the first of them was sent.

    Raises:
        MissingRecordsError: A record has not arrived exactly once.
    """
    committed: dict[Place, float] = {}
    seen: dict[Place, float] = {}
    for arrival in arrivals:
        for place in arrival.records:
            if place in committed:
                raise MissingRecordsError(f"partition {place[0]}, offset {place[1]} has arrived twice")
            committed[place], seen[place] = arrival.committed, arrival.seen
    lost = sent.keys() - committed.keys()
    if lost:
        raise MissingRecordsError(f"{len(lost):,} of {len(sent):,} records have not arrived, such as {min(lost)}")
    return [committed[place] - at for place, at in sent.items()], [seen[place] - at for place, at in sent.items()]
