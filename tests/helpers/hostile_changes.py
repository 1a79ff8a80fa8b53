"""Workload that is hard on whoever follows it: a database of PostgreSQL whose rows change in every way that matters.

It counts what it does, so that every change can be looked for.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.debezium import create_signals, signal_snapshot

# Without a column of the type time, which Spark does not have: a stream without declared columns refuses it.
_SCHEMA = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TABLE accounts (
  id integer PRIMARY KEY, owner text NOT NULL, small smallint, big bigint, balance numeric(12,2), anything numeric,
  rate double precision, score real, active boolean, born date, made timestamp, made_ms timestamp(3), seen timestamptz,
  woke timetz, span interval, uid uuid, doc jsonb, raw bytea, code char(4), tags text[],
  numbers integer[], feeling mood, notes text
);
CREATE TABLE orders (region text, id bigint, amount numeric(10,2), units integer, notes text, PRIMARY KEY (region, id));
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE visits (who integer, page text, at timestamptz);
ALTER TABLE visits REPLICA IDENTITY FULL;
CREATE TABLE counters (id integer PRIMARY KEY, n bigint, notes text);
"""
# Beside the row, and uncompressed: an update of other columns does not send them.
_LARGE = {"accounts": ("notes", "doc", "raw", "tags", "numbers"), "orders": ("notes",), "counters": ("notes",)}
_FEW = 30
MANY = 500
"""Changes of one key."""


