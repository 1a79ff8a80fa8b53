"""Replay request: dead letters, correction and rate; with the tables that it needs, and its dead letters.

Nothing here changes a table.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.config.settings.correction import Correction
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.result import Reasons, ReplayResult, ReturnResult
from jobs.dead_letters.replay.routing import refuse_other_tables, refuse_unfit
from jobs.records.schema.difference import differences
from jobs.records.transforms.transform import StepProblem
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.dead_letter_table.reader import (
    UnreadableDeadLettersError,
    count_dead_letters,
    dead_letter_batches,
)
from jobs.tables.dead_letter_table.selection import ONLY_NAMED, Selection
from jobs.tables.dead_letter_table.table import STATES, check_dead_letter_table

MAX_LETTERS = 20_000
MAX_BYTES = 64 * 1024 * 1024
# With a rate, a batch holds the dead letters of this many seconds.
_RATE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Request for a replay.

    Attributes:
        selection: Selected dead letters; those of the reasons `ONLY_NAMED` only if it names these.
        correction: Correction of the stream's spec, for this replay only.
        rate: Most dead letters per second; None: as in the spec, which may have no limit.
        by: Author, recorded in the dead letters.
        run_id: Dagster's run, if there is one.
        fewer_columns: Whether the correction may omit columns that the stream's rows fill.
    """

    selection: Selection = field(default_factory=Selection)
    correction: Correction | None = None
    rate: float | None = None
    by: str = ""
    run_id: str | None = None
    fewer_columns: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "selection", replace(self.selection, left_out=ONLY_NAMED))

    def corrected(self, spec: StreamSpec) -> StreamSpec:
        """The stream with the correction, if there is one."""
        return self.correction.spec if self.correction else spec

    def with_tables_of(self, catalog: Catalog) -> ReplayRequest:
        """The request with a correction that knows the dynamic tables."""
        if self.correction is None:
            return self
        spec = with_named_tables(self.correction.spec, catalog)
        return replace(self, correction=replace(self.correction, spec=spec))

    def for_tables_of(self, spec: StreamSpec, catalog: Catalog) -> ReplayRequest:
        """The request without dead letters of suspended tables."""
        return replace(self, selection=replace(self.selection, parked=tuple(sorted(parked_tables(spec, catalog)))))

    def new_result(self, stream: str, *, dry_run: bool = False) -> ReplayResult:
        """A result with nothing counted yet."""
        return ReplayResult(stream, dry_run, correction=self.correction.text if self.correction else None)

    def count(self, letters: Table, stream: str) -> int:
        """Number of requested dead letters, within the selection's limit."""
        selected = count_dead_letters(letters, stream, self.selection).total
        return selected if self.selection.limit is None else min(self.selection.limit, selected)

    def pace(self, spec: StreamSpec, most: int) -> Pace:
        """Pace of batches of at most `most` records."""
        return Pace(self.rate or self.corrected(spec).errors.replay.rate, most)


class Pace:
    """Pace of a replay: limits records per second by smaller batches and by pauses.

    Args:
        rate: Most records per second; None for no limit.
        most: Most records of a batch without a limit.
        sleep: Waits for some seconds.

    Attributes:
        batch: Most records of a batch.
    """

    def __init__(self, rate: float | None, most: int, sleep: Callable[[float], None] = time.sleep) -> None:
        self.batch: int = most if rate is None else max(1, min(most, int(rate * _RATE_SECONDS)))
        self._rate: float | None = rate
        self._sleep: Callable[[float], None] = sleep
        self._began: float = time.monotonic()

    def wait(self, passed: int) -> None:
        """Pause before the next batch, after `passed` records."""
        if self._rate is not None and passed:
            self._sleep(max(0.0, passed / self._rate - (time.monotonic() - self._began)))


def requested_tables(spec: StreamSpec, catalog: Catalog, request: ReplayRequest) -> tuple[Table, Table]:
    """The stream's table and its dead letters, checked for the replay request; nothing is changed yet."""
    missing = [name for name in (spec.table.name, spec.dead_letter_table) if not catalog.table_exists(name)]
    if missing:
        raise FrazilError(
            f"stream {spec.stream}: table {missing[0]} does not exist, so there are no dead letters to bring back.",
            fix=f"frazil run {spec.stream}",
        )
    sink, letters = (stream_table(catalog, spec, name) for name in (spec.table.name, spec.dead_letter_table))
    check_dead_letter_table(letters)
    request.selection.filter(spec.stream, letters.schema())
    corrected = request.corrected(spec)
    if corrected.coordinator_has_rows or not spec.own_columns:
        refuse_unfit(corrected, sink, request.correction)
    refuse_other_tables(spec, corrected)
    return sink, letters


def columns_left_null(spec: StreamSpec, catalog: Catalog, request: ReplayRequest) -> tuple[str, ...]:
    """Columns that the stream's rows fill by its file, and that the request's correction leaves null.

    Raises:
        FrazilError: There are some, and the request does not allow this.
    """
    if request.correction is None:
        return ()
    names = [each.name for each in spec.targets if each.role == "rows"] if spec.own_columns else [spec.table.name]
    found: dict[str, None] = {}
    for name in names:
        has_rows = name != spec.table.name or spec.coordinator_has_rows or not spec.own_columns
        # If the correction's steps are impossible, a dead letter for the table ends the replay.
        with contextlib.suppress(StepProblem):
            if has_rows and catalog.table_exists(name):
                table = stream_table(catalog, spec, name)
                by_file, corrected = (
                    each.for_table(name).rows_for(table.schema(), name, properties=table.properties)
                    for each in (spec, request.correction.spec)
                )
                found |= {each.column: None for each in differences(corrected, by_file) if each.kind == "gone"}
    if found and not request.fewer_columns:
        raise FrazilError(
            f"stream {spec.stream}: the correction leaves out columns that the stream's file has: {', '.join(found)}. "
            "Each row that comes back would have null there. Nothing was changed.",
            fix="name all columns in the correction (its decode.schema takes the place of the file's); or run this "
            "again with --fewer-columns (in Dagster `fewer_columns: true`) if null is meant",
        )
    return tuple(found)


def requested_batches(
    table: Table, request: ReplayRequest, result: ReplayResult | ReturnResult, most: int
) -> Iterator[pa.RecordBatch]:
    """Selected dead letters of a replay request, in batches; unreadable files are named in the result."""

    def unreadable(problem: UnreadableDeadLettersError, rows: int) -> None:
        result.unreadable += rows
        result.problems.append(problem.message)

    return dead_letter_batches(
        table, result.stream, request.selection, most=most, most_bytes=MAX_BYTES, on_unreadable=unreadable
    )


def finish_result(result: ReplayResult, reasons: Reasons, began: float, letters: Table) -> ReplayResult:
    """Complete the result of a replay request; with all dead letters of the stream if it selects none.

    Args:
        began: Start time, by the monotonic clock.
    """
    result.reasons = reasons.by_count()
    if not result.selected:
        result.there_is = count_dead_letters(letters, result.stream, Selection(states=STATES))
    result.seconds = time.monotonic() - began
    return result
