"""Stops of a stream's next start at its tables: rolled back, created again, or dead letters that are none. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.recovery.rollback import rolled_back
from jobs.tables.commit.stamp.errors import refuse_recreated, table_gone
from jobs.tables.dead_letter_table.table import ARROW_SCHEMA as DEAD_LETTERS
from orchestration.deployment_plan.change import Change, ChangeClass, Doer
from orchestration.deployment_plan.table_changes import TableFacts, newest_stamp


def table_stops(spec: StreamSpec, facts: TableFacts) -> Iterator[Change]:
    """Stops at tables that an operator has to answer before the stream starts. A start stops with the same messages.

    Dropped tables of rows are reported by `table_changes`.

    Args:
        spec: Spec in the stream's file.
        facts: The tables.
    """
    stream, letters = spec.stream, spec.dead_letter_table
    newest = newest_stamp(facts.tables.get(spec.table.name), stream)
    parked = newest.parked if newest is not None else ()
    if facts.letters is None and letters in facts.written:
        yield _stop(stream, letters, table_gone(stream, letters))
    if facts.letters is not None and not set(DEAD_LETTERS.names) <= set(facts.letters.schema().column_names):
        said = f"table {letters}, for its dead letters, is no dead-letter table"
        fix = f"name another one in errors.dead_letters.table of streams/{stream}.yaml"
        yield _stop(stream, letters, FrazilError(said, fix=fix))
    for name, metadata in {**facts.tables, letters: facts.letters}.items():
        if metadata is None or name in parked:
            continue
        try:
            if name in (spec.coordinator, letters):
                refuse_recreated(stream, facts.uuids, {name: str(metadata.table_uuid)})
            _refuse_rolled_back(spec, name, metadata)
        except FrazilError as problem:
            yield _stop(stream, name, problem)


def _refuse_rolled_back(spec: StreamSpec, name: str, metadata: TableMetadata) -> None:
    past = history(as_written(metadata, spec.stream), spec.stream)
    if past.rolled_back:
        raise rolled_back(spec.stream, name, past, spec.branch_of(name))


def _stop(stream: str, name: str, problem: FrazilError) -> Change:
    said = problem.message.removeprefix(f"stream {stream}: ").rstrip(".")
    return Change(
        stream, "table", name, ChangeClass.BREAKING, Doer.OPERATOR, f"no start goes on: {said}", problem.fix, drift=True
    )
