"""Converter of JDBC sinks: rows that are replaced become a changelog with a mirror, inserted rows are appended."""

from __future__ import annotations

from jobs.migration.conversion.change_form import change_form, change_key, decode_rows
from jobs.migration.conversion.decoding import leave_keys, value_format
from jobs.migration.conversion.draft import Draft, Takeover, Yaml, without_empty
from jobs.migration.conversion.error_handling import errors_block, restart_block, say_state
from jobs.migration.conversion.references import has_template
from jobs.migration.conversion.source import source_block, stream_name
from jobs.migration.conversion.topic_tables import BY_WHOLE_TOPIC, NAMESPACE, distinct_tables, table_part
from jobs.migration.conversion.transforms import transform_blocks

_MODE = ("primary.key.mode", "pk.mode")
_FIELDS = ("primary.key.fields", "pk.fields")
_NAME = ("collection.name.format", "table.name.format")
_KEEP = ("field.include.list", "fields.include", "fields.whitelist")
_TOPIC = "${topic}"
_COORDINATES = ("topic", "partition", "offset")


class _Names:
    """Names of the tables that the sink writes.

    Args:
        written: Format of their names.
    """

    def __init__(self, written: str) -> None:
        namespace, _, own = written.rpartition(".")
        self.is_known: bool = "${" not in written.replace(_TOPIC, "") and not has_template(
            "", written.replace(_TOPIC, "")
        )
        self._own: str = own or _TOPIC
        self.namespace: str = ".".join(table_part(part) for part in namespace.split(".")) if namespace else ""
        if not self.is_known or _TOPIC in namespace:
            self._own, self.namespace = _TOPIC, ""
        self.proposed: bool = not self.namespace
        self.namespace = self.namespace or NAMESPACE

    @property
    def by_topic(self) -> bool:
        """Whether the topic's name is part of the table's."""
        return _TOPIC in self._own

    def own(self, topic: str) -> str:
        """Own name of the table of a topic."""
        if self.by_topic and self.proposed:
            topic = topic.rpartition(".")[2]
        return table_part(self._own.replace(_TOPIC, topic))

    @property
    def pattern(self) -> str:
        """Own name of tables that a pattern of topics makes, with `{value}`."""
        before, _, after = self._own.partition(_TOPIC)
        return f"{table_part(before) if before else ''}{{value}}{table_part(after) if after else ''}"


def convert_jdbc_sink(draft: Draft) -> None:
    """Convert a JDBC sink of Confluent's, Aiven's or Debezium's."""
    keys = draft.keys
    mode = (keys.get("insert.mode") or "insert").casefold()
    pk_mode = (_first(draft, _MODE) or "none").casefold()
    # `${topic}` is the sink's own, and no template.
    names = _Names(next((draft.keys.raw(key) for key in _NAME if draft.keys.raw(key)), _TOPIC))
    if names.is_known:
        _approximate(draft, _NAME, "the name of the table, in the catalog", "table.name")
    else:
        _decide(draft, _NAME, "a table for each topic is proposed")
    if mode in ("upsert", "update") and pk_mode in ("record_key", "record_value"):
        _convert_changes(draft, names, mode, pk_mode)
    else:
        _convert_appends(draft, names, mode, pk_mode)
    if mode == "update":
        draft.ask(
            "insert.mode update left out rows that the table did not have; a mirror has them as well.", blocks=True
        )
    draft.ask(
        "The table's name and the catalog: the sink writes a database. The names in this file are proposed from "
        "its tables and topics; write your own, and catalog in frazil.yaml.",
        blocks=True,
    )
    group = f"connect-{draft.connector.name}"
    draft.ask(
        f"The position: group {group} has the sink's position, which is no position of a new Iceberg table. Begin "
        "with the earliest record, or load the table's rows first and set source.start to offsets of the group."
    )
    say_state(draft)
    draft.note("The database's table and its rows stay as they are.")
    draft.takeover = Takeover(group=group)


