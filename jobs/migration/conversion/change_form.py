"""Form of the changes that a sink reads: which block `changes` says it, and which transforms it replaces."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.config.stream.changes import PLACEHOLDER
from jobs.migration.connectors.model import Connector, Sources
from jobs.migration.conversion.debezium_topics import (
    SINK_ENVELOPES,
    UNWRAPS,
    ChangeTopics,
    change_source,
    transform_aliases,
    transform_class,
)
from jobs.migration.conversion.decoding import Format, key_format
from jobs.migration.conversion.draft import Draft, Yaml, without_empty

_DOCUMENTS = "connector.mongodb.transforms"


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """Changes as a sink reads them.

    Attributes:
        block: Block `changes` of the stream.
        replaced: Aliases of the sink's transforms whose work the block does.
        topics: Debezium source that writes the changes; None if it is not among the imported connectors.
        assumed: Whether nothing says that records are Debezium's events, and rows by key are assumed.
    """

    block: Yaml
    replaced: tuple[str, ...]
    topics: ChangeTopics | None
    assumed: bool

    @property
    def needs_one_topic(self) -> bool:
        """Whether topics need streams of their own: upserts go with no route by topic."""
        return self.block["envelope"] == "upsert"


def change_form(sources: Sources, sink: Connector) -> ChangeForm:
    """Form of the records of a sink that replaces rows.

    Args:
        sources: All connectors of the import; a Debezium source among them says what it writes.
        sink: The sink.
    """
    topics = change_source(sources, sink)
    chain = [(alias, transform_class(sink, alias)) for alias in transform_aliases(sink)]
    unwraps = tuple(alias for alias, name in chain if name in UNWRAPS or SINK_ENVELOPES.fullmatch(name))
    documents = any(_DOCUMENTS in name or name.endswith(".MongoDebeziumTransform") for _, name in chain)
    if topics is not None and topics.form != "outbox":
        return ChangeForm(changes_of_source(topics), () if topics.form == "rows" else unwraps, topics, assumed=False)
    if not unwraps:
        # Debezium's own sink is made for its events, and takes rows as well.
        own = sink.connector_class.startswith("io.debezium.")
        return ChangeForm({"envelope": "debezium" if own else "upsert"}, (), topics, assumed=True)
    return ChangeForm({"envelope": "mongo" if documents else "debezium"}, unwraps, topics, assumed=False)


def changes_of_source(topics: ChangeTopics) -> Yaml:
    """Block `changes` for the records that a Debezium source writes; not for an outbox."""
    placeholder = _placeholder(topics)
    match topics.form:
        case "rows":
            return _rows(topics.source, placeholder)
        case "documents":
            return {"envelope": "mongo"}
        case _:
            return without_empty({"envelope": "debezium", "unavailable": placeholder})


def _rows(source: Connector, placeholder: str | None) -> Yaml:
    """Block for rows that the source has unwrapped: by their operation if they have it, else upserts."""
    for alias in transform_aliases(source):
        if transform_class(source, alias) not in UNWRAPS:
            continue
        at = f"transforms.{alias}."
        handling = (
            source.value(f"{at}delete.tombstone.handling.mode") or source.value(f"{at}delete.handling.mode") or ""
        )
        added = [part.strip() for part in (source.value(f"{at}add.fields") or "").split(",") if part.strip()]
        if handling.startswith("rewrite") and "op" in added:
            op = (source.value(f"{at}add.fields.prefix") or "__") + "op"
            return without_empty({"envelope": "columns", "unavailable": placeholder, "op": op})
    return without_empty({"envelope": "upsert", "unavailable": placeholder})


def _placeholder(topics: ChangeTopics) -> str | None:
    """Text for values that were not sent, if the source has another one than Debezium's own."""
    keys = ("unavailable.value.placeholder", "toasted.value.placeholder")
    value = next((found for key in keys if (found := topics.source.value(key))), None)
    return None if value == PLACEHOLDER else value


def change_key(draft: Draft) -> tuple[Yaml, bool]:
    """Block `decode.key` of a changelog, and whether keys are single values; answers `key.converter*`.

    Args:
        draft: Draft of a connector whose records have keys.
    """
    found = key_format(draft)
    _answer_key_registry(draft)
    schema = schema_origin(found)
    key = without_empty({"format": found.name, **found.options, "schema": schema, "into": "_change_key"})
    return key, schema is None


def _answer_key_registry(draft: Draft) -> None:
    """Answer the registry's keys of the converter of keys: a deployment has one registry."""
    keys = draft.keys
    for key in keys.keys("key.converter."):
        if keys.is_answered(key):
            continue
        beside = f"value{key.removeprefix('key')}"
        if key.endswith(".url") and keys.has(beside) and keys.raw(key) != keys.raw(beside):
            keys.decide(key, "another registry than that of values, and a deployment has one")
            draft.ask("keys and values name two schema registries: is registry.url right for both?", blocks=True)
        else:
            keys.not_needed(key, "the registry of values is that of keys")


def schema_origin(found: Format) -> str | None:
    """`registry` or `infer` for a format of several columns; None for single values."""
    if found.has_registry:
        return "registry"
    return "infer" if found.name in ("json", "connect_json") else None


def decode_rows(found: Format) -> Yaml:
    """Block `decode` of values whose columns a registry or the records say; single values are the column `value`."""
    return {"value": found.written, "schema": schema_origin(found) or f"value {found.name.replace('bytes', 'binary')}"}
