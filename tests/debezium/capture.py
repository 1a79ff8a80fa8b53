"""Capture of what Debezium sends of a real PostgreSQL: `python -m tests.debezium.capture` writes it anew.

Every statement below leads to records of a kind of its own. Their times and positions differ in each capture.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from jobs.local.broker.broker import LocalBroker
from tests.debezium.samples import Name, Sample, samples, write_samples
from tests.helpers.database_server import PASSWORD, database_server
from tests.helpers.debezium import LOGICAL, SIGNALS, create_signals, debezium_worker, follows
from tests.helpers.waiting import wait_for

# Larger than what a page keeps in the row, so that it is kept beside it and an update of other columns leaves it out.
_LARGE = "repeat('x', 2100)"
_TABLES = ["customers", "visits", "orders", "large"]
_WIDE = (
    *("notes", "label", "doc", "plain", "raw", "tags", "numbers", "bigs", "flags", "rates", "uids", "days", "shorts"),
    *("reals", "exacts", "times", "zoned", "number"),
)
_EXTERNAL = "".join(f"ALTER TABLE large ALTER COLUMN {each} SET STORAGE EXTERNAL;\n" for each in _WIDE)
_MADE = f"""
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TABLE customers (
  id integer PRIMARY KEY, name text NOT NULL, small smallint, big bigint, balance numeric(12,2), anything numeric,
  rate double precision, score real, active boolean, born date, made timestamp, made_ms timestamp(3), seen timestamptz,
  woke time, woke_there timetz, span interval, uid uuid, doc jsonb, plain json, raw bytea, code char(4),
  label varchar(20), tags text[], numbers integer[], feeling mood, address inet, place point, notes text
);
ALTER TABLE customers ALTER COLUMN notes SET STORAGE EXTERNAL;
CREATE TABLE visits (who integer, page text, at timestamptz);
ALTER TABLE visits REPLICA IDENTITY FULL;
CREATE TABLE orders (region text, id bigint, amount numeric(10,2), notes text, PRIMARY KEY (region, id));
ALTER TABLE orders REPLICA IDENTITY FULL;
ALTER TABLE orders ALTER COLUMN notes SET STORAGE EXTERNAL;
CREATE TABLE large (
  id integer PRIMARY KEY, n integer, notes text, label varchar, doc jsonb, plain json, raw bytea, tags text[],
  numbers integer[], bigs bigint[], flags boolean[], rates double precision[], uids uuid[], days date[],
  shorts smallint[], reals real[], exacts numeric(10,2)[], times timestamp[], zoned timestamptz[], number numeric
);
{_EXTERNAL}
INSERT INTO customers (id, name, balance, notes) VALUES (1, 'before', 12.5, {_LARGE}), (2, 'as well', NULL, NULL);
INSERT INTO visits VALUES (1, '/', '2026-01-02 03:04:05.123456+01');
INSERT INTO orders VALUES ('eu', 1, 9.99, NULL);
"""
_FULL = f"""
INSERT INTO customers VALUES (3, 'Zoë "quoted" \\ 語', -32768, 9223372036854775807, -1234567890.12,
  1234567890123456789.000000001, 1e-300, 3.4028235e38, true, '1969-12-31', '2026-03-01 12:00:00.123456',
  '2026-03-01 12:00:00.123',
  '2026-03-01 12:00:00.123456+02', '23:59:59.999999', '23:59:59.999999+02', '1 year 2 mons 3 days 04:05:06.789',
  '0e37df36-f698-11e6-8dd4-cb9ced3df976', '{{"a": [1, null, 2.5], "b": "x"}}', '{{"z":1,  "a":2}}', '\\x00ff10',
  'ab', 'äöü', '{{a,NULL,"c d"}}', '{{1,-2,NULL}}', 'sad', '10.0.0.1/8', '(1.5,-2)', {_LARGE});
