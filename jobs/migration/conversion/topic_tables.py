"""Tables of sinks that write each topic to a place of its own: one table, or a route by topic."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from jobs.migration.conversion.draft import Yaml

NAMESPACE = "raw"
"""Namespace that is proposed where a sink names none."""

_PART = re.compile(r"[^A-Za-z0-9_]")
BY_WHOLE_TOPIC = "regexp_replace(_topic, '[^A-Za-z0-9_]', '_')"
"""Value of a route: the topic's name, with `_` for what no table name has."""


def table_part(text: str) -> str:
    """Part of a table's name made of any text; other characters become `_`."""
    return _PART.sub("_", text) or "_"


def table_of_topic(topic: str, namespace: str | None = None) -> str:
    """Proposed name of a topic's table.

    Args:
        topic: Name of the topic. Without a namespace, what stands before its last dot is the namespace.
        namespace: Namespace of the table; the whole topic then makes the table's own name.
    """
    if namespace is not None:
        return f"{namespace}.{table_part(topic)}"
    head, _, last = topic.rpartition(".")
    return f"{table_part(head) if head else NAMESPACE}.{table_part(last)}"


def distinct_tables(topics: Sequence[str], name_of: Callable[[str], str]) -> dict[str, str]:
    """Table of each topic; topics whose names would be one, by letters or by case, have tables of their own.

    Args:
        topics: Names of the topics.
        name_of: Names the table of a topic.
    """
    found: dict[str, str] = {}
    for topic in topics:
        name, number = name_of(topic), 0
        while name.casefold() in {other.casefold() for other in found.values()}:
            number += 1
            whole = f"{name_of(topic).rpartition('.')[0]}.{table_part(topic)}"
            name = whole if number == 1 else f"{whole}_{number}"
        found[topic] = name
    return found


def tables_of_topics(
    source: Yaml, stream: str, name_of: Callable[[str], str], *, shared: bool = False
) -> tuple[str, Yaml | None]:
    """Name of the stream's main table, and the route if there are several topics.

    Tables that a pattern of topics makes have a namespace of their own, so that no other stream's table is one of them.

    Args:
        source: Block `source` of the stream.
        stream: Name of the stream, for the namespace and the table that holds its stamps.
        name_of: Names the table of a topic.
        shared: Whether topics with one table share it, as at a sink that made tables by the same names.
    """
    topics: Sequence[str] = source.get("topics") or ()
    if len(topics) == 1:
        return name_of(topics[0]), None
    own = table_part(stream)
    if topics:
        names = {topic: name_of(topic) for topic in topics} if shared else distinct_tables(topics, name_of)
        tables = [{"match": [topic], "table": name} for topic, name in names.items()]
        return f"{NAMESPACE}.{own}_stream", {"by": "topic", "tables": tables}
    return f"{own}.{own}_stream", {"by": BY_WHOLE_TOPIC, "to": f"{own}.{{value}}"}