def _convert_changes(draft: Draft, names: _Names, mode: str, pk_mode: str) -> None:
    """Make a changelog and a mirror of rows that are replaced by a key."""
    keys = draft.keys
    form = change_form(draft.sources, draft.connector)
    fields = [part.strip() for part in (_first(draft, _FIELDS) or "").split(",") if part.strip()]
    deletes = (keys.get("delete.enabled") or "false").casefold() == "true"
    keys.approximated("insert.mode", f"{mode} by merges of a changelog into a mirror, not record by record", "mirrors")
    _approximate(draft, _MODE, "a mirror goes by the record's key", "decode.key")
    keys.approximated(
        "delete.enabled",
        "merged with the other changes" if deletes else "deleted rows stay, with _change_deleted",
        "mirrors",
    )
    evolve = _answer_evolution(draft)
    name = stream_name(draft)
    source = source_block(draft)
    decode = decode_rows(value_format(draft))
    decode["key"], single = change_key(draft)
    column = fields[0] if single and len(fields) == 1 else None
    steps, predicates = transform_blocks(draft, dict.fromkeys(form.replaced, "changes"))
    changes = dict(form.block)
    mirror: Yaml = {"every": "60s"}
    if column is not None and form.block["envelope"] != "debezium":
        changes["key"] = column
        _approximate(draft, _FIELDS, "the column for the record's key", "changes.key")
    elif pk_mode == "record_value" and fields:
        mirror["key"] = fields
        _approximate(draft, _FIELDS, "the mirror's key", "mirrors[].key")
    else:
        _approximate(draft, _FIELDS, "the mirror's key is the whole key of the record", "decode.key")
    if pk_mode == "record_value":
        draft.ask(
            f"Is the record's key {', '.join(fields) or 'the primary key'}? A mirror goes by record keys.", blocks=True
        )
    if not deletes:
        mirror["deletes"] = "soft"
    if (kept := _first(draft, _KEEP)) is not None:
        _decide(draft, _KEEP, "a changelog has all columns; list those that go in transform: [{drop: …}]")
        draft.ask(f"The sink wrote the columns {kept} alone. Leave the others out by transform: [{{drop: […]}}].")
    if form.assumed:
        draft.ask(
            "No Debezium source among the imported connectors writes these topics: if records are Debezium's events, "
            "write changes: {envelope: debezium}; else each record replaces the former one of its key, as written.",
            blocks=True,
        )
    errors = errors_block(draft)
    base: Yaml = {
        "decode": decode,
        "changes": changes,
        "transform": steps,
        "predicates": predicates,
        "evolve": evolve,
        "restart": restart_block(draft),
    }
    topics: list[str] = source.get("topics") or []
    if len(topics) == 1 or (topics and form.needs_one_topic):
        tables = distinct_tables(topics, lambda topic: f"{names.namespace}.{names.own(topic)}")
        for topic, own in ((topic, table.rpartition(".")[2]) for topic, table in tables.items()):
            stream = name if len(topics) == 1 else f"{name}-{own}".lower()
            draft.streams.append(
                _stream(
                    stream,
                    source | {"topics": [topic]},
                    base,
                    {"name": f"{names.namespace}.{own}_changes"},
                    None,
                    errors,
                )
                | {"mirrors": [{"table": f"{names.namespace}.{own}", **mirror}]}
            )
    elif form.needs_one_topic:
        draft.ask(
            "Upserts of several topics need a stream for each: write topics in place of topics.regex.", blocks=True
        )
    else:
        # A namespace of its own: no table of another stream may be one that a value names.
        changelogs = f"{table_part(name)}_changes"
        route = _route(topics, names, changelogs)
        table = {"name": f"{changelogs}.{table_part(name)}_stream"}
        draft.streams.append(
            _stream(name, source, base, table, route, errors)
            | {"mirrors": [{"table": f"{names.namespace}.{{table}}", **mirror}]}
        )


