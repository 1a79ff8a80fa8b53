"""Check of a table against its contract: chooses, loads and evaluates rows, which count as checked from then on."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.contract.contract import Expectation
from jobs.config.contract.expectation_catalogue import OF_NO_ROWS
from jobs.config.documents.validation import suggestion
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.quality.contracts.check_history import keep_check, part_of
from jobs.quality.contracts.check_result import CheckedRows, TableCheck, contract_digest
from jobs.quality.contracts.check_rows import (
    EngineName,
    RowBound,
    loaded_rows,
    masked_columns,
    needed_columns,
    row_count,
)
from jobs.quality.contracts.earlier_rows import Beside, beside, with_main
from jobs.quality.contracts.evaluation import EvaluationContext, evaluate
from jobs.quality.contracts.unavailable import spark_told
from jobs.quality.incremental_scan.increment import Increment, increment_since
from jobs.quality.incremental_scan.row_selection import (
    RowSelection,
    increment_rows,
    present_coordinates,
    rows_sql,
    whole_table,
)
from jobs.quality.incremental_scan.validated_position import (
    CheckSummary,
    record_validated,
    validated_position,
)
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.ledger.ledger_table import read_ledger
from jobs.tables.write.data_file_rows import UnreadableFileError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Progress = Callable[[str], None]
"""Called with what is done now, in a few words."""
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Settings of a contract's check.

    Attributes:
        catalog: Catalog of the tables.
        spark: Starts Spark, or returns the running session; called only if it is needed.
        rows: Rows to check.
        only: Names of the expectations; empty for all.
        engine: Engine; None: by the number of rows.
        record: Whether the rows count as checked afterwards, if the whole contract was evaluated on all new rows.
        branch: Branch of the main table; None: the one that the stream writes. Other tables always use the stream's
            branch.
        bound: Most rows for pandas.
        by: Author for the history: user and host, or a Dagster run.
        on_progress: Called with what is done.
    """

    spec: StreamSpec
    settings: Settings
    catalog: Catalog
    spark: Callable[[], SparkSession]
    rows: CheckedRows = field(default_factory=CheckedRows)
    only: Collection[str] = ()
    engine: EngineName | None = None
    record: bool = True
    branch: str | None = None
    bound: RowBound = field(default_factory=RowBound)
    by: str = "unknown"
    on_progress: Progress = lambda _: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def expectations(self, target: TargetSpec) -> Sequence[Expectation]:
        """Expectations of the contract about a target, limited to the requested ones."""
        every = contract_of(self.spec, target)
        return [each for each in every if each.name in self.only] if self.only else every

    def refuse_unknown(self) -> None:
        """Raise unless the contract has the requested expectations.

        Raises:
            FrazilError: It has no expectation of a name.
        """
        known = [each.name for one in self.spec.targets for each in contract_of(self.spec, one)]
        if unknown := sorted({*self.only} - {*known}):
            near = suggestion(unknown[0], known)
            said = f"; did you mean '{near}'?" if near else f": it has {', '.join(known) or 'none'}"
            raise FrazilError(
                f"the contract of stream {self.spec.stream} has no expectation '{unknown[0]}'{said}",
                fix=f"frazil check {self.spec.stream}",
            )

    def run(self, target: TargetSpec) -> TableCheck:
        """Check one of the stream's tables.

        Raises:
            FrazilError: A name is unknown, the table cannot be read, or Great Expectations is not installed.
        """
        self.refuse_unknown()
        began, attempts = time.monotonic(), 0
        while True:
            attempts += 1
            result = TableCheck(self.spec.stream, target.name, target.role, self.rows, self.now(), part=part_of(target))
            try:
                self._checked(target, result)
            except (FileNotFoundError, UnreadableFileError) as problem:
                # Snapshots expired while they were read. The next attempt finds where their rows are now.
                if attempts == _ATTEMPTS or not _is_gone(problem):
                    raise
                self.on_progress("snapshots have expired meanwhile: the table is read again")
                continue
            result.seconds = time.monotonic() - began
            return result

    def run_on(self, target: TargetSpec, table: Table, files: Sequence[DataFile], head: int) -> TableCheck:
        """Check the rows of data files as they landed, which readers may not see yet; nothing is recorded.

        Args:
            table: The whole table, not seen from a branch.
            files: Data files of the table.
            head: Snapshot with these files and the table's other rows.
        """
        began = time.monotonic()
        result = TableCheck(self.spec.stream, target.name, target.role, self.rows, self.now(), part=part_of(target))
        # The clock makes nothing missing: later rows are no fault of these.
        others = Beside(with_main(table, target, files), now=None)
        found = Increment(self._branch(target), "files", "", table.metadata.snapshot_by_id(head), files=tuple(files))
        result.found, result.not_recorded = found, "they were judged for their publication"
        selection = increment_rows(found, table, target.coordinates, None)
        self._evaluated(selection, others, self.expectations(target), target, result)
        self._keep(target, result, interval=True)
        result.seconds = time.monotonic() - began
        return result

    def _checked(self, target: TargetSpec, result: TableCheck) -> None:
        table = existing_table(self.catalog, target.name)
        expectations = self.expectations(target)
        if table is None or not expectations:
            return
        self.on_progress(f"{target.name}: finding what is new")
        result.found = found = self._increment(table, target)
        others = self._beside(found, table, target)
        selection = replace(self._selection(found, table, target, others), branch=self._branch(target))
        if selection.empty or (self.rows.scope == "increment" and found.empty):
            result.not_recorded = "there is nothing new"
            if self.rows.scope != "condition":
                nothing = replace(selection, files=(), snapshot_id=None)
                self._evaluated(nothing, others, expectations, target, result)
                self._keep(target, result)
            self._move_on(found, table, target)
            return
        self._evaluated(selection, others, expectations, target, result)
        self._keep(target, result)
        result.not_recorded = self._why_not_recorded(result)
        if not result.not_recorded:
            summary = CheckSummary(result.rows, len(result.outcomes), result.failures, contract_digest(expectations))
            position = found.validated(result.at, summary)
            step("check_before_record")
            if position is not None:
                result.recorded = record_validated(
                    self.catalog, target.name, self.spec.stream, position, self._branch(target)
                )
                result.not_recorded = "" if result.recorded else "another check has come as far"

    def _keep(self, target: TargetSpec, result: TableCheck, *, interval: bool = False) -> None:
        """Store the check's results in the history; an error in writing it changes nothing else."""
        if not result.outcomes:
            return
        store = stream_folder(self.settings, self.spec.stream).store
        try:
            keep_check(store, result, by=self.by, branch=self._branch(target), interval=interval)
        except OSError as problem:
            result.not_kept = f"{type(problem).__name__} at {store.place('checks')}: {problem.strerror or problem}"
            log.warning("stream %s: the check is not in the history: %s", self.spec.stream, result.not_kept)

    def _move_on(self, found: Increment, table: Table, target: TargetSpec) -> None:
        """Let the position follow a head that others have moved, so that it does not hold snapshots needlessly."""
        before = validated_position(table.metadata.properties, self.spec.stream, self._branch(target))
        if before is None or not self.record or found.head is None or found.head.snapshot_id == before.snapshot_id:
            return
        if (now := found.validated(before.at, before.summary)) is not None:
            record_validated(self.catalog, target.name, self.spec.stream, now, self._branch(target))

    def _increment(self, table: Table, target: TargetSpec) -> Increment:
        stream, branch = self.spec.stream, self._branch(target)
        position = validated_position(table.metadata.properties, stream, branch)
        uuid = str(table.metadata.table_uuid)
        return increment_since(
            table.metadata,
            table.io,
            stream,
            position if self.rows.scope == "increment" else None,
            branch=branch,
            locatable=present_coordinates(table, target.coordinates) is not None,
            ledger=lambda after: read_ledger(self.catalog, self.settings, stream, target.name, after, uuid),
        )

    def _selection(self, found: Increment, table: Table, target: TargetSpec, others: Beside) -> RowSelection:
        mine = self.spec.stream if target.role == "dead_letters" else None
        if self.rows.scope == "condition":
            head = found.head.snapshot_id if found.head else None
            return whole_table(table, target.coordinates, mine, where=self.rows.where, snapshot_id=head)
        if others.alone:
            return others.counted or others.everything
        return increment_rows(found, table, target.coordinates, mine)

    def _beside(self, found: Increment, table: Table, target: TargetSpec) -> Beside:
        # Rows that are the whole table have no other rows beside them.
        alone = self.rows.scope == "table" or (self.rows.scope == "increment" and found.found == "table")
        if self.rows.scope == "condition":
            return beside(self.spec, target, table, found, now=None, hours="between")
        return beside(self.spec, target, table, found, alone=alone, now=self.now())

    def _evaluated(
        self,
        selection: RowSelection,
        others: Beside,
        expectations: Sequence[Expectation],
        target: TargetSpec,
        result: TableCheck,
    ) -> None:
        table, schema = selection.table, selection.table.schema()
        names = [each.name for each in schema.fields]
        time_column = _time_column(self.spec, target)
        columns = needed_columns(expectations, schema, (*target.coordinates, time_column))
        counted = 0

        def on_rows(rows: int) -> None:
            nonlocal counted
            counted += rows
            self.on_progress(f"{target.name}: {counted:,} rows read")

        engine = self.engine if not selection.empty else "pandas"
        masked = masked_columns(self.spec, schema, table.properties, target.name) if target.role == "rows" else ()
        with contextlib.ExitStack() as stack:
            stack.enter_context(spark_told(target.name, self.spec.stream, masked=bool(masked)))
            rows = loaded_rows(
                selection, columns, engine, self.spark, self.settings, until=stack, bound=self.bound, on_rows=on_rows
            )
            result.engine = "pandas" if isinstance(rows, pa.Table) else "spark"
            result.rows = row_count(rows, selection)
            if not result.rows and (self.rows.scope == "increment" or selection.empty):
                result.nothing_new = tuple(each.name for each in expectations if each.type not in OF_NO_ROWS)
                expectations = [each for each in expectations if each.type in OF_NO_ROWS]
            if not expectations:
                return
            context = EvaluationContext(
                coordinates=tuple(name for name in target.coordinates if name in names),
                masked=masked,
                time_column=time_column if time_column in names else None,
                progress=lambda name: self.on_progress(f"{target.name}: {name} on {result.rows:,} rows"),
                **others.context(rows, self.spark, self.settings, time_column),
            )
            result.outcomes = evaluate(rows, expectations, context)
        catalog = self.settings.catalog.name
        result.sql = {
            each.name: rows_sql(selection, catalog, each.filter)
            for each in result.outcomes
            if not each.passed and each.filter is not None
        }

    def _why_not_recorded(self, result: TableCheck) -> str:
        if not self.record:
            return "nothing is recorded in a dry run"
        if self.only:
            return "only some expectations of the contract were asked for"
        if self.rows.scope == "condition":
            return "only rows that meet a condition were selected"
        if problems := [each.name for each in result.outcomes if each.problem is not None]:
            return f"{problems[0]} could not be evaluated"
        return ""

    def _branch(self, target: TargetSpec) -> str:
        return self.branch if self.branch is not None and target.coordinator else target.branch


def contract_of(spec: StreamSpec, target: TargetSpec) -> Sequence[Expectation]:
    """Expectations of a stream's contract about one of its targets."""
    return spec.contract.about(target) if spec.contract is not None else ()


def _time_column(spec: StreamSpec, target: TargetSpec) -> str | None:
    return spec.kafka_columns.timestamp if target.role == "rows" else "timestamp"


def _is_gone(problem: BaseException) -> bool:
    return isinstance(problem, FileNotFoundError) or isinstance(problem.__cause__, FileNotFoundError)
