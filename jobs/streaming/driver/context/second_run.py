"""Second run of a batch that has landed in part: its records are decided on as they were the first time.

If a target lacks the batch, and the pending record is lost, its tasks run again, by what the coordinator's stamp names:
the schema, the columns' names, and the ids of writer schemas that the registry did not know. Otherwise a record that
failed then might decode now, and be in no table. Letters of a table that is suspended since are made likewise.
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
    """Records failed for a table that was suspended before their dead letters were made; its columns are unknown.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: put the table back, or create it with its former columns; then `frazil start S`
    """


def half_committed(
    ranges: Ranges, positions: Mapping[str, Positions], coordinator: str, start: Positions
) -> dict[TopicPartition, int] | None:
    """The end of the part of the log that the coordinator has and another target lacks; None without such a part.

    It may lie past the batch that Spark has planned: the coordinator's next stamp would name another schema. Where an
    operator has a target landed again from before the newest batch, it is cut at the planned end.

    Returns:
        The next offset after it of every partition of the batch, also of those without such a part.
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
    """The schemas of the tables that say which columns records have, as they were decided on; None if nothing has been.

    Of a stream whose tables have the columns of one, it is that one's; None, too, if it has the schema no more.
    """
    if not needs[stream.anchor.name].nothing or stream.anchor.newest is None:
        return None
    if not stream.spec.own_columns:
        own = stream.spec.table.name
        found = _decided_id(stream, own) is not None
        return {own: evolving_schema(stream.spec, table_as_decided(stream, needs, own))} if found else None
    others = [name for name in stream.targets if name != stream.spec.dead_letter_table]
    timely = [name for name in others if not stream.spec.has_late_rows(name)]
    # Of a parked table that nobody may read no record is decoded.
    names = [name for name in timely if known_table(stream, name) is not None]
    return {name: evolving_schema(stream.spec.for_table(name), table_as_decided(stream, needs, name)) for name in names}


def known_table(stream: OpenStream, name: str) -> Table | None:
    """One of the stream's tables, as it was read last; of a parked one that of its name, None if none may be read."""
    held = stream.targets[name]
    if not isinstance(held, ParkedTarget):
        return held.table
    return readable_table(stream.spec, held.catalog, name, stream.spec.branch_of(name))


def _decided_id(stream: OpenStream, name: str) -> int | None:
    """The id of the schema of a table that the coordinator's stamp names; None if the table has it no more.

    None, too, of a table that the stamp does not speak of: the newest batch had no records of it. Records that it
    lacks are of batches before, as a rollback is landed again, and go by what it has now.
    """
    newest, table = stream.anchor.newest, known_table(stream, name)
    if newest is None or table is None or str(table.metadata.table_uuid) != stream.targets[name].identity:
        # One that was made anew with the columns that it had has its own numbers of schemas.
        return None
    wanted = newest.schema_id if name == stream.spec.table.name else newest.schemas.get(name)
    return wanted if wanted in {each.schema_id for each in table.metadata.schemas} else None


def table_as_decided(stream: OpenStream, needs: Mapping[str, TargetNeed], name: str | None = None) -> TableMetadata:
    """Metadata of a table for the tasks of a batch, as those have it that decided on the batch, if any have.

    That is, under the schema of the coordinator's stamp, with the names that columns had then, and with the decoded
    columns of then, where the table keeps them.

    Args:
        name: Of a table that has columns of its own; without it the stream's own.
    """
    name = name or stream.spec.table.name
    table, newest = known_table(stream, name), stream.anchor.newest
    if table is None:
        raise TypeError(f"table {name} is parked and may not be read, so no record is decoded by it")
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
    """The properties that a table had, as far as its older metadata is there, the newest first."""
    for entry in reversed(table.metadata.metadata_log):
        with contextlib.suppress(OSError, ValueError):
            yield FromInputFile.table_metadata(table.io.new_input(entry.metadata_file)).properties


def unknown_as_decided(stream: OpenStream, needs: Mapping[str, TargetNeed]) -> frozenset[SchemaId]:
    """The ids of writer schemas that the registry did not know when the batch was decided on, if it has been."""
    newest = stream.anchor.newest
    if not needs[stream.anchor.name].nothing or newest is None:
        return frozenset()
    return frozenset(SchemaId(guid=each) if isinstance(each, str) else SchemaId(each) for each in newest.unknown_ids)


def time_as_decided(stream: OpenStream, needs: Mapping[str, TargetNeed]) -> int | None:
    """The time of the batch as it was decided on, milliseconds since 1970; None if nobody has decided on it."""
    newest = stream.anchor.newest
    return newest.batch_ms if newest is not None and needs[stream.anchor.name].nothing else None


