"""Completion of a sink's table: its announced files are checked against the table, then committed."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.config.stream.models import StreamSpec
from jobs.migration.sink_protocol.announced_files import data_file_of, live_paths, misfit_of
from jobs.migration.sink_protocol.sink_floor import floor_text, sink_floor
from jobs.migration.takeover.completion_plan import TableCompletion, TableFacts
from jobs.migration.takeover.control_topic import ControlFacts
from jobs.migration.takeover.sink import Sink
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.sink_record import ControlOffsets
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import CommitRefusedError

COMPLETED_KEY = "frazil.completed-sink"
"""Key in the summary of a snapshot with files that a sink had announced; its value is the connector."""


def read_table_facts(name: str, table: Table | None, sink: Sink, facts: ControlFacts) -> TableFacts:
    """Read which announced files a table has, and which it cannot take.

    Args:
        table: As the sink's branch has it; None if it does not exist.
    """
    if table is None:
        return TableFacts(name, exists=False)
    metadata = table.metadata
    floor = sink_floor(metadata, sink.floor_key)
    files = facts.files_of(name, floor)
    # If the floor does not say what was committed, any snapshot may have a file.
    after_sequence = floor.sequence if all(floor.knows(file.control_partition) for file in files) else 0
    live = live_paths(table, {file.path for file in files}, after_sequence)
    misfits: dict[str, str] = {}
    for file in files:
        if file.path in live:
            continue
        if misfit := misfit_of(file.fields, metadata):
            misfits[file.path] = misfit
        elif not table.io.new_input(file.path).exists():
            misfits[file.path] = "are missing in the store"
    return TableFacts(name, True, str(metadata.table_uuid), floor, frozenset(live), misfits)


def complete_table(
    catalog: Catalog, spec: StreamSpec, sink: Sink, completion: TableCompletion, floor: ControlOffsets
) -> None:
    """Commit a table's announced files with the sink's own key, so that the sink knows them as committed.

    Args:
        floor: Next offsets of the control topic through which the table then has everything.

    Raises:
        TakeoverRefusedError: The table changed so that the files do not fit any more, or the sink has committed.
    """
    branch = sink.branch_of(completion.table)
    # Files that are left out may be those of a table that was dropped.
    if not completion.files and (not completion.left_out or existing_table(catalog, completion.table) is None):
        return
    target = Target(catalog, completion.table, spec.stream, branch=branch)

    def attempt() -> None:
        target.history()
        metadata = target.table.metadata
        current = sink_floor(metadata, sink.floor_key)
        if (current.offsets or {}) != (completion.floor.offsets or {}):
            raise TakeoverRefusedError(
                f"table {completion.table}: somebody committed with the sink's key while the takeover looked.",
                fix="see that no worker runs the connector, then run this again",
            )
        _refuse_misfits(completion, metadata)
        partitions = {*floor, *(current.offsets or {})}
        merged = {partition: max(floor.get(partition, 0), current.of(partition)) for partition in partitions}
        summary = {sink.floor_key: floor_text(merged), COMPLETED_KEY: sink.name}
        target.commit(Append([data_file_of(file.fields, metadata) for file in completion.files]), None, summary)

    compare_and_swap(completion.table, attempt, _commit_refused)


def _refuse_misfits(completion: TableCompletion, metadata: TableMetadata) -> None:
    for file in completion.files:
        misfit = misfit_of(file.fields, metadata)
        other_table = file.table_uuid is not None and file.table_uuid != str(metadata.table_uuid)
        if misfit or other_table:
            raise TakeoverRefusedError(
                f"table {completion.table} was changed while the takeover looked: the sink's file {file.path} "
                f"{misfit or 'was written for another table of that name'}.",
                fix="run this again, which looks again",
            )


def _commit_refused(message: str) -> CommitRefusedError:
    return CommitRefusedError(message, fix="let other writers finish, then run this again: it goes on where it was")
