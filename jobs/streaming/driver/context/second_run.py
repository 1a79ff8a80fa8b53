"""Re-execution of a batch that has landed in part: its records are decided as they were the first time.

If a target lacks the batch, and the pending record is lost, its tasks run again by the coordinator's stamp: its schema,
the columns' names, and the ids of writer schemas that the registry did not know. Otherwise a record that failed then
might decode now, and be in no table. Dead letters of a table that was suspended since are made in the same way.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError, StreamStopped
from jobs.config.stream.shaped_table import evolving_schema
from jobs.records.formats.interface.writer_schema import SchemaId
from jobs.records.schema.decoded_columns import properties_as_decided
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults, drop_files
from jobs.streaming.driver.context.source_topics import readable_table
from jobs.tables.commit.protocol.parked_target import ParkedTarget
from jobs.tables.commit.protocol.proposals import Seen
from jobs.tables.commit.protocol.refusals import is_forbidden
from jobs.tables.commit.schema.followers import new_follower_schema
from jobs.tables.commit.stamp.decided_names import decided_properties
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    Ranges,
    TopicPartition,
)
from jobs.tables.commit.stamp.target_positions import TargetNeed
from jobs.tables.dead_letter_table.reader import batch_letters
from jobs.tables.write.partitioning import partition_spec

log = logging.getLogger(__name__)

_MOST_NUMBERS = 50
_MOST_GUIDS = 10


class UnknownFailuresError(StreamStopped):
    """Records failed for a table that was suspended before their dead letters were written; its columns are unknown.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: restore the table, or create it with its former columns; then `frazil start S`
    """


def half_committed(
    ranges: Ranges, positions: Mapping[str, Positions], coordinator: str, start: Positions
) -> dict[TopicPartition, int] | None:
    """End of the part of the log that the coordinator has and another target lacks; None without such a part.

    It may be past the batch that Spark has planned, as the coordinator's next stamp would name another schema. If an
    operator has a target landed again from before the newest batch, the end is cut to the planned one.

    Returns:
        Next offset after it for every partition of the batch, also for those without such a part.
    """
    stands, reached, lacked, again = positions[coordinator], dict[TopicPartition, int](), False, False
    for partition, (first, _) in ranges.items():
        reached[partition] = max(stands.get(partition, first), first)
        least = min(max(at.get(partition, first), first) for at in positions.values())
        lacked |= least < reached[partition]
        again |= least < min(start.get(partition, first), reached[partition])
    if not lacked:
        return None
    return {p: min(at, ranges[p].end) for p, at in reached.items()} if again else reached


def decided_schemas(stream: OpenStream, needs: Mapping[str, TargetNeed]) -> dict[str, Schema] | None:
    """Schemas that determined the records' columns when the batch was decided; None if it was not decided before.

    If the stream's tables share the columns of one, this has that table only; None if the table lost the schema.
    """
    if not needs[stream.anchor.name].nothing or stream.anchor.newest is None:
        return None
    if not stream.spec.own_columns:
        own = stream.spec.table.name
        found = _decided_id(stream, own) is not None
        return {own: evolving_schema(stream.spec, table_as_decided(stream, needs, own))} if found else None
    others = [name for name in stream.targets if name != stream.spec.dead_letter_table]
    timely = [name for name in others if not stream.spec.has_late_rows(name)]
    # If a suspended table may not be read, no record for it is decoded.
    names = [name for name in timely if known_table(stream, name) is not None]
    return {name: evolving_schema(stream.spec.for_table(name), table_as_decided(stream, needs, name)) for name in names}


def known_table(stream: OpenStream, name: str) -> Table | None:
    """One of the stream's tables, as last loaded; for a suspended one the table of its name, None if not readable."""
    held = stream.targets[name]
    if not isinstance(held, ParkedTarget):
        return held.table
    return readable_table(stream.spec, held.catalog, name, stream.spec.branch_of(name))


def _decided_id(stream: OpenStream, name: str) -> int | None:
    """Id of a table's schema in the coordinator's stamp; None if the table lost it.

    None as well if the stamp does not mention the table: the newest batch had no records for it. Records that it lacks
    are of earlier batches, landed again after a rollback, and use the table's current columns.
    """
    newest, table = stream.anchor.newest, known_table(stream, name)
    if newest is None or table is None or str(table.metadata.table_uuid) != stream.targets[name].identity:
        # A recreated table numbers its schemas anew, even with the former columns.
        return None
    wanted = newest.schema_id if name == stream.spec.table.name else newest.schemas.get(name)
    return wanted if wanted in {each.schema_id for each in table.metadata.schemas} else None


