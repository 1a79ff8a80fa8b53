"""Command `frazil generate`: generated records in a stream's format and schema, produced to its topic."""

from __future__ import annotations

import ipaddress
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import click
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.record_producer import RecordProducer, ensure_topic
from jobs.clients.registry.client import RegistryClient, registry_client
from jobs.clients.registry.failures import NotInRegistryError
from jobs.config.services.security import librdkafka_options
from jobs.config.settings.settings import KafkaSettings, Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.config.values.decode import key_subjects, value_subjects
from jobs.local.generate.derived_schema import derived_schema
from jobs.local.generate.record import (
    FIRST_TIME,
    GeneratedRecord,
    RecordGenerator,
    generated,
)
from jobs.local.generate.record_lines import record_lines
from jobs.local.generate.stream_records import record_generator
from jobs.local.generate.values import OneSchema
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.writer_schema import BadWriterSchema, RegistrySchema, WriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.record_columns import RecordColumns
from orchestration.cli.common.consent import command_line
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.terminal import print_json, progress_bar
from orchestration.cli.stream_files.schema.tables import stream_table
from resources.deployment import Deployment

_TEXT_FORMATS = {"json", "connect_json", "string"}
_EACH_SECONDS = 0.02
_SHOWN_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Subjects:
    """Registry subjects with the schemas of values and keys.

    Attributes:
        value: Subject of the values' schema.
        key: Subject of the keys' schema.
        register: Whether to register a missing subject.
    """

    value: str
    key: str
    register: bool = False


def stream_generator(spec: StreamSpec, settings: Settings, subjects: Subjects) -> RecordGenerator:
    """Generator of a stream's records, with the writer schemas in the registry.

    Raises:
        FrazilError: The columns are not known yet, a subject is missing, or such records cannot be generated.
        RegistryError: The registry is unavailable.
    """
    rows, columns = _known_rows(spec, settings)
    key = columns.key
    if not {_kind(spec.decode.format), _kind(key.decoder.kind if key else "json")} - {None}:
        return record_generator(spec.stream, rows or spec.resolved, columns)
    client = registry_client(settings.registry)
    try:
        writers = _Writers(client, spec.stream, register=subjects.register)
        writer = writers.find(spec.decode.format, subjects.value, rows.schema if rows else None, "values")
        key_rows = key.rows if key and key.is_resolved else None
        key_writer = writers.find(key.decoder.kind, subjects.key, key_rows, "keys") if key else None
    finally:
        client.close()
    if rows is None and writer is not None:
        made = _rows_of(spec.decode.format, spec.decode.options, writer, subjects.value)
        rows = spec.decode.resolved_for(made).with_options(spec.evolution.as_options())
    if key is not None and not key.is_resolved:
        if key_writer is None:
            raise FrazilError(
                f"stream {spec.stream}: decode.key.schema is 'table', and table {spec.table.name} does not exist yet.",
                fix=f"frazil run {spec.stream}, which creates it",
            )
        columns = columns.with_key_of(_rows_of(key.decoder.kind, key.decoder.options, key_writer, subjects.key).fields)
    return record_generator(spec.stream, rows or spec.resolved, columns, writer, key_writer)


def _kind(format_: str) -> str | None:
    return FORMATS[format_].registry_kind


def _known_rows(spec: StreamSpec, settings: Settings) -> tuple[ResolvedSchema | None, RecordColumns]:
    """Schema of a stream's rows from its file or its table, None if neither has one; and its record columns.

    Both are those of the stream's driver, which may alter the table.
    """
    declared = spec.decode.declared
    rows = declared.with_options(spec.evolution.as_options()) if declared else None
    table = None if spec.decode.declares_all else stream_table(spec, settings)
    if table is None:
        return rows, spec.record_columns
    columns = spec.record_columns_for(table.schema(), table.properties)
    return spec.resolved_for(table.schema(), table.properties, evolving=True), columns


def _rows_of(format_: str, options: Mapping[str, Any], writer: OneSchema, subject: str) -> Schema:
    """Columns of a table that does not exist yet, derived from the writer schema that would create it."""
    make: Callable[..., Schema] | None = FORMATS[format_].writer_rows
    assert make is not None
    try:
        return make(writer.schema.schema, options)
    except BadWriterSchema as problem:
        raise FrazilError(f"the schema of subject {subject} cannot be read: {problem.message}") from None


