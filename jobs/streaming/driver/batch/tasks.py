"""Spark tasks of a batch: their plan, their run, and their results."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from jobs.base.failpoints import dies_elsewhere
from jobs.base.system.carried import NOTHING, carry
from jobs.base.system.typed_json import decode_json
from jobs.clients.kafka.consumer import consumer_options
from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.kafka.range_reader import read_split
from jobs.clients.spark.executors import cluster_problem, end_executor, executors_watched
from jobs.clients.spark.master import is_local, master_of
from jobs.config.values.targets import TargetSpec
from jobs.records.formats.interface.decoder_spec import SURVEY
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId
from jobs.records.schema.needs import RecordNeed
from jobs.streaming.driver.batch.remote_tasks import carried_settings, refuse_unseen
from jobs.streaming.driver.batch.retry import RAISED
from jobs.streaming.driver.batch.watermark import believed_until, known_times, passed_bounds
from jobs.streaming.driver.context.completeness import ObservedEnds
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.driver.context.second_run import (
    failed_before,
    parked_columns,
    table_as_decided,
    unknown_as_decided,
)
from jobs.streaming.driver.tables.lanes import refuse_altered, refuse_timeless, task_lanes
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.row_steps import row_steps_of
from jobs.streaming.task.event_time import EventTimePlan
from jobs.streaming.task.needs import UnnamedTable, decoded_need, merged_tables
from jobs.streaming.task.plan import TargetPlan, TaskPlan, task_metadata
from jobs.streaming.task.run import LearnedSchema, TaskResult, run_split
from jobs.streaming.task.splits import split_ranges
from jobs.streaming.task.tally import Tally
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.protocol.parked_target import ParkedTarget
from jobs.tables.commit.protocol.proposals import Seen
from jobs.tables.commit.stamp.offsets import PartitionRange, Ranges
from jobs.tables.commit.stamp.target_positions import TargetNeed
from jobs.tables.write.datafile_json import from_json
from jobs.tables.write.file_access import store_properties

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch whose tasks have run, before anything of it is recorded.

    Attributes:
        tasks_ended: End of the tasks, by the monotonic clock.
        ends: Ends of the logs after the tasks.
        seen_ms: Time before the ends were queried, milliseconds since 1970.
    """

    seen: dict[str, Seen]
    results: TaskResults
    tasks_ended: float
    ends: LogEnds
    seen_ms: int

    @property
    def observed_ends(self) -> ObservedEnds:
        """Ends of the logs with their time."""
        return ObservedEnds(self.seen_ms, self.ends.watermarks)


