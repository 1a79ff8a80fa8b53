"""Counting letters: what is counted, and that a data file is read once."""

from __future__ import annotations

from pathlib import Path

from jobs.dead_letters.expiry.dead_letter_states import StateChange, change_dead_letters
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.dead_letter_table.tally import (
    DeadLetterTally,
    KnownFiles,
    LetterKind,
    tally_dead_letters,
)
from tests.helpers.dead_letters import BROKEN, GOOD, UNKNOWN, DeadLetterWorld


def counted(dead_letters: DeadLetterWorld, known: KnownFiles | None = None) -> DeadLetterTally:
    return tally_dead_letters(dead_letters.dead(), "payments", known)


def test_letters_are_counted_by_state_and_reason(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 3 + [BROKEN] * 2)
    dead_letters.add([UNKNOWN])
    before = counted(dead_letters)
    assert before.by_state == {"new": 6, "replayed": 0, "failed_again": 0, "parked": 0, "dismissed": 0}
    assert (before.total, before.waiting) == (6, 6)
    dead_letters.replay()
    after = counted(dead_letters)
    assert after.by_state == {"new": 0, "replayed": 3, "failed_again": 3, "parked": 0, "dismissed": 0}
    assert (after.total, after.waiting) == (6, 3)
    assert list(after.table()) == ["was_broken", "was_unknown", "was_good"]
    assert after.snapshot_id == dead_letters.dead().metadata.current_snapshot_id
    change_dead_letters(
        *dead_letters.given,
        Selection(reasons=("was_broken",)),
        StateChange("dismissed", "jo", "x"),
    )
    assert counted(dead_letters).by_state["dismissed"] == 2


def test_letters_of_another_stream_are_not_counted(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 2)
    known = KnownFiles()
    assert tally_dead_letters(dead_letters.dead(), "other", known).total == 0
    assert counted(dead_letters, known).total == 2


def test_only_new_data_files_are_read(dead_letters: DeadLetterWorld) -> None:
    read: list[tuple[str, ...]] = []

    class Noted(KnownFiles):
        def put(self, file: tuple[str, ...], counts: dict[tuple[str, LetterKind], int]) -> None:
            read.append(file)
            super().put(file, counts)

    known = Noted()
    for _ in range(3):
        dead_letters.add([GOOD])
    assert counted(dead_letters, known).total == 3
    assert counted(dead_letters, known).total == 3
    assert len(read) == len(set(read)) == 3
    dead_letters.add([BROKEN])
    assert counted(dead_letters, known).total == 4
    assert len(read) == 4
    # A replay writes the letters anew, which are other files; none is counted twice.
    dead_letters.replay()
    assert counted(dead_letters, known).total == 4
    assert counted(dead_letters, known).by_state["replayed"] == 3


def test_what_is_remembered_is_bounded(dead_letters: DeadLetterWorld) -> None:
    known = KnownFiles(most=2)
    for _ in range(4):
        dead_letters.add([GOOD])
    assert counted(dead_letters, known).total == 4
    assert len(known) == 2


def test_a_file_that_cannot_be_read_is_counted_apart(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 2)
    dead_letters.add([BROKEN])
    (file, *_) = [task.file for task in dead_letters.dead().scan().plan_files() if task.file.record_count == 2]
    Path(file.file_path.removeprefix("file://")).write_bytes(b"nothing")
    found = counted(dead_letters)
    assert (found.total, found.unreadable) == (1, 2)


def test_letters_without_coordinates_wait_and_are_proposed_to_nobody(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 2, reason="no_coordinates")
    found = counted(dead_letters)
    assert (found.waiting, found.of_other_configurations("def")) == (2, {})


def test_letters_of_other_configurations(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 3)
    dead_letters.add([BROKEN])
    found = counted(dead_letters)
    assert found.of_other_configurations("abc") == {}
    assert found.of_other_configurations("def") == {"was_good": 3, "was_broken": 1}
    dead_letters.replay()
    assert counted(dead_letters).of_other_configurations("def") == {"was_broken": 1}
    dead_letters.replay()
    assert counted(dead_letters).by_state["parked"] == 1
    assert counted(dead_letters).of_other_configurations("def") == {}
