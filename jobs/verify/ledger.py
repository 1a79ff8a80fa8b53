"""The ledger of a catalog: what the stamps said of every batch and every operator's answer, kept beyond their expiry.

It is filled from the stamps, at any time and by anybody: each filling commits the rows together with how far it has
come, on exactly the head of the ledger that it decided on, so several at once never write a row twice.
"""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, Or
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.compare_and_swap import compare_and_swap
from jobs.commit.errors import CommitRefusedError, HeadMovedError
from jobs.commit.history import stamps_along_main
from jobs.commit.operations import Append
from jobs.commit.producer import commit_once
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.verify import ledger_table
from jobs.verify.ledger_marks import (
    AUDITED_PREFIX,
    AuditMark,
    known_of,
    marks_of,
    marks_text,
)
from jobs.verify.ledger_news import news_of, tables_of
from jobs.verify.ledger_row import LedgerRow
from jobs.write.target_writer import TargetWriter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Filled:
    """What a filling did.

    Attributes:
        rows: Rows written; 0 if nothing was new.
        unknown: Those of them that stand for stamps which had expired before they were filled in.
        snapshot_id: The ledger's new snapshot, None if nothing was new.
    """

    rows: int
    unknown: int = 0
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A stamped snapshot that the ledger does not have yet."""

    stream: str
    table: str
    snapshot_id: int
    sequence: int


def fill(catalog: Catalog, settings: Settings, specs: Sequence[StreamSpec]) -> Filled:
    """Write what is new in the stamps of these streams' tables to the ledger, in one commit.

    Raises:
        CommitRefusedError: Others committed to the ledger each time; nothing of this is written.
        CommitUnknownError: The catalog did not say whether the commit landed; the next filling finds out.
    """

    def attempt() -> Filled:
        ledger = ledger_table.existing(catalog, settings)
        news = news_of(catalog, ledger, specs)
        if not news.properties:
            return Filled(0)
        if ledger is None:
            # Somebody else may make and fill it at the same moment, so it is decided again on what is there then.
            ledger = ledger_table.ensured(catalog, settings)
            news = news_of(catalog, ledger, specs)
            if not news.properties:
                return Filled(0)
        files = _written(ledger, news.blocks)
        try:
            snapshot_id = commit_once(ledger, Append(files), summary={}, properties=news.properties)
        except HeadMovedError as moved:
            if moved.final:
                # Otherwise a copy of the commit may be under way, which a slow catalog still carries out.
                _drop(ledger, files)
            raise
        return Filled(news.rows, news.unknown, snapshot_id)

    return compare_and_swap(settings.ledger.table, attempt, _crowded)


def read(
    catalog: Catalog,
    settings: Settings,
    stream: str,
    table: str | None = None,
    after_sequence: int | None = None,
    uuid: str | None = None,
) -> list[LedgerRow]:
    """The rows of a stream, in order of table, sequence and effect; see `jobs.verify.ledger_row`.

    Args:
        table: Only those of the table of this name; of all that ever had it, by uuid.
        after_sequence: Only those of later commits.
        uuid: With `table`, also those of the table of this uuid, which may have had another name.
    """
    ledger = ledger_table.existing(catalog, settings)
    if ledger is None:
        return []
    return ledger_table.from_arrow(ledger.scan(row_filter=rows_wanted(stream, table, after_sequence, uuid)).to_arrow())


def unrecorded(catalog: Catalog, settings: Settings, specs: Sequence[StreamSpec]) -> list[Unrecorded]:
    """The stamped snapshots that would leave a hole in the ledger if they expired now, newest first per table.

    Claims are none of them: they say nothing of records.
    """
    ledger = ledger_table.existing(catalog, settings)
    found: list[Unrecorded] = []
    for spec in specs:
        known = known_of(ledger.metadata.properties, spec.stream) if ledger else {}
        for table, metadata in tables_of(catalog, spec):
            after = known[table.uuid].sequence if table.uuid in known else -1
            found += [
                Unrecorded(spec.stream, table.target.name, snapshot_id, stamp.sequence)
                for snapshot_id, stamp in stamps_along_main(metadata, spec.stream, after)
                if stamp.kind != "claim"
            ]
    return found


def audited(catalog: Catalog, settings: Settings, stream: str) -> dict[str, AuditMark]:
    """How far each table of a stream was audited, by its uuid."""
    ledger = ledger_table.existing(catalog, settings)
    return marks_of(ledger.metadata.properties, stream) if ledger else {}


def mark_audited(catalog: Catalog, settings: Settings, stream: str, marks: Mapping[str, AuditMark]) -> None:
    """Note how far tables were audited, by uuid; a mark behind the one that is there is left out.

    Raises:
        CommitRefusedError: Others committed to the ledger each time; the marks are as they were.
    """

    def attempt() -> None:
        ledger = ledger_table.ensured(catalog, settings)
        there = marks_of(ledger.metadata.properties, stream)
        newer = {key: mark for key, mark in marks.items() if key not in there or there[key].sequence <= mark.sequence}
        if any(there.get(key) != mark for key, mark in newer.items()):
            properties = {AUDITED_PREFIX + stream: marks_text({**there, **newer})}
            commit_once(ledger, Append(), summary={}, properties=properties)

    compare_and_swap(settings.ledger.table, attempt, _crowded)


def _written(ledger: Table, blocks: Sequence[pa.RecordBatch]) -> list[DataFile]:
    writer = TargetWriter(ledger.metadata, ledger.io, file_prefix=f"ledger-{uuid.uuid4().hex}")
    try:
        for block in blocks:
            writer.write(block)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _drop(ledger: Table, files: Sequence[DataFile]) -> None:
    for file in files:
        try:
            ledger.io.delete(file.file_path)
        except OSError as problem:
            log.warning("could not delete %s, which no snapshot references: %s", file.file_path, problem)


def _crowded(said: str) -> CommitRefusedError:
    return CommitRefusedError(f"the ledger: {said}", fix="nothing is lost: do it again once fewer others write to it")


def rows_wanted(
    stream: str, table: str | None, after_sequence: int | None, uuid: str | None = None
) -> BooleanExpression:
    """Rows of a stream; of a table by its name, or by its uuid under any; of commits with a greater sequence number."""
    first = 0 if after_sequence is None else after_sequence + 1
    wanted: BooleanExpression = And(EqualTo("stream", stream), GreaterThanOrEqual("sequence", first))
    if table is None:
        return wanted
    # A table that was renamed has rows under its former name; it keeps its uuid.
    named: BooleanExpression = EqualTo("table_name", table)
    return And(wanted, named if uuid is None else Or(named, EqualTo("table_uuid", uuid)))