class _Writers:
    """Writer schemas of a stream in the registry.

    Args:
        client: Client of the registry.
        stream: The stream's id.
        register: Whether to register a missing subject, with a schema derived from the columns.
    """

    def __init__(self, client: RegistryClient, stream: str, *, register: bool) -> None:
        self._client: RegistryClient = client
        self._stream: str = stream
        self._register: bool = register

    def find(self, format_: str, subject: str, rows: Schema | None, what: str) -> OneSchema | None:
        """Newest schema of a subject; None if the format's records name no schema."""
        kind = _kind(format_)
        if kind is None:
            return None
        try:
            found = self._client.version(subject)
        except NotInRegistryError:
            return self._made(format_, kind, subject, rows, what)
        if found.schema.kind != kind:
            raise FrazilError(
                f"subject {subject} has schemas of the type {found.schema.kind}, and {what} of stream {self._stream} "
                f"are {format_}.",
                fix=f"name another one with {_option(what)}",
            )
        return OneSchema(found.id, found.schema)

    def _made(self, format_: str, kind: str, subject: str, rows: Schema | None, what: str) -> OneSchema:
        problem = f"the registry has no subject {subject}, which has the schema for the {what} of stream {self._stream}"
        if rows is None:
            raise FrazilError(
                f"{problem}; and its table, whose columns would do, does not exist yet.",
                fix=f"register a schema, or name an existing subject with {_option(what)}",
            )
        text = derived_schema(format_, rows.fields, f"{self._stream} {'key' if what == 'keys' else ''}")
        if not self._register:
            raise FrazilError(
                f"{problem}. --register makes it, with this schema of the stream's columns:\n{text}",
                fix=f"frazil generate {self._stream} --register, or name a subject with {_option(what)}",
            )
        number = self._client.register(subject, kind, text)
        click.echo(f"Registered subject {subject} (id {number}): a schema made of the stream's columns.", err=True)
        return OneSchema(number, RegistrySchema(kind, WriterSchema(text)))


def _option(what: str) -> str:
    return "--key-subject" if what == "keys" else "--subject"


class Share(click.ParamType):
    """Parameter type of a share, such as `1%` or `0.01`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Share as a number from 0 to 1."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is no share; write 1% or 0.01", param, ctx)
        return share


@click.command()
@stream_argument()
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True,
              help="Records per second.")  # fmt: skip
@click.option("--bad", type=Share(), default=0.0, metavar="SHARE", help="How many are bad, such as 1%.")
@click.option("--count", type=click.IntRange(min=1), help="How many in all.  [default: until Ctrl-C]")
@click.option("--seed", help="The same seed gives the same records, times included.  [default: another each time]")
@click.option("--topic", help="Where to.  [default: the stream's own, if it is one]")
@click.option(
    "--subject", help="Subject of the registry, for the schema of values.  [default: decode.subject, or TOPIC-value]"
)
@click.option("--key-subject", help="As --subject, of keys.  [default: decode.key.subject, or TOPIC-key]")
@click.option("--register", is_flag=True, help="Register a schema made of the stream's columns where there is none.")
@click.option(
    "--from",
    "lines",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Send the lines of this file instead, each as a record, as fast as the brokers take them.",
)
@yes_option("Also to brokers that are not on this machine.")
@dry_run_option("Show what would be sent where, and send nothing.")
@json_option()
@click.pass_obj
def generate(
    deployment: Deployment,
    stream: str,
    rate: float,
    bad: float,
    count: int | None,
    seed: str | None,
    topic: str | None,
    subject: str | None,
    key_subject: str | None,
    register: bool,
    lines: Path | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Produce records that STREAM lands, in its formats and with its schemas, into its topic.

    The records have the keys and headers that the stream's columns need. Avro, Protobuf and JSON Schema are written
    with the newest schema in the registry.

    Bad records (--bad) become dead letters, for different reasons. The command is for a first hour and for load tests:
    other readers of the topic get the records, too, so brokers elsewhere need --yes.
    """
    spec, settings = deployment.stream(stream), deployment.settings()
    target = topic or _only_topic(spec)
    bootstrap = settings.kafka.require_bootstrap()
    if not yes and not dry_run and not is_loopback(bootstrap):
        raise FrazilError(
            f"the brokers {bootstrap} are not on this machine, and consumers of topic {target} would get made-up "
            "records.",
            fix=command_line("--yes"),
        )
    if lines is not None:
        if spec.decode.format not in _TEXT_FORMATS:
            sentence = f"stream {stream} reads {spec.decode.format}, and --from sends lines of text as they are."
            raise FrazilError(sentence, fix="leave out --from, or send records with a producer of that format")
        if dry_run:
            _print_plan(stream, target, bootstrap, f"the lines of {lines}", as_json=as_json)
            return
        _ensure(settings.kafka, target)
        sent = _send_lines(settings.kafka, target, lines, count)
        if as_json:
            print_json({"stream": stream, "topic": target, "records": sent, "kinds": {}, "done": True})
        else:
            click.echo(f"{stream}: {sent:,} records in topic {target}")
        return
    if dry_run:
        many = f"{count:,} records" if count is not None else "records until Ctrl-C"
        _print_plan(stream, target, bootstrap, f"{many}, {rate:g} a second", as_json=as_json)
        return
    subjects = Subjects(
        subject or "".join(value_subjects(spec.decode, [target])),
        key_subject or "".join(key_subjects(spec.decode, [target])),
        register=register,
    )
    generator = stream_generator(spec, settings, subjects)
    if bad and not generator.bad_kinds:
        every = f"stream {stream}: every value of the format {spec.decode.format} is a good one, so none can be bad."
        raise FrazilError(every, fix="leave out --bad")
    _ensure(settings.kafka, target)
    records = _records(generator, seed, bad)
    kinds, problem = _produce(settings.kafka, target, records, rate, count)
    told = [f"{number:,} {kind}" for kind, number in sorted(kinds.items()) if kind != "good"]
    among = f", among them {', '.join(told)}" if told else ""
    if as_json:
        facts = {"stream": stream, "topic": target, "records": kinds.total(), "kinds": dict(kinds)}
        print_json(facts | {"done": problem is None})
    else:
        click.echo(f"{stream}: {kinds.total():,} records in topic {target}{among}")
    if problem is not None:
        raise FrazilError(f"not all were acknowledged by the brokers: {problem}", fix="frazil validate")


