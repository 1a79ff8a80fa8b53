"""Replay run and its dry run: the selected dead letters go through the stream's present pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.opening import (
    is_at_rest,
    refuse_unfinished_queue,
    refuse_unfinished_return,
    replay_session,
)
from jobs.dead_letters.replay.pipeline import ReplayPipeline
from jobs.dead_letters.replay.replay_state import ReplayAttempt, changes_after
from jobs.dead_letters.replay.request import (
    MAX_LETTERS,
    ReplayRequest,
    columns_left_null,
    finish_result,
    requested_batches,
    requested_tables,
)
from jobs.dead_letters.replay.result import Reasons, ReplayProgress, ReplayResult
from jobs.dead_letters.replay.routing import ReadTables, SessionTables, refuse_unlocated
from jobs.dead_letters.replay.session import ReplaySession, replay_folder
from jobs.records.formats.interface.writer_schema import SchemaLookup
from jobs.streaming.driver.context.writer_schemas import schema_lookup
from jobs.streaming.pipeline.row_steps import asks_batch_time
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.stamp_fields import Counts

MAX_RUNS = 5


def dry_run(
    spec: StreamSpec,
    catalog: Catalog,
    request: ReplayRequest,
    *,
    schemas: SchemaLookup | None = None,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
) -> ReplayResult:
    """Find out which dead letters would come back now, and why others would not; changes nothing.

    Raises:
        SelectionError, AlteredTableError: As `replay`.
    """
    began = time.monotonic()
    spec, request = with_named_tables(spec, catalog), request.with_tables_of(catalog)
    request = request.for_tables_of(spec, catalog)
    sink, letters = requested_tables(spec, catalog, request)
    refuse_unlocated(spec, request.corrected(spec), sink)
    result, reasons = request.new_result(spec.stream, dry_run=True), Reasons()
    result.null_columns = columns_left_null(spec, catalog, request)
    result.selected = request.count(letters, spec.stream)
    tables, parked = ReadTables.of_stream(spec, catalog), request.selection.parked
    pipeline = ReplayPipeline(request.corrected(spec), tables, schemas, parked)
    for batch in requested_batches(letters, request, result, MAX_LETTERS):
        _, outcome = pipeline.process(letters, batch)
        result.add(outcome, pipeline.unknown_fields)
        reasons.add_batch(batch, outcome.failures)
        on_progress(result.progress)
    return finish_result(result, reasons, began, letters)


def replay(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    request: ReplayRequest,
    *,
    most: int = MAX_LETTERS,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
) -> ReplayResult:
    """Bring dead letters back, each record once, whatever is killed and however often this runs.

    Args:
        most: Most dead letters in a batch.

    Raises:
        LeaseHeldError: Another replay of the stream is running.
        SelectionError, AlteredTableError, StreamStopped: This call has changed nothing.
    """
    began = time.monotonic()
    spec, request = with_named_tables(spec, catalog), request.with_tables_of(catalog)
    request = request.for_tables_of(spec, catalog)
    sink, letters = requested_tables(spec, catalog, request)
    refuse_unlocated(spec, request.corrected(spec), sink)
    null_columns = columns_left_null(spec, catalog, request)
    refuse_unfinished_queue(stream_folder(settings, spec.stream), spec.stream)
    refuse_unfinished_return(replay_folder(settings, spec.stream), spec.stream)
    result = request.new_result(spec.stream)
    if is_at_rest(spec, settings, sink, letters) and next(requested_batches(letters, request, result, 1), None) is None:
        # It would commit only its claims.
        return finish_result(result, Reasons(), began, letters)
    with replay_session(spec, settings, catalog) as session:
        # Finishing an earlier replay may have changed dead letters.
        session.letters.read()
        work = _Replay(session, request, schema_lookup(request.corrected(spec), settings))
        work.result.null_columns = null_columns
        work.result.selected = request.count(session.letters.table, spec.stream)
        # Run even without readable dead letters, to report the others.
        work.run(most, on_progress)
        return finish_result(work.result, work.reasons, began, session.letters.table)


class _Replay:
    """One running replay."""

    def __init__(self, session: ReplaySession, request: ReplayRequest, schemas: SchemaLookup | None) -> None:
        self.result: ReplayResult = request.new_result(session.spec.stream)
        self.result.replay = session.new_replay()
        self.reasons: Reasons = Reasons()
        self._session: ReplaySession = session
        self._request: ReplayRequest = request
        self._spec: StreamSpec = request.corrected(session.spec)
        self._tables: SessionTables = SessionTables(session)
        self._pipeline: ReplayPipeline = ReplayPipeline(self._spec, self._tables, schemas, request.selection.parked)
        at = self._pipeline.batch_time
        self._batch_ms: int | None = round(at.timestamp() * 1000) if asks_batch_time(self._spec) else None
        correction = request.correction.text if request.correction else None
        park_after = self._spec.errors.replay.park_after
        self._attempt: ReplayAttempt = ReplayAttempt(
            self.result.replay, request.by or None, request.run_id, correction, park_after
        )

    def run(self, most: int, on_progress: Callable[[ReplayProgress], None]) -> None:
        """Process all batches of the selection, one after another."""
        table = self._session.letters.table
        pace, passed = self._request.pace(self._session.spec, most), 0
        for batch in requested_batches(table, self._request, self.result, pace.batch):
            pace.wait(passed)
            self._land(batch)
            passed += batch.num_rows
            on_progress(self.result.progress)

    def _land(self, letters: pa.RecordBatch) -> None:
        for _ in range(MAX_RUNS):
            self._tables.begin()
            made, outcome = self._pipeline.process(self._session.letters.table, letters)
            outcome.refuse_unaccounted(self._spec.stream, letters.num_rows)
            parts = self._tables.written(made)
            step("replay_after_files")
            landed, failed = len(outcome.landed), len(outcome.failures)
            counts = Counts(landed + failed, landed, failed)
            changes = changes_after(letters, outcome, self._attempt)
            if self._session.land(self._spec.config_hash, parts, changes, counts, self._batch_ms):
                parked = changes.column("state").to_pylist().count("parked")
                self.result.add(outcome, self._pipeline.unknown_fields, parked)
                self.reasons.add_batch(letters, outcome.failures)
                if parts and self._session.snapshot is not None:
                    self.result.snapshots.append(self._session.snapshot)
                return
        raise FrazilError(
            f"stream {self._spec.stream}: a batch of dead letters was tried {MAX_RUNS} times and each time a table of "
            "the stream had changed meanwhile.",
            fix="let the other writer finish, then run this again",
        )
