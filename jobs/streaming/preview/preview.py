"""Preview of a stream: a sample of records through the task of its driver, without writing.

It runs the same task as Spark, which decodes, transforms, routes, fits and writes data files; their bytes are counted
and dropped. No table, lease or state is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from jobs.base.system.typed_json import decode_json
from jobs.clients.kafka.records import FetchedBlock
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK, Mask
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.writer_schema import SchemaLookup
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.schema.needs import Coordinates, RecordNeed
from jobs.streaming.pipeline.pipeline import fetched_parts
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.row_steps import RowSteps, prepare_steps, row_steps_of
from jobs.streaming.preview.previewed_records import Watch, previewed_records, unread_records
from jobs.streaming.preview.record import (
    PartitionValue,
    PreviewedPartition,
    PreviewedRecord,
    PreviewedTable,
    Row,
    StreamPreview,
)
from jobs.streaming.preview.tables import (
    EvolvingTable,
    TableAsWritten,
    followed_metadata,
    new_named_tables,
)
from jobs.streaming.preview.values import Hiding, decoded_hiding, landed_hiding
from jobs.streaming.task.needs import decoded_need
from jobs.streaming.task.plan import TargetPlan, TaskPlan, task_metadata
from jobs.streaming.task.run import TaskResult, run_split
from jobs.streaming.task.tally import Tally
from jobs.tables.write.counted_files import COUNTED_FILES
from jobs.tables.write.datafile_json import from_json

_COLUMNS = ("value", "topic", "partition", "offset", "timestamp")


def asked_parts(spec: StreamSpec, tables: Sequence[TableAsWritten]) -> frozenset[str]:
    """Parts of a record to fetch beyond value and coordinates, see `jobs.clients.kafka.records.fetched_block`."""
    table = _own(spec, tables).metadata
    resolved = spec.resolved_for(table.schema(), table.properties, evolving=True)
    columns = _columns(spec, table, None)
    return fetched_parts(resolved.decoder, columns, row_steps_of(spec, resolved.schema, columns))


def preview_stream(
    spec: StreamSpec,
    tables: Sequence[TableAsWritten],
    blocks: Sequence[FetchedBlock],
    *,
    schemas: SchemaLookup | None = None,
    mask: Mask = NO_MASK,
) -> StreamPreview:
    """Preview records.

    Args:
        tables: The stream's tables, see `tables_as_written`.
        blocks: Records with at least the parts that `asked_parts` names.
        schemas: Lookup of the records' writer schemas.
        mask: Mask of the dead letters: that of the stream's file, or a wider one.

    Raises:
        FrazilError: This machine lacks what a step needs, or the registry does not answer.
        ProjectionError: The table cannot hold any row of the stream.
    """
    prepare_steps(spec)
    mine = [each for each in blocks if spec.source.reads(each.source.topic)]
    parts = asked_parts(spec, tables)
    tables, now = list(tables), datetime.now(UTC)
    followers = {each.target.name: each.metadata for each in tables if _follows(spec, each)}
    evolving = EvolvingTable(spec, _own(spec, tables).metadata, followers)
    while True:
        watch = Watch()
        resolved = evolving.resolved.with_schemas(schemas)
        written = [_as_it_would_be(spec, each, evolving.metadata) for each in tables]
        columns = _columns(spec, evolving.metadata, schemas)
        steps = row_steps_of(spec, resolved.schema, columns)
        hidden = steps is not None and (steps.hide_values or mask != NO_MASK)
        steps = replace(steps, hide_values=hidden, batch_time=now) if steps else None
        plan = _plan(spec, written, resolved, columns, steps, mask)
        results = run_split(plan, (_narrowed(each, parts) for each in mine), watch.pipeline)
        if named := new_named_tables(spec, results, evolving.metadata):
            spec = spec.with_named_tables(each.target.name for each in named)
            tables += named
        elif not evolving.decide(_needs(results)):
            break
    found = previewed_records(plan, watch.blocks, mine, {each.target.name: each.metadata.schema() for each in written})
    records: dict[Coordinates, PreviewedRecord] = {each.at: each for each in (*found, *unread_records(blocks, mine))}
    return StreamPreview(
        spec.stream,
        spec.config_hash,
        dict(sorted(records.items())),
        tuple(_with_files(each, results) for each in written),
        evolving.changes,
        _left_out(results),
        tuple(_notes(spec, written)),
        *_hidings(plan, records.values()),
    )


def _plan(
    spec: StreamSpec,
    tables: Sequence[TableAsWritten],
    resolved: ResolvedSchema,
    columns: RecordColumns,
    steps: RowSteps | None,
    mask: Mask,
) -> TaskPlan:
    return TaskPlan(
        stream=spec.stream,
        config=spec.config_hash,
        batch=0,
        epoch=0,
        first_seen=datetime.now(UTC),
        resolved=resolved,
        columns=columns,
        targets=tuple(
            TargetPlan(each.target, task_metadata(each.metadata), io_properties=COUNTED_FILES) for each in tables
        ),
        file_prefix="preview",
        mask=mask,
        steps=steps,
        route=spec.route,
        naming=naming_state(spec, {}, decided=False),
    )


def _columns(spec: StreamSpec, table: TableMetadata, schemas: SchemaLookup | None) -> RecordColumns:
    return spec.record_columns_for(table.schema(), table.properties).with_schemas(schemas)


def _own(spec: StreamSpec, tables: Sequence[TableAsWritten]) -> TableAsWritten:
    return next(each for each in tables if _is_own(spec, each))


def _as_it_would_be(spec: StreamSpec, table: TableAsWritten, own: TableMetadata) -> TableAsWritten:
    """A table's expected state, given the main table's."""
    if _is_own(spec, table):
        return replace(table, metadata=own)
    if not _follows(spec, table):
        return table
    return replace(table, metadata=followed_metadata(spec, own, table.metadata, table.target.name))


def _follows(spec: StreamSpec, table: TableAsWritten) -> bool:
    return spec.tables_follow and table.target.role == "rows" and not table.target.coordinator


def _is_own(spec: StreamSpec, table: TableAsWritten) -> bool:
    return table.target.name == spec.table.name


def _hidings(plan: TaskPlan, records: Iterable[PreviewedRecord]) -> tuple[Hiding, dict[str, Hiding]]:
    """Hidden parts of decoded rows, and of each table's rows."""
    decoded = decoded_hiding(plan.mask, plan.resolved.schema, plan.columns, plan.resolved.names)
    transformed = plan.steps is not None and bool(plan.steps.chain)
    pairs: dict[str, list[tuple[Row, Row]]] = {each.target.name: [] for each in plan.targets}
    for each in records:
        for table, row in each.rows.items():
            pairs[table].append((each.decoded or {}, row))
    return decoded, {
        table: landed_hiding(decoded, found, plan.columns.kafka, transformed=transformed)
        for table, found in pairs.items()
    }