"""
_STEPS = (
    _FULL,
    "INSERT INTO customers (id, name) VALUES (4, 'only nulls');",
    # The large column is not sent, then it is, then the row's key changes with it unsent.
    "UPDATE customers SET name = 'notes are not sent' WHERE id = 3;",
    "UPDATE customers SET notes = repeat('y', 2100), active = false WHERE id = 3;",
    "UPDATE customers SET id = 30 WHERE id = 3;",
    # NaN is a numeric and a double of PostgreSQL, infinity a timestamp.
    "UPDATE customers SET rate = 'NaN', seen = 'infinity', made = '-infinity', born = 'infinity' WHERE id = 4;",
    "BEGIN; DELETE FROM customers WHERE id = 1; INSERT INTO customers (id, name) VALUES (1, 'again'); COMMIT;",
    "DELETE FROM customers WHERE id = 2;",
    "BEGIN; UPDATE customers SET name = 'never' WHERE id = 1; ROLLBACK;",
    "BEGIN; UPDATE customers SET name = 'kept' WHERE id = 1; SAVEPOINT s; DELETE FROM orders; ROLLBACK TO s; COMMIT;",
    "UPDATE visits SET page = '/b';",
    "INSERT INTO visits VALUES (2, NULL, NULL), (2, NULL, NULL);",
    "DELETE FROM visits WHERE who = 1;",
    f"INSERT INTO orders VALUES ('eu', 2, 1.00, {_LARGE});",
    "UPDATE orders SET amount = 2.00 WHERE id = 2;",
    "UPDATE orders SET region = 'us' WHERE id = 2;",
    "DELETE FROM orders WHERE id = 2;",
    # Each column is kept beside the row; what stands for the values that are not sent depends on their type.
    f"""INSERT INTO large SELECT 1, 0, {_LARGE}, {_LARGE}, to_jsonb({_LARGE}), to_json({_LARGE}), {_LARGE}::bytea,
      array_fill('tag'::text, ARRAY[300]), array_fill(7, ARRAY[600]), array_fill(7::bigint, ARRAY[300]),
      array_fill(true, ARRAY[2100]), array_fill(0.5::float8, ARRAY[300]), array_fill(gen_random_uuid(), ARRAY[150]),
      array_fill('2026-01-01'::date, ARRAY[600]), array_fill(7::smallint, ARRAY[1100]),
      array_fill(0.5::real, ARRAY[600]), array_fill(0.5::numeric(10,2), ARRAY[300]),
      array_fill('2026-01-01'::timestamp, ARRAY[300]),
      array_fill('2026-01-01'::timestamptz, ARRAY[300]), repeat('9', 6000)::numeric;""",
    "UPDATE large SET n = 1;",
    "ALTER TABLE orders ADD COLUMN paid boolean DEFAULT false;",
    "UPDATE orders SET paid = true WHERE id = 1;",
    "ALTER TABLE orders ALTER COLUMN amount TYPE numeric(18,2);",
    "UPDATE orders SET amount = 1234567890123456.78 WHERE id = 1;",
    "SELECT pg_logical_emit_message(true, 'app', 'said in the log');",
    f"INSERT INTO {SIGNALS} VALUES ('ask', 'execute-snapshot', '{{"
    '"type": "incremental", "data-collections": ["public.orders", "public.customers"]'
    "}');",
)
_LAST = ("TRUNCATE customers;", "INSERT INTO customers (id, name) VALUES (5, 'the last one');")


def main() -> None:
    """Capture all of it, once for each set-up of the connector."""
    everything = {
        "heartbeat.interval.ms": "500",
        "provide.transaction.metadata": "true",
        # Two rows at a time, so that the snapshot by signal has more than one window.
        "incremental.snapshot.chunk.size": "2",
    }
    unwrap = {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.add.fields": "op,source.lsn,source.ts_us,source.snapshot",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite-with-tombstone",
    }
    bare = {f"{each}.converter.schemas.enable": "false" for each in ("key", "value")}
    simple = {"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}
    with tempfile.TemporaryDirectory(prefix="frazil-capture-") as name, LocalBroker(Path(name) / "broker") as broker:
        address = broker.status().address
        assert address is not None
        capture("postgresql", Path(name) / "all", address, everything, {})
        capture("schemaless", Path(name) / "bare", address, {}, {**bare, **simple})
        capture("unwrapped", Path(name) / "unwrapped", address, unwrap, {})


def capture(name: Name, folder: Path, address: str, more: dict[str, str], settings: dict[str, str]) -> None:
    """One set-up, with a database of its own."""
    with database_server(*LOGICAL) as server, psycopg.connect(server.url, password=PASSWORD, autocommit=True) as said:
        create_signals(said)
        said.execute(_MADE.encode())
        with debezium_worker(folder, address, server, name, _TABLES, more=more, settings=settings) as worker:
            worker.wait_until_running()
            wait_for(lambda: follows(said, name), "the snapshot to end and the log to be followed")
            for step in _STEPS:
                # Not as one transaction, which a text of several statements is otherwise.
                for statement in step.split(";")[:-1] if step.startswith("BEGIN") else [step]:
                    said.execute(statement.encode())
            wait_for(lambda: _snapshot_rows(read_all(address, name)), "the snapshot by signal")
            for step in _LAST:
                said.execute(step.encode())
            wait_for(lambda: _has(read_all(address, name), b"the last one"), "the last record")
            records = read_all(address, name)
    write_samples(name, records)
    assert samples(name) == records
    print(f"{name}: {len(records)} records")


def _has(records: Sequence[Sample], text: bytes) -> bool:
    return any(text in (each.value or b"") for each in records)


def _snapshot_rows(records: Sequence[Sample]) -> bool:
    return sum(b'"incremental"' in (each.value or b"") for each in records) >= 4


def read_all(address: str, prefix: str) -> list[Sample]:
    """All records of the topics of a connector."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": prefix, "enable.partition.eof": True, "log_level": 0}
    )
    found: list[Sample] = []
    try:
        listed = consumer.list_topics(timeout=20).topics
        topics = sorted(each for each in listed if each.startswith((f"{prefix}.", f"__debezium-heartbeat.{prefix}")))
        parts = [TopicPartition(each, number, 0) for each in topics for number in listed[each].partitions]
        consumer.assign(parts)
        ended, deadline = 0, time.monotonic() + 30
        while ended < len(parts) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                ended += 1
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            headers = tuple((key, _as_bytes(value)) for key, value in message.headers() or ())
            found.append(
                Sample(topic, partition, offset, message.timestamp()[1], message.key(), message.value(), headers)
            )
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))


def _as_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


if __name__ == "__main__":
    main()
