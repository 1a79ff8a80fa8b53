"""Removed keys: which rows that are to be inserted a later change has removed already, by the changelog.

A row that was deleted leaves nothing in the mirror by which an older change could be told that comes behind: one whose
order is that of a version, or that of another partition. The changelog remembers it. Offsets alone tell nothing of the
kind: a key stays in its partition, and what comes late there is folded again anyway.
"""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false
# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import conversions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual, IsNull, Or
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from jobs.increment.offset_ranges import quoted_name, quoted_text
from jobs.mirror.change_frame import OFFSET, PARTITION, POSITION, TOPIC
from jobs.mirror.fold import FOLD_COLUMN, OP_COLUMN, UNAVAILABLE_COLUMN, UPSERT
from jobs.mirror.fold_tasks import OrderTask
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.merging_session import ordered_kinds
from jobs.mirror.order_token import NO_POSITION, least_position
from jobs.mirror.refold import History
from jobs.spec.changes import DELETION_MEMORY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DAY_MICROSECONDS = 86_400_000_000
_FEW_KEYS = 200_000
"""So many go to each task whole."""
# A function by type, whose signature no type checker sees.
_from_bytes: Any = conversions.from_bytes


def memory_begins(changelog: Schema, timestamp: str, files: Iterable[DataFile], now: float) -> datetime | None:
    """From when on deletions are looked for; None if Kafka's times are not known.

    Args:
        changelog: Its columns.
        timestamp: That of Kafka's time.
        files: Of the increment.
        now: In seconds since 1970.
    """
    if timestamp not in {field.name for field in changelog.fields}:
        return None
    field = changelog.find_field(timestamp)
    bounds = [(file.upper_bounds or {}).get(field.field_id) for file in files]
    known: list[int] = [_from_bytes(field.field_type, bound) for bound in bounds if bound]
    if not known:
        return None
    # Producers set these times: one may be of a clock far ahead, or in another unit.
    newest = min(max(known), int(now * 1e6))
    return datetime.fromtimestamp(max(newest, _DAY_MICROSECONDS * DELETION_MEMORY.days) / 1e6, UTC) - DELETION_MEMORY


def may_be_behind(newest: str) -> str:
    """The condition, in the SQL of Spark, of folded rows that a removal of which one knows may have come before.

    Args:
        newest: The greatest order token of a removal. Of others only those are asked for that a position orders, and
            in the same generation: positions before and after a restore say nothing of each other.
    """
    return (
        f"{FOLD_COLUMN} = '{UPSERT}' AND {ORDER_COLUMN} < {quoted_text(newest)} AND "
        f"substring({ORDER_COLUMN}, 1, 5) = {quoted_text(newest[:5])} AND "
        f"substring({ORDER_COLUMN}, 6, 2) <> '{NO_POSITION}.'"
    )


def rows_behind(orders: pa.Array, newest: str) -> pa.Array:
    """Which orders, of rows that are to be set, fulfil `may_be_behind`.

    Args:
        newest: As there; empty where no removal is known.
    """
    if not newest:
        return pa.repeat(pa.scalar(False), len(orders))
    same = pc.equal(pc.utf8_slice_codeunits(orders, 0, 5), newest[:5])
    placed = pc.not_equal(pc.utf8_slice_codeunits(orders, 5, 7), f"{NO_POSITION}.")
    return pc.and_(pc.and_(same, placed), pc.less(orders, newest))


def removed_later(history: History, rows: DataFrame, count: int, since: datetime | None) -> DataFrame:
    """The keys of folded rows of which the changelog has a later change by which they are not in the mirror.

    Args:
        rows: That the mirror does not have, with positions in their order, all of one generation.
        count: How many they are.
        since: Earlier deletions, by Kafka's time, are not looked for.
    """
    from pyspark.sql import functions as sql

    plan = history.plan
    key = [sql.col(quoted_name(name)) for name in plan.key]
    may_have: BooleanExpression = AlwaysTrue()
    if since is not None:
        may_have = GreaterThanOrEqual(plan.timestamp, since.isoformat())
    least = rows.agg(sql.min(sql.split_part(sql.col(ORDER_COLUMN), sql.lit("."), sql.lit(2)))).toArrow()[0][0].as_py()
    # A later one has no lower position, so it is in few files unless positions are those of single rows.
    may_have = And(may_have, Or(IsNull(POSITION), GreaterThanOrEqual(POSITION, least_position(least))))
    if plan.where is None:
        may_have = And(may_have, EqualTo(OP_COLUMN, "d"))
    place = (TOPIC, PARTITION, OFFSET, POSITION)
    found = history.changes(rows.select(*key), may_have, few=count <= _FEW_KEYS)
    changes = found.select(*key, OP_COLUMN, UNAVAILABLE_COLUMN, *place)
    if plan.where is None:
        # A row that does not fulfil a condition is gone by whichever change made it so.
        changes = changes.where(sql.col(OP_COLUMN) == "d")
    # By the generations that the stamp has no change is lower than by all of them: at worst a key is folded again.
    ordered = changes.mapInArrow(OrderTask(history.order, plan.key, late=True), ordered_kinds(changes, plan.key))
    mine = rows.select(*key, sql.col(ORDER_COLUMN).alias("_mine"))
    later = ordered.join(mine, list(plan.key)).where(sql.col(ORDER_COLUMN) > sql.col("_mine"))
    return later.select(*key).distinct()