def _narrowed(block: FetchedBlock, parts: frozenset[str]) -> FetchedBlock:
    """The block with only the parts that this stream's task would fetch."""
    names = ["timestampType" if part == "timestamp_type" else part for part in sorted(parts)]
    return replace(block, records=block.records.select([*_COLUMNS, *names]))


def _needs(results: Sequence[TaskResult]) -> list[RecordNeed]:
    return [decoded_need(each.payload) for each in results if each.kind == "need"]


def _tallies(results: Sequence[TaskResult]) -> Iterator[Tally]:
    return (decode_json(each.payload, Tally) for each in results if each.kind == "tally")


def _left_out(results: Sequence[TaskResult]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tally in _tallies(results):
        for path, count in tally.unknown_fields.items():
            found[path] = found.get(path, 0) + count
    return dict(sorted(found.items()))


def _with_files(table: TableAsWritten, results: Sequence[TaskResult]) -> PreviewedTable:
    """The table with the data files of the task."""
    files = [
        from_json(msgspec.json.decode(each.payload), table.metadata)
        for each in results
        if each.kind == "file" and each.target == table.target.name
    ]
    by_partition: dict[tuple[PartitionValue, ...], list[DataFile]] = {}
    for file in files:
        by_partition.setdefault(_partition(file, table.metadata), []).append(file)
    partitions = tuple(
        PreviewedPartition(
            values, sum(each.record_count for each in of), len(of), sum(each.file_size_in_bytes for each in of)
        )
        for values, of in sorted(by_partition.items())
    )
    return PreviewedTable(
        table.target.name, table.target.role, table.state, table.metadata.schema(), table.problem, partitions
    )


def _partition(file: DataFile, table: TableMetadata) -> tuple[PartitionValue, ...]:
    schema, spec = table.schema(), table.spec()
    kinds = [each.field_type for each in spec.partition_type(schema).fields]
    found: list[PartitionValue] = []
    for number, (each, kind) in enumerate(zip(spec.fields, kinds, strict=True)):
        column = (schema.find_column_name(each.source_id) or "").partition(".")[0]
        found.append(PartitionValue(each.name, column, each.transform.to_human_string(kind, file.partition[number])))
    return tuple(found)


def _notes(spec: StreamSpec, tables: Sequence[TableAsWritten]) -> Iterator[str]:
    for each in tables:
        if each.problem is not None:
            yield f"A driver with this file would not start: {each.problem}."
    if spec.event_time is not None and spec.event_time.late != "land":
        yield "Which records are too late depends on the batch that reads them: here none is."
