"""A table in PostgreSQL whose changes land in a changelog as Debezium sends them, and are merged into a mirror."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import yaml
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.config.settings.settings import load_settings
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.unit.mirrors.mirror_world import (
    CHANGELOG,
    COLUMNS,
    MIRROR,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import P0

VARIABLE = "FRAZIL_TEST_SHOP_PASSWORD"
TABLE = """
    CREATE TYPE mood AS ENUM ('glad', 'sad');
    CREATE DOMAIN price AS numeric(12, 4);
    CREATE TABLE "Customers" (
        id bigint PRIMARY KEY, name text, short char(6), amount numeric(20, 4), cost price, paid money, ratio float8,
        part float4, flag boolean, born date, seen timestamp, told timestamptz(6), code uuid, uid uuid, doc json,
        docb jsonb, raw bytea, tags text[], counts int[], mood mood, place point, n smallint
    )
"""
_KINDS: Mapping[str, ice.IcebergType] = {
    "id": ice.LongType(),
    "name": ice.StringType(),
    "short": ice.StringType(),
    "amount": ice.DecimalType(20, 4),
    "cost": ice.DecimalType(12, 4),
    "paid": ice.DecimalType(19, 2),
    "ratio": ice.DoubleType(),
    "part": ice.DoubleType(),
    "flag": ice.BooleanType(),
    "born": ice.DateType(),
    "seen": ice.TimestampType(),
    "told": ice.TimestamptzType(),
    "code": ice.StringType(),
    "uid": ice.UUIDType(),
    "doc": ice.StringType(),
    "docb": ice.StringType(),
    "raw": ice.BinaryType(),
    "tags": ice.ListType(101, ice.StringType(), element_required=False),
    "counts": ice.ListType(102, ice.IntegerType(), element_required=False),
    "mood": ice.StringType(),
    "place": ice.StringType(),
    "n": ice.IntegerType(),
}
# Columns read in the form that Debezium sends, where psycopg reads something else.
_READ = {
    "paid": "paid::numeric",
    "code": "code::text",
    "doc": "doc::text",
    "docb": "docb::text",
    "place": "place::text",
}


class ComparedSource(MirrorWorld):
    """The table `public."Customers"`, and a mirror that is compared with it.

    Args:
        home: Folder of the deployment.
        server: Server of the table.
        mirror: Further keys of the mirror's block.
    """

    def __init__(self, home: Path, server: DatabaseServer, **mirror: Any) -> None:
        source = {"connection": "shop", "table": "public.Customers", **mirror.pop("source", {})}
        super().__init__(home, source=source, **mirror)
        settings = {"sources": {"shop": {"url": server.url, "properties": {"password": f"${{env:{VARIABLE}}}"}}}}
        (home / "frazil.yaml").write_text(yaml.safe_dump(settings))
        self.settings = load_settings(None, home=home)
        self.connection: psycopg.Connection[Any] = psycopg.connect(server.url, password=PASSWORD, autocommit=True)
        self.connection.execute(TABLE)
        self.committed = 1
        fields = [ice.NestedField(200 + at, name, kind) for at, (name, kind) in enumerate(_KINDS.items())]
        own = [each for each in COLUMNS.fields if each.name not in _KINDS]
        with self.catalog() as catalog:
            catalog.drop_table(CHANGELOG)
            catalog.create_table(CHANGELOG, Schema(*fields, *own), properties={"format-version": "2"})

    def close(self) -> None:
        self.connection.close()

    def execute(self, statement: str, *keys: int, land: bool = True) -> list[dict[str, Any]]:
        """Run a transaction, and return the changes of these keys, landed unless they are to come later."""
        self.connection.execute(statement.encode())
        names = ", ".join(_READ.get(name, name) for name in _KINDS)
        query = f'SELECT {names} FROM "Customers" WHERE id = ANY(%s)'.encode()
        found = self.connection.execute(query, ([*keys],)).fetchall()
        rows = {row[0]: dict(zip(_KINDS, row, strict=True)) for row in found}
        # The end of the transaction before, and a place within this one.
        position = f"{self.committed:016x}/{self.committed + 1:016x}"
        ((self.committed,),) = self.connection.execute(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
        ).fetchall()
        changes = [
            {
                **rows.get(key, {"id": key}),
                "_change_op": "u" if key in rows else "d",
                "_change_at": datetime.now(UTC),
                "_change_position": position,
                "_change_lineage": "postgresql/shop/postgres",
                "_change_key": {"id": key},
            }
            for key in keys
        ]
        if land:
            self.land_changes(changes)
        return changes

    def land_changes(self, changes: list[dict[str, Any]]) -> None:
        """A batch of changes lands in the changelog."""
        target = Target(self.catalog(), CHANGELOG, "customers")
        if not self.epoch:
            self.epoch = 1
            first = Stamp("customers", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0})
            target.claim(1, lambda newest: first)
        target.read()
        start, self.end = self.end, self.end + len(changes)
        rows = [
            {name: value.bytes if isinstance(value, uuid.UUID) else value for name, value in each.items()}
            | {"_kafka_topic": "customers", "_kafka_partition": 0, "_kafka_offset": start + n}
            for n, each in enumerate(changes)
        ]
        files = self.data_files(target.table, rows)
        stamp = Stamp(
            "customers", "batch", 0, self.epoch, "c", start={P0: start}, position={P0: self.end},
            counts=Counts(len(rows), len(rows)),
        )  # fmt: skip
        batch = {P0: OffsetRange(start, self.end)}
        done = target.land(stamp, files, seen=target.seen(), batch=batch, position={P0: start})
        assert done is ProposalOutcome.LANDED

    def mirror_row(self, key: int) -> pa.Table:
        """A row of the mirror."""
        return self.catalog().load_table(MIRROR).scan(row_filter=f"id = {key}").to_arrow()
