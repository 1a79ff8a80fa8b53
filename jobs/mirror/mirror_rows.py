"""Rows of one snapshot of a mirror, read by Spark for a comparison with the mirror's source."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.increment.offset_ranges import quoted_name
from jobs.mirror.compared_columns import RowDigests
from jobs.mirror.consistency import BUCKETS
from jobs.mirror.merge_plan import DELETED_COLUMN, ORDER_COLUMN
from jobs.mirror.source_table import Key, Leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """Row of the mirror.

    Attributes:
        order: Order of the change that it is from; empty if it was there before the mirror.
        digest: Digest of the row, or those of its columns.
        count: How many rows the key has; more than one are an error.
    """

    order: str
    digest: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class MirrorRows:
    """Rows of one snapshot.

    Attributes:
        session: Session that merges use.
        path: Name of the table in Spark.
        snapshot_id: Snapshot of the mirror.
        soft: Whether rows that the source has deleted stay.
        digests: Expressions over the compared columns.
    """

    session: SparkSession
    path: str
    snapshot_id: int
    soft: bool
    digests: RowDigests

    def leaves(self, buckets: Collection[int] | None) -> Leaves:
        """Count and digest of all leaves of some buckets, or of all."""
        from pyspark.sql import functions as sql

        leaf, rows = self.digests.leaf, self._rows()
        if buckets is not None:
            rows = rows.where(f"mod({leaf}, {BUCKETS}) IN ({', '.join(map(str, buckets))})")
        found = (
            rows.selectExpr(f"{leaf} AS leaf", f"CAST({self.digests.row} AS DECIMAL(20, 0)) AS digest")
            .groupBy("leaf")
            .agg(sql.count("*").alias("rows"), sql.sum("digest").alias("total"))
        )
        return {row["leaf"]: (row["rows"], int(row["total"])) for row in found.toArrow().to_pylist()}

    def rows_of_leaves(self, leaves: Collection[int]) -> dict[Key, MirrorRow]:
        """Rows of some leaves, with the digest of each."""
        rows = self._rows().where(f"{self.digests.leaf} IN ({', '.join(map(str, leaves))})")
        return self._by_key(rows, f"CAST({self.digests.row} AS STRING)")

    def rows_of_keys(self, keys: Iterable[Key]) -> dict[Key, MirrorRow]:
        """Rows of some keys that exist, with the digests of their columns."""
        from pyspark.sql import functions as sql

        joined = sql.to_json(sql.array(*[sql.expr(text) for text in self.digests.key_texts]))
        wanted = pa.table({"k": pa.array([list(each) for each in keys], pa.list_(pa.string()))})
        named = self.session.createDataFrame(wanted).select(sql.to_json("k").alias("frazil_k"))
        rows = self._rows().withColumn("frazil_k", joined).join(named, "frazil_k", "left_semi")
        return self._by_key(rows, self.digests.columns)

    def _by_key(self, rows: DataFrame, digest: str) -> dict[Key, MirrorRow]:
        texts = [f"{text} AS k{at}" for at, text in enumerate(self.digests.key_texts)]
        order = f"coalesce({quoted_name(ORDER_COLUMN)}, '') AS frazil_order"
        table = rows.selectExpr(order, f"{digest} AS digest", *texts).toArrow()
        orders, digests, *keys = (column.to_pylist() for column in table.columns)
        found: dict[Key, MirrorRow] = {}
        for order, each, *key in zip(orders, digests, *keys, strict=True):
            before = found.get(tuple(key))
            count = before.count + 1 if before else 1
            found[tuple(key)] = MirrorRow(max(order, before.order) if before else order, each, count)
        return found

    def _rows(self) -> DataFrame:
        rows = self.session.sql(f"SELECT * FROM {self.path} VERSION AS OF {self.snapshot_id}")
        return rows.where(f"NOT coalesce({quoted_name(DELETED_COLUMN)}, false)") if self.soft else rows
