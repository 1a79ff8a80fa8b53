"""Counting letters: what is counted, and that a data file is read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.deadletter import tally as module
from jobs.deadletter.selection import Selection
from jobs.deadletter.tally import KnownFiles, Tally, tally
from jobs.replay.state_changes import Change, change_letters
from tests.unit.deadletter.letters_world import BROKEN, GOOD, UNKNOWN, LettersWorld


def counted(world: LettersWorld, known: KnownFiles | None = None) -> Tally:
    return tally(world.dead(), "payments", known)


def test_letters_are_counted_by_state_and_reason(world: LettersWorld) -> None:
    world.add([GOOD] * 3 + [BROKEN] * 2)
    world.add([UNKNOWN])
    before = counted(world)
    assert before.by_state == {"new": 6, "replayed": 0, "failed_again": 0, "parked": 0, "dismissed": 0}
    assert (before.total, before.waiting) == (6, 6)
    world.replay()
    after = counted(world)
    assert after.by_state == {"new": 0, "replayed": 3, "failed_again": 3, "parked": 0, "dismissed": 0}
    assert (after.total, after.waiting) == (6, 3)
    assert list(after.table()) == ["was_broken", "was_unknown", "was_good"]
    assert after.snapshot_id == world.dead().metadata.current_snapshot_id
    change_letters(
        world.spec, world.settings, world.catalog, Selection(reasons=("was_broken",)), Change("dismissed", "jo", "x")
    )
    assert counted(world).by_state["dismissed"] == 2


def test_letters_of_another_stream_are_not_counted(world: LettersWorld) -> None:
    world.add([GOOD] * 2)
    known = KnownFiles()
    assert tally(world.dead(), "other", known).total == 0
    assert counted(world, known).total == 2


def test_only_new_data_files_are_read(world: LettersWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = module.read_whole

    def noted(table, task, columns):
        read.append(task.file.file_path)
        return whole(table, task, columns)

    monkeypatch.setattr(module, "read_whole", noted)
    known = KnownFiles()
    for _ in range(3):
        world.add([GOOD])
    assert counted(world, known).total == 3
    assert counted(world, known).total == 3
    assert len(read) == len(set(read)) == 3
    world.add([BROKEN])
    assert counted(world, known).total == 4
    assert len(read) == 4
    # A replay writes the letters anew, which are other files; none is counted twice.
    world.replay()
    assert counted(world, known).total == 4
    assert counted(world, known).by_state["replayed"] == 3


def test_what_is_remembered_is_bounded(world: LettersWorld) -> None:
    known = KnownFiles(most=2)
    for _ in range(4):
        world.add([GOOD])
    assert counted(world, known).total == 4
    assert len(known) == 2


def test_a_file_that_cannot_be_read_is_counted_apart(world: LettersWorld) -> None:
    world.add([GOOD] * 2)
    world.add([BROKEN])
    (file, *_) = [task.file for task in world.dead().scan().plan_files() if task.file.record_count == 2]
    Path(file.file_path.removeprefix("file://")).write_bytes(b"nothing")
    found = counted(world)
    assert (found.total, found.unreadable) == (1, 2)


def test_letters_without_coordinates_wait_and_are_proposed_to_nobody(world: LettersWorld) -> None:
    world.add([GOOD] * 2, reason="no_coordinates")
    found = counted(world)
    assert (found.waiting, found.of_other_configurations("def")) == (2, {})


def test_letters_of_other_configurations(world: LettersWorld) -> None:
    world.add([GOOD] * 3)
    world.add([BROKEN])
    found = counted(world)
    assert found.of_other_configurations("abc") == {}
    assert found.of_other_configurations("def") == {"was_good": 3, "was_broken": 1}
    world.replay()
    assert counted(world).of_other_configurations("def") == {"was_broken": 1}
    world.replay()
    assert counted(world).by_state["parked"] == 1
    assert counted(world).of_other_configurations("def") == {}
