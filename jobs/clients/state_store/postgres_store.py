"""Rows of a PostgreSQL table as documents of a shared state store: conditions on a row's nonce decide among writers."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jobs.base.errors import FrazilError
from jobs.clients.state_store.shared_store import (
    BusyStoreError,
    Expected,
    Version,
    matcher,
)
from jobs.clients.state_store.store import NotWrittenError

if TYPE_CHECKING:
    from psycopg import Connection

_CONNECT_SECONDS = 3
_IDLE_CONNECTIONS = 4
_WAIT_SECONDS = 0.1
# SQLSTATEs of temporary failures after which the statement is certainly undone: conflicts, lack of resources, locks,
# statement time-outs, a read-only server. After 40003 or 57P01 the outcome is unknown.
_UNDONE = re.compile(r"40(?!003)|53|55|57014|25006")
# SQLSTATEs of permanent failures: no such database, role, schema or right; a refused statement.
_REFUSED = re.compile(r"28|3D|3F|42|22|23|0A")
# Errors before a session exists have no SQLSTATE.
_NO_ENTRY = re.compile(r"authentication failed|no password supplied|does not exist|no pg_hba\.conf entry|certificate")


@dataclass(frozen=True, slots=True)
class Database:
    """Database and table of a store, and options of the client.

    Attributes:
        url: `postgresql://user@host:port/database`, without a password.
        table: Name of the table, with or without a schema; the first document creates it.
        options: Further arguments of psycopg, such as the password, which is a secret and is read for each connection.
        answer_seconds: How long to wait for an answer.
    """

    url: str
    table: str
    options: Mapping[str, str]
    answer_seconds: float = 5.0

    def __repr__(self) -> str:
        return f"Database({self.url}, {self.table})"


class PostgresDocuments:
    """Documents of a table; see `jobs.clients.state_store.shared_store.Documents`. Threads may share it.

    Raises:
        FrazilError: The client is not installed.
    """

    def __init__(self, database: Database) -> None:
        try:
            # Imported here, at the first use of such a store: most processes have none.
            import psycopg
        except ImportError:
            raise FrazilError(
                "State in PostgreSQL needs the package psycopg, which is not installed.",
                fix="pip install 'frazil[postgres]'",
            ) from None
        self._problems: type[Exception] = psycopg.Error
        self._made_by_another: tuple[type[Exception], ...] = (
            psycopg.errors.UniqueViolation,
            psycopg.errors.DuplicateTable,
            # The type that PostgreSQL creates with a table.
            psycopg.errors.DuplicateObject,
        )
        self._kind: Any = _kind_of_connection(database.answer_seconds)
        self._database: Database = database
        self._table: str = ".".join(f'"{part}"' for part in database.table.split("."))
        self._idle: list[Connection[tuple[Any, ...]]] = []
        self._guard: threading.Lock = threading.Lock()
        self._made: bool = False
        # Connections are closed when this object is collected, or the process ends.
        weakref.finalize(self, _close_all, self._idle, os.getpid())

    def read(self, key: str) -> Version | None:
        row = self._ask(f"SELECT content, nonce FROM {self._table} WHERE key = %s", key)
        return Version(bytes(row[0][0]), row[0][1], row[0][1]) if row else None

    def write(self, key: str, content: bytes, nonce: str, expected: Expected) -> bool:
        insert = f"INSERT INTO {self._table} AS t (key, content, nonce) VALUES (%s, %s, %s) ON CONFLICT (key) DO "
        change = "UPDATE SET content = excluded.content, nonce = excluded.nonce, written_at = now()"
        if expected is None:
            done = self._ask(f"{insert} NOTHING RETURNING 1", key, content, nonce)
        elif expected is True:
            done = self._ask(f"{insert} {change} RETURNING 1", key, content, nonce)
        else:
            update = f"UPDATE {self._table} SET content = %s, nonce = %s, written_at = now()"
            done = self._ask(f"{update} WHERE key = %s AND nonce = %s RETURNING 1", content, nonce, key, expected)
        return bool(done)

    def remove(self, key: str) -> None:
        self._ask(f"DELETE FROM {self._table} WHERE key = %s RETURNING 1", key)

    def keys(self, pattern: str) -> list[str]:
        begins, wanted = pattern.partition("*")[0], matcher(pattern)
        found = self._ask(f"SELECT key FROM {self._table} WHERE starts_with(key, %s)", begins)
        return [key for (key,) in found if wanted.fullmatch(key)]

    def written_at(self, key: str) -> float | None:
        found = self._ask(f"SELECT extract(epoch FROM written_at)::float8 FROM {self._table} WHERE key = %s", key)
        return found[0][0] if found else None

    def place(self, key: str) -> str:
        parts = urlsplit(self._database.url)
        where = f"postgresql://{parts.hostname}:{parts.port or 5432}{parts.path}, table {self._database.table}"
        return f"{where}, key {key}" if key else where

    def is_there(self) -> bool:
        """Whether the table exists; this does not create it."""
        with self._apart() as connection:
            return self._has_table(connection)

    def remove_all(self) -> None:
        """Drop the table."""
        with self._apart() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self._table}".encode())

    @contextlib.contextmanager
    def _apart(self) -> Iterator[Connection[tuple[Any, ...]]]:
        """Open a separate connection without creating the table."""
        connection = self._open()
        try:
            yield connection
        except self._problems as problem:
            raise self._error(problem, sent=True) from None
        finally:
            connection.close()

    def _ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute one statement as its own transaction; return its rows.

        Raises:
            NotWrittenError: The statement was not executed.
            OSError: The statement may have been executed, or may still be.
        """
        with self._connected() as connection:
            try:
                return connection.execute(statement.encode(), values).fetchall()
            except self._problems as problem:
                raise self._error(problem, sent=True) from None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection[tuple[Any, ...]]]:
        connection = self._take()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._guard:
            if len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def _take(self) -> Connection[tuple[Any, ...]]:
        while True:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            # A connection that the server has closed has something to read.
            if not _has_news(connection):
                return connection
            connection.close()

    def _open(self) -> Connection[tuple[Any, ...]]:
        seconds = self._database.answer_seconds
        try:
            options = dict(self._database.options)
        except FrazilError as problem:
            # The file of a secret may be being replaced.
            raise NotWrittenError(errno.EIO, f"{self.place('')}: {problem.message}") from None
        try:
            return self._kind.connect(
                self._database.url,
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                application_name="frazil",
                # Of several hosts the primary: a replica may lag.
                target_session_attrs="read-write",
                # The server gives up before the client, so that no statement is executed long after.
                options=f"-c statement_timeout={int(seconds * 800)}",
                tcp_user_timeout=int(seconds * 1000),
                prepare_threshold=None,
                **options,
            )
        except self._problems as problem:
            raise NotWrittenError.of(self._error(problem, sent=False)) from None

    def _connect(self) -> Connection[tuple[Any, ...]]:
        connection = self._open()
        try:
            if not self._made:
                self._make(connection)
                self._made = True
        except self._problems as problem:
            connection.close()
            raise NotWrittenError.of(self._error(problem, sent=False)) from None
        return connection

    def _make(self, connection: Connection[tuple[Any, ...]]) -> None:
        if self._has_table(connection):
            return
        # Several processes may create it at once, and PostgreSQL refuses some of them.
        with contextlib.suppress(*self._made_by_another):
            columns = (
                'key text COLLATE "C" PRIMARY KEY, content bytea NOT NULL, nonce text NOT NULL, '
                "written_at timestamptz NOT NULL DEFAULT now()"
            )
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns})".encode())

    def _has_table(self, connection: Connection[tuple[Any, ...]]) -> bool:
        found = connection.execute("SELECT to_regclass(%s)", (self._table,)).fetchone()
        return found is not None and found[0] is not None

    def _error(self, problem: Any, *, sent: bool) -> OSError:
        """Return the error. Messages of the client and the server name host and user, but no password."""
        state, text = problem.sqlstate or "", " ".join(str(problem).split())
        sentence = f"{self.place('')}: {text}"
        if _REFUSED.match(state) or (not sent and _NO_ENTRY.search(text)):
            return PermissionError(errno.EACCES, sentence)
        if _UNDONE.match(state):
            return BusyStoreError(errno.EAGAIN, sentence)
        return OSError(errno.EIO, sentence)


def _has_news(connection: Connection[tuple[Any, ...]]) -> bool:
    # `select` does not support descriptors above 1023.
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _close_all(idle: list[Connection[tuple[Any, ...]]], pid: int) -> None:
    """Close idle connections, in the process that has opened them."""
    while idle and os.getpid() == pid:
        idle.pop().close()


def _kind_of_connection(seconds: float) -> Any:
    """Return a connection class with a time-out for answers: psycopg itself waits for a hanging server for ever."""
    import psycopg

    class Impatient(psycopg.Connection[Any]):
        def wait(self, gen: Any, interval: float = _WAIT_SECONDS, timeout: float | None = None) -> Any:
            return super().wait(gen, interval, seconds if timeout is None else timeout)

    return Impatient
