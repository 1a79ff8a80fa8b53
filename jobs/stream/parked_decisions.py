"""Decisions about records of a batch that ran before a table was parked: they stand when it runs again for its letters.

A record that its table could not hold is one ordinary letter, and in no table. Once the table is parked nobody fits
records to it, so in the second run that record would wait for the table as well, and be a row elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.followers import new_follower_schema
from jobs.commit.offsets import Ranges, TopicPartition
from jobs.commit.parked_target import ParkedTarget
from jobs.commit.proposals import Seen
from jobs.commit.refusals import is_forbidden
from jobs.commit.target_positions import TargetNeed
from jobs.deadletter.reader import batch_letters
from jobs.errors import StreamStopped
from jobs.stream.open_stream import OpenStream
from jobs.stream.results import TaskResults, drop_files
from jobs.stream.second_run import fewer_letters
from jobs.write.partitioning import partition_spec

Read: TypeAlias = Callable[[Table, str, Ranges, int], Mapping[TopicPartition, frozenset[int]]]
Made: TypeAlias = tuple[dict[str, Seen], TaskResults]


def failed_before(
    stream: OpenStream, ranges: Ranges, needs: Mapping[str, TargetNeed], read: Read = batch_letters
) -> dict[TopicPartition, frozenset[int]]:
    """The records that are ordinary letters of the batch already: whoever completes it elsewhere leaves them out.

    Args:
        stream: The stream.
        ranges: The batch's.
        needs: What its targets lack of the batch.
        read: Gives the offsets of a batch's letters; see `batch_letters`.

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

    That is first tried as for any parked table: nobody knows what it holds. If the dead letters lack the batch, and
    fewer records fail than the coordinator's stamp says, the table was parked since: then they are fitted to the
    columns that it has, or that the file declares for it.

    Args:
        stream: The stream.
        ranges: The batch's.
        needs: What its targets lack of the batch.
        run: Runs the tasks, by a plan of what the stream says then.

    Raises:
        StreamStopped: Neither has the records fail that failed; the files are dropped.
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
    raise StreamStopped(
        f"stream {name}: of the records that table {stream.anchor.name} is past, {fewer} had failed and would not fail "
        f"now: {tables} was parked before their letters were made, and nobody knows which records it could not hold.",
        fix=f"put {tables} back, or make it with the columns that it had, also under another uuid; then start the "
        "stream: it stays parked, and its columns decide",
    )


def parked_columns(stream: OpenStream, name: str, own: TableMetadata) -> tuple[Schema, PartitionSpec] | None:
    """By which columns and partitions records are fitted to a parked table; None while nobody asks.

    Those of the table of its name, whoever made that, or else those with which the stream would make it.

    Args:
        stream: The stream.
        name: Of the table.
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
