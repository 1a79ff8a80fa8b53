"""Converter of Debezium's source connectors: they go on running, and their topics become changelogs."""

from __future__ import annotations

from jobs.migration.connectors.model import Connector
from jobs.migration.conversion.change_form import change_key, changes_of_source, decode_rows
from jobs.migration.conversion.debezium_topics import (
    ChangeTopics,
    all_change_topics,
    change_topics,
    sinks_of,
)
from jobs.migration.conversion.decoding import value_format
from jobs.migration.conversion.draft import Draft, Yaml, without_empty
from jobs.migration.conversion.kafka_connection import connect_kafka
from jobs.migration.conversion.source import stream_name
from jobs.migration.conversion.topic_tables import distinct_tables, table_of_topic, table_part

GOES_ON = "the source connector's own: it goes on running as it is"
_NAMES = ("topic.prefix", "database.server.name", "mongodb.name", "topic.delimiter")
_TABLES = (
    *("table.include.list", "table.whitelist", "collection.include.list", "collection.whitelist"),
    *("schema.include.list", "schema.whitelist", "database.include.list", "database.whitelist", "database.names"),
)


def convert_debezium_source(draft: Draft) -> None:
    """Answer a source's keys, and make a stream of its topics where no sink of the import reads them."""
    found = change_topics(draft.connector)
    assert found is not None, "the converter is chosen by the same classes"
    if next(all_change_topics(draft.sources)).source is draft.connector:
        draft.note(
            "frazil is no source connector: Debezium's connectors go on running, and frazil lands what they write. "
            "Leave them as they are when sinks are taken over."
        )
    sinks = sinks_of(draft.sources, found)
    _answer(draft, sinks)
    _place_streams(draft, found, sinks)
    for key in list(draft.keys.unanswered()):
        draft.keys.not_needed(key, GOES_ON)


def _place_streams(draft: Draft, found: ChangeTopics, sinks: list[Connector]) -> None:
    if found.form == "outbox":
        draft.note("Its topics have outbox messages, not changes of rows: a stream appends them.")
    elif sinks:
        names = ", ".join(sink.name for sink in sinks)
        draft.note(f"Its topics are read by {names}: the streams exist.")
        read = {topic for sink in sinks for topic in found.topics_read_by(sink)}
        if unread := [topic for topic in found.topics if topic not in read and read]:
            draft.ask(
                f"No sink of this import reads {', '.join(unread)}. If changes of these tables are wanted, write a "
                "stream with changes: {envelope: debezium} and a mirror."
            )
    else:
        _lone_stream(draft, found)


def _last(topic: str) -> str:
    return topic.rpartition(".")[2]


def _answer(draft: Draft, sinks: list[Connector]) -> None:
    keys, at = draft.keys, "source" if not sinks else None
    for key in _NAMES:
        keys.approximated(key, "first part of the topics' names; the connector keeps it", at)
    for key in _TABLES:
        keys.approximated(key, "chooses the topics; the connector keeps it", at)
    precision = (keys.get("time.precision.mode") or "").casefold()
    if precision == "isostring":
        keys.approximated(
            "time.precision.mode", "times are text: transform: [{compute: {at: cast(rtrim(at, 'Z') as …)}}]"
        )
    keys.not_needed("tombstones.on.delete", "a deletion is an event; only rows by key need tombstones")
    keys.not_needed("snapshot.mode", "rows of a snapshot land as changes with the operation r")
    for key in ("unavailable.value.placeholder", "toasted.value.placeholder"):
        keys.same(key, "changes.unavailable")
    skipped = (keys.get("skipped.operations") or "").casefold()
    if skipped and "t" not in [part.strip() for part in skipped.split(",")]:
        keys.approximated(
            "skipped.operations", "truncates arrive; in a topic of several partitions a mirror stops at them"
        )


def _lone_stream(draft: Draft, found: ChangeTopics) -> None:
    """Propose a stream of the source's topics, with a changelog for each table."""
    if not found.topics and found.pattern is None:
        draft.ask(f"The topics are not known: {found.open_end}. Write a stream with source.topics.", blocks=True)
        return
    changes = changes_of_source(found)
    name = stream_name(draft)
    decode = decode_rows(value_format(draft))
    decode["key"], _ = change_key(draft)
    namespace = table_part(name)
    source: Yaml = {"topics": list(found.topics)} if found.topics else {"topics_pattern": found.pattern}
    connect_kafka(draft)
    stream: Yaml = {"stream": name, "source": source, "decode": decode, "changes": changes}
    if len(found.topics) == 1:
        own = table_part(found.topics[0].rpartition(".")[2])
        stream |= {"table": {"name": f"{namespace}.{own}_changes"}, "mirrors": [{"table": f"{namespace}.{own}"}]}
    else:
        route: Yaml = {"by": "regexp_replace(_topic, '^.*[.]', '')", "to": f"{namespace}_changes.{{value}}"}
        if not found.topics:
            draft.ask(
                "Tables of one name in two schemas would share a changelog and a mirror: list their topics under "
                "route.tables if there are such.",
                blocks=True,
            )
        else:
            names = distinct_tables(found.topics, lambda topic: table_of_topic(_last(topic), f"{namespace}_changes"))
            tables = [{"match": [topic], "table": name} for topic, name in names.items()]
            route = {"by": "topic", "tables": tables}
        stream |= {"table": {"name": f"{namespace}_changes.stream"}, "route": route}
        stream["mirrors"] = [{"table": f"{namespace}.{{table}}"}]
    draft.streams.append(without_empty(stream))
    draft.ask(
        "There is no sink of this import that reads its topics: the stream, its tables and mirrors are proposed. "
        "Write the names that you want, and catalog in frazil.yaml.",
        blocks=True,
    )
