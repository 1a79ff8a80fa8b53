"""Rows of a source in PostgreSQL and of its mirror, each read at one point in time."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.base.errors import FrazilError, first_line
from jobs.config.documents.units import format_duration
from jobs.config.documents.validation import suggestion
from jobs.config.services.services import SourceSettings
from jobs.config.settings.settings import SETTINGS_FILE, Settings
from jobs.mirrors.check.compared_columns import RowDigests, SourceColumn, source_name
from jobs.mirrors.check.consistency import BUCKETS
from jobs.mirrors.model.merge_plan import DELETED_COLUMN, ORDER_COLUMN
from jobs.quality.incremental_scan.offset_ranges import quoted_name

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession

Key = tuple[str, ...]
Leaves = dict[int, tuple[int, int]]
"""Number of rows and sum of their digests, by the number of the leaf."""

# Keepalives end a connection whose network has failed.
_KEEPALIVE: Mapping[str, int] = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_POSITION = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod),
           CASE b.typtype WHEN 'e' THEN 'enum' ELSE b.typname END,
           CASE e.typtype WHEN 'e' THEN 'enum' ELSE e.typname END,
           base.modifier
    FROM pg_attribute a
    CROSS JOIN LATERAL (
        -- A domain may be one over a domain.
        WITH RECURSIVE made_of(type, modifier) AS (
            SELECT a.atttypid, a.atttypmod
            UNION ALL
            SELECT d.typbasetype, d.typtypmod FROM made_of JOIN pg_type d ON d.oid = made_of.type AND d.typtype = 'd'
        )
        SELECT * FROM made_of
    ) base
    JOIN pg_type b ON b.oid = base.type AND b.typtype <> 'd'
    LEFT JOIN pg_type e ON b.typcategory = 'A' AND e.oid = b.typelem
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
# These settings make texts independent of the user and the database, and make rows hidden by policies an error.
_SESSION = """
    SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL extra_float_digits = 1;
    SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL row_security = off