def _convert_appends(draft: Draft, names: _Names, mode: str, pk_mode: str) -> None:
    """Make a table of rows that are inserted."""
    keys = draft.keys
    if keys.has("insert.mode"):
        keys.approximated("insert.mode", "rows are appended; no database refuses a second row of a key", "table")
    fields = [part.strip() for part in (_first(draft, _FIELDS) or "").split(",") if part.strip()]
    columns: Yaml = {}
    if pk_mode == "kafka":
        chosen = fields if len(fields) == len(_COORDINATES) else [f"__connect_{part}" for part in _COORDINATES]
        columns = dict(zip(_COORDINATES, chosen, strict=True))
        _approximate(draft, _MODE, "Kafka's coordinates are columns, and unique", "table.kafka_columns")
        _approximate(draft, _FIELDS, "names of Kafka's columns", "table.kafka_columns")
    else:
        _approximate(draft, _MODE, "no primary key: rows are appended")
        _approximate(draft, _FIELDS, "no primary key: rows are appended")
    keys.not_needed("delete.enabled", "nothing is deleted by inserts")
    evolve = _answer_evolution(draft)
    name = stream_name(draft)
    source = source_block(draft)
    decode = decode_rows(value_format(draft))
    leave_keys(draft)
    steps, predicates = transform_blocks(draft)
    if (kept := _first(draft, _KEEP)) is not None:
        steps = [*steps, {"keep": [part.strip() for part in kept.split(",") if part.strip()]}]
        _same(draft, _KEEP, "transform[].keep")
    topics: list[str] = source.get("topics") or []
    base: Yaml = {
        "decode": decode,
        "transform": steps,
        "predicates": predicates,
        "evolve": evolve,
        "restart": restart_block(draft),
    }
    single = len(topics) == 1 or not names.by_topic
    own = f"{names.namespace}.{names.own(topics[0] if topics else '')}" if single else ""
    table = {"name": own or f"{names.namespace}.{table_part(name)}_stream", "kafka_columns": columns}
    route = None if single else _route(topics, names, names.namespace)
    draft.streams.append(_stream(name, source, base, table, route, errors_block(draft)))


def _stream(stream: str, source: Yaml, base: Yaml, table: Yaml, route: Yaml | None, errors: Yaml) -> Yaml:
    whole = {
        "stream": stream,
        "source": source,
        **base,
        "table": without_empty(table),
        "route": route,
        "errors": errors,
    }
    return without_empty(whole)


def _route(topics: list[str], names: _Names, namespace: str) -> Yaml:
    """Route by topic: an entry for each that is known, or a pattern."""
    if topics:
        found = distinct_tables(topics, lambda topic: f"{namespace}.{names.own(topic)}")
        tables = [{"match": [topic], "table": name} for topic, name in found.items()]
        return {"by": "topic", "tables": tables}
    return {"by": BY_WHOLE_TOPIC, "to": f"{namespace}.{names.pattern}"}


def _answer_evolution(draft: Draft) -> Yaml:
    """Policy for new columns: the sink added them if it was told to, and failed otherwise."""
    keys = draft.keys
    keys.not_needed("auto.create", "the first run creates the table")
    own = keys.get("schema.evolution")
    grows = (own or "").casefold() == "basic" or (keys.get("auto.evolve") or "").casefold() == "true"
    for key in ("auto.evolve", "schema.evolution"):
        keys.same(key, "evolve")
    if grows:
        return {}
    if not keys.has("auto.evolve") and own is None:
        draft.default("auto.evolve", "false", "evolve.add", "fail")
    return {"add": "fail"}


def _first(draft: Draft, names: tuple[str, ...]) -> str | None:
    return next((value for key in names if (value := draft.keys.get(key))), None)


def _approximate(draft: Draft, names: tuple[str, ...], says: str, at: str | None = None) -> None:
    for key in names:
        draft.keys.approximated(key, says, at)


def _same(draft: Draft, names: tuple[str, ...], at: str) -> None:
    for key in names:
        draft.keys.same(key, at)


def _decide(draft: Draft, names: tuple[str, ...], says: str) -> None:
    for key in names:
        draft.keys.decide(key, says)
