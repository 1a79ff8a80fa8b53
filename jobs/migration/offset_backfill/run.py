"""Run of a backfill: ranges of offsets through the stream's own pipeline, stamped as `<stream>~backfill`.

What is left to land is found anew by each run, from the ledger, the stamps and the rows. So a run that was killed is
finished by the next one, and needs no record of what it had set out to do. The positions of a backfill are moved by an
operator's answer to the beginning of each pass, as `frazil reset-offsets` moves those of a stream.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError, StreamStopped
from jobs.base.failpoints import step
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.range_reader import read_split
from jobs.clients.state_store.lease import stream_lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.migration.offset_backfill.offset_sets import batches, passes
from jobs.migration.offset_backfill.plan import (
    BackfillPlan,
    BackfillRequest,
    plan_backfill,
    refuse_unfit,
    tables_rolled_back,
)
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.batch.tasks import slice_plan, task_results
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults, drop_files
from jobs.streaming.driver.context.writer_schemas import writer_schemas
from jobs.streaming.driver.opening.opening import decide_start
from jobs.streaming.driver.opening.takeover import claim, recover
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.streaming.operator.backfill_stream import as_backfill, backfill_id
from jobs.streaming.operator.reset import control_lock, move_claimed
from jobs.streaming.task.run import run_split
from jobs.streaming.task.splits import split_ranges
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.target_positions import TargetNeed

MAX_RECORDS = 200_000
"""Offsets of a batch: it is made in this process, beside the stream."""


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What a backfill did.

    Attributes:
        plan: What it set out to land.
        counts: What became of the records.
        batches: How many batches were committed.
        finished: Whether a batch that an earlier backfill had left was finished first.
        seconds: From its beginning to its end.
        kept: Tables whose rollback is kept: backfilled rows that it has taken out stay out, but for offsets that are
            landed now.
    """

    plan: BackfillPlan
    counts: Counts
    batches: int
    finished: bool
    seconds: float
    kept: tuple[str, ...] = ()


def run_backfill(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    kafka: KafkaLog,
    request: BackfillRequest,
    note: str,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    most: int = MAX_RECORDS,
) -> BackfillResult:
    """Land what is asked for and neither landed nor left to the stream; the stream may run.

    Args:
        note: Who asks, and why; kept in the stamps.
        on_progress: Told how many more offsets have landed, and of how many.
        most: Offsets of a batch.

    Raises:
        LeaseHeldError: Another backfill of the stream is at work.
        FrazilError: See `plan_backfill`.
        StreamStopped: Going on would lose or double records.
    """
    began = time.monotonic()
    spec = with_named_tables(spec, catalog)
    refuse_unfit(spec, catalog)
    kept = _accept_rollback(spec, settings, catalog, kafka, note)
    with _opened(spec, settings, catalog, kafka) as stream:
        finished = stream.recovered > 0 or _finish_half(stream, kafka)
        plan = plan_backfill(spec, settings, catalog, kafka, request)
        counts, number = Counts(), 0
        for pass_ in passes(plan.ranges):
            _begin_pass(stream, catalog, kafka, pass_, note)
            runner = BackfillRunner(stream, kafka, spec.stream)
            begins = dict(stream.begin.offsets)
            for end in batches(pass_, most, begins):
                done = runner.run(_NO_FRAME, number, end)
                counts, number = counts + done.counts, number + 1
                on_progress(sum(end.values()) - sum(begins.values()), plan.offsets)
                begins = end
        fill_ledger(catalog, settings, [spec, as_backfill(spec)])
        return BackfillResult(plan, counts, number, finished, time.monotonic() - began, kept)


def unfinished(spec: StreamSpec, settings: Settings, catalog: Catalog) -> bool:
    """Whether an earlier backfill was interrupted within a batch: by its pending record, or by the tables alone."""
    if stream_folder(settings, backfill_id(spec.stream)).pending_records():
        return True
    spec = with_named_tables(spec, catalog)
    names = [name for name in spec.target_names if catalog.table_exists(name)]
    targets = {name: Target(catalog, name, backfill_id(spec.stream), branch=spec.branch_of(name)) for name in names}
    stamps = {name: target.history().newest for name, target in targets.items()}
    return spec.coordinator in stamps and half_committed(stamps, spec.coordinator) is not None


_NO_FRAME: Any = None