"""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """Row of the source.

    Attributes:
        version: Version of the row, which changes with each update.
        columns: Digests of its columns in their order, separated by commas.
    """

    version: str
    columns: str


class SourceTable:
    """Rows of a table at one point in time.

    Args:
        connection: Connection in a snapshot transaction, before its first statement.
        table: Name with its schema.
        where: Condition of the rows in the source's SQL.

    Attributes:
        before: Position in the log. All visible rows were committed before it.
    """

    def __init__(self, connection: Connection[Any], table: str, where: str | None) -> None:
        self._connection: Connection[Any] = connection
        schema, _, name = table.partition(".")
        self._table: str = f"{source_name(schema)}.{source_name(name)}"
        self._where: str = f"({where})" if where else "true"
        # The first statement of the transaction: all that the transaction shows was committed before this position.
        ((before,),) = connection.execute(_POSITION).fetchall()
        self.before: int = before
        connection.execute(_SESSION)

    def columns(self) -> dict[str, SourceColumn]:
        """Columns of the table, by name."""
        found = self._connection.execute(_COLUMNS, (self._table,)).fetchall()
        return {
            name: SourceColumn(declared, kind, element, _scale(modifier) if "numeric" in (kind, element) else None)
            for name, declared, kind, element, modifier in found
        }

    def leaves(self, digests: RowDigests, buckets: Collection[int] | None) -> Leaves:
        """Return count and digest of the leaves in some buckets, or in all."""
        part = "true" if buckets is None else f"mod({digests.leaf}, {BUCKETS}) {_one_of(buckets)}"
        found = self._connection.execute(
            f"SELECT leaf, count(*), sum(digest) FROM (SELECT {digests.leaf} AS leaf, {digests.row} AS digest "
            f"FROM {self._table} WHERE {self._where} AND {part}) AS rows GROUP BY leaf".encode()
        )
        return {int(leaf): (count, int(total)) for leaf, count, total in found}

    def rows(self, digests: RowDigests, leaves: Collection[int]) -> Iterator[tuple[Key, SourceRow]]:
        """Yield the rows of some leaves, with their keys.

        Raises:
            FrazilError: The key is not unique, or has a null.
        """
        seen = set[Key]()
        with self._connection.cursor(name="frazil_rows") as cursor:
            cursor.itersize = 20_000
            cursor.execute(
                f"SELECT xmin::text, {digests.columns}, {', '.join(digests.key_texts)} FROM {self._table} "
                f"WHERE {self._where} AND {digests.leaf} {_one_of(leaves)}".encode()
            )
            for version, columns, *texts in cursor:
                if None in texts or tuple(texts) in seen:
                    why = "has a null in it" if None in texts else "has several rows"
                    raise FrazilError(
                        f"The source's table {self._table} cannot be compared by the mirror's key: {texts} {why}.",
                        fix="let the connector give the records a key that identifies rows (message.key.columns)",
                    )
                seen.add(tuple(texts))
                yield tuple(texts), SourceRow(version, columns)


@contextlib.contextmanager
def source_table(name: str, settings: SourceSettings, table: str, where: str | None) -> Iterator[SourceTable]:
    """Read a table in one read-only transaction.

    Args:
        name: Name of the source in the settings.
        settings: Settings of the source.
        table: Name with its schema.
        where: Condition of the rows in the source's SQL.

    Raises:
        FrazilError: The source does not answer, is a standby, has no such table, or does not let it be read.
    """
    try:
        # Imported here: only a comparison with a source needs it.
        import psycopg
    except ImportError:
        raise FrazilError(
            f"source {name} is in PostgreSQL, and the package psycopg is not installed.",
            fix="pip install 'frazil[postgres]'",
        ) from None
    try:
        options: dict[str, Any] = {**settings.revealed(), **_KEEPALIVE}
        connection = psycopg.connect(
            settings.url,
            **options,
            connect_timeout=max(1, round(settings.timeout.total_seconds())),
            application_name="frazil mirror check",
            client_encoding="utf8",
            autocommit=True,
        )
        with connection:
            connection.autocommit = False
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            statement = round(settings.statement_timeout.total_seconds() * 1000)
            lock = round(settings.timeout.total_seconds() * 1000)
            bounds = f"SET LOCAL statement_timeout = {statement}; SET LOCAL lock_timeout = {lock}"
            connection.execute(bounds.encode())
            yield SourceTable(connection, table, where)
    except psycopg.Error as problem:
        raise _sentence(name, settings, table, problem) from None


def refuse_unknown_source(stream: str, name: str, settings: Settings) -> None:
    """Refuse a source that the settings do not have.

    Raises:
        FrazilError: The settings have no source of that name.
    """
    if name in settings.sources:
        return
    near = suggestion(name, settings.sources)
    hint = f"; did you mean '{near}'?" if near else f": it has {', '.join(settings.sources) or 'none'}."
    raise FrazilError(
        f"stream {stream}: a mirror is compared with source {name}, and {SETTINGS_FILE} has no such source{hint}",
        fix=f"write sources: {{{name}: {{url: postgresql://…}}}} into {SETTINGS_FILE}, or correct mirrors: source of "
        f"streams/{stream}.yaml",
    )


def _sentence(name: str, settings: SourceSettings, table: str, problem: psycopg.Error) -> FrazilError:
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict

    user = conninfo_to_dict(settings.url).get("user")
    said = first_line(problem)
    match problem:
        case errors.UndefinedTable():
            fix = "correct source.table in mirrors of the stream's file"
        case errors.InsufficientPrivilege() if problem.diag.source_function == "check_enable_rls":
            fix = f"ALTER ROLE {user} BYPASSRLS, or name the table's owner in sources.{name}.url of {SETTINGS_FILE}"
        case errors.InsufficientPrivilege():
            fix = f"GRANT SELECT ON {table} TO {user}; and USAGE on its schema"
        case errors.UndefinedColumn() | errors.SyntaxError():
            fix = "correct source.where in mirrors of the stream's file"
        case errors.ObjectNotInPrerequisiteState():
            fix = f"name the primary, not a standby, in sources.{name}.url of {SETTINGS_FILE}"
        case errors.LockNotAvailable():
            said += f", within {format_duration(settings.timeout)} (sources.{name}.timeout)"
            fix = "try again when the lock on the table, such as that of ALTER TABLE, is released"
        case errors.QueryCanceled():
            longest = format_duration(settings.statement_timeout)
            said += f", after {longest} at the most (sources.{name}.statement_timeout)"
            fix = f"compare a part with --part, or raise sources.{name}.statement_timeout in {SETTINGS_FILE}"
        case _:
            fix = f"check that it runs, and sources.{name} in {SETTINGS_FILE}; frazil validate"
    return FrazilError(f"source {name}, table {table}: {said.rstrip('.')}.", fix=fix)


def _one_of(numbers: Collection[int]) -> str:
    # PostgreSQL hashes a sub-select, while `= ANY` of an array compares each row with each number.
    return f"IN (SELECT unnest('{{{', '.join(map(str, numbers))}}}'::bigint[]))"


def _scale(modifier: int) -> int | None:
    """Scale of a `numeric`, from its type modifier."""
    return None if modifier < 0 else (((modifier - 4) & 0x7FF) ^ 1024) - 1024


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """Row of the mirror.

    Attributes:
        order: Order of the row's last change; empty if the row is older than the mirror.
        columns: Digests of its columns in their order, separated by commas.
        count: Number of rows with the key; more than one are an error.
    """

    order: str
    columns: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class MirrorRows:
    """Rows of one snapshot of the mirror.

    Attributes:
        session: Spark session that merges use.
        path: Name of the table in Spark.
        snapshot_id: Snapshot of the mirror.
        soft: Whether the mirror keeps rows that the source has deleted.
        digests: Expressions over the compared columns.
    """

    session: SparkSession
    path: str
    snapshot_id: int
    soft: bool
    digests: RowDigests

    def leaves(self, buckets: Collection[int] | None) -> Leaves:
        """Return count and digest of the leaves in some buckets, or in all."""
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

    def rows(self, leaves: Collection[int]) -> dict[Key, MirrorRow]:
        """Return the rows of some leaves, by key."""
        texts = [f"{text} AS k{at}" for at, text in enumerate(self.digests.key_texts)]
        order = f"coalesce({quoted_name(ORDER_COLUMN)}, '') AS frazil_order"
        rows = self._rows().where(f"{self.digests.leaf} IN ({', '.join(map(str, leaves))})")
        table = rows.selectExpr(order, f"{self.digests.columns} AS digests", *texts).toArrow()
        orders, digests, *keys = (column.to_pylist() for column in table.columns)
        found: dict[Key, MirrorRow] = {}
        for order, columns, *key in zip(orders, digests, *keys, strict=True):
            before = found.get(tuple(key))
            count = before.count + 1 if before else 1
            found[tuple(key)] = MirrorRow(max(order, before.order) if before else order, columns, count)
        return found

    def _rows(self) -> DataFrame:
        rows = self.session.sql(f"SELECT * FROM {self.path} VERSION AS OF {self.snapshot_id}")
        return rows.where(f"NOT coalesce({quoted_name(DELETED_COLUMN)}, false)") if self.soft else rows