def table_as_decided(stream: OpenStream, needs: Mapping[str, TargetNeed], name: str | None = None) -> TableMetadata:
    """Metadata of a table for the tasks of a batch, in the state by which the batch was first decided, if it was.

    That is the schema of the coordinator's stamp, with the column names of that time, and with the decoded columns of
    that time, if the table keeps them.

    Args:
        name: Name of a table with its own columns; None for the main table.
    """
    name = name or stream.spec.table.name
    table, newest = known_table(stream, name), stream.anchor.newest
    if table is None:
        raise TypeError(f"table {name} is suspended and may not be read, so no record is decoded by it")
    metadata = table.metadata
    if not needs[stream.anchor.name].nothing or newest is None or (decided := _decided_id(stream, name)) is None:
        return metadata
    update: dict[str, Any] = {"current_schema_id": decided}
    names = newest.names if name == stream.spec.table.name else newest.further_names.get(name, {})
    if names is not None:
        schema = next(each for each in metadata.schemas if each.schema_id == decided)
        update["properties"] = decided_properties(names, schema, metadata.properties, _older_properties(table))
    decoded = newest.decoded if name == stream.spec.table.name else newest.decoded_of.get(name)
    if decoded is not None:
        properties = update.get("properties", metadata.properties)
        update["properties"] = properties_as_decided(properties, stream.spec.stream, decoded)
    return metadata.model_copy(update=update)


def _older_properties(table: Table) -> Iterator[Mapping[str, str]]:
    """Former properties of a table, as far as its older metadata exist, newest first."""
    for entry in reversed(table.metadata.metadata_log):
        with contextlib.suppress(OSError, ValueError):
            yield FromInputFile.table_metadata(table.io.new_input(entry.metadata_file)).properties


def unknown_as_decided(stream: OpenStream, needs: Mapping[str, TargetNeed]) -> frozenset[SchemaId]:
    """Ids of writer schemas that the registry did not know when the batch was first decided; empty if it was not."""
    newest = stream.anchor.newest
    if not needs[stream.anchor.name].nothing or newest is None:
        return frozenset()
    return frozenset(SchemaId(guid=each) if isinstance(each, str) else SchemaId(each) for each in newest.unknown_ids)


def time_as_decided(stream: OpenStream, needs: Mapping[str, TargetNeed]) -> int | None:
    """Time of the batch when it was first decided, milliseconds since 1970; None if it was not."""
    newest = stream.anchor.newest
    return newest.batch_ms if newest is not None and needs[stream.anchor.name].nothing else None


def stamped_ids(unmet: Collection[SchemaId]) -> tuple[int | str, ...]:
    """Ids of writer schemas for a stamp: all of them; of very many, those that a registry would assign next.

    Registries assign numbers in order, so a schema is likelier to get a small number than one that somebody made up.
    """
    numbers = sorted(each.number for each in unmet if each.number is not None)
    guids = sorted(each.guid for each in unmet if each.guid is not None)
    return (*numbers[:_MOST_NUMBERS], *guids[:_MOST_GUIDS])


def fewer_letters(stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], results: TaskResults) -> int:
    """Number of dead letters by which a re-execution falls short of the coordinator's stamp; negative if it has more.

    Args:
        ranges: Ranges of the batch; 0 is returned unless they are those of the coordinator's newest batch.
        needs: What its targets lack of the batch; 0 is returned unless the dead letters lack all of it.
    """
    letters = next((each.name for each in stream.spec.targets if each.role == "dead_letters"), None)
    newest = stream.anchor.newest
    if letters is None or newest is None or not needs[stream.anchor.name].nothing or not needs[letters].whole:
        return 0
    landed = {p: OffsetRange(first, newest.position[p]) for p, first in newest.start.items() if p in newest.position}
    if any(each != landed.get(p) for p, each in ranges.items() if each.start < each.end):
        return 0
    if newest.failed is None and newest.in_bitmaps:
        # This occurs after an operator's answer: the bitmaps do not hold the number.
        return 0
    said = newest.rows.get(letters, 0) if newest.failed is None else newest.failed
    return said - results.rows().get(letters, 0)


def tell_other_decisions(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], results: TaskResults
) -> int:
    """Log an error if a re-execution makes other dead letters than the stamp; returns the missing number.

    This remains possible if a stamp of an earlier release names no schema, if the table dropped the schema, or if the
    registry by now knows an unknown id that the stamp did not keep. Then a record decodes that had failed, and nobody
    lands it.
    """
    if fewer := fewer_letters(stream, ranges, needs, results):
        made = results.letters(stream.spec.targets)
        log.error(
            "stream %s: of the records that table %s has passed, %d were to become dead letters, and %d do now: its "
            "schema, or the registry, has changed between two runs of the batch. frazil audit %s --full names them",
            *(stream.spec.stream, stream.anchor.name, made + fewer, made, stream.spec.stream),
        )
    return fewer