def _print_plan(stream: str, topic: str, brokers: str, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"stream": stream, "topic": topic, "brokers": brokers, "would_send": what, "done": False})
    else:
        click.echo(f"{stream}: {what} would be sent to topic {topic} at {brokers}. Nothing was sent.")


def _records(generator: RecordGenerator, seed: str | None, bad: float) -> Iterator[GeneratedRecord]:
    number, fixed = 0, seed is not None
    seed = seed if seed is not None else f"{random.SystemRandom().getrandbits(64):x}"
    while True:
        at = FIRST_TIME + timedelta(seconds=number) if fixed else datetime.now(UTC)
        yield generated(generator, seed, number, at, bad)
        number += 1


def _produce(
    settings: KafkaSettings, topic: str, records: Iterator[GeneratedRecord], rate: float, count: int | None
) -> tuple[Counter[str], str | None]:
    """Produce `count` records; without a count, produce until Ctrl-C.

    Returns:
        Acknowledged records by kind; and the reason why the others were not acknowledged, or None.
    """
    producer = RecordProducer(
        **{"bootstrap.servers": settings.require_bootstrap(), **librdkafka_options(settings.security)}
    )
    kinds: Counter[str] = Counter()
    sent, began, shown = 0, time.monotonic(), 0.0
    with progress_bar(
        "{task.completed:,.0f} records", "{task.fields[rate]:,.0f}/s", "{task.fields[bad]:,} bad", bar=True
    ) as bar:
        task = bar.add_task("producing", total=count, bad=0, rate=0.0)
        try:
            while count is None or sent < count:
                due = int((time.monotonic() - began) * rate) + 1
                while sent < due and (count is None or sent < count):
                    made = next(records)
                    producer.produce(
                        topic,
                        made.value,
                        made.key,
                        headers=made.headers,
                        on_delivery=lambda _, kind=made.kind: kinds.update([kind]),
                    )
                    sent += 1
                    if sent % 1_000 == 0:
                        producer.poll()
                producer.poll(_EACH_SECONDS if count is None or sent < count else 0)
                if time.monotonic() - shown > _SHOWN_SECONDS:
                    shown, seconds = time.monotonic(), max(time.monotonic() - began, 1e-3)
                    bar.update(task, completed=sent, bad=kinds.total() - kinds["good"], rate=sent / seconds)
        except KeyboardInterrupt:
            left = producer.flush()
            if count is not None:
                raise
        else:
            left = producer.flush()
    return kinds, producer.refused or (f"{left:,} wait" if left else None)


def _send_lines(settings: KafkaSettings, topic: str, file: Path, count: int | None) -> int:
    """Send the lines of a file that are not blank, at most `count`, and return their number.

    Raises:
        FrazilError: The file cannot be read, or the brokers did not acknowledge all lines.
    """
    producer = RecordProducer(
        **{"bootstrap.servers": settings.require_bootstrap(), **librdkafka_options(settings.security)}
    )
    sent = 0
    with progress_bar("{task.completed:,.0f} records", bar=False) as bar:
        task = bar.add_task("sending")
        try:
            for line in islice(record_lines(file), count):
                producer.produce(topic, line)
                sent += 1
                if sent % 1_000 == 0:
                    producer.poll()
                    bar.update(task, completed=sent)
        finally:
            left = producer.flush()
    if producer.refused or left:
        why = producer.refused or f"{left:,} wait"
        raise FrazilError(f"not all were acknowledged by the brokers: {why}", fix="frazil validate")
    return sent


def _only_topic(spec: StreamSpec) -> str:
    topics = spec.source.topics or ()
    if len(topics) != 1:
        several = ", ".join(topics) or f"whatever matches {spec.source.topics_pattern}"
        raise FrazilError(f"stream {spec.stream} reads {several}.", fix="name one topic with --topic")
    return topics[0]


def _ensure(settings: KafkaSettings, topic: str) -> None:
    """Create a missing topic on the local broker. On other clusters, the owner decides on partitions and replicas."""
    if settings.is_embedded:
        ensure_topic(settings.require_bootstrap(), topic)
    elif topic not in KafkaLog(settings).topics(Source(topics=(topic,))):
        raise FrazilError(f"topic {topic} does not exist at {settings.require_bootstrap()}.", fix="create it")


def is_loopback(bootstrap: str) -> bool:
    """Whether all bootstrap servers have loopback names or addresses."""
    return all(_local(server.strip().rpartition(":")[0].strip("[]")) for server in bootstrap.split(","))


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
