"""Whether letters that go by age are in the stream's topic; no driver runs, and no broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.dead_letters.expiry.dead_letter_expiry import DeadLetterExpiry, expire_stream
from jobs.streaming.dead_letter_publisher.position import OutboxPosition
from jobs.streaming.driver.process.outbox_thread import position_store
from tests.helpers.dead_letters import BROKEN, DeadLetterWorld

OLD = datetime.now(UTC) - timedelta(days=45)


@pytest.fixture(autouse=True)
def topic(dead_letters: DeadLetterWorld) -> None:
    with_topic(dead_letters, "{name: dead}")


def with_topic(dead_letters: DeadLetterWorld, topic: str) -> None:
    before = dead_letters.spec_file.read_text().split("errors:")[0]
    dead_letters.spec_file.write_text(f"{before}errors: {{dead_letters: {{keep: 30d, topic: {topic}}}}}\n")


def published(dead_letters: DeadLetterWorld, position: OutboxPosition) -> None:
    topic = dead_letters.spec.errors.topic
    assert topic is not None
    notes = position_store(dead_letters.spec, dead_letters.settings, topic)
    dead_letters.folder.parent.mkdir(parents=True, exist_ok=True)
    notes.keep(position)


def expiry(dead_letters: DeadLetterWorld, *, dry_run: bool = True) -> DeadLetterExpiry:
    found = expire_stream(*dead_letters.given, dry_run=dry_run)
    assert found is not None
    return found


def test_the_note_and_the_table_say_what_the_topic_lacks(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN] * 4, seen=OLD)
    # No driver has met the topic: it would publish what it writes itself, or all.
    assert expiry(dead_letters).unpublished == 0
    with_topic(dead_letters, "{name: dead, publish: all}")
    assert expiry(dead_letters).unpublished == 4
    published(dead_letters, OutboxPosition(1, 1, ("payments.v1", 0, 0)))
    assert expiry(dead_letters).unpublished == 3
    gone = expiry(dead_letters, dry_run=False)
    assert (gone.expired.letters, gone.unpublished, len(dead_letters.lives())) == (4, 3, 0)
    assert "3 dead letters have not been published to its topic" in gone.sentences(dead_letters.spec, dry_run=False)[1]
    assert expiry(dead_letters).unpublished == 0


def test_a_note_of_another_table_says_nothing_of_this_one(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN] * 2, seen=OLD)
    published(dead_letters, OutboxPosition(1, 9, None, str(dead_letters.dead().metadata.table_uuid)))
    assert expiry(dead_letters).unpublished == 0
    published(dead_letters, OutboxPosition(1, 9, None, "another"))
    assert expiry(dead_letters).unpublished == 2


def test_a_file_that_cannot_be_read_hinders_nobody(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN] * 2, seen=OLD)
    dead_letters.add([BROKEN], seen=datetime.now(UTC))
    published(dead_letters, OutboxPosition(1, 0))
    (file,) = [task.file for task in dead_letters.dead().scan().plan_files() if task.file.record_count == 1]
    Path(file.file_path.removeprefix("file://")).write_bytes(b"nothing")
    found = expiry(dead_letters)
    assert (found.expired.letters, found.unpublished) == (2, 0)
