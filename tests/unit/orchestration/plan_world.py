"""A deployment whose files, tables and drivers a plan is made of: drivers only beat, and the catalog is SQLite."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.log_state import NO_ID
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.unit.orchestration.reconcile.sample_states import stand_in
from tests.unit.streaming.supervision.worlds import WHY, World

SCHEMA = "id string not null, amount decimal(12,2) not null, created_at timestamptz not null"


class PlanWorld(World):
    """A deployment with the stream `payments`, as `tests.unit.orchestration.deployments` writes it."""

    @property
    def deployment(self) -> Deployment:
        return Deployment.at(self.home)

    @property
    def settings(self) -> Settings:
        return self.deployment.settings()

    def spec(self, stream: str = "payments") -> StreamSpec:
        return self.deployment.stream(stream)

    def edit(self, before: str, after: str, stream: str = "payments") -> None:
        """Change a stream's file."""
        path = self.home / "streams" / f"{stream}.yaml"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with connect_catalog(self.deployment.prepared_settings()) as catalog:
            yield catalog

    def make_tables(self, stream: str = "payments") -> None:
        """Make the stream's tables as a start does, without rows."""
        with self.catalog() as catalog:
            ensure_tables(self.spec(stream), catalog)

    def land(self, stream: str = "payments", offset: int = 40) -> None:
        """Make the stream's tables as a start does, put a row there, and stamp it at an offset."""
        spec = self.spec(stream)
        at = TopicPartition(f"{stream}.v1", 0)
        with self.catalog() as catalog:
            ensure_tables(spec, catalog)
            target = Target(catalog, spec.table.name, spec.stream)
            target.claim(1, lambda newest: Stamp(spec.stream, "claim", -1, 1, spec.config_hash, {at: 0}, {at: 0}))
            stamp = Stamp(
                *(spec.stream, "batch", 0, 1, spec.config_hash, {at: 0}, {at: offset}),
                counts=Counts(offset, offset),
                topics={f"{stream}.v1": NO_ID},
            )
            target.land(stamp, (), seen=target.seen(), batch={at: OffsetRange(0, offset)}, position={at: 0})
            append_row(catalog.load_table(spec.table.name))

    def start(self, stream: str = "payments") -> None:
        """Launch a driver that only beats."""
        self.control(stream).start(*WHY)

    def stand_in(self, stream: str = "payments") -> None:
        """Let this process stand in for the stream's driver, launched with the file as it is."""
        file = self.home / "streams" / f"{stream}.yaml"
        runs = generation(self.spec(stream), self.settings)
        how = {"pid": os.getpid(), "now": time.time(), "spec_text": file.read_text(), "file": str(file)}
        stand_in(self.folder(stream), stream, runs, **how)

    def frazil(self, *words: str, answer: str = "") -> Result:
        """What a command line prints and how it ends."""
        result = CliRunner().invoke(main, ["--home", str(self.home), *words], input=answer)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        return result

    def plan(self, *words: str) -> dict[str, Any]:
        """A plan as JSON."""
        return json.loads(self.frazil("plan", "--json", *words).stdout)

    def changes(self, *words: str, stream: str = "payments") -> list[dict[str, Any]]:
        """The changes of one stream."""
        return next(each["changes"] for each in self.plan(*words)["streams"] if each["stream"] == stream)

    def todo(self, *words: str, stream: str = "payments") -> list[tuple[str, str, str]]:
        """Class, place and who of what is left to do of one stream."""
        return [
            (each["class"], each["place"], each["by"])
            for each in self.changes(*words, stream=stream)
            if each["by"] != "nobody"
        ]


def append_row(table: Table) -> None:
    """Put a row into a table, so that it is altered, and not made anew."""
    row = {"id": "a", "amount": Decimal("1.00"), "created_at": datetime(2026, 1, 1, tzinfo=UTC)}
    others = {name: None for name in table.schema().column_names if name not in row}
    table.append(pa.Table.from_pylist([row | others], schema=table.schema().as_arrow()))