def stamped_ids(unmet: Collection[SchemaId]) -> tuple[int | str, ...]:
    """The ids of writer schemas that a stamp keeps: all, but of very many those that a registry would give next.

    Numbers are given in order, so the small ones are likelier to be given to a schema than what somebody made up.
    """
    numbers = sorted(each.number for each in unmet if each.number is not None)
    guids = sorted(each.guid for each in unmet if each.guid is not None)
    return (*numbers[:_MOST_NUMBERS], *guids[:_MOST_GUIDS])


def fewer_letters(stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], results: TaskResults) -> int:
    """How many letters fewer a second run has made than the coordinator's stamp says; less than zero if more.

    Args:
        ranges: The batch's; nothing is told unless they are those of the coordinator's newest batch.
        needs: What its targets lack of the batch; nothing is told unless the dead letters lack all of it.
    """
    letters = next((each.name for each in stream.spec.targets if each.role == "dead_letters"), None)
    newest = stream.anchor.newest
    if letters is None or newest is None or not needs[stream.anchor.name].nothing or not needs[letters].whole:
        return 0
    landed = {p: OffsetRange(first, newest.position[p]) for p, first in newest.start.items() if p in newest.position}
    if any(each != landed.get(p) for p, each in ranges.items() if each.start < each.end):
        return 0
    if newest.failed is None and newest.in_bitmaps:
        # As after an operator's answer: the bitmaps do not say how many.
        return 0
    said = newest.rows.get(letters, 0) if newest.failed is None else newest.failed
    return said - results.rows().get(letters, 0)


def tell_other_decisions(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], results: TaskResults
) -> int:
    """Log an error if a second run makes other letters than the coordinator's stamp says; returns how many fewer.

    That is left where a stamp of an earlier release names no schema, where the table has dropped the schema, or where
    the registry knows by now one of more unknown ids than a stamp keeps. A record then decodes that failed; nobody
    lands it.
    """
    if fewer := fewer_letters(stream, ranges, needs, results):
        made = results.letters(stream.spec.targets)
        log.error(
            "stream %s: of records that table %s is past, %d were to be dead letters, and %d are now: its schema, or "
            "what the registry knows, has changed between two runs of the batch. frazil audit %s --full names them",
            *(stream.spec.stream, stream.anchor.name, made + fewer, made, stream.spec.stream),
        )
    return fewer


def refuse_other_failures(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], results: TaskResults
) -> None:
    """Refuse what would lose a record of a stream with a route: it landed, or was to, and fails now.

    A table that still lacks the batch may have been altered since, so that it holds a row of it no more. The dead
    letters have the batch already, and the record would be in neither.
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
    """The records that are ordinary letters of the batch already: whoever completes it elsewhere leaves them out.

    Returns:
        Their offsets; nothing where no table is parked, or where nobody has decided on the batch before.
    """
    newest, parked = stream.anchor.newest, any(isinstance(each, ParkedTarget) for each in stream.targets.values())
    if newest is None or not parked or not needs[stream.anchor.name].nothing or newest.failed == 0:
        return {}
    letters = needs[stream.spec.dead_letter_table]
    if letters.whole and not letters.nothing:
        return {}
    found = read(stream.dead_letters.table, stream.spec.stream, ranges, newest.batch)
    # Of what the dead letters lack none stands there; letters of an earlier reading might.
    first = {partition: letters.floors.get(partition) for partition in ranges}
    return {
        partition: frozenset(at for at in offsets if (least := first.get(partition)) is None or at < least)
        for partition, offsets in found.items()
        if partition in letters.skip or partition in letters.floors
    }


def as_before_it_was_parked(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], run: Callable[[], Made]
) -> Made:
    """Run the tasks of a batch that the coordinator has, so that as many of its records fail as did the first time.

    If the dead letters lack the batch, and fewer records fail than the coordinator's stamp says, a table was parked
    since: then they are fitted to the columns that it has, or that the file declares for it.
    """
    seen, results = run()
    # Also one that has the batch itself: what it could not hold is a letter, and in no other table.
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
        f"stream {name}: of the records that table {stream.anchor.name} is past, {fewer} had failed and would not fail "
        f"now: {tables} was parked before their letters were made, and nobody knows which records it could not hold.",
        fix=f"put {tables} back, or make it with the columns that it had, also under another uuid; then start the "
        "stream: it stays parked, and its columns decide",
    )


def parked_columns(stream: OpenStream, name: str, own: TableMetadata) -> tuple[Schema, PartitionSpec] | None:
    """By which columns and partitions records are fitted to a parked table; None while nobody asks.

    Those of the table of its name, whoever made that, or else those with which the stream would make it.

    Args:
        own: Metadata of the stream's own table, as the batch was decided on.
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
            # Only the table itself says its columns: its records are not decoded.
            return None
        schema = new_follower_schema(spec, own, name) if spec.tables_follow else spec.table_schema_for(name)
        return schema, partition_spec(settings.partition_by, schema)
