"""Cost of keys and headers per record: `python -m bench.record_parts`, without a broker.

Blocks of 10,000 messages with a key of 16 bytes and so many headers of 16 bytes become Arrow; median and range of
rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from confluent_kafka import Message

from jobs.clients.kafka.records import fetched_block
from jobs.records.formats.registry_wire import VALUE_SCHEMA_ID
from jobs.tables.commit.stamp.offsets import TopicPartition

COUNT = 10_000
_SOURCE = TopicPartition("t", 0)
_CASES: tuple[tuple[str, frozenset[str], int], ...] = (
    ("value and coordinates", frozenset(), 0),
    ("with key", frozenset({"key"}), 0),
    ("with headers, of records without any", frozenset({"headers"}), 0),
    ("with headers, one each", frozenset({"headers"}), 1),
    ("with headers, four each", frozenset({"headers"}), 4),
    ("with the schema id of a header, of records without any", frozenset({VALUE_SCHEMA_ID}), 0),
    ("with the schema id of a header, one each", frozenset({VALUE_SCHEMA_ID}), 1),
)


def microseconds(parts: frozenset[str], headers: int, rounds: int) -> list[float]:
    """CPU time of a record's way from the client's message to Arrow.

    Args:
        parts: Parts of a record that are fetched besides its value.
        headers: Number of headers.
        rounds: Number of measurements.
    """
    found: list[float] = []
    for _ in range(rounds):
        messages = [
            Message(
                topic="t",
                partition=0,
                offset=offset,
                key=b"%016d" % offset,
                value=b"v" * 150,
                timestamp=(1, 1_700_000_000_000),
                headers=[(f"header-{n}", b"%016d" % n) for n in range(headers)] or None,
            )
            for offset in range(COUNT)
        ]
        began = time.process_time()
        fetched_block(_SOURCE, messages, np.arange(COUNT), parts)
        found.append((time.process_time() - began) / COUNT * 1e6)
    return found


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for name, parts, headers in _CASES:
        found = microseconds(parts, headers, rounds)
        print(f"{name}: {statistics.median(found):.2f} µs ({min(found):.2f}–{max(found):.2f})")


if __name__ == "__main__":
    main()
