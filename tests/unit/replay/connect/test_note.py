from __future__ import annotations

from pathlib import Path

import pytest

from jobs.commit.stamp_parts import Counts
from jobs.replay.connect.note import QueueNote
from jobs.replay.connect.task import QueueCounts


@pytest.mark.parametrize(
    ("topic", "then", "earlier"),
    [
        ("q", Counts(18, 8, 6, 1), QueueCounts(8, 3, 2, 2, 1)),
        ("q", Counts(10, 5, 4), QueueCounts()),
        ("other", Counts(18, 8, 6, 1), QueueCounts()),
        # Rolled back since.
        ("q", Counts(9, 4, 4), QueueCounts()),
    ],
)
def test_what_an_interrupted_run_took(tmp_path: Path, topic: str, then: Counts, earlier: QueueCounts) -> None:
    assert QueueNote(tmp_path).begin("q", Counts(10, 5, 4)) == QueueCounts()
    assert QueueNote(tmp_path).begin(topic, then) == earlier
    # Killed again: it is still counted from the first beginning.
    if earlier.read:
        assert QueueNote(tmp_path).begin(topic, then + Counts(1, 1)).read == earlier.read + 1
    QueueNote(tmp_path).end()
    assert QueueNote(tmp_path).begin(topic, then) == QueueCounts()


def test_a_damaged_note_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "taking.json").write_text("{")
    assert QueueNote(tmp_path).begin("q", Counts(3, 3)) == QueueCounts()
