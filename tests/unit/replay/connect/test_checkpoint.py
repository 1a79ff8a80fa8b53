from __future__ import annotations

import pytest

from jobs.commit.stamp_fields import Counts
from jobs.replay.connect.importer import ImportCheckpoint
from jobs.replay.connect.task import QueueCounts
from tests.helpers.memory_store import InMemoryStore


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
def test_what_an_interrupted_run_took(topic: str, then: Counts, earlier: QueueCounts) -> None:
    store = InMemoryStore()
    assert ImportCheckpoint(store).begin("q", Counts(10, 5, 4)) == QueueCounts()
    assert ImportCheckpoint(store).begin(topic, then) == earlier
    # Killed again: it is still counted from the first beginning.
    if earlier.read:
        assert ImportCheckpoint(store).begin(topic, then + Counts(1, 1)).read == earlier.read + 1
    ImportCheckpoint(store).end()
    assert ImportCheckpoint(store).begin(topic, then) == QueueCounts()


@pytest.mark.parametrize("content", [b"{", b'{"topic": "\xff"}'])
def test_a_damaged_note_says_nothing(content: bytes) -> None:
    store = InMemoryStore()
    store.put("taking.json", content)
    assert ImportCheckpoint(store).begin("q", Counts(3, 3)) == QueueCounts()
