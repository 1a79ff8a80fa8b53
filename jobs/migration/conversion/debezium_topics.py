"""Topics that a Debezium source writes, the form of their records, and the sinks that read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from jobs.migration.connectors.model import Connector, Sources
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.java import Replacement, java_pattern

DEBEZIUM_SOURCES = (
    r"io\.debezium\.connector\.(?!jdbc)[a-z0-9]+\.\w+Connector|"
    r"(Db2|Informix|MariaDb|MongoDb|MySql|Oracle|Postgres|Spanner|SqlServer|Vitess)(Connector)?"
)
"""Classes of Debezium's source connectors, in full or without their package; its JDBC sink is none of them."""

UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
UNWRAPS = (UNWRAP, "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState")
OUTBOXES = (
    "io.debezium.transforms.outbox.EventRouter",
    "io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter",
)
SINK_ENVELOPES = re.compile(
    r"(io\.tabular\.iceberg|org\.apache\.iceberg)\.connect\.transforms\.(Mongo)?DebeziumTransform"
)
"""Transforms of the Iceberg sink that take Debezium's events apart."""

_ROUTERS = {
    "org.apache.kafka.connect.transforms.RegexRouter": ("regex", "replacement"),
    "io.debezium.transforms.ByLogicalTableRouter": ("topic.regex", "topic.replacement"),
}
_PREFIXES = ("topic.prefix", "database.server.name", "mongodb.name")
_TABLES = ("table.include.list", "table.whitelist", "collection.include.list", "collection.whitelist")
_SCHEMAS = ("schema.include.list", "schema.whitelist", "database.include.list", "database.whitelist")
# A name without anything that a regular expression could mean but the dot, with or without a backslash.
_LITERAL = re.compile(r"(?:[\w$#-]|\\?\.)+")
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._-]")

Form = Literal["events", "documents", "rows", "outbox"]
"""What records are: Debezium's events, those of MongoDB, rows as after `ExtractNewRecordState`, or outbox messages."""


@dataclass(frozen=True, slots=True)
class ChangeTopics:
    """Topics of one Debezium source.

    Attributes:
        source: The connector.
        topics: Names of the topics; empty if only a pattern is known.
        pattern: Regular expression of the topics' whole names; None if `topics` has them, or nothing is known.
        form: What the records are.
        open_end: Why the topics are not known, as a phrase; empty if they are.
    """

    source: Connector
    topics: tuple[str, ...]
    pattern: str | None
    form: Form
    open_end: str = ""

    def read_by(self, sink: Connector) -> bool:
        """Whether a sink reads at least one of the topics."""
        return bool(self.topics_read_by(sink)) or (not self.topics and self._may_match(sink))

    def topics_read_by(self, sink: Connector) -> tuple[str, ...]:
        """Topics, known by name, that a sink reads."""
        listed, pattern = _listed(sink.value("topics")), _compiled(sink.value("topics.regex"))
        names = self.topics or listed
        own = _compiled(self.pattern)
        return tuple(
            topic
            for topic in names
            if (topic in listed or (pattern is not None and pattern.fullmatch(topic)))
            and (topic in self.topics or (own is not None and own.fullmatch(topic)))
        )

    def _may_match(self, sink: Connector) -> bool:
        """Whether two patterns begin alike, as far as both are literal."""
        regex = sink.value("topics.regex")
        if regex is None or self.pattern is None:
            return False
        ours, theirs = _literal_start(self.pattern), _literal_start(regex)
        return bool(ours and theirs) and (ours.startswith(theirs) or theirs.startswith(ours))


def is_debezium_source(connector: Connector) -> bool:
    """Whether a connector is one of Debezium's sources."""
    return re.fullmatch(DEBEZIUM_SOURCES, connector.connector_class) is not None


def transform_aliases(connector: Connector) -> list[str]:
    """Aliases of a connector's chain of transforms, in its order."""
    return list(_listed(connector.value("transforms")))


def transform_class(connector: Connector, alias: str) -> str:
    """Class of a transform by its alias; empty without one. A backslash before `$` is a shell's and is left out."""
    return (connector.value(f"transforms.{alias}.type") or "").replace("\\$", "$")


