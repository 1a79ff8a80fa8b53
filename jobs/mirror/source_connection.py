"""Connection to a source in PostgreSQL, for one transaction that only reads, and what it says when that fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobs.errors import FrazilError, first_line
from jobs.mirror.source_rows import SourceLook, source_place
from jobs.spec.services import SourceSettings
from jobs.spec.settings import SETTINGS_FILE
from jobs.spec.units import format_duration
from jobs.spec.validation import suggestion

if TYPE_CHECKING:
    import psycopg

# No connection of a network that is gone is waited for without an end.
_KEEPALIVE: Mapping[str, int] = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


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
            # What was committed by now is shown by a transaction that begins behind it.
            through = source_place(connection)
            connection.autocommit = False
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            connection.execute(_bounds(settings))
            yield SourceLook(connection, table, where, through)
    except psycopg.Error as problem:
        raise _sentence(name, settings, table, problem) from None


def _bounds(settings: SourceSettings) -> bytes:
    """What keeps a comparison from being a burden, and from being told less than all rows."""
    statement = round(settings.statement_timeout.total_seconds() * 1000)
    lock = round(settings.timeout.total_seconds() * 1000)
    return (
        f"SET LOCAL statement_timeout = {statement}; SET LOCAL lock_timeout = {lock}; "
        # Policies would hide rows without a word; so they are an error.
        "SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL row_security = off"
    ).encode()


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
        case errors.LockNotAvailable():
            waited = format_duration(settings.timeout)
            said += f", within {waited} (sources.{name}.timeout)"
            fix = "try again when what holds the table, such as ALTER TABLE, has ended"
        case errors.QueryCanceled():
            longest = format_duration(settings.statement_timeout)
            said += f", after {longest} at the most (sources.{name}.statement_timeout)"
            fix = f"compare a part with --part, or raise sources.{name}.statement_timeout in {SETTINGS_FILE}"
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
    hint = f"; did you mean '{near}'?" if near else f": it has {', '.join(sources) or 'none'}."
    raise FrazilError(
        f"stream {stream}: a mirror is compared with source {name}, and {SETTINGS_FILE} has no such source{hint}",
        fix=f"write sources: {{{name}: {{url: postgresql://…}}}} into {SETTINGS_FILE}, or correct mirrors: source of "
        f"streams/{stream}.yaml",
    )