def run_tasks(
    stream: OpenStream,
    plan: TaskPlan,
    ranges: Ranges,
    context: SparkContext,
    say: Callable[[str | None], None] = lambda _: None,
) -> TaskResults:
    """Run the tasks of a batch; none of their files is recorded or committed.

    Args:
        say: Called with what tasks on a cluster wait for; with None when they no longer wait.

    Raises:
        ExecutorsLostError, ApplicationEndedError: The cluster took away the executors or the application.
        PythonException: A task failed; it has the traceback. Spark itself raises this for Python in SQL.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PythonException

    slices = split_ranges(
        ranges, context.defaultParallelism, frozenset.intersection(*(target.skip for target in plan.targets))
    )
    if not slices:
        return TaskResults({name: [] for name in stream.targets}, [])

    master = str(context.master)
    apart = not is_local(master)
    ends = apart and dies_elsewhere("inside_tasks")

    def run(pieces: Iterable[list[PartitionRange]]) -> Iterable[TaskResult]:
        parts = plan.fetched
        carry(plan.carried)
        try:
            written = [
                result
                for slice_ in pieces
                for result in run_split(plan, read_split(plan.reader, slice_, plan.timeout, parts))
            ]
            if ends:
                end_executor()
            return written
        except Exception:
            if not apart:
                raise
            # A cluster retries a failed task three times, for lost executors. Raising would wait for Kafka four times
            # before anybody is informed.
            return [TaskResult("failed", "", traceback.format_exc())]

    try:
        with executors_watched(context, say):
            results = context.parallelize(slices, len(slices)).mapPartitions(run).collect()
    except Py4JJavaError as problem:
        if (theirs := cluster_problem(context, str(problem))) is not None:
            raise theirs from None
        raise PythonException(message=python_traceback(str(problem))) from None
    for row in results:
        if row.kind == "failed":
            raise PythonException(message=python_traceback(row.payload))
    found = task_results(stream, results)
    if apart:
        refuse_unseen((file for files in found.files.values() for file in files), master)
    return found


def python_traceback(text: str) -> str:
    """Python's part of the JVM's message about a failed task: the exception, then the traceback with it again.

    The whole text if it has no traceback.
    """
    message = text.rpartition("PythonException: ")[2].partition("\n\n\tat ")[0]
    found = list(RAISED.finditer(message))
    return f"{message[found[-1].start() :].rstrip()}\n\n{message}" if found else message


def slice_plan(
    stream: OpenStream, batch: int, ranges: Ranges, needs: dict[str, TargetNeed], *, survey: bool = False
) -> TaskPlan:
    """Plan for each task of a batch."""
    spec, rows = stream.spec, table_as_decided(stream, needs)
    refused = unknown_as_decided(stream, needs)
    resolved = stream.resolved_for(rows, refused).with_options({SURVEY: True} if survey else {})
    if spec.own_columns:
        columns, steps = spec.record_columns, None
    else:
        columns = stream.record_columns_for(rows, refused)
        refuse_altered(spec, rows)
        steps = row_steps_of(spec, resolved.schema, columns)
    first_seen = datetime.now(UTC)
    reader = consumer_options(stream.settings.kafka.with_options(spec.source.options), spec.stream)

    def of(target: TargetSpec) -> TargetPlan:
        wanted, held = needs[target.name], stream.targets[target.name]
        metadata = rows if target.name == spec.table.name else held.table.metadata
        return TargetPlan(
            *(target, task_metadata(metadata), wanted.skip, wanted.floors, store_properties(held.table.io.properties)),
            parked=(parked := isinstance(held, ParkedTarget)),
            fitted=parked_columns(stream, target.name, rows) if parked else None,
        )

    return TaskPlan(
        stream=spec.stream,
        config=spec.config_hash,
        batch=batch,
        epoch=stream.epoch,
        first_seen=first_seen,
        resolved=resolved,
        columns=columns,
        steps=replace(steps, batch_time=stream.batch_time) if steps and steps.asks_batch_time else steps,
        targets=tuple(of(target) for target in spec.targets),
        file_prefix=f"{spec.stream}-{stream.epoch}-{batch}-{uuid.uuid4().hex[:8]}",
        reader=reader,
        # The client gives up a hanging request first, and then asks another broker.
        timeout=2 * stream.settings.kafka.request_timeout.total_seconds(),
        mask=spec.errors.mask,
        event_time=event_time_plan(stream, None if spec.own_columns else rows.schema(), ranges, needs, first_seen),
        route=None if spec.own_columns else spec.route,
        naming=naming_state(spec, stream.refused_values, decided=needs[stream.anchor.name].nothing),
        lanes=task_lanes(stream, ranges, needs, survey=survey),
        late_table=spec.late_table,
        failed=failed_before(stream, ranges, needs),
        carried=NOTHING if is_local(master_of(stream.settings)) else carried_settings(spec, stream.settings, reader),
    )


def event_time_plan(
    stream: OpenStream, columns: Schema | None, ranges: Ranges, needs: dict[str, TargetNeed], now: datetime
) -> EventTimePlan | None:
    """Bounds by which the tasks of a batch judge late records, from the stamps; None without an event time.

    Args:
        columns: Columns of the main table, under the schema of the batch; None if each table has its own.
        now: Time at which the batch is planned.
    """
    if (event_time := stream.spec.event_time) is None:
        return None
    newest = stream.anchor.newest
    if columns is not None:
        refuse_timeless(stream.spec, stream.spec.table.name, columns)
    passed = {}
    if newest is not None and event_time.late != "land" and not needs[stream.anchor.name].whole:
        kept = (stamp for _, stamp in stamps_along_main(stream.anchor.table.metadata, stream.spec.stream))
        passed = passed_bounds(ranges, newest, kept, event_time)
    bound_ms = known_times(newest, event_time).watermark_ms
    return EventTimePlan(event_time, bound_ms, believed_until(event_time, round(now.timestamp() * 1000)), passed)


def task_results(stream: OpenStream, rows: Iterable[TaskResult]) -> TaskResults:
    """Combined results of a batch's tasks."""
    files: dict[str, list[DataFile]] = {name: [] for name in stream.targets}
    tallies: list[Tally] = []
    needs: dict[str, list[RecordNeed]] = {}
    schemas: dict[SchemaId, RegistrySchema] = {}
    unmet: set[SchemaId] = set()
    tables: list[UnnamedTable] = []
    undecided = False
    for row in rows:
        if row.kind == "tally":
            tallies.append(decode_json(row.payload, Tally))
        elif row.kind == "need":
            needs.setdefault(row.target, []).append(decoded_need(row.payload))
        elif row.kind == "schema":
            schema_id, schema = decode_json(row.payload, LearnedSchema)
            schemas[schema_id] = schema
        elif row.kind == "unmet":
            unmet.add(decode_json(row.payload, SchemaId))
        elif row.kind == "table":
            tables.append(decode_json(row.payload, UnnamedTable))
        elif row.kind == "undecided":
            undecided = True
        else:
            metadata = stream.targets[row.target].table.metadata
            files[row.target].append(from_json(msgspec.json.decode(row.payload), metadata))
    needed = {name: tuple(each) for name, each in needs.items()}
    found = (needed, schemas, undecided, frozenset(unmet), tuple(merged_tables(tables)))
    return TaskResults(files, tallies, *found)
