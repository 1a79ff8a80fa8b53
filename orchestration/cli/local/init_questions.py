"""Questions of `frazil init` at a terminal, and the answers, which its options give as well."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import click

TOPIC_FORMATS = ("json", "connect_json", "avro", "protobuf", "json_schema")
REGISTRY_FORMATS = ("avro", "protobuf", "json_schema")
LOOK = "look"


@dataclass(frozen=True, slots=True)
class Answers:
    """What a new deployment is made of.

    Attributes:
        records: A file of JSON records, one a line, to make a stream for.
        topic: The topic to make a stream for; with `records` the name of the topic that they go to.
        value_format: The format of the topic's values; None: what most of its records are.
        brokers: Kafka's brokers, `host:port`; None: a broker on this machine.
        registry: URL of the schema registry.
        catalog: URI of a REST catalog, or of the database of a SQL catalog; None: SQLite on this machine.
        warehouse: The REST catalog's warehouse, or the location of the SQL catalog's files.
        times: Whether texts that all look like times, or days, land as such.
    """

    records: Path | None = None
    topic: str | None = None
    value_format: str | None = None
    brokers: str | None = None
    registry: str | None = None
    catalog: str | None = None
    warehouse: str | None = None
    times: bool = False

    def command(self, folder: Path) -> str:
        """The command that makes the same deployment without a question."""
        options = {
            "--records": self.records,
            "--topic": self.topic,
            "--format": self.value_format,
            "--brokers": self.brokers,
            "--registry": self.registry,
            "--catalog": self.catalog,
            "--warehouse": self.warehouse,
        }
        words = ["frazil", "init", str(folder)]
        for name, value in options.items():
            words += [name, str(value)] if value is not None else []
        return shlex.join([*words, *(["--times"] if self.times else [])])


def ask() -> Answers:
    """Ask for all that a new deployment is made of; an empty answer takes what stands in brackets."""
    source = click.prompt(
        "Make a stream for a file of JSON records, for a topic, or none yet?",
        type=click.Choice(["file", "topic", "none"]),
        default="file",
    )
    records: Path | None = None
    topic = value_format = registry = None
    times = False
    if source == "file":
        records = click.prompt(
            "The file, one record a line", type=click.Path(exists=True, dir_okay=False, path_type=Path)
        )
    if source == "topic":
        brokers = click.prompt("Kafka's brokers, host:port")
        topic = click.prompt("The topic")
        chosen = click.prompt(
            "The format of its values", type=click.Choice([LOOK, *TOPIC_FORMATS]), default=LOOK, show_choices=True
        )
        value_format = None if chosen == LOOK else chosen
        if value_format is None or value_format in REGISTRY_FORMATS:
            registry = _optional("The URL of the schema registry (empty: none)")
    else:
        brokers = _optional("Kafka's brokers, host:port (empty: a broker on this machine)")
    if source != "none":
        times = click.confirm("Land texts that all look like times, or days, as such?", default=True)
    catalog, warehouse = _ask_catalog()
    return Answers(records, topic, value_format, brokers, registry, catalog, warehouse, times)


def _ask_catalog() -> tuple[str | None, str | None]:
    kind = click.prompt(
        "The Iceberg catalog: on this machine, a REST catalog, or a database (sql)?",
        type=click.Choice(["local", "rest", "sql"]),
        default="local",
    )
    if kind == "local":
        return None, None
    if kind == "rest":
        return click.prompt("Its URL"), _optional("Its warehouse (empty: its own)")
    return (
        click.prompt("The database, without a password, such as postgresql+psycopg://me@db/lake"),
        click.prompt("Where the tables' files go, such as s3://lake/warehouse or file:///srv/lake"),
    )


def _optional(question: str) -> str | None:
    return click.prompt(question, default="", show_default=False).strip() or None
