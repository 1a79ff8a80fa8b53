"""Checking streams against what is live: what agrees, what is wrong, what could not be checked; a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError, KafkaException
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from jobs.errors import FrazilError
from jobs.runtime.kafka_log import KafkaLog, KafkaUnavailableError
from jobs.schema.table_schema import disagreements, iceberg_schema
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.write.partitioning import partition_spec
from orchestration.live import NoCatalogYet, find_table, quick_catalog, quick_kafka

Verdict = Literal["ok", "wrong", "unchecked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        stream: The stream's id; None where it concerns all.
        subject: `spec`, `settings`, `kafka`, `topic`, `catalog` or `table`.
        fix: What to do, where something can be done.
    """

    stream: str | None
    subject: str
    verdict: Verdict
    sentence: str
    fix: str | None = None


def validate(specs: list[StreamSpec], settings: Settings) -> Iterator[Finding]:
    """Check streams against the broker and the catalog, each asked once and given some seconds to answer."""
    kafka = _connected_kafka(specs, settings)
    catalog = _connected_catalog(settings)
    for finding in (kafka, catalog):
        if isinstance(finding, Finding):
            yield finding
    for spec in specs:
        yield from _check_partitioning(spec)
        if isinstance(kafka, KafkaLog):
            yield _check_topics(spec, kafka)
        if not isinstance(catalog, Finding):
            yield from _check_table(spec, settings, catalog)


def _connected_kafka(specs: list[StreamSpec], settings: Settings) -> KafkaLog | Finding:
    not_checked = "so the topics were not checked"
    try:
        kafka = quick_kafka(settings.kafka)
        for spec in specs[:1]:
            kafka.topics(spec.source)
        return kafka
    except KafkaUnavailableError as problem:
        refused = _refused(problem)
        return Finding(
            None, "kafka", "wrong" if refused else "unchecked", f"{problem.message}; {not_checked}", problem.fix
        )
    except FrazilError as problem:
        return Finding(None, "kafka", "unchecked", f"{problem.message.rstrip('.')}, {not_checked}", problem.fix)


def _refused(problem: KafkaUnavailableError) -> bool:
    """True if the brokers answered and would not have us: that is wrong whatever else runs."""
    cause = problem.__cause__
    code = cause.args[0].code() if isinstance(cause, KafkaException) else None
    return code in (KafkaError._AUTHENTICATION, KafkaError._SSL) or "kafka.security" in (problem.fix or "")


def _connected_catalog(settings: Settings) -> Catalog | NoCatalogYet | Finding:
    try:
        return quick_catalog(settings)
    except NoCatalogYet as problem:
        return problem
    except FrazilError as problem:
        message = f"{problem.message.rstrip('.')}, so the tables were not checked"
        return Finding(None, "catalog", "unchecked", message, problem.fix)


def _check_partitioning(spec: StreamSpec) -> Iterator[Finding]:
    try:
        partition_spec(spec.table.partition_by, _declared_schema(spec))
    except FrazilError as problem:
        yield Finding(spec.stream, "spec", "wrong", problem.message, problem.fix)


def _declared_schema(spec: StreamSpec) -> Schema:
    return iceberg_schema(spec.declared, kafka_columns=spec.table.kafka_columns)


def _check_topics(spec: StreamSpec, kafka: KafkaLog) -> Finding:
    try:
        topics = kafka.topics(spec.source)
    except FrazilError as problem:
        return Finding(spec.stream, "topic", "unchecked", problem.message, problem.fix)
    found = ", ".join(f"{name} ({len(partitions)} partitions)" for name, partitions in topics.items())
    if spec.source.topics_pattern is not None:
        if not topics:
            sentence = f"no topic matches {spec.source.topics_pattern} as yet"
            return Finding(spec.stream, "topic", "unchecked", sentence)
        return Finding(spec.stream, "topic", "ok", f"{len(topics)} topics match: {found}")
    missing = [topic for topic in spec.source.topics or () if topic not in topics]
    if missing:
        return Finding(
            spec.stream,
            "topic",
            "wrong",
            f"topic {', '.join(missing)} does not exist",
            f"create it, or correct source.topics of stream {spec.stream}",
        )
    return Finding(spec.stream, "topic", "ok", f"topic {found} exists")


def _check_table(spec: StreamSpec, settings: Settings, catalog: Catalog | NoCatalogYet) -> Iterator[Finding]:
    name = spec.table.name
    try:
        table = None if isinstance(catalog, NoCatalogYet) else find_table(catalog, name)
    except FrazilError as problem:
        yield Finding(spec.stream, "table", "unchecked", problem.message, problem.fix)
        return
    if table is None:
        yield Finding(
            spec.stream,
            "table",
            "unchecked",
            f"table {name} is not in catalog {settings.catalog.name} yet; the first run creates it as declared",
        )
        return
    wrong = disagreements(spec.declared, table.schema(), kafka_columns=spec.table.kafka_columns)
    fix = f"correct decode.schema of stream {spec.stream}, or alter table {name}"
    yield from (Finding(spec.stream, "table", "wrong", f"table {name}: {sentence}", fix) for sentence in wrong)
    if wrong:
        return
    declared = partition_fields(partition_spec(spec.table.partition_by, _declared_schema(spec)), _declared_schema(spec))
    actual = partition_fields(table.spec(), table.schema())
    if declared != actual:
        yield Finding(
            spec.stream,
            "table",
            "wrong",
            f"table {name} is partitioned by {_named(actual)}, the stream says {_named(declared)}; frazil writes as "
            "the table is partitioned",
            f"correct table.partition_by of stream {spec.stream}, or alter table {name}",
        )
        return
    yield Finding(spec.stream, "table", "ok", f"table {name} holds what the stream declares")


def partition_fields(spec: PartitionSpec, schema: Schema) -> list[str]:
    """A partition spec as text, without names and ids: `day(created_at)`; dropped fields left out."""
    fields: list[str] = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id) or f"field {field.source_id}"
        transform = str(field.transform)
        if transform == "void":
            continue
        fields.append(column if transform == "identity" else f"{transform}({column})")
    return fields


def _named(fields: list[str]) -> str:
    return ", ".join(fields) if fields else "nothing"
