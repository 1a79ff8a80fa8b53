"""Converter of GetInData's Iceberg sink, an older fork with keys of its own: a table for each topic."""

from __future__ import annotations

import re

from jobs.migration.conversion.change_form import change_form, change_key, decode_rows
from jobs.migration.conversion.decoding import leave_keys, value_format
from jobs.migration.conversion.draft import Draft, Takeover, Yaml, without_empty
from jobs.migration.conversion.error_handling import errors_block, restart_block
from jobs.migration.conversion.iceberg.catalog import connect_catalog, hadoop_properties
from jobs.migration.conversion.references import is_secret_property
from jobs.migration.conversion.source import source_block, stream_name
from jobs.migration.conversion.topic_tables import table_part, tables_of_topics
from jobs.migration.conversion.transforms import transform_blocks

_OWN = (
    *("iceberg.name", "iceberg.partition.column", "iceberg.partition.timestamp", "iceberg.format-version"),
    "iceberg.table-default.",
)
_HADOOP = re.compile(r"iceberg\.(fs\.|com\.amazonaws\.|hadoop\.)")


def convert_getindata_sink(draft: Draft) -> None:
    """Fill the draft of the fork's sink."""
    keys = draft.keys
    draft.generation = "getindata"
    draft.takeover = Takeover(f"connect-{draft.connector.name}")
    source = source_block(draft)
    values = value_format(draft)
    upserts = keys.flag("upsert", otherwise=True)
    properties = _properties(draft)
    _catalog(draft)
    namespace, prefix = keys.get("table.namespace") or "default", keys.get("table.prefix") or ""
    keys.same("table.namespace", "table.name")
    keys.same("table.prefix", "table.name")
    keys.not_needed("table.auto-create", "the first run creates")
    keys.not_needed("table.write-format", "files are Parquet")
    evolves = keys.flag("allow-field-addition", otherwise=True)
    keys.same("allow-field-addition", "evolve.add")
    decode = decode_rows(values)
    form = change_form(draft.sources, draft.connector) if upserts else None
    steps, predicates = transform_blocks(draft, dict.fromkeys(form.replaced, "changes") if form else None)
    if form is not None:
        decode["key"], _ = change_key(draft)
    else:
        leave_keys(draft)
    _answer_upserts(draft, upserts)

    def table_of(topic: str) -> str:
        return f"{namespace}.{prefix}{table_part(topic)}" + ("_changes" if upserts else "")

    own, route = tables_of_topics(source, stream_name(draft), table_of, shared=True)
    mirrors = [{"table": own.removesuffix("_changes")}] if route is None else [{"table": f"{namespace}.{{table}}_now"}]
    table: Yaml = {"name": own, "properties": properties}
    if partition := _partition(draft, upserts):
        table["partition_by"] = [partition]
    draft.streams.append(
        without_empty(
            {
                "stream": stream_name(draft),
                "source": source,
                "decode": decode,
                "changes": form.block if form else None,
                "transform": steps,
                "predicates": predicates,
                "table": without_empty(table),
                "route": route,
                "mirrors": mirrors if upserts else None,
                "errors": errors_block(draft),
                "evolve": None if evolves else {"add": "ignore"},
                "restart": restart_block(draft),
            }
        )
    )
    draft.note("the fork committed each poll of its consumer; trigger.every sets how often a batch is committed")


def _answer_upserts(draft: Draft, upserts: bool) -> None:
    keys = draft.keys
    if upserts:
        if keys.has("upsert"):
            keys.approximated("upsert", "a changelog, and a mirror that is merged; no equality deletes", "changes")
        else:
            draft.default("upsert", "true", "changes", "a changelog and a mirror")
        draft.ask(
            "the tables have equality deletes: mirrors are not made of them before these are applied "
            "(rewrite_data_files)",
            blocks=True,
        )
    else:
        keys.same("upsert", "table", "rows are appended")
    kept = keys.flag("upsert.keep-deletes", otherwise=True)
    said = "deleted rows went, or stayed as a row of their key; mirrors[].deletes: soft keeps them with a flag"
    keys.approximated("upsert.keep-deletes", said, "mirrors[0].deletes")
    if upserts and kept:
        draft.ask("deleted rows stayed with __deleted: write mirrors[].deletes: soft to keep them", blocks=True)
    for key in ("upsert.dedup-column", "upsert.op-column"):
        keys.approximated(key, "changes are ordered by the source's position and Kafka's offsets", "changes")


def _partition(draft: Draft, upserts: bool) -> str | None:
    """Partition of tables that are appended to: by the day of the fork's time column."""
    keys = draft.keys
    column, stamp = keys.get("iceberg.partition.column"), "iceberg.partition.timestamp"
    if upserts:
        for key in ("iceberg.partition.column", stamp):
            keys.no_effect(key, "the fork partitions only tables that are appended to")
        return None
    keys.approximated(stamp, "the fork made a time of it; transform: [{parse_timestamp: …}] does", "transform")
    if column is None:
        return None
    keys.approximated("iceberg.partition.column", "a partition by day", "table.partition_by")
    draft.ask(
        f"is {column} a timestamp in the records? If it is a number, add parse_timestamp to transform", blocks=True
    )
    return f"day({column})"


def _properties(draft: Draft) -> Yaml:
    keys, found = draft.keys, dict[str, str]()
    above = "iceberg.table-default."
    for key in keys.keys(above):
        if (value := keys.get(key)) and is_secret_property(key.removeprefix(above), value):
            keys.impossible(key, "it looks like a secret, and all readers of a table see its properties: left out")
        elif value:
            found[key.removeprefix(above)] = value
            keys.same(key, f"table.properties.{key.removeprefix(above)}")
    keys.approximated("iceberg.format-version", "frazil makes tables of format 2; an existing one keeps its own")
    return found


def _catalog(draft: Draft) -> None:
    """Section `catalog`: all keys below `iceberg.` that are none of the fork's own."""
    keys = draft.keys
    hadoop: Yaml = {}
    for key in [key for key in keys.keys("iceberg.") if _HADOOP.match(key)]:
        if not key.startswith("iceberg.fs."):
            keys.not_needed(key, "no client of Hadoop")
    hadoop_properties(draft, "iceberg.", hadoop, only="iceberg.fs.")
    skipped = tuple(key for key in keys.keys("iceberg.") if key.startswith(_OWN) or _HADOOP.match(key))
    connect_catalog(draft, "iceberg.", "iceberg.name", skipped=skipped, more=hadoop)
