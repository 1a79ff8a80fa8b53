"""Pending records of all streams: the data files that they reference, read without their tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from jobs.base.errors import FrazilError
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class PendingFiles:
    """A pending record of a stream, of its replays, or of a Connect queue that it imports.

    Attributes:
        key: Key in the state store; `place`: its location for a person.
        stream: The stream with that state.
        tables: Uuids of its tables, by name.
        files: Data files in it; a start may still commit them.
        written: Time when it was written.
    """

    key: str
    place: str
    stream: str
    tables: frozenset[str]
    files: frozenset[str]
    written: datetime

    def concerns(self, table: str, uuid: str) -> bool:
        """Whether it is about the table, by uuid or name."""
        return table in self.tables or uuid in self.tables

    @property
    def name(self) -> str:
        """Name for people."""
        return self.key.rpartition("/")[2]

    @property
    def command(self) -> str:
        """Command that finishes it."""
        within = self.key.split("/")[-2]
        if within == "replay":
            return f"frazil replay {self.stream}"
        return f"frazil replay {self.stream} --from-topic TOPIC" if within == "connect" else f"frazil run {self.stream}"


def read_pending_files(settings: Settings) -> list[PendingFiles]:
    """All pending records.

    Raises:
        FrazilError: One cannot be read, so its files are unknown.
    """
    store = state_store(settings)
    found = [key for part in ("", "replay/", "connect/") for key in store.keys(f"streams/*/{part}pending-*.json")]
    return [pending for key in sorted(found) if (pending := _read(store, key))]


def _read(store: StateStore, key: str) -> PendingFiles | None:
    stream, content, written = key.split("/")[1], store.get(key), store.written_at(key)
    if content is None or written is None:
        # Its driver has just committed all of it.
        return None
    try:
        targets: dict[str, Any] = msgspec.json.decode(content)["targets"]
        return PendingFiles(
            key,
            store.place(key),
            stream,
            frozenset([*targets, *(str(target["uuid"]) for target in targets.values())]),
            frozenset(str(file["path"]) for target in targets.values() for file in target["files"]),
            datetime.fromtimestamp(written, UTC),
        )
    except (*DAMAGED, KeyError, TypeError, AttributeError) as problem:
        raise FrazilError(
            f"the pending record {store.place(key)} cannot be read ({problem}), so its files are unknown.",
            fix=f"frazil run {stream}, which finishes it or reports the problem",
        ) from None


def pending_paths(records: Iterable[PendingFiles]) -> set[str]:
    """Every file in the records."""
    return {file for pending in records for file in pending.files}
