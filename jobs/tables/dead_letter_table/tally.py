"""Tally of a stream's dead letters by state, reason and configuration; each data file is read once."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.expressions import EqualTo
from pyiceberg.table import FileScanTask, Table

from jobs.tables.dead_letter_table.parked_letters import TARGET
from jobs.tables.dead_letter_table.reader import UnreadableDeadLettersError, read_data_file
from jobs.tables.dead_letter_table.selection import ONLY_NAMED, REPLAYABLE
from jobs.tables.dead_letter_table.table import STATES

WAITING = ("new", "failed_again", "parked")
"""States of dead letters that have not come back and that nobody has dismissed."""
MOST_FILES = 20_000


class LetterKind(NamedTuple):
    """Key of the counts of a tally.

    Attributes:
        config: Hash of the configuration under which they first failed.
        target: Suspended table that they wait for; empty for records that failed.
    """

    state: str
    reason: str
    config: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetterTally:
    """Counts of a stream's dead letters at one snapshot of their table.

    Attributes:
        unreadable: Rows of data files that cannot be read; no other number includes them.
    """

    snapshot_id: int | None = None
    kinds: Mapping[LetterKind, int] = field(default_factory=dict)
    unreadable: int = 0

    @property
    def total(self) -> int:
        """Number of dead letters that could be read."""
        return sum(self.kinds.values())

    @property
    def by_state(self) -> dict[str, int]:
        """Number of dead letters of every state, zeros included, so that a plotted line has no gaps."""
        return {state: sum(n for kind, n in self.kinds.items() if kind.state == state) for state in STATES}

    @property
    def waiting(self) -> int:
        """Number of dead letters that have not come back and that nobody has dismissed."""
        return sum(n for kind, n in self.kinds.items() if kind.state in WAITING)

    @property
    def waiting_for(self) -> dict[str, int]:
        """Waiting dead letters by the name of the table that is or was suspended."""
        found: dict[str, int] = {}
        for kind, n in self.kinds.items():
            if kind.target and kind.state in WAITING:
                found[kind.target] = found.get(kind.target, 0) + n
        return dict(sorted(found.items()))

    def table(self) -> dict[str, dict[str, int]]:
        """`{reason: {state: letters}}`, the reasons with the most waiting letters first."""
        rows: dict[str, dict[str, int]] = {}
        for kind, n in self.kinds.items():
            row = rows.setdefault(kind.reason, dict.fromkeys(STATES, 0))
            row[kind.state] += n

        def weight(reason: str) -> tuple[int, int, str]:
            return -sum(rows[reason][state] for state in WAITING), -sum(rows[reason].values()), reason

        return {reason: rows[reason] for reason in sorted(rows, key=weight)}

    def of_other_configurations(self, config: str) -> dict[str, int]:
        """Dead letters by reason that a plain replay would take, and that failed under another configuration."""
        found: dict[str, int] = {}
        for kind, n in self.kinds.items():
            if kind.state in REPLAYABLE and kind.config != config and kind.reason not in ONLY_NAMED:
                found[kind.reason] = found.get(kind.reason, 0) + n
        return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


class KnownFiles:
    """Cache of the counts of data files. Files never change, so each is read once."""

    def __init__(self, most: int = MOST_FILES) -> None:
        self._most: int = most
        self._counts: OrderedDict[tuple[str, ...], dict[tuple[str, LetterKind], int]] = OrderedDict()
        self._lock: threading.Lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._counts)

    def get(self, file: tuple[str, ...]) -> dict[tuple[str, LetterKind], int] | None:
        """Counts of a file by stream and key; None if it was not counted."""
        with self._lock:
            found = self._counts.get(file)
            if found is not None:
                self._counts.move_to_end(file)
            return found

    def put(self, file: tuple[str, ...], counts: dict[tuple[str, LetterKind], int]) -> None:
        """Store a file's counts; drops those that were unused for the longest time."""
        with self._lock:
            self._counts[file] = counts
            while len(self._counts) > self._most:
                self._counts.popitem(last=False)


def tally_dead_letters(table: Table, stream: str, known: KnownFiles | None = None) -> DeadLetterTally:
    """Count a stream's dead letters at the table's loaded snapshot.

    Reads five columns of files that are not in `known`, and the manifests. If a call is aborted, the next one uses what
    it has counted.

    Args:
        table: The dead-letter table, which may hold dead letters of other streams.
        known: Counts of earlier calls.
    """
    known = KnownFiles() if known is None else known
    kinds: dict[LetterKind, int] = {}
    unreadable = 0
    for task in table.scan(row_filter=EqualTo("stream", stream)).plan_files():
        file = (str(table.metadata.table_uuid), task.file.file_path, *sorted(d.file_path for d in task.delete_files))
        counts = known.get(file)
        if counts is None:
            try:
                counts = _counted(table, task)
            except UnreadableDeadLettersError:
                unreadable += task.file.record_count
                continue
            known.put(file, counts)
        for (owner, kind), n in counts.items():
            if owner == stream:
                kinds[kind] = kinds.get(kind, 0) + n
    return DeadLetterTally(table.metadata.current_snapshot_id, kinds, unreadable)


def _counted(table: Table, task: FileScanTask) -> dict[tuple[str, LetterKind], int]:
    wanted = ("stream", "state", "error_class", "config_hash", TARGET)
    names = [name for name in wanted if name in table.schema().column_names]
    batches = list(read_data_file(table, task, tuple(names)))
    counts: dict[tuple[str, LetterKind], int] = {}
    if not batches:
        return counts
    grouped = pa.Table.from_batches(batches).group_by(names).aggregate([([], "count_all")])
    for row in grouped.to_pylist():
        state = row.get("state")
        config, target = row.get("config_hash") or "", row.get(TARGET) or ""
        kind = LetterKind(state if state in STATES else "new", row["error_class"] or "", config, target)
        key = (row["stream"] or "", kind)
        counts[key] = counts.get(key, 0) + row["count_all"]
    return counts
