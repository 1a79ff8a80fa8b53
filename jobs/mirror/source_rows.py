"""Rows of a source in PostgreSQL: read as they were at one moment, of which the place in its log is known."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.errors import FrazilError, first_line
from jobs.mirror.compared_columns import ComparedColumn, SourceColumn
from jobs.mirror.consistency import BUCKETS
from jobs.mirror.row_digests import postgresql_digests, source_name
from jobs.spec.settings import SETTINGS_FILE
from jobs.spec.sources import SourceSettings
from jobs.spec.validation import suggestion

if TYPE_CHECKING:
    from psycopg import Connection

Key = tuple[str, ...]
Leaves = dict[int, tuple[int, int]]
"""By number of the leaf, its rows and the sum of their digests."""

# Its first statement is the first of the transaction: what it shows was committed before that place of the log.
_POSITION = """
    SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
            - '0/0'::pg_lsn)::bigint
"""
_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod),
           CASE coalesce(b.typtype, t.typtype) WHEN 'e' THEN 'enum' ELSE coalesce(b.typname, t.typname) END,
           CASE e.typtype WHEN 'e' THEN 'enum' ELSE e.typname END,
           CASE WHEN a.atttypmod >= 0 THEN a.atttypmod WHEN b.oid IS NOT NULL THEN t.typtypmod ELSE -1 END
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
    LEFT JOIN pg_type e ON coalesce(b.typcategory, t.typcategory) = 'A' AND e.oid = coalesce(b.typelem, t.typelem)
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
# That values are written as they are everywhere, whatever the user's or the database's settings say.
_WRITTEN = "SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL extra_float_digits = 1"


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
        connection: Within a transaction that sees that moment.
        table: With its schema.
        where: A condition that rows fulfil.

    Attributes:
        position: What is shown was committed before this place of the log.
    """

    def __init__(self, connection: Connection[Any], table: str, where: str | None) -> None:
        self._connection: Connection[Any] = connection
        schema, _, name = table.partition(".")
        self._table: str = f"{source_name(schema)}.{source_name(name)}"
        # psycopg looks for placeholders in all of a statement.
        self._where: str = f"({where})".replace("%", "%%") if where else "true"
        ((place,),) = connection.execute(_POSITION).fetchall()
        self.position: int = place
        connection.execute(_WRITTEN)

    def columns(self) -> dict[str, SourceColumn]:
        """The columns of the table, by name."""
        found = self._connection.execute(_COLUMNS, (self._table,)).fetchall()
        return {
            name: SourceColumn(declared, kind, element, _scale(modifier) if "numeric" in (kind, element) else None)
            for name, declared, kind, element, modifier in found
        }

    def leaves(
        self, key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn], buckets: Collection[int] | None
    ) -> Leaves:
        """Count and digest of all leaves of some buckets, or of all."""
        said = postgresql_digests(key, columns)
        part = "true" if buckets is None else f"mod({said.leaf}, {BUCKETS}) = ANY(%s)"
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
        said, found = postgresql_digests(key, columns), dict[Key, int]()
        with self._connection.cursor(name="frazil_rows") as cursor:
            cursor.itersize = 20_000
            cursor.execute(
                _query(
                    f"SELECT {said.row}, {', '.join(said.key_texts)} FROM {self._table} "
                    f"WHERE {self._where} AND {said.leaf} = ANY(%s)"
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
            f"The source's table {self._table} cannot be compared by the mirror's key: {named} {why}.",
            fix="let the connector give the records a key that tells rows apart (message.key.columns)",
        )

    def rows(
        self, key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn], keys: Sequence[Key]
    ) -> dict[Key, SourceRow]:
        """The rows of some keys, as far as there are some."""
        said = postgresql_digests(key, columns)
        names = [f"frazil_k{at}" for at in range(len(key))]
        equal = [
            f"{source_name(each.name)} = {each.kind.value(name, each.declared)}"
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


@contextlib.contextmanager
def source_look(name: str, settings: SourceSettings, table: str, where: str | None) -> Iterator[SourceLook]:
    """The rows of a table as they are now, as long as one looks.

    Args:
        name: Of the source, in the settings.
        settings: Where it is.
        table: With its schema.
        where: A condition that rows fulfil, in its SQL.

    Raises:
        FrazilError: The source does not answer, has no such table, or does not let it be read.
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
        options: dict[str, Any] = {**settings.revealed()}
        connection = psycopg.connect(
            settings.url,
            **options,
            connect_timeout=max(1, round(settings.timeout.total_seconds())),
            application_name="frazil mirror check",
        )
        with connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield SourceLook(connection, table, where)
    except psycopg.Error as problem:
        raise _sentence(name, settings, table, problem) from None


def _query(text: str) -> bytes:
    """A statement of names that are quoted, values that have placeholders, and the file's own condition."""
    # psycopg takes a text that was put together for a mistake.
    return text.encode()


def _scale(modifier: int) -> int | None:
    """Of a `numeric`, by its type's modifier."""
    return None if modifier < 0 else (((modifier - 4) & 0x7FF) ^ 1024) - 1024


def _sentence(name: str, settings: SourceSettings, table: str, problem: Exception) -> FrazilError:
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict

    user = conninfo_to_dict(settings.url).get("user")
    said = first_line(problem)
    match problem:
        case errors.UndefinedTable():
            fix = "correct source.table in mirrors of the stream's file"
        case errors.InsufficientPrivilege():
            fix = f"GRANT SELECT ON {table} TO {user}; and USAGE on its schema"
        case errors.UndefinedColumn() | errors.SyntaxError():
            fix = "correct source.where in mirrors of the stream's file"
        case _:
            fix = f"check that it runs, and sources.{name} in {SETTINGS_FILE}; frazil validate"
    return FrazilError(f"source {name}, table {table}: {said.rstrip('.')}.", fix=fix)


def source_settings(stream: str, name: str, sources: Mapping[str, SourceSettings]) -> SourceSettings:
    """The settings of a source.

    Raises:
        FrazilError: There is none of that name.
    """
    if name in sources:
        return sources[name]
    near = suggestion(name, sources)
    hint = f"; did you mean '{near}'?" if near else f": it has {', '.join(sources) or 'none'}"
    raise FrazilError(
        f"stream {stream}: a mirror is compared with source {name}, and {SETTINGS_FILE} has no such source{hint}.",
        fix=f"write sources: {{{name}: {{url: postgresql://…}}}} into {SETTINGS_FILE}, or correct the stream's file",
    )
