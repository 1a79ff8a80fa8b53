"""Trying letters: what would come back now, and why the rest would not. Nothing here changes a table."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.commit.stamp_parts import Counts
from jobs.deadletter.letters import LetterCounts, UnreadableLettersError, count_letters, letters_of
from jobs.deadletter.selection import ONLY_NAMED, Selection
from jobs.deadletter.table import STATES
from jobs.deadletter.table_upkeep import check_letters_table
from jobs.errors import FrazilError
from jobs.pipeline.pipeline import Pipeline
from jobs.replay.changes import Outcome
from jobs.replay.landed import LETTER_COLUMNS, first_of, has_coordinates, standing
from jobs.replay.pipeline import letter_pipeline
from jobs.replay.result import Progress, ReplayResult, Sums
from jobs.schema.compatibility import disagreements
from jobs.spec.correction import Correction
from jobs.spec.models import StreamSpec

MAX_LETTERS = 20_000
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What is to be replayed, and how.

    Attributes:
        selection: Which letters; those of the reasons `ONLY_NAMED` only where it names them.
        correction: Lies over the stream's spec for this replay only.
        rate: The most letters per second; None for what the spec says, which may be no limit.
        by: Who asks; kept in the letters.
        run_id: Dagster's run, if there is one.
    """

    selection: Selection = field(default_factory=Selection)
    correction: Correction | None = None
    rate: float | None = None
    by: str = ""
    run_id: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "selection", replace(self.selection, left_out=ONLY_NAMED))


def dry_run(
    spec: StreamSpec,
    catalog: Catalog,
    request: ReplayRequest,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> ReplayResult:
    """Find out which letters would come back now, and why others would not; touches nothing.

    Raises:
        SelectionError, AlteredTableError: As `replay`.
    """
    began = time.monotonic()
    sink, letters = tables_for(spec, catalog, request)
    corrected = request.correction.spec if request.correction else spec
    selected = count_letters(letters, spec.stream, request.selection)
    sums, trial = Sums(total=limited(selected, request)), Trial(corrected)
    for batch in batches_of(letters, spec.stream, request, sums, MAX_LETTERS):
        _, outcome = trial.take(sink, letters, batch)
        sums.counts += Counts(landed=len(outcome.landed))
        sums.standing += len(outcome.standing)
        for failure in outcome.failures:
            sums.failed_again += 1
            sums.failed_for(failure.stage, failure.error_class, where(batch, failure.row))
        on_progress(sums.progress)
    there_is = None if selected.total else all_letters(letters, spec.stream)
    return result_of(spec, request, sums, began, dry=True, there_is=there_is)


class Trial:
    """Letters through the pipeline, those left aside whose rows stand in the table."""

    def __init__(self, spec: StreamSpec) -> None:
        self._spec: StreamSpec = spec
        self._made: tuple[Schema, PartitionSpec, Pipeline] | None = None

    def _pipeline(self, sink: Table) -> Pipeline:
        """One for all batches: the decoder learns; another when the table's columns or partitions change meanwhile."""
        schema, partitions = sink.schema(), sink.spec()
        if self._made is None or self._made[:2] != (schema, partitions):
            self._made = schema, partitions, letter_pipeline(self._spec, sink)
        return self._made[2]

    def take(self, sink: Table, table: Table, letters: pa.RecordBatch) -> tuple[pa.RecordBatch, Outcome]:
        """What becomes of the letters of a batch.

        Args:
            sink: The stream's table.
            table: Of the letters; tells what has landed where the stream's table does not say where rows come from.

        Returns:
            Rows for the stream's table, and which letters they are of. A letter of a record that another letter lands
            counts as standing.
        """
        there = _standing(sink, table, letters)
        first = first_of(letters)
        alone = first == np.arange(letters.num_rows)
        kept = np.flatnonzero(alone & ~there)
        tried = self._pipeline(sink).run(letters if len(kept) == letters.num_rows else letters.take(pa.array(kept)))
        landed = kept[tried.positions]
        outcome = Outcome(
            landed,
            np.flatnonzero(there | (~alone & np.isin(first, landed))),
            [failure.at(int(kept[failure.row])) for failure in tried.failures],
        )
        # Another letter of a record that failed may keep more of it.
        rest = np.flatnonzero(~there & ~alone & ~np.isin(first, landed))
        if not len(rest):
            return tried.rows, outcome
        rows, others = self.take(sink, table, letters.take(pa.array(rest)))
        return (
            pa.concat_batches([each for each in (tried.rows, rows) if each.num_rows] or [rows]),
            Outcome(
                np.concatenate([landed, rest[others.landed]]),
                np.concatenate([outcome.standing, rest[others.standing]]),
                [*outcome.failures, *(failure.at(int(rest[failure.row])) for failure in others.failures)],
            ),
        )


def _standing(sink: Table, table: Table, letters: pa.RecordBatch) -> np.ndarray:
    if has_coordinates(sink):
        return standing(sink, letters)
    if "state" not in table.schema().column_names:
        return np.zeros(letters.num_rows, dtype=bool)
    return standing(table, letters, columns=LETTER_COLUMNS, only=EqualTo("state", "replayed"))


def tables_for(spec: StreamSpec, catalog: Catalog, request: ReplayRequest) -> tuple[Table, Table]:
    """The stream's table and its dead letters, seen to be fit for the request; nothing is changed yet."""
    missing = [name for name in spec.target_names if not catalog.table_exists(name)]
    if missing:
        raise FrazilError(
            f"stream {spec.stream}: table {missing[0]} does not exist, so there are no letters to bring back.",
            fix=f"frazil run {spec.stream}",
        )
    sink, letters = catalog.load_table(spec.table.name), catalog.load_table(spec.dead_letter_table)
    check_letters_table(letters)
    request.selection.filter(spec.stream, letters.schema())
    wanted = request.correction.spec if request.correction else spec
    differences = disagreements(wanted.resolved.schema, sink.schema(), kafka_columns=wanted.table.kafka_columns)
    if differences:
        what = "the correction declares" if request.correction else "the spec declares"
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} cannot hold what {what}: {'; '.join(differences)}",
            fix="correct the schema, or alter the table",
        )
    return sink, letters


