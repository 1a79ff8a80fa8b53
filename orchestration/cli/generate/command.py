"""`frazil generate`: records of a stream's format and schema, into its topic."""

from __future__ import annotations

import ipaddress
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from jobs.errors import FrazilError
from jobs.generate.record import FIRST_TIME, GeneratedRecord, RecordGenerator, generated
from jobs.kafka.metadata import KafkaLog
from jobs.kafka.record_producer import RecordProducer
from jobs.spec.decode import key_subjects, value_subjects
from jobs.spec.models import StreamSpec
from jobs.spec.security import librdkafka_options
from jobs.spec.settings import KafkaSettings
from jobs.spec.source import Source
from orchestration.cli.demo.producer import ensure_topic
from orchestration.cli.generate.writer_schemas import Subjects, stream_generator
from orchestration.cli.terminal import stderr_console
from resources.deployment import Deployment

_EACH_SECONDS = 0.02
_SHOWN_SECONDS = 0.25


class Share(click.ParamType):
    """A share such as `1%` or `0.01`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share, from 0 to 1."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is no share; write 1% or 0.01", param, ctx)
        return share


@click.command()
@click.argument("stream")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True,
              help="Records per second.")  # fmt: skip
@click.option("--bad", type=Share(), default=0.0, metavar="SHARE", help="How many are bad, such as 1%.")
@click.option("--count", type=click.IntRange(min=1), help="How many in all.  [default: until Ctrl-C]")
@click.option("--seed", help="The same seed gives the same records, times included.  [default: another each time]")
@click.option("--topic", help="Where to.  [default: the stream's own, if it is one]")
@click.option("--subject", help="Of the registry, for the schema of values.  [default: decode.subject, or TOPIC-value]")
@click.option("--key-subject", help="As --subject, of keys.  [default: decode.key.subject, or TOPIC-key]")
@click.option("--register", is_flag=True, help="Register a schema made of the stream's columns where there is none.")
@click.option("--yes", is_flag=True, help="Also to brokers that are not on this machine.")
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
    yes: bool,
) -> None:
    """Produce records that STREAM lands, in its formats and with its schemas, into its topic.

    They have the keys and headers of which it has columns. Avro, Protobuf and JSON Schema are written in the newest
    schema that the registry has for them.

    Bad ones (--bad) become dead letters, each for a reason of its own. It is for a first hour and for load: whoever
    else reads the topic gets the records, too, so brokers elsewhere need --yes.
    """
    spec, settings = deployment.stream(stream), deployment.settings()
    target = topic or _only_topic(spec)
    bootstrap = settings.kafka.require_bootstrap()
    if not yes and not is_loopback(bootstrap):
        raise FrazilError(
            f"the brokers {bootstrap} are not on this machine, and whoever reads topic {target} would get made-up "
            "records.",
            fix="add --yes if that is meant",
        )
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
    click.echo(f"{stream}: {kinds.total():,} records in topic {target}{among}")
    if problem is not None:
        raise FrazilError(f"not all were acknowledged by the brokers: {problem}", fix="frazil validate")


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
    """Produce until there are enough, or somebody interrupts, which is how it ends where no number was asked for.

    Returns:
        What the brokers have, by kind; and why they do not have the rest.
    """
    producer = RecordProducer(
        **{"bootstrap.servers": settings.require_bootstrap(), **librdkafka_options(settings.security)}
    )
    kinds: Counter[str] = Counter()
    sent, began, shown = 0, time.monotonic(), 0.0
    with _bar() as bar:
        task: TaskID = bar.add_task("producing", total=count, bad=0, rate=0.0)
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


def _bar() -> Progress:
    console = stderr_console()
    return Progress(
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} records"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TextColumn("{task.fields[bad]:,} bad"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _only_topic(spec: StreamSpec) -> str:
    topics = spec.source.topics or ()
    if len(topics) != 1:
        several = ", ".join(topics) or f"whatever matches {spec.source.topics_pattern}"
        raise FrazilError(f"stream {spec.stream} reads {several}.", fix="name one topic with --topic")
    return topics[0]


def _ensure(settings: KafkaSettings, topic: str) -> None:
    """The local broker gets the topic if it lacks it; elsewhere its owner decides on partitions and copies."""
    if settings.is_embedded:
        ensure_topic(settings.require_bootstrap(), topic)
    elif topic not in KafkaLog(settings).topics(Source(topics=(topic,))):
        raise FrazilError(f"topic {topic} does not exist at {settings.require_bootstrap()}.", fix="create it")


def is_loopback(bootstrap: str) -> bool:
    """Whether all of these brokers are on this machine, by their names alone."""
    return all(_local(server.strip().rpartition(":")[0].strip("[]")) for server in bootstrap.split(","))


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
