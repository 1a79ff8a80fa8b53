"""PostgreSQL with Debezium in a worker of Kafka Connect, under a workload that is hard on who follows it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers.change_topics import ChangeTopics
from tests.helpers.connect_worker import ConnectWorker
from tests.helpers.database_server import PASSWORD, DatabaseServer, backed_up, database_server
from tests.helpers.debezium import LOGICAL, debezium_worker, follower
from tests.helpers.hostile_changes import HostileChanges
from tests.helpers.pgbench_tables import PgbenchTables
from tests.helpers.source_rows import KEYS, Key, Rows, rows_of
from tests.helpers.waiting import wait_for

WITHOUT_KEY = "visits"
# The connector's first snapshot reads this table last, and waits before it while somebody has the lock.
_LOCK = 1
_STATEMENTS = {
    "snapshot.select.statement.overrides": f"public.{WITHOUT_KEY}",
    f"snapshot.select.statement.overrides.public.{WITHOUT_KEY}": (
        f"SELECT * FROM {WITHOUT_KEY} WHERE (SELECT pg_advisory_xact_lock_shared({_LOCK})) IS NOT NULL"
    ),
}


class ChangeSource:
    """A source whose changes come to topics `NAME.public.TABLE`, of two partitions each.

    Attributes:
        name: Prefix of the topics.
        workload: Of its database.
        pgbench: Its other tables.
        topics: What has come.
    """

    def __init__(self, name: str, folder: Path, topics: ChangeTopics, until: contextlib.ExitStack) -> None:
        self.name: str = name
        self.topics: ChangeTopics = topics
        self._folder: Path = folder
        self._until: contextlib.ExitStack = until
        self._serve(None, None)
        self.workload: HostileChanges = HostileChanges(self._connection)
        self.pgbench: PgbenchTables = PgbenchTables(self._server, self._connection)

    def _serve(self, backup: Path | None, port: int | None) -> None:
        # Imported here: only tests with this server need it.
        import psycopg

        self._lives: contextlib.ExitStack = self._until.enter_context(contextlib.ExitStack())
        self._server: DatabaseServer = self._lives.enter_context(database_server(*LOGICAL, backup=backup, port=port))
        connection = psycopg.connect(self._server.url, password=PASSWORD, autocommit=True)
        self._connection: Any = self._lives.enter_context(connection)

    def follow(self, address: str) -> None:
        """Start the connector, and kill it in the middle of its first snapshot, which is then made anew."""
        more = {"topic.creation.default.partitions": "2", "heartbeat.interval.ms": "1000", **_STATEMENTS}
        never = {"offset.flush.interval.ms": "3600000"}
        tables = [*KEYS, WITHOUT_KEY]
        worker = debezium_worker(
            self._folder / "worker", address, self._server, self.name, tables, more=more, settings=never
        )
        self._connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        self._worker: ConnectWorker = self._until.enter_context(worker)
        self.wait_until_read("accounts", 1)
        self._worker.kill()
        self.workload.before_it_is_followed()
        self.topics.begin_anew()
        self._connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
        self._worker.start()
        self._wait_until_read()
        # What is in no file yet, a worker that is killed reads anew in a snapshot.
        self.keep_offsets()

    @property
    def made(self) -> Counter[tuple[str, str]]:
        """All changes that were committed."""
        return self.workload.made + self.pgbench.made

    def checkpoint(self) -> Rows:
        """The rows as they are; nobody writes meanwhile."""
        return rows_of(self._connection)

    def named(self, table: str) -> set[Key]:
        """The keys of a table that something was said of since it was restored."""
        return {tuple(row[name] for name in KEYS[table]) for row in self.topics.named(table)}

    def topic(self, table: str) -> str:
        """Of a table."""
        return f"{self.name}.public.{table}"

    def wait_until_following(self, before: int | None = None) -> None:
        """Until the connector follows the log.

        Args:
            before: What has sent the log to it until now, which may not have noticed yet that it is gone.
        """
        self._worker.wait_until_running()
        wait_for(lambda: follower(self._connection, self.name) not in (None, before), "Debezium to follow the log")

    def keep_offsets(self) -> None:
        """Let the connector write down where it is, which it does not by itself: if it is killed it begins there."""
        before, written = follower(self._connection, self.name), self._worker.offsets_written()
        self._worker.restart_connectors()
        wait_for(lambda: self._worker.offsets_written() > written, "the connector to write down where it is")
        self.wait_until_following(before)

    def wait_until_delivered(self) -> None:
        """Until every change that was made is in the topics."""

        def delivered() -> bool:
            self.topics.poll()
            return self.topics.distinct() == self.made

        try:
            wait_for(delivered, "all changes to be delivered")
        except AssertionError:
            found, made = self.topics.distinct(), self.made
            wrong = {each: (found[each], made[each]) for each in found | made if found[each] != made[each]}
            self._worker.check()
            raise AssertionError(
                f"changes that came and that were made: {wrong}; {self._worker.log.read_text()[-1500:]}"
            ) from None

    def wait_until_read(self, table: str, rows: int) -> None:
        """Until the topics have so many rows of a table that snapshots have read."""

        def read() -> bool:
            self.topics.poll()
            return self.topics.read()[table] >= rows

        wait_for(read, f"a snapshot to read {table}")

    @contextlib.contextmanager
    def dead(self) -> Iterator[None]:
        """Kill the worker; it is started again behind what happens meanwhile, and repeats what it had delivered."""
        before = follower(self._connection, self.name)
        self._worker.kill()
        yield
        self._worker.start()
        self.wait_until_following(before)

    def back_up(self) -> None:
        """Keep the database as it is now."""
        self._backup: Path = backed_up(self._server, self._folder / "backup")

    def restore(self) -> None:
        """Let the database be as it was backed up, and a connector begin anew there, as operators do then."""
        self._worker.kill()
        self._lives.close()
        self._worker.forget_offsets()
        self._serve(self._backup, self._server.port)
        self.workload.begin_anew(self._connection)
        self.pgbench.begin_anew(self._server, self._connection)
        self.topics.begin_anew()
        self._worker.start()
        self._wait_until_read()

    def _wait_until_read(self) -> None:
        """Until the connector follows the log, and a snapshot's rows, of all tables, are in the topics."""
        self.wait_until_following()
        for table in (*KEYS, WITHOUT_KEY):
            (rows,) = self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            self.wait_until_read(table, rows)


@contextlib.contextmanager
def change_source(folder: Path, address: str, name: str) -> Iterator[ChangeSource]:
    """Start the source, with rows that its first snapshot has read, until the end.

    Args:
        folder: For the worker, and for backups.
        address: The broker.
        name: Prefix of the topics: small letters, digits and underscores.
    """
    with contextlib.ExitStack() as until:
        source = ChangeSource(name, folder, until.enter_context(ChangeTopics(address, name)), until)
        source.workload.create()
        source.pgbench.create()
        source.follow(address)
        yield source
