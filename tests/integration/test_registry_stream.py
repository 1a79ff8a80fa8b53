"""A stream whose records name their schemas by ids of a real registry: one that knows, is away, or was made anew."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from jobs.base.system.ports import free_ports
from jobs.base.system.processes import wait_until_dead
from jobs.clients.registry.client import registry_client
from jobs.clients.registry.known_schemas import (
    RegistryRemadeError,
    forget_known_schemas,
    read_known_schemas,
)
from jobs.local.registry.registry import LocalRegistry
from jobs.records.formats.interface.problems import NO_SCHEMA_ID, UNKNOWN_SCHEMA
from jobs.streaming.driver.context.writer_schemas import writer_schemas
from jobs.streaming.driver.watch.watches import RegistryWatch
from tests.helpers.topics import idempotent_producer
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FIRST = 'syntax = "proto3"; message Payment { string id = 1; }'
SECOND = 'syntax = "proto3"; message Payment { string id = 1; string note = 2; }'
KEY = 'syntax = "proto3"; message Key { string k = 1; }'
OTHER = 'syntax = "proto3"; message Refund { string reason = 1; }'


def message(schema_id: int, text: str) -> bytes:
    """A message whose first field is a text, as a registry's serializer writes it."""
    return b"\0" + schema_id.to_bytes(4, "big") + b"\0" + b"\x0a" + bytes([len(text)]) + text.encode()


class World:
    """The stream, and its registry on a port that stays."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline = pipeline
        self.folder = folder
        self.key: int | None = None
        (self.port,) = free_ports(1)
        self.registry = self.made("kept", keep=True)
        self.registry.start()
        settings = yaml.safe_load((pipeline.home / "frazil.yaml").read_text())
        url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        settings["registry"] = {"url": url, "timeout": "5s", "lag": "300ms"}
        (pipeline.home / "frazil.yaml").write_text(yaml.safe_dump(settings))
        key = {"format": "protobuf", "schema": "registry", "into": "key"}
        decode = {"value": "protobuf", "schema": "registry", "key": key}
        pipeline.write_spec(decode=decode, table={"name": pipeline.table_name}, errors={"retry": {"timeout": "1s"}})

    def made(self, name: str, *, keep: bool) -> LocalRegistry:
        return LocalRegistry(self.folder / name, detached=True, keep=keep, port=self.port)

    def register(self, text: str, what: str = "value") -> int:
        client = registry_client(self.pipeline.settings().registry)
        try:
            return client.register(f"{self.pipeline.stream}-{what}", "PROTOBUF", text)
        finally:
            client.close()

    def produce(self, *values: bytes | None) -> None:
        producer = idempotent_producer(self.pipeline.address, self.pipeline.stream)
        for number, value in enumerate(values):
            # A key says what the value says, in a schema of its own.
            key = message(self.key, value[8:].decode()) if value and self.key is not None else None
            producer.produce(self.pipeline.stream, value=value, key=key, partition=number % 2)
        assert producer.flush(120) == 0

    def ids(self) -> list[str]:
        rows = self.pipeline.table().scan().to_arrow().to_pylist()
        assert all(row["key"] == {"k": row["id"]} for row in rows)
        return sorted(row["id"] for row in rows)

    def letters(self) -> dict[str, str]:
        rows = self.pipeline.dead_table().scan().to_arrow().to_pylist()
        return {row["error_class"]: row["message"] for row in rows}

    def kill(self) -> None:
        running = self.registry.running()
        assert running is not None
        os.kill(running[0], signal.SIGKILL)
        assert wait_until_dead(*running, seconds=120)


@pytest.mark.timeout(1500)
def test_what_becomes_of_records_and_registry(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path / "deployment", broker, "registry_stream")
    pipeline.create_topic()
    world = World(pipeline, tmp_path)
    watch: RegistryWatch | None = None
    try:
        first, world.key = world.register(FIRST), world.register(KEY, "key")
        # A fresh stream, and nothing but a made-up id: the registry has its subject, so the record is what is bad.
        world.produce(message(424242, "x"))
        assert pipeline.drain(spark).counts.dead == 1
        world.produce(*(message(first, f"a{n}") for n in range(8)), message(424242, "x"), b"plain", None)
        counts = pipeline.drain(spark).counts
        assert (counts.landed, counts.dead, counts.tombstones) == (8, 2, 1)
        letters = world.letters()
        assert set(letters) == {UNKNOWN_SCHEMA, NO_SCHEMA_ID}
        assert letters[UNKNOWN_SCHEMA].startswith("needs the schema with id 424242, found none")

        assert len(world.ids()) == 8

        # The registry dies. What is known is read without it; what is not is nobody's fault, and waits.
        second = world.register(SECOND)
        world.kill()
        world.produce(message(first, "b0"), message(first, "b1"))
        assert pipeline.drain(spark).counts.landed == 2
        world.produce(message(second, "c0"), message(first, "c1"))
        with pytest.raises(Exception, match="RegistryUnavailableError"):
            pipeline.drain(spark)
        assert world.letters() == letters
        world.registry.start()
        assert pipeline.drain(spark).counts.landed == 2
        expected = sorted([*(f"a{n}" for n in range(8)), "b0", "b1", "c0", "c1"])
        assert world.ids() == expected
        assert {each.number for each in read_known_schemas(pipeline.folder().store)} == {first, world.key, second}

        # It is made anew, and gives the same ids to other schemas: an open stream notices, and the next opening.
        schemas = writer_schemas(pipeline.spec(), pipeline.settings())
        assert schemas is not None
        watch = RegistryWatch(schemas, every=0.2, again=0.2)
        watch.start()
        world.registry.stop()
        world.registry = world.made("anew", keep=False)
        world.registry.start()
        assert world.register(OTHER) == first
        wait_for(lambda: schemas.remade is not None, "the comparison with the new registry", 30)
        world.key = None
        world.produce(message(first, "no longer an id"))
        with pytest.raises(RegistryRemadeError, match=f"id {first} is another schema there"):
            pipeline.drain(spark)
        assert world.ids() == expected
        assert forget_known_schemas(pipeline.folder().store) == 3
        assert pipeline.drain(spark).counts.read == 1
    finally:
        if watch is not None:
            watch.end()
        world.registry.stop()