def change_topics(connector: Connector) -> ChangeTopics | None:
    """Topics of a Debezium source; None for any other connector."""
    if not is_debezium_source(connector):
        return None
    form: Form = "documents" if ".mongodb." in connector.connector_class else "events"
    chain = [(alias, transform_class(connector, alias)) for alias in transform_aliases(connector)]
    if any(name in OUTBOXES for _, name in chain):
        return ChangeTopics(connector, (), None, "outbox", "the outbox names a topic in each record")
    if any(name in UNWRAPS for _, name in chain):
        form = "rows"
    naming = connector.value("topic.naming.strategy") or ""
    if naming and not naming.startswith("io.debezium.schema."):
        return ChangeTopics(connector, (), None, form, "topic.naming.strategy is a class of your own")
    topics, pattern = _named_topics(connector)
    for alias, name in chain:
        if name not in _ROUTERS:
            continue
        if not topics:
            return ChangeTopics(connector, (), None, form, f"transforms.{alias} renames topics that a pattern chooses")
        regex, replacement = (connector.value(f"transforms.{alias}.{key}") or "" for key in _ROUTERS[name])
        try:
            topics = _renamed(topics, regex, replacement)
        except TransformProblem:
            return ChangeTopics(connector, (), None, form, f"transforms.{alias} has a pattern that only Java knows")
    return ChangeTopics(connector, topics, pattern if not topics else None, form)


def change_source(sources: Sources, sink: Connector) -> ChangeTopics | None:
    """Debezium source among the imported connectors whose topics a sink reads; None if there is none."""
    return next((found for found in all_change_topics(sources) if found.read_by(sink)), None)


def all_change_topics(sources: Sources) -> Iterator[ChangeTopics]:
    """Topics of every Debezium source of an import."""
    for connector in sources.connectors:
        if (found := change_topics(connector)) is not None:
            yield found


def sinks_of(sources: Sources, topics: ChangeTopics) -> list[Connector]:
    """Connectors that read topics of a Debezium source, in the order of the import."""
    return [one for one in sources.connectors if one is not topics.source and topics.read_by(one)]


def _named_topics(connector: Connector) -> tuple[tuple[str, ...], str | None]:
    """Topics by name, or a pattern of them, before any transform."""
    prefix = next((value for key in _PREFIXES if (value := connector.value(key))), "")
    delimiter = connector.value("topic.delimiter") or "."
    # Debezium 2 and later: topics of SQL Server have the database between prefix and schema.
    names = _listed(connector.value("database.names")) if connector.value("topic.prefix") else ()
    heads = [delimiter.join((prefix, name)) for name in names] or [prefix]
    tables = next((value for key in _TABLES if (value := connector.value(key))), "")
    if not tables:
        schemas = _listed(next((value for key in _SCHEMAS if (value := connector.value(key))), "")) or (".*",)
        ends = [f"{one}{re.escape(delimiter)}.*" for one in schemas]
        return (), _either(f"{re.escape(head + delimiter)}{end}" for head in heads for end in ends)
    entries = _listed(tables)
    if all(_LITERAL.fullmatch(entry) for entry in entries):
        plain = (delimiter.join(entry.replace("\\.", ".").split(".")) for entry in entries)
        parts = [(head, one) for one in plain for head in heads]
        return tuple(_NOT_IN_TOPICS.sub("_", f"{head}{delimiter}{one}") for head, one in parts), None
    return (), _either(f"{re.escape(head + delimiter)}{entry}" for head in heads for entry in entries)


def _either(patterns: Iterable[str]) -> str:
    several = list(dict.fromkeys(patterns))
    return several[0] if len(several) == 1 else "|".join(f"(?:{one})" for one in several)


def _renamed(topics: Iterable[str], regex: str, replacement: str) -> tuple[str, ...]:
    pattern = java_pattern(regex, "regex")
    becomes = Replacement(replacement.replace("\\$", "$"), pattern, "replacement")
    names = (becomes.of(match) if (match := pattern.fullmatch(topic)) else topic for topic in topics)
    return tuple(dict.fromkeys(names))


def _listed(value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())


def _compiled(regex: str | None) -> re.Pattern[str] | None:
    if regex is None:
        return None
    try:
        return java_pattern(regex, "topics.regex")
    except TransformProblem:
        return None


def _literal_start(regex: str) -> str:
    """Text that every match of a pattern begins with, as far as it is written out."""
    match = re.match(r"(?:[\w-]|\\[.$-])*", regex)
    text = match.group() if match else ""
    following = regex[len(text) :][:1]
    text = re.sub(r"\\(.)", r"\1", text)
    if "|" in regex and not regex.startswith(("(", "[")):
        return ""
    return text[:-1] if following in ("*", "?", "{") else text
