"""Whether letters that go by age are in the stream's topic; no driver runs, and no broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.deadletter.outbox.position import Published
from jobs.operator.expire_letters import LetterExpiry, expire_letters_of
from jobs.stream.outbox_thread import notes_of
from tests.unit.deadletter.letters_world import BROKEN, LettersWorld

OLD = datetime.now(UTC) - timedelta(days=45)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LettersWorld]:
    made = LettersWorld(tmp_path)
    with_topic(made, "{name: dead}")
    yield made
    made.close()


def with_topic(world: LettersWorld, topic: str) -> None:
    before = world.spec_file.read_text().split("errors:")[0]
    world.spec_file.write_text(f"{before}errors: {{dead_letters: {{keep: 30d, topic: {topic}}}}}\n")


def published(world: LettersWorld, position: Published) -> None:
    topic = world.spec.errors.topic
    assert topic is not None
    notes = notes_of(world.spec, world.settings, topic)
    world.folder.parent.mkdir(parents=True, exist_ok=True)
    notes.keep(position)


def expiry(world: LettersWorld, *, dry_run: bool = True) -> LetterExpiry:
    found = expire_letters_of(world.spec, world.settings, world.catalog, dry_run=dry_run)
    assert found is not None
    return found


def test_the_note_and_the_table_say_what_the_topic_lacks(world: LettersWorld) -> None:
    world.add([BROKEN] * 4, seen=OLD)
    # No driver has met the topic: it would publish what it writes itself, or all.
    assert expiry(world).unpublished == 0
    with_topic(world, "{name: dead, publish: all}")
    assert expiry(world).unpublished == 4
    published(world, Published(1, 1, ("payments.v1", 0, 0)))
    assert expiry(world).unpublished == 3
    gone = expiry(world, dry_run=False)
    assert (gone.expired.letters, gone.unpublished, len(world.lives())) == (4, 3, 0)
    assert "3 letters have not been published to its topic" in gone.sentences(world.spec, dry_run=False)[1]
    assert expiry(world).unpublished == 0


def test_a_note_of_another_table_says_nothing_of_this_one(world: LettersWorld) -> None:
    world.add([BROKEN] * 2, seen=OLD)
    published(world, Published(1, 9, None, str(world.dead().metadata.table_uuid)))
    assert expiry(world).unpublished == 0
    published(world, Published(1, 9, None, "another"))
    assert expiry(world).unpublished == 2


def test_a_file_that_cannot_be_read_hinders_nobody(world: LettersWorld) -> None:
    world.add([BROKEN] * 2, seen=OLD)
    world.add([BROKEN], seen=datetime.now(UTC))
    published(world, Published(1, 0))
    (file,) = [task.file for task in world.dead().scan().plan_files() if task.file.record_count == 1]
    Path(file.file_path.removeprefix("file://")).write_bytes(b"nothing")
    found = expiry(world)
    assert (found.expired.letters, found.unpublished) == (2, 0)
