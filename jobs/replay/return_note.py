"""What a return of letters to a topic notes before each batch: which letters, and under which number Kafka decides."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import FrazilError
from jobs.state.files import remove_durably, write_durably
from jobs.state.paths import StreamFolder

RETURNED_TO = "returned to topic "
_BATCHES = 2**32


class ReturnNote(msgspec.Struct, frozen=True):
    """The note of one batch. Each replay has a file of its own, so that none overwrites its successor's.

    Attributes:
        number: The position of the group once the batch is in the topic: `epoch · 2³² + batch`.
    """

    topic: str
    number: int
    letters: int

    @staticmethod
    def numbered(topic: str, epoch: int, batch: int, letters: int) -> ReturnNote:
        """The note of a replay's batch."""
        return ReturnNote(topic, epoch * _BATCHES + batch, letters)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The note in a file.

        Raises:
            FrazilError: It is damaged.
        """
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (msgspec.DecodeError, OSError) as problem:
            raise FrazilError(
                f"{path}, which says which letters went to a topic, cannot be read: {problem}.",
                fix=f"restore it; or see in the topic whether its newest letters are there, and remove {path}",
            ) from None

    def write(self, folder: StreamFolder, changes: pa.Table) -> Path:
        """Make the note durable, with the life that its letters have once they are in the topic.

        Args:
            changes: See `jobs.replay.lifecycle.change_life`.
        """
        path = folder.root / f"returning-{self.number // _BATCHES:08d}.json"
        sink = pa.BufferOutputStream()
        pq.write_table(changes, sink, compression="zstd")
        write_durably(_beside(path), sink.getvalue().to_pybytes())
        write_durably(path, msgspec.json.encode(self))
        return path


def is_returned(said: str | None) -> bool:
    """Whether what is noted in a letter says that it went back to a topic."""
    return said is not None and said.startswith(RETURNED_TO)


def changes_of(note: Path) -> pa.Table:
    """The life of the note's letters."""
    return pq.read_table(_beside(note))


def remove_note(note: Path) -> None:
    """The batch is done, or never was."""
    remove_durably(note)
    _beside(note).unlink(missing_ok=True)


def return_notes(folder: StreamFolder) -> list[Path]:
    """The notes that earlier returns left, oldest first."""
    return sorted(folder.root.glob("returning-*.json"))


def _beside(note: Path) -> Path:
    return note.with_suffix(".parquet")
