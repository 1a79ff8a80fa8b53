"""Rows of a source in PostgreSQL: read as they were at one moment, of which the place in its log is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.errors import FrazilError
from jobs.mirror.compared_columns import ComparedColumn, SourceColumn
from jobs.mirror.consistency import BUCKETS
from jobs.mirror.row_digests import RowDigests, postgresql_digests, source_name
from jobs.mirror.source_place import SourcePlace

if TYPE_CHECKING:
    from psycopg import Connection

Key = tuple[str, ...]
Leaves = dict[int, tuple[int, int]]
"""By number of the leaf, its rows and the sum of their digests."""

_POSITION = """
    SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
            - '0/0'::pg_lsn)::bigint, pg_is_in_recovery(), current_database()
"""
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
# That values are written as they are everywhere, whatever the user's or the database's settings say.
_WRITTEN = "SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL extra_float_digits = 1"


# One that is hashed: `= ANY` of an array compares with each of its numbers, for each row.
_ONE_OF = "IN (SELECT unnest(%s::bigint[]))"


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row as the source has it.

    Attributes:
        version: Another one whenever the row was changed.
        columns: The digests of its columns in their order, with commas between.
    """

    version: str
    columns: str


class SourceLook:
    """The rows of a table as they were at one moment.

    Args:
        connection: Within a transaction that sees that moment, and has asked for nothing yet.
        table: With its schema.
        where: A condition that rows fulfil.
        through: Where the log was before that transaction.

    Attributes:
        place: What of the log is shown.
        database: Its name.
    """

    def __init__(self, connection: Connection[Any], table: str, where: str | None, through: int) -> None:
        self._connection: Connection[Any] = connection
        schema, _, name = table.partition(".")
        self._name: str = f"{source_name(schema)}.{source_name(name)}"
        self._table: str = _escaped(self._name)
        self._where: str = _escaped(f"({where})") if where else "true"
        # The first statement of the transaction: what it shows was committed before that place.
        ((before, standby, database),) = connection.execute(_POSITION).fetchall()
        self.place: SourcePlace = SourcePlace(through, before, standby)
        self.database: str = database
        connection.execute(_WRITTEN)

    def columns(self) -> dict[str, SourceColumn]:
        """The columns of the table, by name."""
        found = self._connection.execute(_COLUMNS, (self._name,)).fetchall()
        return {
            name: SourceColumn(declared, kind, element, _scale(modifier) if "numeric" in (kind, element) else None)
            for name, declared, kind, element, modifier in found
        }

    def leaves(
        self, key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn], buckets: Collection[int] | None
    ) -> Leaves:
        """Count and digest of all leaves of some buckets, or of all."""
        said = _digests(key, columns)
        part = "true" if buckets is None else f"mod({said.leaf}, {BUCKETS}) {_ONE_OF}"
        found = self._connection.execute(
            _query(
                f"SELECT leaf, count(*), sum(digest) FROM (SELECT {said.leaf} AS leaf, {said.row} AS digest "
                f"FROM {self._table} WHERE {self._where} AND {part}) AS rows GROUP BY leaf"
            ),
            () if buckets is None else (list(buckets),),
        )
        return {int(leaf): (count, int(total)) for leaf, count, total in found}

    def digests(
        self, key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn], leaves: Sequence[int]
    ) -> dict[Key, int]:
        """The digest of each row of some leaves.

        Raises:
            FrazilError: The key tells no rows apart: two have the same, or one has a null in it.
        """
        said, found = _digests(key, columns), dict[Key, int]()
        with self._connection.cursor(name="frazil_rows") as cursor:
            cursor.itersize = 20_000
            cursor.execute(
                _query(
                    f"SELECT {said.row}, {', '.join(said.key_texts)} FROM {self._table} "
                    f"WHERE {self._where} AND {said.leaf} {_ONE_OF}"
                ),
                (list(leaves),),
            )
            for digest, *texts in cursor:
                if None in texts or tuple(texts) in found:
                    raise self._no_key(key, texts)
                found[tuple(texts)] = digest
        return found

    def _no_key(self, key: Sequence[ComparedColumn], texts: Sequence[str | None]) -> FrazilError:
        named = ", ".join(f"{each.name} = {text}" for each, text in zip(key, texts, strict=True))
        why = "has a null in it" if None in texts else "has several rows"
        return FrazilError(
            f"The source's table {self._name} cannot be compared by the mirror's key: {named} {why}.",
            fix="let the connector give the records a key that tells rows apart (message.key.columns)",
        )

    def rows(
        self, key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn], keys: Sequence[Key]
    ) -> dict[Key, SourceRow]:
        """The rows of some keys, as far as there are some."""
        said = _digests(key, columns)
        names = [f"frazil_k{at}" for at in range(len(key))]
        equal = [
            _escaped(f"{source_name(each.name)} = {each.kind.value(name, each.declared)}")
            for name, each in zip(names, key, strict=True)
            if each.kind.value is not None
        ]
        texts = [[each[at] for each in keys] for at in range(len(key))]
        wanted = f"unnest({', '.join(['%s::text[]'] * len(key))}) AS frazil_k({', '.join(names)})"
        found = self._connection.execute(
            _query(
                f"SELECT {self._table}.xmin::text, {said.columns}, {', '.join(names)} FROM {wanted} "
                f"JOIN {self._table} ON {' AND '.join(equal)} WHERE {self._where}"
            ),
            texts,
        )
        return {tuple(given): SourceRow(version, digests) for version, digests, *given in found}


def source_place(connection: Connection[Any]) -> int:
    """Where a source's log is now: how far a standby has it, or all that was written to it."""
    ((place, *_),) = connection.execute(_POSITION).fetchall()
    return place


def _escaped(text: str) -> str:
    """A part of a statement without placeholders, which psycopg looks for in all of it."""
    return text.replace("%", "%%")


def _digests(key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn]) -> RowDigests:
    said = postgresql_digests(key, columns)
    return RowDigests(
        tuple(_escaped(each) for each in said.key_texts),
        _escaped(said.leaf),
        _escaped(said.row),
        _escaped(said.columns),
    )


def _query(text: str) -> bytes:
    """A statement of names that are quoted, values that have placeholders, and the file's own condition."""
    # psycopg takes a text that was put together for a mistake.
    return text.encode()


def _scale(modifier: int) -> int | None:
    """Of a `numeric`, by its type's modifier."""
    return None if modifier < 0 else (((modifier - 4) & 0x7FF) ^ 1024) - 1024
