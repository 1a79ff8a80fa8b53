"""Producer of records that name their schema in a registry, and settings that name the registry."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import fastavro
import yaml

from jobs.registry.client import Reference, RegistryClient, registry_client
from jobs.spec.registry import RegistrySettings
from tests.helpers.topics import idempotent_producer
from tests.integration.pipeline import Pipeline


class Producer:
    """Writes records to a pipeline's topic."""

    def __init__(self, pipeline: Pipeline, registry: str) -> None:
        self.pipeline = pipeline
        self.client: RegistryClient = registry_client(RegistrySettings.model_validate({"url": registry}))
        self.sent = 0

    def register(self, schema: dict[str, Any], kind: str = "AVRO", references: Sequence[Reference] = ()) -> int:
        subject = f"{self.pipeline.stream}-value"
        return self.client.register(subject, kind, json.dumps(schema), references)

    def send(self, values: Sequence[bytes | None]) -> None:
        producer = idempotent_producer(self.pipeline.address, self.pipeline.stream)
        for value in values:
            producer.produce(self.pipeline.stream, value=value, partition=self.sent % self.pipeline.partitions)
            self.sent += 1
        assert producer.flush(120) == 0

    def encoded(self, schema: dict[str, Any], number: int, **fields: Any) -> bytes:
        return b"\x00" + struct.pack(">I", number) + datum(schema, **fields)


def datum(schema: dict[str, Any], **fields: Any) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(schema), fields)
    return made.getvalue()


def use_registry(pipeline: Pipeline, url: str) -> None:
    file = pipeline.home / "frazil.yaml"
    settings = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(settings | {"registry": {"url": url, "timeout": "3s", "lag": "300ms"}}))
