"""Backfill of one group of data files: those that make room, those that come, and their commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from jobs.commit.compare_and_swap import Backoff, compare_and_swap
from jobs.commit.errors import CommitRefusedError
from jobs.commit.operations import ReplaceFiles
from jobs.commit.pyiceberg_commit import commit_once
from jobs.commit.stamps import BACKFILL_KEY
from jobs.steps import step
from jobs.write.data_file_rows import data_files
from jobs.write.target_writer import TargetWriter

ROWS_SUMMARY = "frazil.backfilled-rows"
"""In the summary of a backfill's snapshots: how many rows have got their value."""
GROUP_BYTES = 256 * 1024 * 1024
GROUP_FILES = 64
"""What one commit replaces, at most, but for a single file that is larger."""


@dataclass(slots=True)
class FileGroup:
    """Files to take the place of others; nothing refers to the new ones yet.

    Attributes:
        schema_id, spec_id: Of the table that the new files are written for.
        tasks: The files that make room.
        added: Those that come.
        writers: What has written those.
        rows: How many are filled.
    """

    schema_id: int
    spec_id: int
    tasks: list[FileScanTask] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)
    writers: list[TargetWriter] = field(default_factory=list)
    rows: int = 0

    @classmethod
    def of(cls, table: Table) -> FileGroup:
        """An empty one, for the table as it is."""
        return cls(table.metadata.current_schema_id, table.metadata.default_spec_id)

    @property
    def full(self) -> bool:
        """Whether it is as much as one commit takes."""
        size = sum(each.file.file_size_in_bytes for each in self.tasks)
        return size >= GROUP_BYTES or len(self.tasks) >= GROUP_FILES

    def is_for(self, table: Table) -> bool:
        """Whether the table has the columns and the partitions that the new files are written for."""
        metadata = table.metadata
        return (metadata.current_schema_id, metadata.default_spec_id) == (self.schema_id, self.spec_id)

    def abort(self) -> None:
        """Delete the new files."""
        for writer in self.writers:
            writer.abort()


class _Stale(Exception):
    """Some of the files that a group would replace are gone, or not as they were read."""


def commit_group(
    table: Table, group: FileGroup, column: str, *, verify: Callable[[], None], backoff: Callable[[], Backoff] = Backoff
) -> bool:
    """Commit a group; False, and nothing is left of it, if its files are not there any more as they were read.

    Args:
        table: As the group's files were read from it; loaded again before each attempt.
        column: The one that is filled.
        verify: Raises unless nobody else may rewrite files of the table.
        backoff: Between the attempts.

    Raises:
        FrazilError: The catalog refuses, or nobody knows; the new files are left to the removal of orphans.
    """
    name = ".".join(table.name())
    operation = ReplaceFiles([each.file for each in group.tasks], group.added)
    said = {BACKFILL_KEY: column, ROWS_SUMMARY: str(group.rows)}
    read = table.metadata.current_snapshot_id
    step("backfill_before_commit")

    def attempt() -> None:
        nonlocal read
        verify()
        table.refresh()
        if table.metadata.current_snapshot_id != read or not group.is_for(table):
            now = data_files(table)
            if {each.file_path for each in group.added} <= {each.file.file_path for each in now}:
                # A copy of the request, which was answered with a refusal, has landed.
                return
            if not _still_fits(table, group, now):
                raise _Stale
        read = table.metadata.current_snapshot_id
        commit_once(table, operation, summary=said, properties={})

    def given_up(problem: str) -> CommitRefusedError:
        return CommitRefusedError(
            f"column {column} of table {name} could not be filled further: {problem}.",
            fix="run this again, which carries on",
        )

    try:
        compare_and_swap(name, attempt, given_up, backoff)
    except _Stale:
        group.abort()
        return False
    step("backfill_after_commit")
    return True


def _still_fits(table: Table, group: FileGroup, now: Iterable[FileScanTask]) -> bool:
    there = {each.file.file_path: _deletes(each) for each in now}
    return group.is_for(table) and all(there.get(each.file.file_path) == _deletes(each) for each in group.tasks)


def _deletes(task: FileScanTask) -> frozenset[str]:
    return frozenset(each.file_path for each in task.delete_files)
