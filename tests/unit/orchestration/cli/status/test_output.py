"""What `frazil status` prints: of letters that are not in their topic, which the metrics tell as well, and times."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from jobs.stream.metrics import metrics_of
from jobs.supervise.heartbeat import Heartbeat, LastError
from orchestration.cli.status.output import ago, print_details
from orchestration.cli.status.stream_status import StreamStatus, status_facts

BEAT = Heartbeat(
    stream="payments",
    generation="abc",
    attempt=1,
    pid=1,
    started="1",
    boot="b",
    host="h",
    since=1.0,
    state="running",
    state_since=1.0,
    beat=1.0,
    beat_wall=1.0,
)


def details(status: StreamStatus) -> str:
    with redirect_stdout(io.StringIO()) as said:
        print_details(status, "none")
    return said.getvalue()


def gauge(beat: Heartbeat) -> list[float]:
    return [s.value for metric in metrics_of(beat) for s in metric.samples if s.name == "frazil_unpublished_letters"]


def test_a_stream_without_a_topic_says_nothing_of_one() -> None:
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead")
    assert "their topic" not in details(status)
    assert gauge(BEAT) == []


def test_letters_that_wait_are_counted_and_the_reason_is_told() -> None:
    error = LastError("Kafka at there:1: refused", "away", 1.0, "start it")
    beat = msgspec.structs.replace(BEAT, unpublished_letters=1234, outbox_error=error)
    assert gauge(beat) == [1234]
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead")
    status.unpublished_letters, status.outbox_error = beat.unpublished_letters, beat.outbox_error
    said = details(status)
    assert "their topic       1,234 wait to be published: Kafka at there:1: refused" in said
    assert "start it" in said
    facts = status_facts(status)
    assert (facts["unpublished_letters"], facts["outbox_error"]) == (1234, "Kafka at there:1: refused")
    status.outbox_error, status.unpublished_letters = None, 0
    assert "their topic       0 wait to be published\n" in details(status)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s ago"), (125, "2 min ago"), (7384, "2 h 3 min ago"), (86400 * 2, "2026-11-19 08:00 UTC"), (-3, "0 s ago")],
)
def test_times_as_a_person_reads_them(seconds: int, text: str) -> None:
    now = datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert ago(now - timedelta(seconds=seconds), now) == text
