"""Debezium's PostgreSQL connector in a worker of Kafka Connect, for tests: the changes of a database as topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.clients.install.artifacts import OnProgress, resolve_jars, unpacked
from tests.helpers.connect_worker import SMALL_JVM, ConnectWorker
from tests.helpers.database_server import DATABASE, PASSWORD, USER, DatabaseServer

# The settings of `database_server` that Debezium needs.
LOGICAL = ("wal_level=logical", "max_replication_slots=20", "max_wal_senders=20")
SIGNALS = "debezium_signal"
"""Table of signals, which the connector asks for incremental snapshots by: id, type, data."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def debezium_worker(
    folder: Path,
    address: str,
    server: DatabaseServer,
    name: str,
    tables: list[str],
    *,
    more: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    options: tuple[str, ...] = SMALL_JVM,
    on_progress: OnProgress | None = None,
) -> ConnectWorker:
    """A worker with one connector of the server's database; it is not started yet.

    Its topics are `NAME.public.TABLE`, with keys, values and headers in Connect's JSON with schemas.

    Args:
        folder: Folder for the worker.
        address: The broker.
        server: Server with the settings `LOGICAL`.
        name: Prefix of its topics, name of its slot and publication: small letters, digits and underscores.
        tables: Tables of the schema `public`; they exist, and so does `SIGNALS`.
        more: Settings of the connector, over those made here.
        settings: Settings of the worker, over those made here.
        options: Options of the JVM.
        on_progress: Called when the connector is fetched.
    """
    *jars, archive = _artifacts(on_progress)
    connector: dict[str, str] = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.dbname": DATABASE,
        "topic.prefix": name,
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "table.include.list": ",".join(f"public.{table}" for table in [*tables, SIGNALS]),
        "signal.data.collection": f"public.{SIGNALS}",
        # Truncates are left out by default.
        "skipped.operations": "none",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "poll.interval.ms": "50",
        **(more or {}),
    }
    worker: dict[str, str] = {
        "key.converter": _JSON,
        "value.converter": _JSON,
        "header.converter": _JSON,
        "offset.flush.interval.ms": "1000",
        "plugin.path": str(unpacked(archive)),
        "plugin.discovery": "service_load",
        **(settings or {}),
    }
    return ConnectWorker(folder, address, jars, settings=worker, connectors={name: connector}, options=options)


def create_signals(connection: Any) -> None:
    """Make the table of signals.

    Args:
        connection: Connection of psycopg to the server's database.
    """
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {SIGNALS} (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data text)"
    )


def follows(connection: Any, name: str) -> bool:
    """Whether a connector's first snapshot is done, and it follows the log."""
    return follower(connection, name) is not None


def follower(connection: Any, name: str) -> int | None:
    """The server's process that sends the log to a connector; None before its first snapshot is done.

    Args:
        connection: Connection of psycopg to the server's database.
        name: Name of its slot.
    """
    found = connection.execute(
        "SELECT active_pid FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid"
        " WHERE slot_name = %s AND state = 'streaming'",
        (name,),
    ).fetchone()
    return found and found[0]


def signal_snapshot(connection: Any, tables: list[str]) -> None:
    """Ask the connector to read tables of `public` beside what changes in them: an incremental snapshot.

    Args:
        connection: Connection of psycopg to the server's database.
        tables: Tables to read, with a primary key each.
    """
    asked = json.dumps({"type": "incremental", "data-collections": [f"public.{table}" for table in tables]})
    connection.execute(f"INSERT INTO {SIGNALS} VALUES (gen_random_uuid()::text, 'execute-snapshot', %s)", (asked,))


def _artifacts(on_progress: OnProgress | None) -> list[Path]:
    """The class path, and behind it the archive."""
    found = resolve_jars("debezium", on_progress=on_progress)
    return sorted(found, key=lambda path: path.suffix != ".jar")
