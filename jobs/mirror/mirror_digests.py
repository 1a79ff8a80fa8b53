"""Mirror's side of a comparison with its source: counts, digests and rows of one snapshot, by Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.increment.offset_ranges import quoted_name
from jobs.mirror.compared_columns import ComparedColumn
from jobs.mirror.consistency import BUCKETS
from jobs.mirror.merge_plan import DELETED_COLUMN, ORDER_COLUMN
from jobs.mirror.row_digests import spark_digests
from jobs.mirror.source_rows import Key, Leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """A row as the mirror has it.

    Attributes:
        order: Of the change that it is from; empty of a row from before the mirror.
        columns: The digests of its columns in their order, with commas between.
        count: How many rows the key has; more than one are one too much.
    """

    order: str
    columns: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class MirrorLook:
    """The rows of a mirror in one snapshot.

    Attributes:
        session: That merges use, or one like it.
        path: The table, as Spark calls it.
        snapshot_id: Of the mirror.
        soft: Whether rows that the source has deleted stay.
        key: The columns of the key.
        columns: All others that are compared.
    """

    session: SparkSession
    path: str
    snapshot_id: int
    soft: bool
    key: Sequence[ComparedColumn]
    columns: Sequence[ComparedColumn]

    def leaves(self, buckets: Collection[int] | None) -> Leaves:
        """Count and digest of all leaves of some buckets, or of all."""
        from pyspark.sql import functions as sql

        said = spark_digests(self.key, self.columns)
        rows = self._rows()
        if buckets is not None:
            rows = rows.where(f"mod({said.leaf}, {BUCKETS}) IN ({', '.join(map(str, buckets))})")
        found = (
            rows.selectExpr(f"{said.leaf} AS leaf", f"CAST({said.row} AS DECIMAL(20, 0)) AS digest")
            .groupBy("leaf")
            .agg(sql.count("*").alias("rows"), sql.sum("digest").alias("total"))
        )
        return {row["leaf"]: (row["rows"], int(row["total"])) for row in found.toArrow().to_pylist()}

    def digests(self, leaves: Sequence[int]) -> dict[Key, int]:
        """The digest of each row of some leaves."""
        said = spark_digests(self.key, self.columns)
        found = self._rows().where(f"{said.leaf} IN ({', '.join(map(str, leaves))})")
        texts = [f"{text} AS k{at}" for at, text in enumerate(said.key_texts)]
        table = found.selectExpr(f"{said.row} AS digest", *texts).toArrow()
        sums: dict[Key, int] = {}
        for key, digest in zip(_keys(table, len(self.key)), table.column("digest").to_pylist(), strict=True):
            # A key that has two rows agrees with no row of the source.
            sums[key] = sums.get(key, 0) + digest
        return sums

    def rows(self, keys: Iterable[Key]) -> dict[Key, MirrorRow]:
        """The rows of some keys, as far as there are some."""
        from pyspark.sql import functions as sql

        said = spark_digests(self.key, self.columns)
        texts = [sql.expr(text).alias(f"k{at}") for at, text in enumerate(said.key_texts)]
        joined = sql.to_json(sql.array(*[sql.expr(text) for text in said.key_texts]))
        wanted = pa.table({"k": pa.array([list(each) for each in keys], pa.list_(pa.string()))})
        named = self.session.createDataFrame(wanted).select(sql.to_json("k").alias("frazil_k"))
        found = self._rows().withColumn("frazil_k", joined).join(named, "frazil_k", "left_semi")
        order = sql.coalesce(quoted_name(ORDER_COLUMN), sql.lit("")).alias("frazil_order")
        table = found.select(order, sql.expr(said.columns).alias("digests"), *texts).toArrow()
        orders, digests = (table.column(name).to_pylist() for name in ("frazil_order", "digests"))
        made: dict[Key, MirrorRow] = {}
        for key, order, each in zip(_keys(table, len(self.key)), orders, digests, strict=True):
            before = made.get(key)
            made[key] = (
                MirrorRow(max(order, before.order), each, before.count + 1) if before else MirrorRow(order, each)
            )
        return made

    def _rows(self) -> DataFrame:
        rows = self.session.sql(f"SELECT * FROM {self.path} VERSION AS OF {self.snapshot_id}")
        return rows.where(f"NOT coalesce({quoted_name(DELETED_COLUMN)}, false)") if self.soft else rows


def _keys(table: pa.Table, width: int) -> list[Key]:
    return list(zip(*(table.column(f"k{at}").to_pylist() for at in range(width)), strict=True))
