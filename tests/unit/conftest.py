"""What the tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.kafka import metadata

if TYPE_CHECKING:
    from tests.helpers.dead_letters import DeadLetterWorld


@pytest.fixture(autouse=True)
def no_wait_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands give up early, as no broker is there: each of them would wait for four seconds."""
    monkeypatch.setattr(metadata, "KAFKA_SECONDS", 0.5)


@pytest.fixture
def dead_letters(tmp_path: Path) -> Iterator[DeadLetterWorld]:
    """A stream whose dead letters a test adds, with real tables and without Kafka or a JVM."""
    # Imported here: most tests need nothing of what replays import.
    from tests.helpers.dead_letters import DeadLetterWorld

    made = DeadLetterWorld(tmp_path / "deployment")
    yield made
    made.close()
