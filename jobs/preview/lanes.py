"""Lanes of a preview: of a stream each of whose tables has columns of its own, each table's topics by themselves.

A lane is what a stream with one table is, so it is previewed as one; what became of the records of all is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from pyiceberg.catalog import Catalog

from jobs.deadletter.rows import dead_letter_rows
from jobs.formats.decoder import Failure
from jobs.formats.known_formats import FORMATS
from jobs.formats.problems import UNROUTED
from jobs.formats.writer_schema import SchemaLookup
from jobs.kafka.records import FetchedBlock
from jobs.pipeline.route import STAGE
from jobs.pipeline.route_naming import naming_state
from jobs.pipeline.topic_tables import TopicTable, topic_tables
from jobs.preview.preview import preview_stream
from jobs.preview.previewed_records import letter_of, places, unread_records
from jobs.preview.record import PreviewedPartition, PreviewedRecord, PreviewedTable, StreamPreview, TableChanges
from jobs.preview.tables import TableAsWritten, tables_as_written
from jobs.schema.needs import Coordinates
from jobs.spec.mask import NO_MASK, Mask
from jobs.spec.models import StreamSpec
from jobs.stream.first_records import RecordsAwaitedError
from jobs.stream.new_rows import NewColumns, SchemaAwaitedError


@dataclass(frozen=True, slots=True)
class LanePart:
    """One table of a stream with its topics, as a stream of its own; or a stream whose tables have the same columns.

    Attributes:
        tables: Its own, and the dead letters.
    """

    spec: StreamSpec
    tables: tuple[TableAsWritten, ...]


@dataclass(frozen=True, slots=True)
class PreviewLanes:
    """The parts of a stream's preview.

    Attributes:
        unrouted: The topics whose records go to no table.
    """

    spec: StreamSpec
    parts: tuple[LanePart, ...]
    unrouted: Mapping[str, TopicTable] = field(default_factory=dict)


def lanes_of(
    spec: StreamSpec, topics: Sequence[str], catalog: Catalog | None, new: Callable[[StreamSpec], NewColumns]
) -> PreviewLanes:
    """The parts of a stream each of whose tables has columns of its own.

    Args:
        spec: The stream, with its present tables.
        topics: Of the sample.
        catalog: Where its tables are; None where there is none yet.
        new: Gives the columns of a new table, of the stream as its rows are made, with its topics of the sample.

    Raises:
        FrazilError: A topic would go to two tables, or a table could not be made.
    """
    found = topic_tables(spec, topics, {*spec.target_names}, naming_state(spec, {}, decided=False))
    parts: list[LanePart] = []
    unrouted = {topic: each for topic, each in found.items() if each.table is None}
    for name in dict.fromkeys(each.table for each in found.values() if each.table is not None):
        mine = tuple(topic for topic, each in found.items() if each.table == name)
        source = spec.source.model_copy(update={"topics": mine, "topics_pattern": None})
        of_table = spec.for_table(name).model_copy(update={"source": source})
        try:
            tables = tables_as_written(of_table, catalog, lambda of_table=of_table: new(of_table))
        except (RecordsAwaitedError, SchemaAwaitedError) as awaited:
            why = f"needs a table, and {name} is not made yet: {awaited.message.partition(': ')[2].rstrip('.')}"
            unrouted |= {topic: TopicTable(None, found[topic].value, why, unmade=True) for topic in mine}
        else:
            parts.append(LanePart(of_table, tables))
    return PreviewLanes(spec, tuple(parts), unrouted)


def preview_lanes(
    lanes: PreviewLanes, blocks: Sequence[FetchedBlock], *, schemas: SchemaLookup | None = None, mask: Mask = NO_MASK
) -> StreamPreview:
    """What would become of records; arguments and errors as of `preview_stream`."""
    if not lanes.spec.own_columns:
        part = lanes.parts[0]
        return preview_stream(part.spec, part.tables, blocks, schemas=schemas, mask=mask)
    spec = lanes.spec
    mine = [[each for each in blocks if part.spec.source.reads(each.source.topic)] for part in lanes.parts]
    found = [
        preview_stream(part.spec, part.tables, of, schemas=schemas, mask=mask)
        for part, of in zip(lanes.parts, mine, strict=True)
    ]
    read = [each for of in mine for each in of]
    left = [each for each in blocks if each.source.topic in lanes.unrouted]
    records: dict[Coordinates, PreviewedRecord] = {at: each for one in found for at, each in one.records.items()}
    records |= {each.at: each for block in left for each in _unrouted(spec, block, lanes.unrouted, mask)}
    records |= {each.at: each for each in unread_records(blocks, [*read, *left])}
    hidings = {part.spec.table.name: each.decoded_hiding for part, each in zip(lanes.parts, found, strict=True)}
    hidden = [each.decoded_hiding for each in found]
    joint = (
        replace(hidden[0], masked=tuple(sorted({path for each in hidden for path in each.masked}))) if hidden else None
    )
    return StreamPreview(
        spec.stream,
        spec.config_hash,
        dict(sorted(records.items())),
        tuple(_joined_tables(spec, found)),
        _changes(lanes, found),
        _summed(each.left_out for each in found),
        tuple(note for each in found for note in each.notes),
        **({"decoded_hiding": joint} if joint is not None else {}),
        hidings=hidings | {name: of for each in found for name, of in each.hidings.items()},
    )


def _unrouted(
    spec: StreamSpec, block: FetchedBlock, unrouted: Mapping[str, TopicTable], mask: Mask
) -> Iterable[PreviewedRecord]:
    """The records of a topic that go to no table: none of them is decoded."""
    here, route = unrouted[block.source.topic], spec.route
    drops = route is not None and route.unmatched == "drop" and here.error_class == UNROUTED and not here.unmade
    there = np.asarray(block.records.column("value").is_valid())
    rows = [] if drops else np.flatnonzero(there).tolist()
    failures = [Failure(row, STAGE, here.error_class, here.refused, None) for row in rows]
    letters = dead_letter_rows(
        block.whole(rows),
        failures,
        stream=spec.stream,
        config_hash=spec.config_hash,
        batch_id=0,
        epoch=0,
        first_seen=datetime.now(UTC),
        mask=mask,
        columns=spec.record_columns,
        json_fields=FORMATS[spec.decode.format].json_fields,
    ).to_pylist()
    letter = dict(zip(rows, letters, strict=True))
    times = block.records.column("timestamp").to_pylist()
    for row, at in enumerate(places(block.records)):
        outcome = "dead" if row in letter else "filtered" if there[row] else "tombstone"
        yield PreviewedRecord(at, times[row], outcome, letter=letter_of(letter[row]) if row in letter else None)


def _joined_tables(spec: StreamSpec, found: Sequence[StreamPreview]) -> Iterable[PreviewedTable]:
    """Each table once; the dead letters of all parts are one."""
    letters: list[PreviewedTable] = []
    for one in found:
        for table in one.tables:
            if table.name == spec.dead_letter_table:
                letters.append(table)
            else:
                yield table
    if letters:
        partitions: dict[object, PreviewedPartition] = {}
        for each in (part for table in letters for part in table.partitions):
            known = partitions.get(each.values)
            sums = (each.rows, each.files, each.bytes)
            if known is not None:
                sums = (known.rows + each.rows, known.files + each.files, known.bytes + each.bytes)
            partitions[each.values] = PreviewedPartition(each.values, *sums)
        yield replace(letters[0], partitions=tuple(partitions.values()))


def _changes(lanes: PreviewLanes, found: Sequence[StreamPreview]) -> TableChanges:
    def of(kind: str) -> tuple[str, ...]:
        pairs = zip(lanes.parts, found, strict=True)
        return tuple(f"{part.spec.table.name}: {said}" for part, each in pairs for said in getattr(each.changes, kind))

    return TableChanges(of("made"), of("proposed"), of("refused"), of("failed"))


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for path, count in each.items():
            total[path] = total.get(path, 0) + count
    return dict(sorted(total.items()))
