"""What the tests of several rooms share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from jobs.clients.kafka import metadata

if TYPE_CHECKING:
    from tests.helpers.dead_letters import DeadLetterWorld


@event.listens_for(Engine, "connect")
def no_wait_for_disks(connection: object, _: object) -> None:
    """Let no commit to a catalog of this process wait for the disk: what a test has written need outlive no machine."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


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
