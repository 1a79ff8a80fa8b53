"""Removed keys: which rows that are to be inserted a later change has removed already, by the changelog.

A row that was deleted leaves nothing in the mirror by which an older change could be told that comes behind: one whose
order is that of a version, or that of another partition. The changelog remembers it.
"""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyiceberg import conversions
from pyiceberg.expressions import AlwaysTrue, GreaterThanOrEqual
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from jobs.increment.offset_ranges import quoted_name
from jobs.mirror.change_frame import OFFSET, PARTITION, POSITION, TOPIC
from jobs.mirror.fold import OP_COLUMN, UNAVAILABLE_COLUMN
from jobs.mirror.fold_tasks import OrderTask
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.merging_session import ordered_kinds
from jobs.mirror.refold import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MEMORY = timedelta(days=7)
"""Deletions that came to Kafka so long before the newest change of an increment are not looked for."""
# A function by type, whose signature no type checker sees.
_from_bytes: Any = conversions.from_bytes


def memory_begins(changelog: Schema, timestamp: str, files: Iterable[DataFile]) -> datetime | None:
    """From when on deletions are looked for; None if Kafka's times are not known.

    Args:
        changelog: Its columns.
        timestamp: That of Kafka's time.
        files: Of the increment.
    """
    if timestamp not in {field.name for field in changelog.fields}:
        return None
    field = changelog.find_field(timestamp)
    bounds = [(file.upper_bounds or {}).get(field.field_id) for file in files]
    known: list[int] = [_from_bytes(field.field_type, bound) for bound in bounds if bound]
    return datetime.fromtimestamp(max(known) / 1e6, UTC) - MEMORY if known else None


def removed_later(history: History, rows: DataFrame, since: datetime | None) -> DataFrame:
    """The keys of folded rows of which the changelog has a later change by which they are not in the mirror.

    Args:
        rows: That the mirror does not have.
        since: Earlier deletions, by Kafka's time, are not looked for.
    """
    from pyspark.sql import functions as sql

    plan = history.plan
    key = [sql.col(quoted_name(name)) for name in plan.key]
    young = AlwaysTrue() if since is None else GreaterThanOrEqual(plan.timestamp, since.isoformat())
    place = (TOPIC, PARTITION, OFFSET, POSITION)
    changes = history.changes(rows.select(*key), young).select(*key, OP_COLUMN, UNAVAILABLE_COLUMN, *place)
    if plan.where is None:
        # A row that does not fulfil a condition is gone by whichever change made it so.
        changes = changes.where(sql.col(OP_COLUMN) == "d")
    ordered = changes.mapInArrow(OrderTask(history.order, plan.key, late=True), ordered_kinds(changes, plan.key))
    mine = rows.select(*key, sql.col(ORDER_COLUMN).alias("_mine"))
    later = ordered.join(mine, list(plan.key)).where(sql.col(ORDER_COLUMN) > sql.col("_mine"))
    return later.select(*key).distinct()
