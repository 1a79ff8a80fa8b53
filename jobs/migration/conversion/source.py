"""Block `source` of a stream, its name and its cores: topics, start, and options of the connector's consumer."""

from __future__ import annotations

import re
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jobs.config.documents.units import format_duration
from jobs.config.services.kafka_options import KNOWN, KafkaOptions
from jobs.migration.conversion.account import Account
from jobs.migration.conversion.draft import UNDECIDED, Draft, Yaml
from jobs.migration.conversion.kafka_connection import connect_kafka
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.java import java_pattern

_OVERRIDE = "consumer.override."
_OTHER_NAMES = {"fetch.max.wait.ms": "fetch.wait.max.ms"}
_NAME = re.compile(r"[^a-z0-9_-]+")


def stream_name(draft: Draft, more: str = "") -> str:
    """Name of the connector's stream; a note if the connector's own is no name of a stream.

    Args:
        draft: Draft of the connector.
        more: Addition for a connector that becomes several streams.
    """
    name = draft.connector.name or "connector"
    found = _NAME.sub("-", f"{name}-{more}".lower() if more else name.lower()).strip("-_")[:63] or "connector"
    if not re.match(r"[a-z]", found):
        found = f"s-{found}"[:63]
    if not more and found != name:
        draft.note(f"the stream's name is {found}, in letters that a stream may have; the connector's stays {name}")
    return found


def source_block(draft: Draft) -> Yaml:
    """Block `source`. Bootstrap servers, security and isolation go to the settings.

    Answers `name`, `connector.class`, `tasks.max`, `topics`, `topics.regex` and `consumer.override.*`.
    """
    keys = draft.keys
    for key in ("name", "metadata.name"):
        keys.same(key, "stream")
    keys.not_needed("connector.class", "the stream's file replaces the class")
    _count_tasks(draft)
    source = _topics(draft)
    source["start"] = _start(draft)
    connect_kafka(draft)
    _isolation(draft)
    _group(keys)
    if options := _options(keys):
        source["options"] = options
    return source


def trigger_block(draft: Draft, key: str, otherwise_ms: int) -> Yaml:
    """Block `trigger` of a key in milliseconds; the default is written out where the connector has none.

    Args:
        draft: Draft of the connector.
        key: Key of the interval.
        otherwise_ms: Default of the connector.
    """
    from datetime import timedelta

    every = draft.keys.number(key)
    if every is not None and every > 0:
        draft.keys.same(key, "trigger.every")
    else:
        every = otherwise_ms
        draft.default(key, f"{otherwise_ms} ms", "trigger.every", format_duration(timedelta(milliseconds=every)))
    return {"every": format_duration(timedelta(milliseconds=every))}


def names_in(text: str | None) -> list[str]:
    """Names of a list with commas, each once."""
    return list(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))


def _count_tasks(draft: Draft) -> None:
    tasks = draft.keys.number("tasks.max")
    if tasks is None or tasks < 1:
        return
    draft.settings.put_cores(tasks)
    draft.keys.approximated(
        "tasks.max", "cores of the settings, for all streams, instead of tasks of one connector", "spark.master"
    )


def _topics(draft: Draft) -> Yaml:
    keys = draft.keys
    topics, pattern = names_in(keys.get("topics")), keys.get("topics.regex")
    if topics:
        keys.same("topics", "source.topics")
        keys.decide("topics.regex", "is set beside topics, and Connect takes one of the two")
        return {"topics": topics}
    if pattern:
        if not is_common_pattern(pattern):
            keys.decide("topics.regex", "a regular expression of Java that Python does not read in the same way")
        else:
            keys.same("topics.regex", "source.topics_pattern")
            return {"topics_pattern": pattern}
    draft.ask("the topics: write source.topics or source.topics_pattern", blocks=True)
    return {"topics": [UNDECIDED]}


def is_common_pattern(pattern: str) -> bool:
    """Whether a regular expression of Java is one of Python as well, with the same meaning."""
    try:
        java_pattern(pattern, "pattern")
        re.compile(pattern)
    except (TransformProblem, re.error):
        return False
    return True


def _start(draft: Draft) -> str:
    for keys, key in _places(draft, "auto.offset.reset"):
        value = (keys.get(key) or "").lower()
        if value in ("earliest", "latest"):
            keys.same(key, "source.start")
            return value
        if keys.has(key):
            keys.decide(key, "is neither earliest nor latest")
            draft.ask("where the stream starts if it has no position: source.start", blocks=True)
    return "earliest"


def _places(draft: Draft, key: str) -> list[tuple[Account, str]]:
    """Places of a consumer's property, the strongest first."""
    own = [(draft.keys, _OVERRIDE + key)]
    worker = [(draft.worker, f"consumer.{key}")] if draft.worker is not None else []
    return [place for place in (*own, *worker) if place[0].has(place[1])]


def _isolation(draft: Draft) -> None:
    isolation = None
    for keys, key in _places(draft, "isolation.level"):
        value = (keys.get(key) or "").lower()
        if value in ("read_committed", "read_uncommitted"):
            keys.same(key, "kafka.isolation")
            isolation = isolation or value
    written = isolation or "read_uncommitted"
    other = draft.settings.put(("kafka", "isolation"), written, draft.connector.name)
    if isolation is None and other is None:
        draft.default("consumer.override.isolation.level", "read_uncommitted", "kafka.isolation", written)
    if other is not None:
        if isolation == "read_committed":
            # Records of aborted transactions would land.
            draft.refused_places.append("kafka.isolation")
        draft.ask(
            f"{other} reads with another isolation than {draft.connector.name}, and kafka.isolation counts for all: "
            "is read_committed right for both?",
            blocks=isolation == "read_committed",
        )


def _group(keys: Account) -> None:
    said = "group with the position; frazil reads it once, by `frazil takeover`. source.group is for lag dashboards"
    keys.approximated(f"{_OVERRIDE}group.id", said)


def _options(keys: Account) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in keys.keys(_OVERRIDE):
        name = key.removeprefix(_OVERRIDE)
        name = _OTHER_NAMES.get(name, name)
        option = KNOWN.get(name)
        if option is None or keys.is_answered(key) or (value := keys.get(key)) is None:
            continue
        typed: Any = value
        if option.kind == "number":
            typed = keys.number(key)
        elif option.kind == "flag":
            typed = value.lower() == "true"
        try:
            TypeAdapter(KafkaOptions).validate_python({name: typed})
        except (ValidationError, ValueError):
            keys.decide(key, f"has a value that source.options.{name} does not take")
            continue
        found[name] = typed
        keys.same(key, f"source.options.{name}")
    return found
