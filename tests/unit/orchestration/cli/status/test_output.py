"""What `frazil status` prints: of letters that are not in their topic, which the metrics tell as well, and times."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from jobs.quality.publishing.gate import Held, answers_to_held
from jobs.quality.publishing.main_freshness import BranchAhead
from jobs.streaming.driver.context.unknown_fields import UnknownField, UnknownFields
from jobs.streaming.driver.process.metrics import metrics_of_all
from jobs.streaming.supervision.documents.heartbeat import (
    Heartbeat,
    LastError,
    Recent,
    Work,
)
from jobs.streaming.supervision.documents.measures import OF_WORK
from orchestration.cli.streams.status.collection import name_hanging
from orchestration.cli.streams.status.output import (
    ago,
    passing_trouble,
    print_details,
    print_table,
    troubles,
)
from orchestration.cli.streams.status.stream_status import StreamStatus, Undeclared, status_facts

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
    return [
        s.value for metric in metrics_of_all([beat]) for s in metric.samples if s.name == "frazil_unpublished_letters"
    ]


def test_a_stream_without_a_topic_says_nothing_of_one() -> None:
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead")
    assert "their topic" not in details(status)
    assert gauge(BEAT) == []


def test_letters_that_wait_are_counted_and_the_reason_is_told() -> None:
    error = LastError("Kafka at there:1: refused", "away", 1.0, "start it")
    beat = msgspec.structs.replace(BEAT, unpublished_letters=1234, outbox_error=error)
    assert gauge(beat) == [1234]
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead")
    status.beat = beat
    said = details(status)
    assert "their topic       1,234 wait to be published: Kafka at there:1: refused" in said
    assert "start it" in said
    facts = status_facts(status)
    assert (facts["unpublished_letters"], facts["outbox_error"]) == (1234, "Kafka at there:1: refused")
    status.beat = msgspec.structs.replace(BEAT, unpublished_letters=0)
    assert "their topic       0 wait to be published\n" in details(status)


def test_each_part_has_its_own_next_command_and_the_stream_s_is_told_once() -> None:
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead", state="halted")
    status.fix, status.file_problem = "correct the producer", "streams/payments.yaml:3: unknown key"
    error = LastError("500 of 580 records failed", "operator", 1.0)
    refused = LastError("refused", "away", 1.0, "start Kafka")
    status.beat = msgspec.structs.replace(BEAT, error=error, outbox_error=refused)
    since = datetime(2026, 11, 21, 8, tzinfo=UTC)
    held = Held(1, 2, 80, {}, None, since, ("ids: 3 rows have none",), "")
    status.ahead = BranchAhead("ingest", 1, 80, since, None, True, held)
    status.undeclared = Undeclared(UnknownFields("c", 1.0, 8, {"$.x": UnknownField(3)}), ["$.x"])
    nexts = [line.split(maxsplit=1)[1] for line in details(status).splitlines() if line.split()[0] == "next"]
    assert nexts == [
        answers_to_held("payments"),
        "start Kafka",
        "add '$.x' to slo.unknown_fields in streams/payments.yaml",
        "correct the producer",
    ]
    assert troubles(status) == [
        ("its file has problems, and nothing is changed: streams/payments.yaml:3: unknown key", None),
        ("halted: 500 of 580 records failed", "correct the producer"),
        ("80 rows are quarantined since 2026-11-21 08:00 UTC: ids: 3 rows have none", answers_to_held("payments")),
    ]


@pytest.mark.parametrize(
    ("state", "mark"),
    [
        *((state, "!") for state in ("halted", "frozen", "stalled")),
        *((state, "~") for state in ("retrying", "failed", "fenced", "dead", "starting", "stopping")),
        *((state, None) for state in ("stopped", "paused", "idle", "draining", "running", "waiting")),
    ],
)
def test_an_error_is_a_trouble_only_where_a_person_has_to_act(state: str, mark: str | None) -> None:
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead", state=state)
    status.beat = msgspec.structs.replace(BEAT, error=LastError("Kafka is gone", "away", 1.0))
    status.fix = "start Kafka"
    said = f"{state}: Kafka is gone"
    assert troubles(status) == ([(said, "start Kafka")] if mark == "!" else [])
    assert passing_trouble(status) == (said if mark == "~" else None)
    with redirect_stdout(io.StringIO()) as shown:
        print_table([status])
    lines = shown.getvalue().splitlines()[2:]
    assert lines == ([f"{mark} payments: {said}", "  Next: start Kafka"] if mark else [])


def test_topics_without_an_id_are_named() -> None:
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead")
    assert "without an id" not in details(status)
    status.tables.topics_without_id = ("payments.v1", "payments.v2")
    assert "without an id     topic payments.v1, payments.v2\n" in details(status)
    assert status_facts(status)["topics_without_id"] == ["payments.v1", "payments.v2"]


def test_a_transaction_that_hangs_is_a_trouble_while_its_records_are_known() -> None:
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead", state="waiting")
    status.work = Work(undecided={"payments.v1": {"0": 7}}, undecided_since=1_700_000_000.0, lag_at=1_800_000_000.0)
    held = "7 records of open transactions, none decided since 2023-11-14 22:13 UTC"
    assert troubles(status) == [(f"an open transaction blocks {held}", None)]
    assert f"undecided         {held}\n" in details(status)
    name_hanging(status, "broker:9092")
    assert "broker:9092" in (status.fix or "") and "payments.v1" in (status.fix or "")
    status.fix = None
    status.learn(lag_unknown_since=1_800_000_100.0)
    name_hanging(status, "broker:9092")
    assert (troubles(status), status.fix) == ([], None)


def test_every_measure_with_a_line_has_one() -> None:
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead")
    status.work = Work(batch=4, last_commit_at=1_700_000_000.0, lag={"t": {"0": 1200}}, lag_at=1.0)
    status.learn(recent=Recent(10.0, 12345))
    lines = details(status)
    assert [f"  {each.line:<17} " in lines for each in OF_WORK if each.line] == [True] * 4
    assert "batch             4\n" in lines
    assert "last commit       2023-11-14 22:13 UTC\n" in lines
    assert "records/s         1,234.5\n" in lines
    assert "lag               1,200\n" in lines


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s ago"), (125, "2 min ago"), (7384, "2 h 3 min ago"), (86400 * 2, "2026-11-19 08:00 UTC"), (-3, "0 s ago")],
)
def test_times_as_a_person_reads_them(seconds: int, text: str) -> None:
    now = datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert ago(now - timedelta(seconds=seconds), now) == text