@contextlib.contextmanager
def _opened(spec: StreamSpec, settings: Settings, catalog: Catalog, kafka: KafkaLog) -> Iterator[OpenStream]:
    """Hold the backfills of a stream, with claimed tables and what a crash left committed."""
    filled = as_backfill(spec)
    targets = {name: Target(catalog, name, filled.stream, branch=spec.branch_of(name)) for name in spec.target_names}
    stream = OpenStream(
        *(
            filled.stream,
            filled.config_hash,
            stream_lease(settings, filled.stream),
            targets,
            generation(spec, settings),
        ),
        spec=filled,
        settings=settings,
        folder=stream_folder(settings, filled.stream),
        log=kafka.state(filled.source),
    )
    try:
        with contextlib.ExitStack() as held:
            # A reset keeps the lock to its end, and none begins while this lease is held: the plan goes by positions.
            with control_lock(stream_folder(settings, spec.stream), spec.stream):
                held.enter_context(stream.held())
            for target in targets.values():
                target.read()
            stream.schemas = writer_schemas(filled, settings, stream.log.topics)
            claim(stream, kafka)
            recover(stream, catalog)
            yield stream
    except StreamStopped as stopped:
        # What stops a backfill has no answer by `frazil accept`, which is for streams.
        fix = stopped.fix if backfill_id(spec.stream) not in (stopped.fix or backfill_id(spec.stream)) else None
        raise type(stopped)(
            stopped.message.replace(backfill_id(spec.stream), f"{spec.stream} (backfill)"),
            fix=fix or f"frazil audit {spec.stream}, then run the same backfill again; nothing is landed twice",
        ) from None


def _accept_rollback(
    spec: StreamSpec, settings: Settings, catalog: Catalog, kafka: KafkaLog, note: str
) -> tuple[str, ...]:
    """If a rollback took out what a backfill had landed: stamp that, so that it can be asked for again.

    Returns:
        The tables that were rolled back.
    """
    names = tables_rolled_back(spec, catalog)
    if names:
        record_answer(as_backfill(spec), settings, lambda: kafka, Answer(rollback="keep"), note)
    return names


def _finish_half(stream: OpenStream, kafka: KafkaLog) -> bool:
    """Run a batch again that is in some tables only, and whose pending record is lost."""
    stamps = {name: target.newest for name, target in stream.targets.items()}
    newest = stream.anchor.newest
    if newest is None or half_committed(stamps, stream.anchor.name) is None:
        return False
    decide_start(stream, kafka)
    BackfillRunner(stream, kafka).run(_NO_FRAME, newest.batch, dict(newest.position))
    return True


def _begin_pass(
    stream: OpenStream, catalog: Catalog, kafka: KafkaLog, pass_: dict[TopicPartition, OffsetRange], note: str
) -> None:
    """Move the backfill's positions to the beginnings of a pass; those of other partitions to what Kafka keeps."""
    stream.log = kafka.state(stream.spec.source)
    at = stream.anchor.newest.position if stream.anchor.newest else {}
    wanted = {
        partition: pass_[partition].start
        if partition in pass_
        else min(max(at.get(partition, first), first), stream.log.latest[partition])
        for partition, first in stream.log.earliest.items()
    }
    step("before_backfill_pass")
    older = [stamp for _, stamp in stamps_along_main(stream.anchor.table.metadata, stream.id)]
    move_claimed(stream, catalog, wanted, note, older)
    step("after_backfill_pass")
    decide_start(stream, kafka)


class BackfillRunner(BatchRunner):
    """Runs batches as a driver does, but for the tasks, which run in this process.

    Args:
        of: Stream whose dead letters these are.
    """

    def __init__(self, stream: OpenStream, kafka: KafkaLog, of: str | None = None) -> None:
        super().__init__(stream, kafka, _wait)
        self._of: str = of or stream.spec.stream.partition("~")[0]

    def _run_tasks(
        self, frame: Any, batch: int, ranges: Ranges, needs: dict[str, TargetNeed], survey: bool
    ) -> TaskResults:
        stream = self._stream
        for target in stream.targets.values():
            target.renew_access()
        # The topic of the dead letters follows the stream's own batches.
        plan = replace(slice_plan(stream, batch, ranges, needs, survey=survey), stream=self._of, numbered=False)
        done = frozenset.intersection(*(target.skip for target in plan.targets))
        written = [
            result
            for split in split_ranges(ranges, 1, done)
            for result in run_split(plan, read_split(plan.reader, split, plan.timeout, plan.fetched))
        ]
        results = task_results(stream, written) if written else TaskResults({name: [] for name in stream.targets}, [])
        if results.tables:
            drop_files(results, stream.targets, keep=frozenset())
            values = ", ".join(sorted(str(each.value) for each in results.tables)[:5])
            raise FrazilError(
                f"stream {self._of}: records of {', '.join(map(str, ranges))} go to tables that the stream has not "
                f"made yet ({values}). Nothing of this batch was landed.",
                fix=f"name the tables in route of the stream's file, frazil run {self._of}, then run this again",
            )
        return results


def _wait(seconds: float) -> bool:
    """A command has nobody who asks it for its end but by a signal, which ends it here as well."""
    time.sleep(seconds)
    return False
