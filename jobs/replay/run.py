"""Replaying letters: the records of a selection through the stream's pipeline as it is now, into the same tables."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.stamp_parts import Counts
from jobs.deadletter.letters import count_letters
from jobs.errors import FrazilError
from jobs.formats.decoder import Failure
from jobs.replay.changes import Attempt, changes_after
from jobs.replay.dry_run import (
    MAX_LETTERS,
    ReplayRequest,
    Trial,
    all_letters,
    batches_of,
    limited,
    result_of,
    tables_for,
    where,
)
from jobs.replay.opening import is_at_rest, refuse_unfinished_queue, refuse_unfinished_return, replay_session
from jobs.replay.result import Progress, ReplayResult, Sums
from jobs.replay.session import ReplaySession, replay_folder
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.paths import stream_folder
from jobs.steps import step
from jobs.write.target_writer import TargetWriter

MAX_RUNS = 5
# With a rate, a batch holds what may pass in so many seconds.
_RATE_SECONDS = 5.0


def replay(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    request: ReplayRequest,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> ReplayResult:
    """Bring letters back, each record once, whatever was killed and however often this is run.

    Args:
        spec: The stream, as its file has it.
        on_progress: Told after each batch.

    Raises:
        LeaseHeldError: Another replay of the stream is at work.
        SelectionError, AlteredTableError, StreamStopped: Nothing is changed by this call.
    """
    began = time.monotonic()
    sink, letters = tables_for(spec, catalog, request)
    refuse_unfinished_queue(stream_folder(settings, spec.stream), spec.stream)
    refuse_unfinished_return(replay_folder(settings, spec.stream), spec.stream)
    nothing = Sums()
    if is_at_rest(spec, settings, sink, letters) and not _any_of(letters, spec.stream, request, nothing):
        # It would commit nothing but its claims.
        return result_of(spec, request, nothing, began, there_is=all_letters(letters, spec.stream))
    with replay_session(spec, settings, catalog) as session:
        # Finishing what an earlier replay left may have changed letters.
        session.letters.read()
        work = _Replay(session, request)
        selected = count_letters(session.letters.table, spec.stream, request.selection)
        work.sums.total = limited(selected, request)
        # Also without a letter that can be read: it tells of the others.
        work.run(on_progress)
        there_is = None if selected.total else all_letters(session.letters.table, spec.stream)
        return result_of(spec, request, work.sums, began, replay=work.id, there_is=there_is)


def _any_of(letters: Table, stream: str, request: ReplayRequest, sums: Sums) -> bool:
    return next(batches_of(letters, stream, request, sums, 1), None) is not None


class _Replay:
    """One replay at work."""

    def __init__(self, session: ReplaySession, request: ReplayRequest) -> None:
        self.sums: Sums = Sums()
        self.id: str = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{session.epoch}-{uuid.uuid4().hex[:6]}"
        self._session: ReplaySession = session
        self._request: ReplayRequest = request
        self._spec: StreamSpec = request.correction.spec if request.correction else session.spec
        self._rate: float | None = request.rate or self._spec.errors.replay.rate
        self._trial: Trial = Trial(self._spec)
        correction = request.correction.text if request.correction else None
        park_after = self._spec.errors.replay.park_after
        self._attempt: Attempt = Attempt(self.id, request.by or None, request.run_id, correction, park_after)

    def run(self, on_progress: Callable[[Progress], None]) -> None:
        """All batches of the selection, one after another."""
        most = MAX_LETTERS if self._rate is None else max(1, min(MAX_LETTERS, int(self._rate * _RATE_SECONDS)))
        began, passed = time.monotonic(), 0
        stream, table = self._session.spec.stream, self._session.letters.table
        for batch in batches_of(table, stream, self._request, self.sums, most):
            if self._rate is not None and passed:
                time.sleep(max(0.0, passed / self._rate - (time.monotonic() - began)))
            self._land(batch)
            passed += batch.num_rows
            on_progress(self.sums.progress)

    def _land(self, letters: pa.RecordBatch) -> None:
        sink = self._session.sink
        for _ in range(MAX_RUNS):
            sink.read()
            seen = sink.seen()
            rows, outcome = self._trial.take(sink.table, self._session.letters.table, letters)
            files = self._written(rows)
            step("replay_after_files")
            landed, failed = len(outcome.landed), len(outcome.failures)
            counts = Counts(landed + failed, landed, failed)
            changes = changes_after(letters, outcome, self._attempt)
            if self._session.land(self._spec.config_hash, files, seen, changes, counts):
                self._count(letters, counts, len(outcome.standing), changes, outcome.failures)
                if files and self._session.snapshot is not None:
                    self.sums.snapshots.append(self._session.snapshot)
                return
        raise FrazilError(
            f"stream {self._spec.stream}: a batch of letters was tried {MAX_RUNS} times and each time table "
            f"{sink.name} had changed meanwhile.",
            fix="let the other writer finish, then run this again",
        )

    def _written(self, rows: pa.RecordBatch) -> list[DataFile]:
        if not rows.num_rows:
            return []
        table = self._session.sink.table
        writer = TargetWriter(table.metadata, table.io, file_prefix=f"replay-{self._session.epoch}")
        try:
            writer.add(rows)
            return writer.close()
        except BaseException:
            writer.abort()
            raise

    def _count(
        self,
        letters: pa.RecordBatch,
        counts: Counts,
        aside: int,
        changes: pa.Table,
        failures: list[Failure],
    ) -> None:
        parked = changes.column("state").to_pylist().count("parked")
        self.sums.counts += counts
        self.sums.standing += aside
        self.sums.parked += parked
        self.sums.failed_again += len(failures) - parked
        for failure in failures:
            self.sums.failed_for(failure.stage, failure.error_class, where(letters, failure.row))
