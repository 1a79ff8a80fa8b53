"""Merging session: the session of Spark that merges run in, and the frames that they are made of."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.base.system.signals import deferred_signals
from jobs.clients.spark.catalog_conf import use_catalog
from jobs.clients.spark.jvm_calls import interruptible
from jobs.config.settings.settings import Settings
from jobs.mirrors.fold.fold import FOLD_COLUMN, FROM_TARGET_COLUMN, OP_COLUMN, REFOLD_COLUMN, UNAVAILABLE_COLUMN
from jobs.mirrors.fold.row_filter import FILTERED_COLUMN, PROBLEM_COLUMN, UNJUDGED_COLUMN
from jobs.mirrors.model.merge_plan import ORDER_COLUMN
from jobs.quality.incremental_scan.offset_ranges import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


T = TypeVar("T")

_CONF = {
    # Iceberg tells columns apart by upper and lower case.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
}
_known: weakref.WeakKeyDictionary[SparkSession, tuple[str, SparkSession]] = weakref.WeakKeyDictionary()


def merging_session(session: SparkSession, settings: Settings) -> SparkSession:
    """The session beside a session that merges run in, which knows the catalog.

    It is one for all merges, each of which would connect to the catalog anew; with other settings, or secrets, of the
    catalog it is another one.
    """
    given = [sorted(settings.catalog.revealed().items()), sorted(settings.spark.revealed_conf().items())]
    mark = hashlib.sha256(repr([settings.catalog.name, *given]).encode()).hexdigest()
    with deferred_signals():
        known = _known.get(session)
        if known is not None and known[0] == mark:
            return known[1]
        own = session.newSession()
        for key, value in _CONF.items():
            own.conf.set(key, value)
        use_catalog(own, settings)
        _known[session] = mark, own
    return own


def interruptible_jobs(session: SparkSession, name: str, call: Callable[[], T]) -> T:
    """The result of a call; a signal that ends the wait for it cancels its jobs.

    Args:
        name: Of what it does, for the tag of its jobs.
    """
    context, tag = session.sparkContext, f"frazil-{name}-{uuid.uuid4()}"

    def tagged() -> T:
        context.addJobTag(tag)
        try:
            return call()
        finally:
            context.removeJobTag(tag)

    return interruptible(tagged, lambda: context.cancelJobsWithTag(tag))


def ordered_kinds(changes: DataFrame, columns: Sequence[str], extra: Sequence[str] = ()) -> StructType:
    """What `OrderTask` gives of changes."""
    from pyspark.sql.types import StringType, StructField, StructType

    kinds = {field.name: field for field in changes.schema.fields}
    names = (*columns, OP_COLUMN, UNAVAILABLE_COLUMN, *extra)
    return StructType([*(kinds[name] for name in names), StructField(ORDER_COLUMN, StringType())])


def folded_kinds(changes: DataFrame, columns: Sequence[str]) -> StructType:
    """What `FoldTask` gives of changes."""
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

    kinds = {field.name: field for field in changes.schema.fields}
    return StructType(
        [
            StructField(FOLD_COLUMN, StringType()),
            StructField(ORDER_COLUMN, StringType()),
            *(StructField(name, kinds[name].dataType) for name in columns),
            StructField(FROM_TARGET_COLUMN, ArrayType(StringType())),
            StructField(REFOLD_COLUMN, BooleanType()),
            StructField(FILTERED_COLUMN, BooleanType()),
            StructField(UNJUDGED_COLUMN, BooleanType()),
            StructField(PROBLEM_COLUMN, StringType()),
        ]
    )


def sorted_by_key(rows: DataFrame, key: Sequence[str], tasks: int) -> DataFrame:
    """Rows with all of a key in one task, there by key and order."""
    names = [quoted_name(name) for name in key]
    return rows.repartition(tasks, *names).sortWithinPartitions(*names, ORDER_COLUMN)


def kept_frame(frame: DataFrame, until: contextlib.ExitStack) -> DataFrame:
    """The same rows, computed now; their space is given back at the end of `until`.

    What Spark persists it finds again in queries, but not in a MERGE, which would read the changes and fold them anew.
    So the rows are checkpointed where they are computed. An executor that is lost meanwhile fails the merge.
    """
    kept = frame.localCheckpoint(eager=True)
    until.callback(_given_back, kept)
    return kept


def _given_back(kept: Any) -> None:
    # A JVM that has ended has given it back, and its end is told by what went before.
    with contextlib.suppress(Exception):
        # As RDD.unpersist does it, which warns that it is checkpointed.
        checkpointed = kept._jdf.queryExecution().analyzed().rdd().id()
        kept.sparkSession.sparkContext._jsc.sc().unpersistRDD(checkpointed, False)
