"""Tables of pgbench, with few accounts, and its transactions on them, of several clients at once."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.helpers.database_server import DatabaseServer, run_client

_ACCOUNTS = 500
# pgbench's own script (TPC-B), which takes 100,000 accounts for granted.
_SCRIPT = f"""\
\\set aid random(1, {_ACCOUNTS})
\\set tid random(1, 10)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""
_ROWS = f"""
INSERT INTO pgbench_branches SELECT 1, 0;
INSERT INTO pgbench_tellers SELECT n, 1, 0 FROM generate_series(1, 10) n;
INSERT INTO pgbench_accounts SELECT n, 1, 0, '' FROM generate_series(1, {_ACCOUNTS}) n;
"""
_CLIENTS = 4


class PgbenchTables:
    """The tables `pgbench_accounts`, `pgbench_branches` and `pgbench_tellers` of a database.

    Attributes:
        made: Changes that were committed, by table and Debezium's operation, without rows that snapshots read.

    Args:
        server: The server of the tables.
        connection: Connection of psycopg, with autocommit.
    """

    def __init__(self, server: DatabaseServer, connection: Any) -> None:
        self.made: Counter[tuple[str, str]] = Counter()
        self._server: DatabaseServer = server
        self._connection: Any = connection

    def create(self) -> None:
        """Make the tables, with rows that the first snapshot finds."""
        run_client("pgbench", self._server, "--initialize", "--init-steps=dtp")
        self._connection.execute(_ROWS)

    def run(self, transactions: int) -> None:
        """Run so many transactions of each client."""
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(_SCRIPT)
            script.flush()
            options = ("-n", "-c", str(_CLIENTS), "-t", str(transactions), "-f", str(Path(script.name)))
            run_client("pgbench", self._server, *options)
        for table in ("accounts", "tellers", "branches"):
            self.made[f"pgbench_{table}", "u"] += _CLIENTS * transactions

    def begin_anew(self, server: DatabaseServer, connection: Any) -> None:
        """Go on in the same database as it was backed up."""
        self._server, self._connection = server, connection
        self.made.clear()
