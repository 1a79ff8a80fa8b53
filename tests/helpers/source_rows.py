"""Rows of a source and of its mirror, as the same values: what PostgreSQL says of them, and what Iceberg does."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

KEYS: Mapping[str, tuple[str, ...]] = {
    "accounts": ("id",),
    "orders": ("region", "id"),
    "counters": ("id",),
    "pgbench_accounts": ("aid",),
    "pgbench_branches": ("bid",),
    "pgbench_tellers": ("tid",),
}
"""Key columns of the tables that have a key."""
Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the tables with keys, at a position of the source's log.

    Attributes:
        lsn: Position of the log; all earlier changes are in the rows.
        tables: Rows by table and key.
    """

    lsn: int
    tables: Mapping[str, Mapping[Key, Row]]


def rows_of(connection: Any) -> Rows:
    """The rows as they are now.

    Args:
        connection: Connection of psycopg, with autocommit.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        (lsn,) = connection.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
        tables: dict[str, dict[Key, Row]] = {}
        for table, key in KEYS.items():
            cursor = connection.execute(f"SELECT {_selected(connection, table)} FROM {table}")
            names = [each.name for each in cursor.description]
            tables[table] = by_key((dict(zip(names, each, strict=True)) for each in cursor), key)
    return Rows(lsn, tables)


def by_key(rows: Iterable[Row], key: tuple[str, ...]) -> dict[Key, Row]:
    """Rows by their key, of which none may come twice, each value in the form in which the two sides are compared."""
    found: dict[Key, Row] = {}
    for row in rows:
        plain = {name: normal(value) for name, value in row.items()}
        at = tuple(plain[name] for name in key)
        assert at not in found, f"{at} comes twice"
        found[at] = plain
    return found


def normal(value: Any) -> Any:
    """A value in the form in which the two sides are compared."""
    if isinstance(value, dict) and value.keys() == {"scale", "value"}:
        # Debezium's numeric without a scale; `scaleb` would round it.
        sign, digits, _ = Decimal(int.from_bytes(value["value"], signed=True)).as_tuple()
        return Decimal((sign, digits, -value["scale"]))
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, memoryview):
        return bytes(value)
    return value


def _selected(connection: Any, table: str) -> str:
    """Select list that gives each value in Debezium's format."""
    columns = connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position",
        (table,),
    )
    forms = {
        "jsonb": "{0}::text",
        "real": "{0}::float8",
        "USER-DEFINED": "{0}::text",
        "time with time zone": "({0} AT TIME ZONE 'UTC')::time::text || 'Z'",
    }
    return ", ".join(f"{forms.get(kind, '{0}').format(name)} AS {name}" for name, kind in columns)
