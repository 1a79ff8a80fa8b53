"""Through when main of a gated stream is complete: by what is published, whatever its branch has."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from jobs.quality.publishing.gate import answers_to_held, gate_property
from jobs.quality.publishing.main_freshness import (
    UNKNOWN,
    MainFreshness,
    main_freshness,
    published_times,
)
from jobs.tables.commit.history.publications import publications
from jobs.tables.commit.stamp.event_times import EventTimes
from resources.deployment import Deployment
from tests.helpers.event_stream import GATE, EventStream, hour, ms, write_file


@pytest.fixture
def stream(tmp_path: Path) -> EventStream:
    write_file(tmp_path, besides=GATE)
    deployment = Deployment.at(tmp_path)
    return EventStream(deployment.prepared_settings(), deployment.stream("payments"))


def found(stream: EventStream) -> MainFreshness:
    made = main_freshness(stream.table.metadata, "payments", "ingest")
    assert made is not None
    return made


def test_main_is_as_fresh_as_what_is_published(stream: EventStream) -> None:
    def land(at: int) -> None:
        before = stream.target.newest.valid_through_ms if stream.target.newest else None
        assert before is None or before < ms(hour(at))
        stream.land([hour(at)], hour(at - 1), through=hour(at, 1))

    assert not found(stream).lacks, "nothing has landed"
    land(10)
    first = found(stream)
    assert (first.lacks, first.rows, first.through_ms, first.watermark_ms) == (True, 1, None, None)
    assert stream.publish() == "published"
    shown = found(stream)
    head = stream.table.current_snapshot()
    assert head is not None
    assert (shown.lacks, shown.rows, shown.snapshot_id) == (False, 0, head.snapshot_id)
    land(11)
    land(12)
    behind = found(stream)
    assert (behind.rows, behind.through_ms, behind.watermark_ms) == (2, ms(hour(10, 1)), ms(hour(9)))
    assert behind.snapshot_id == shown.snapshot_id
    assert stream.publish(fit=False) == "held"
    held = found(stream)
    assert held.held.endswith("UTC: not fit") and held.held_fix == answers_to_held("payments")
    assert msgspec.structs.replace(held, held="", held_fix="") == behind, "what is held is not there"
    with stream.table.transaction() as change:
        change.set_properties({gate_property("payments"): "{"})
    damaged = found(stream)
    assert "frazil.gate.payments" in damaged.held and damaged.held_fix
    assert msgspec.structs.replace(damaged, held="", held_fix="") == behind
    with stream.table.transaction() as change:
        change.remove_properties(gate_property("payments"))
    assert stream.publish() == "published"
    assert not found(stream).lacks


def test_a_quiet_stream_was_complete_until_its_next_batch(stream: EventStream) -> None:
    stream.land([hour(10)], hour(9), through=hour(10))
    stream.publish()
    stream.quiet(hour(12))
    assert not found(stream).lacks
    stream.land([hour(13)], hour(12, 30), through=hour(13, 1), before=hour(12, 59))
    behind = found(stream)
    assert (behind.through_ms, behind.watermark_ms) == (ms(hour(12, 59)), ms(hour(12)))


def test_a_rollback_of_main_takes_it_back(stream: EventStream) -> None:
    stream.land([hour(10)], hour(9), through=hour(10))
    stream.publish()
    before = stream.table.current_snapshot()
    assert before is not None
    stream.land([hour(11)], hour(10), through=hour(11))
    stream.publish()
    stream.table.manage_snapshots().set_current_snapshot(snapshot_id=before.snapshot_id).commit()
    behind = found(stream)
    assert (behind.lacks, behind.rows, behind.through_ms) == (True, 1, ms(hour(10)))


def test_a_stream_on_main_has_none(stream: EventStream) -> None:
    assert main_freshness(stream.table.metadata, "payments", "main") is None
    assert main_freshness(stream.table.metadata, "payments", "another") is None


@pytest.mark.parametrize(
    ("main", "landed", "through"),
    [
        (MainFreshness(), 50.0, 50.0),
        (MainFreshness(), None, None),
        (UNKNOWN, 50.0, None),
        (MainFreshness(lacks=True, through_ms=40_000), 50.0, 40.0),
        (MainFreshness(lacks=True, through_ms=60_000), 50.0, 50.0),
        (MainFreshness(lacks=True, through_ms=40_000), None, 40.0),
    ],
)
def test_main_is_never_fresher_than_its_branch(
    main: MainFreshness, landed: float | None, through: float | None
) -> None:
    assert main.through(landed) == through


def test_times_that_are_published() -> None:
    landed = EventTimes("at", ms(hour(12)))
    assert published_times(landed, None) == published_times(landed, MainFreshness()) == landed
    assert published_times(None, MainFreshness()) is None
    assert published_times(landed, UNKNOWN) is None
    early = published_times(landed, MainFreshness(lacks=True, watermark_ms=ms(hour(11))))
    assert early == EventTimes("at", ms(hour(11)))


def test_a_publication_is_stamped_with_the_times_of_what_it_brings(stream: EventStream) -> None:
    def late(at: datetime) -> dict[datetime, int]:
        return {at: 1}

    stream.land([hour(10, 5)], hour(10), through=hour(10, 6))
    stream.land([hour(8), hour(12)], hour(11), late=late(hour(8)), through=hour(12, 1))
    stream.land([hour(9), hour(13)], hour(12), late=late(hour(9)), through=hour(13, 1))
    stream.publish()
    stamp = publications(stream.table, "payments").newest
    assert stamp is not None
    assert stamp.event_time is not None
    assert stamp.valid_through_ms == ms(hour(13, 1))
    times = stamp.event_time
    assert (times.column, times.watermark_ms, times.bound_ms) == ("at", ms(hour(12)), None)
    assert times.first_ms == ms(hour(8))
    assert times.batch.periods == {ms(hour(8)): 1, ms(hour(9)): 1}
    stream.land([hour(14)], hour(13), through=hour(14) + timedelta(minutes=1))
    stream.publish()
    newest = publications(stream.table, "payments").newest
    assert newest is not None
    assert newest.event_time is not None
    assert (newest.event_time.bound_ms, newest.event_time.watermark_ms) == (ms(hour(12)), ms(hour(13)))
