"""The pending records of all streams, read for the files that they name, without the tables that they are of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from jobs.errors import FrazilError
from jobs.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class PendingNote:
    """A pending record of a stream, of its replays, or of a queue that it takes over.

    Attributes:
        stream: The stream in whose folder it lies.
        tables: Names of the tables that it is about, and their uuids.
        files: Data files that it names; a start may commit them yet.
        written: When it was.
    """

    path: Path
    stream: str
    tables: frozenset[str]
    files: frozenset[str]
    written: datetime

    def concerns(self, table: str, uuid: str) -> bool:
        """Whether it is about the table, by its identity or its name."""
        return table in self.tables or uuid in self.tables

    @property
    def command(self) -> str:
        """What finishes it."""
        within = self.path.parent.name
        if within == "replay":
            return f"frazil replay {self.stream}"
        return f"frazil replay {self.stream} --from-topic TOPIC" if within == "connect" else f"frazil run {self.stream}"


def pending_notes(settings: Settings) -> list[PendingNote]:
    """All that lie in the state folder.

    Raises:
        FrazilError: One cannot be read, so nobody knows which files it names.
    """
    streams = settings.state / "streams"
    found = (note for folder in (".", "replay", "connect") for note in streams.glob(f"*/{folder}/pending-*.json"))
    return [note for path in sorted(found) if (note := _read(path, path.relative_to(streams).parts[0]))]


def _read(path: Path, stream: str) -> PendingNote | None:
    try:
        content, written = path.read_bytes(), path.stat().st_mtime
    except FileNotFoundError:
        # Its driver has committed all of it this moment.
        return None
    try:
        targets: dict[str, Any] = msgspec.json.decode(content)["targets"]
        return PendingNote(
            path,
            stream,
            frozenset([*targets, *(str(target["uuid"]) for target in targets.values())]),
            frozenset(str(file["path"]) for target in targets.values() for file in target["files"]),
            datetime.fromtimestamp(written, UTC),
        )
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as problem:
        raise FrazilError(
            f"the pending record {path} cannot be read ({problem}), so nobody knows which files it names.",
            fix=f"frazil run {stream}, which finishes it or says what is wrong",
        ) from None


def files_of(notes: Iterable[PendingNote]) -> set[str]:
    """Every file that one of them names."""
    return {file for note in notes for file in note.files}
