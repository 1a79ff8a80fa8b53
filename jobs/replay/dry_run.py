"""Dry run of a replay: which dead letters would come back now, and why the others would not. It changes no table."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyiceberg.catalog import Catalog

from jobs.commit.named_tables import with_named_tables
from jobs.formats.writer_schema import SchemaLookup
from jobs.replay.pipeline import ReplayPipeline
from jobs.replay.request import (
    MAX_LETTERS,
    ReplayRequest,
    columns_left_null,
    finish_result,
    requested_batches,
    requested_tables,
)
from jobs.replay.result import Reasons, ReplayProgress, ReplayResult
from jobs.replay.routing import refuse_unlocated
from jobs.replay.row_tables import ReadTables
from jobs.spec.models import StreamSpec


def dry_run(
    spec: StreamSpec,
    catalog: Catalog,
    request: ReplayRequest,
    *,
    schemas: SchemaLookup | None = None,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
) -> ReplayResult:
    """Find out which letters would come back now, and why others would not; touches nothing.

    Args:
        schemas: Finds the writer schemas of records that name theirs.

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
    tables, parked = ReadTables(spec, catalog), request.selection.parked
    pipeline = ReplayPipeline(request.corrected(spec), tables, schemas, parked)
    for batch in requested_batches(letters, request, result, MAX_LETTERS):
        _, outcome = pipeline.process(letters, batch)
        result.add(outcome, pipeline.unknown_fields)
        reasons.add_batch(batch, outcome.failures)
        on_progress(result.progress)
    return finish_result(result, reasons, began, letters)
