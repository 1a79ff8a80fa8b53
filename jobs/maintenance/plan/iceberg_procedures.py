"""Iceberg's procedures and actions on a Spark session; no other module calls them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from jobs.base.errors import FrazilError
from jobs.base.system.signals import deferred_signals
from jobs.clients.spark.catalog_conf import use_catalog
from jobs.clients.spark.jvm_calls import interruptible, jvm_error_text
from jobs.config.settings.settings import Settings
from jobs.config.values.partitioning import SortExpr
from jobs.maintenance.measure.health_facts import PartitionFacts
from jobs.maintenance.plan.procedure_arguments import (
    java_sort_order,
    java_strings,
    partition_filter,
    partition_key,
    procedure_call,
    quoted,
    with_options,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


P = ParamSpec("P")
T = TypeVar("T")

_VIEW = "frazil_files_nobody_names"


class ProcedureError(FrazilError):
    """A maintenance procedure of Iceberg failed.

    Safe: Each of its commits is in the table whole or not at all.
    Next: `frazil maintain TABLE`
    """


class LostToOthersError(ProcedureError):
    """Other writers committed before a maintenance procedure, so its commit was refused.

    Safe: Nothing of the commit is in the table.
    Next: `frazil maintain TABLE`, while fewer others commit
    """


# Iceberg's messages if another commit has replaced the files or manifests of a commit.
_LOST = ("CommitFailedException", "could not be found in the latest snapshot", "Manifest is missing")


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """Result of rewriting one partition's data files.

    Attributes:
        key: Values of the partition, from the JVM.
        failed: Number of data files that could not be rewritten.
    """

    key: tuple[Any, ...]
    rewritten: int = 0
    added: int = 0
    bytes: int = 0
    failed: int = 0


def _apart(method: Callable[Concatenate[Procedures, P], T]) -> Callable[Concatenate[Procedures, P], T]:
    """Run the conversation with the JVM in another thread, where no signal can interrupt it, while the caller waits."""

    @functools.wraps(method)
    def talk(self: Procedures, *args: P.args, **kwargs: P.kwargs) -> T:
        return interruptible(lambda: method(self, *args, **kwargs), self.cancel)

    return talk


class Procedures:
    """Iceberg's maintenance of one table.

    The table has a session of its own, as the catalog's settings, secrets among them, must not reach the caller's.
    """

    def __init__(self, session: SparkSession, settings: Settings, table: str) -> None:
        self._settings: Settings = settings
        self._table: str = table
        self._theirs: SparkSession = session
        with deferred_signals():
            self._session: SparkSession = session.newSession()
            use_catalog(self._session, settings)
        self._catalog: str = settings.catalog.name

    @property
    def cores(self) -> int:
        """Number of tasks that Spark runs at once."""
        return max(1, self._session.sparkContext.defaultParallelism)

    def cancel(self) -> None:
        """Cancel Spark's work."""
        self._session.sparkContext.cancelAllJobs()

    @_apart
    def call(self, procedure: str, **arguments: object) -> dict[str, Any]:
        """Run a procedure on the table and return its one result row by column; empty without a row.

        Args:
            arguments: Arguments by the procedure's case-sensitive names; None is left out.
        """
        rows = self._rows(procedure, arguments)
        return rows[0].asDict() if rows else {}

    def _rows(self, procedure: str, arguments: Mapping[str, object]) -> list[Any]:
        try:
            return self._session.sql(procedure_call(self._catalog, self._table, procedure, arguments)).collect()
        except Exception as problem:
            raise self._problem(procedure, problem) from None

    @_apart
    def remove_files(self, files: Sequence[tuple[str, datetime]], older_than: datetime) -> list[str]:
        """Have Iceberg delete those of the files that no snapshot of the table references.

        Args:
            files: Full paths, in the style of the table's location, with their modification times.
            older_than: Younger files stay, even if listed.

        Returns:
            Deleted files.
        """
        frame = self._session.createDataFrame(list(files), "file_path string, last_modified timestamp")
        frame.createOrReplaceTempView(_VIEW)
        try:
            rows = self._rows(
                "remove_orphan_files",
                {
                    "older_than": older_than,
                    "dry_run": False,
                    "file_list_view": _VIEW,
                    "prefix_mismatch_mode": "ERROR",
                },
            )
        finally:
            self._session.catalog.dropTempView(_VIEW)
        return [row[0] for row in rows]

    @_apart
    def rewrite_data_files(
        self,
        partitions: Sequence[PartitionFacts],
        strategy: str,
        sort_by: Sequence[SortExpr],
        options: Mapping[str, object],
    ) -> list[RewriteResult]:
        """Rewrite the data files of some partitions, chosen by the options.

        It uses the action, not the procedure: the procedure's `where` does not support buckets, and its result has no
        partitions.

        Args:
            strategy: `binpack`, `sort` or `zorder`.
            sort_by: The columns of `sort` and `zorder`.

        Returns:
            One result for each group of files.
        """
        with self._active("rewrite_data_files"):
            jvm, actions, table = self._actions()
            action = actions.rewriteDataFiles(table)
            if strategy == "zorder":
                action = action.zOrder(java_strings(self._session, [each.column for each in sort_by]))
            elif strategy == "sort":
                action = action.sort(java_sort_order(jvm, table, sort_by))
            else:
                action = action.binPack()
            result = with_options(action.filter(partition_filter(jvm, partitions)), options).execute()
            found = [
                RewriteResult(
                    partition_key(jvm, group.info().partition()),
                    rewritten=group.rewrittenDataFilesCount(),
                    added=group.addedDataFilesCount(),
                    bytes=group.rewrittenBytesCount(),
                )
                for group in result.rewriteResults()
            ]
            return found + [
                RewriteResult(partition_key(jvm, group.info().partition()), failed=group.dataFilesCount())
                for group in result.rewriteFailures()
            ]

    @_apart
    def rewrite_position_deletes(
        self, partitions: Sequence[PartitionFacts], options: Mapping[str, object]
    ) -> list[RewriteResult]:
        """Rewrite the position delete files of some partitions; one result for each group of files."""
        with self._active("rewrite_position_delete_files"):
            jvm, actions, table = self._actions()
            action = actions.rewritePositionDeletes(table).filter(partition_filter(jvm, partitions))
            return [
                RewriteResult(
                    partition_key(jvm, group.info().partition()),
                    rewritten=group.rewrittenDeleteFilesCount(),
                    added=group.addedDeleteFilesCount(),
                    bytes=group.rewrittenBytesCount(),
                )
                for group in with_options(action, options).execute().rewriteResults()
            ]

    @contextlib.contextmanager
    def _active(self, procedure: str) -> Iterator[None]:
        """Set the thread's active session, in whose settings Spark looks catalogs up."""
        # If the JVM is dead, setting a session fails like the procedure.
        try:
            sessions: Any = self._session._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
            sessions.setActiveSession(self._session._jsparkSession)
            try:
                yield
            finally:
                sessions.setActiveSession(self._theirs._jsparkSession)
        except Exception as problem:
            raise self._problem(procedure, problem) from None

    def _actions(self) -> tuple[Any, Any, Any]:
        """The JVM, Iceberg's actions on this session, and the Java table."""
        jvm: Any = self._session._jvm
        spark: Any = self._session._jsparkSession
        name = f"{quoted(self._catalog)}.{quoted(self._table)}"
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark, name)
        return jvm, jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark), table

    def _problem(self, procedure: str, problem: BaseException) -> ProcedureError:
        why = jvm_error_text(self._settings, problem)
        kind = LostToOthersError if any(each in why for each in _LOST) else ProcedureError
        return kind(
            f"table {self._table}: {procedure} failed: {why}",
            fix=f"see to the cause, then frazil maintain {self._table}, which carries on",
        )