def refuse_other_failures(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], results: TaskResults
) -> None:
    """Raise if a record of a routed stream would be lost, because it landed, or was to, and fails now.

    A table that still lacks the batch may have been altered since, so that it no longer takes a row. The dead letters
    have the batch already, so the record would be in neither.
    """
    newest = stream.anchor.newest
    if newest is None or newest.failed is None or not needs[stream.anchor.name].nothing:
        return
    landed = {p: OffsetRange(first, newest.position[p]) for p, first in newest.start.items() if p in newest.position}
    if any(each != landed.get(p) for p, each in ranges.items() if each.start < each.end):
        return
    failures = sum(tally.failures for tally in results.tallies)
    if failures <= newest.failed:
        return
    lack = sorted(name for name, each in needs.items() if not each.nothing)
    columns = "they had" if stream.spec.own_columns else f"of {stream.spec.table.name}"
    raise FrazilError(
        f"stream {stream.spec.stream}: {', '.join(lack)} lacks a batch that the stream's other tables have, and "
        f"{failures - newest.failed} of its records fail now that did not: a table, or what decodes them, has changed.",
        fix=f"alter {', '.join(lack)} back to the columns {columns}, then start the stream again",
    )


Read: TypeAlias = Callable[[Table, str, Ranges, int], Mapping[TopicPartition, frozenset[int]]]
Made: TypeAlias = tuple[dict[str, Seen], TaskResults]


def failed_before(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], read: Read = batch_letters
) -> dict[TopicPartition, frozenset[int]]:
    """Records that are dead letters of the batch already, so that its completion elsewhere leaves them out.

    Returns:
        Their offsets; empty if no table is suspended, or if the batch was not decided before.
    """
    newest, parked = stream.anchor.newest, any(isinstance(each, ParkedTarget) for each in stream.targets.values())
    if newest is None or not parked or not needs[stream.anchor.name].nothing or newest.failed == 0:
        return {}
    letters = needs[stream.spec.dead_letter_table]
    if letters.whole and not letters.nothing:
        return {}
    found = read(stream.dead_letters.table, stream.spec.stream, ranges, newest.batch)
    # Dead letters do not exist beyond what the dead-letter table has; earlier readings may have left some there.
    first = {partition: letters.floors.get(partition) for partition in ranges}
    return {
        partition: frozenset(at for at in offsets if (least := first.get(partition)) is None or at < least)
        for partition, offsets in found.items()
        if partition in letters.skip or partition in letters.floors
    }


def as_before_it_was_parked(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], run: Callable[[], Made]
) -> Made:
    """Run the tasks of a batch that the coordinator has, so that the same number of records fails again.

    If the dead letters lack the batch, and fewer records fail than the coordinator's stamp records, a table was
    suspended since. Then its records are fitted to the columns of the table, or of the file.
    """
    seen, results = run()
    # Suspended tables that have the batch count, too: a record that one could not hold is a dead letter, and nowhere
    # else.
    parked = [name for name, each in stream.targets.items() if isinstance(each, ParkedTarget)]
    if not parked or fewer_letters(stream, ranges, needs, results) <= 0:
        return seen, results
    drop_files(results, stream.targets, keep=frozenset())
    stream.fits_parked = True
    try:
        seen, results = run()
    finally:
        stream.fits_parked = False
    if (fewer := fewer_letters(stream, ranges, needs, results)) <= 0:
        return seen, results
    drop_files(results, stream.targets, keep=frozenset())
    name, tables = stream.spec.stream, ", ".join(parked)
    raise UnknownFailuresError(
        f"stream {name}: of the records that table {stream.anchor.name} has passed, {fewer} had failed and would not "
        f"fail now: {tables} was suspended before their dead letters were written, and it is unknown which records "
        "did not fit it.",
        fix=f"restore {tables}, or create it with its former columns, also under another uuid; then start the stream: "
        "the table stays suspended, and its columns decide",
    )


def parked_columns(stream: OpenStream, name: str, own: TableMetadata) -> tuple[Schema, PartitionSpec] | None:
    """Columns and partitions by which records are fitted to a suspended table; None unless `fits_parked` is set.

    They are those of the existing table of that name, or else those with which the stream would create it.

    Args:
        own: Metadata of the main table, as the batch was decided on.
    """
    if not stream.fits_parked:
        return None
    try:
        metadata = stream.anchor.catalog.load_table(name).metadata
        return metadata.schema(), metadata.spec()
    except Exception as problem:
        if not isinstance(problem, NoSuchTableError) and not is_forbidden(problem):
            raise
        spec, settings = stream.spec, stream.spec.table_settings(name)
        if spec.own_columns:
            # Only the table itself knows its columns, so its records are not decoded.
            return None
        schema = new_follower_schema(spec, own, name) if spec.tables_follow else spec.table_schema_for(name)
        return schema, partition_spec(settings.partition_by, schema)