def batches_of(table: Table, stream: str, request: ReplayRequest, sums: Sums, most: int) -> Iterator[pa.RecordBatch]:
    """The selected letters; files that cannot be read are told in the sums."""

    def unreadable(problem: UnreadableLettersError, rows: int) -> None:
        sums.unreadable += rows
        sums.problems.append(problem.message)

    return letters_of(table, stream, request.selection, most=most, most_bytes=MAX_BYTES, on_unreadable=unreadable)


def limited(selected: LetterCounts, request: ReplayRequest) -> int:
    """How many letters a selection means, its limit included."""
    limit = request.selection.limit
    return selected.total if limit is None else min(limit, selected.total)


def all_letters(letters: Table, stream: str) -> LetterCounts:
    """All letters of a stream, by state and reason."""
    return count_letters(letters, stream, Selection(states=STATES))


def where(letters: pa.RecordBatch, row: int) -> tuple[str, int, int]:
    """Topic, partition and offset of a letter."""
    return tuple(letters.column(name)[row].as_py() for name in ("topic", "partition", "offset"))


def result_of(
    spec: StreamSpec,
    request: ReplayRequest,
    sums: Sums,
    began: float,
    *,
    dry: bool = False,
    replay: str = "",
    there_is: LetterCounts | None = None,
) -> ReplayResult:
    """The sums as a result."""
    return ReplayResult(
        spec.stream,
        dry,
        replay,
        selected=sums.total,
        replayed=sums.counts.landed,
        standing=sums.standing,
        failed_again=sums.failed_again,
        parked=sums.parked,
        unreadable=sums.unreadable,
        reasons=tuple(sorted(sums.reasons.values(), key=lambda reason: (-reason.count, reason.error_class))),
        problems=tuple(sums.problems),
        snapshots=tuple(sums.snapshots),
        correction=request.correction.text if request.correction else None,
        seconds=time.monotonic() - began,
        there_is=there_is,
    )