@dataclass
class HostileChanges:
    """A database and what was done to it.

    Attributes:
        connection: Connection of psycopg, with autocommit.
        made: Changes that were committed, by table and Debezium's operation, without rows that snapshots read.
    """

    connection: Any
    seed: int = 7
    made: Counter[tuple[str, str]] = field(default_factory=Counter)
    _live: set[int] = field(default_factory=set)
    _next: int = 0

    def __post_init__(self) -> None:
        self._random: random.Random = random.Random(self.seed)

    def create(self) -> None:
        """Make the tables, with some rows that the first snapshot finds."""
        create_signals(self.connection)
        self.connection.execute(_SCHEMA)
        for table, columns in _LARGE.items():
            for column in columns:
                self.connection.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
        for _ in range(5):
            self._insert()
        self._say("orders", "c", "INSERT INTO orders SELECT 'eu', n, n / 3.0, n, 'there' FROM generate_series(1, 20) n")
        self._say(
            "visits", "c", "INSERT INTO visits VALUES (1, '/', '2026-01-02 03:04:05.123456+01'), (NULL, NULL, NULL)"
        )
        self._say("counters", "c", f"INSERT INTO counters VALUES (1, 0, {_text('c')}), (2, 0, NULL)")
        self.made.clear()

    def before_it_is_followed(self) -> None:
        """New and other rows, of which a snapshot tells alone; none is deleted, for then nothing would tell of it."""
        self._insert()
        self._say("accounts", "u", f"UPDATE accounts SET owner = 'other', notes = {_text('s')}")
        self._say("orders", "u", "UPDATE orders SET units = units + 1 WHERE id > 5")
        self.made.clear()

    def begin_anew(self, connection: Any) -> None:
        """Go on in the same database as it was backed up.

        Args:
            connection: Connection of psycopg, with autocommit.
        """
        self.connection = connection
        self.made.clear()
        self._live = {at for (at,) in connection.execute("SELECT id FROM accounts")}

    def every_value(self) -> None:
        """Values of every type, at their limits, and nulls; a large value that is left out, sent, and left out."""
        self._insert(
            "'Zoë \"q\" \\ 語', -32768, 9223372036854775807, -1234567890.12, 12345678901234567890.000000001, 1e-300,"
            " 3.4028235e38, false, '0001-01-01', '1969-12-31 23:59:59.999999', '2038-01-19 03:14:08.123',"
            " '1900-01-01 00:00:00.000001+00', '00:00:00.000001+14', '-3 days 04:05:06.789',"
            " 'ffffffff-ffff-ffff-ffff-ffffffffffff', '{\"a\": [1, null, 2.50], \"ü\": \"\\\\u0001\"}', '\\x', 'ab',"
            " '{a,NULL,\"c d\",\"\"}', '{2147483647,-2147483648,NULL}', 'sad', ''"
        )
        last = self._insert("'nulls'" + ", NULL" * 21)
        for text in ("notes = 'short'", "owner = 'x'", f"notes = {_text('n')}", "owner = 'y'", "notes = NULL"):
            self._say("accounts", "u", f"UPDATE accounts SET {text} WHERE id = {last}")

    def moved_keys(self) -> None:
        """Keys that change while large values are left out, also twice, there and back, and to one that was deleted."""
        one, two, three = (self._insert() for _ in range(3))
        for before, after in ((one, 1001), (1001, 1002), (two, 1001), (1002, one), (three, 1003), (1003, two)):
            self._move(before, after)
        self._say("accounts", "u", f"UPDATE accounts SET owner = 'moved' WHERE id = {one}")
        with self._transaction():
            self._move(1001, 1004)
            self._say("accounts", "u", "UPDATE accounts SET owner = 'in it' WHERE id = 1004")
            self._move(1004, 1001)
        for region in ("us", "eu", "us"):
            for op in "dc":
                self.made["orders", op] += 1
            self._say("", "", f"UPDATE orders SET region = '{region}' WHERE id = 3")

    def within_transactions(self) -> None:
        """A key that is deleted and there again in one transaction, what is rolled back, in whole and in part."""
        at = self._insert()
        with self._transaction():
            self._delete(at)
            self._insert(at=at)
        with self._transaction():
            self._delete(at)
            self._insert("'short'" + ", NULL" * 21, at=at)
            self._say("accounts", "u", f"UPDATE accounts SET owner = 'again' WHERE id = {at}")
            self._delete(at)
        for text in ("BEGIN", "DELETE FROM accounts", "UPDATE visits SET page = 'never'", "ROLLBACK"):
            self.connection.execute(text)
        with self._transaction():
            self._say("counters", "u", "UPDATE counters SET n = n + 1 WHERE id = 2")
            for text in ("SAVEPOINT s", "DELETE FROM counters", "TRUNCATE orders", "ROLLBACK TO s"):
                self.connection.execute(text)
        self._say("visits", "c", "INSERT INTO visits VALUES (2, 'same', NULL), (2, 'same', NULL)")
        self._say("visits", "u", "UPDATE visits SET page = 'other' WHERE who = 2")
        self._say("visits", "d", "DELETE FROM visits WHERE who = 1")

    def truncates(self) -> None:
        """Tables that are emptied, rows in the transaction behind it, and an emptied table that fills again."""
        with self._transaction():
            self._say("orders", "u", "UPDATE orders SET units = -1")
            self._truncate("orders")
            self._say("orders", "c", "INSERT INTO orders VALUES ('eu', 1, 5, 1, NULL), ('eu', 900, 5, 1, NULL)")
        self._say("orders", "u", "UPDATE orders SET units = 2 WHERE id = 900")
        self._truncate("visits")
        self._say("visits", "c", "INSERT INTO visits VALUES (3, 'after', now())")

    def large_orders(self) -> None:
        """Rows with large values.

        Who follows the log has to be past them before their table is written anew: PostgreSQL cannot decode them then.
        """
        self._say("orders", "c", f"INSERT INTO orders SELECT 'as', n, n, n, {_text('o')} FROM generate_series(1, 9) n")

    def other_columns(self) -> None:
        """A column is added, two are widened; rows before it and behind it.

        The added one has a default, which rows that are there have from then on without a change of theirs, so a
        snapshot by signal is asked for: it reads `orders` again.
        """
        self._say("", "", "ALTER TABLE orders ADD COLUMN paid boolean DEFAULT false")
        self._say("orders", "u", "UPDATE orders SET paid = true WHERE id = 2")
        self._say("", "", "ALTER TABLE orders ALTER COLUMN units TYPE bigint")
        self._say("", "", "ALTER TABLE accounts ALTER COLUMN score TYPE double precision")
        self._say("orders", "u", "UPDATE orders SET units = 5000000000 WHERE id = 3")
        self._say("accounts", "u", "UPDATE accounts SET score = 0.1")
        signal_snapshot(self.connection, ["orders"])

    def one_key(self, count: int = MANY) -> None:
        """Change one key `count` times without sending its large value, and once in the middle with it."""
        for half in range(2):
            update = "UPDATE counters SET n = n + 1 WHERE id = 1"
            self.connection.execute(f"DO $$ BEGIN FOR i IN 1..{count // 2} LOOP {update}; END LOOP; END $$")
            self.made["counters", "u"] += count // 2
            if not half:
                self._say("counters", "u", f"UPDATE counters SET notes = {_text('m')} WHERE id = 1")

    def at_random(self, count: int) -> None:
        """Make random changes of few keys, so that most of them collide; some within transactions."""
        for _ in range(count):
            with self._transaction() if self._random.random() < 0.3 else contextlib.nullcontext():
                for _ in range(self._random.randint(1, 4)):
                    self._one_by_chance()

    def _one_by_chance(self) -> None:
        choice, at = self._random.random(), self._random.randint(1, _FEW)
        if at not in self._live:
            self._insert(at=at)
        elif choice < 0.15:
            self._delete(at)
        elif choice < 0.3:
            # One more than there are, so that one is always free.
            self._move(at, self._random.choice([each for each in range(1, _FEW + 2) if each not in self._live]))
        elif choice < 0.5:
            self._say("accounts", "u", f"UPDATE accounts SET notes = {self._letter()} WHERE id = {at}")
        elif choice < 0.6:
            self._say("accounts", "u", f"UPDATE accounts SET doc = NULL, raw = decode('ff', 'hex') WHERE id = {at}")
        else:
            self._say("accounts", "u", f"UPDATE accounts SET balance = random(), seen = now() WHERE id = {at}")

    def _letter(self) -> str:
        return self._random.choice(["NULL", "'short'", _text(self._random.choice("abcdef"))])

    def _insert(self, values: str | None = None, at: int | None = None) -> int:
        if at is None:
            self._next += 1
            at = self._next + 99
        given = values or (
            f"'owner {at}', {at}, {at}, {at}.25, {at}.125, {at} / 7.0::float8, {at} / 7.0::real, true, '2026-01-01',"
            f" now(), now(), now(), current_time, '{at} minutes', gen_random_uuid(),"
            f" jsonb_build_object('a', {_text('j')}), {_text('b')}::bytea, 'c', ARRAY[{_text('t')}, NULL],"
            f" array_fill({at}, ARRAY[600]), 'glad', {self._letter()}"
        )
        self._say("accounts", "c", f"INSERT INTO accounts VALUES ({at}, {given})")
        self._live.add(at)
        return at

    def _move(self, before: int, after: int) -> None:
        for op in "dc":
            self.made["accounts", op] += 1
        self._say("", "", f"UPDATE accounts SET id = {after} WHERE id = {before}")
        self._live = self._live - {before} | {after}

    def _delete(self, at: int) -> None:
        self._say("accounts", "d", f"DELETE FROM accounts WHERE id = {at}")
        self._live.discard(at)

    def _truncate(self, table: str) -> None:
        self.connection.execute(f"TRUNCATE {table}")
        self.made[table, "t"] += 1

    def _say(self, table: str, op: str, statement: str) -> None:
        changed = self.connection.execute(statement).rowcount
        if table:
            self.made[table, op] += changed

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.connection.transaction():
            yield


def _text(letter: str) -> str:
    """A value that does not stay in its row."""
    return f"repeat('{letter}', 2100)"
