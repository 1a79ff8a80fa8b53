"""Converter of the Iceberg sink: Apache's, Tabular's, and forks that read the same keys."""

from __future__ import annotations

import re
from typing import Literal

from jobs.config.documents.connect_keys import find_key
from jobs.config.values.targets import MAIN_BRANCH
from jobs.migration.conversion.decoding import Format, leave_keys, value_format
from jobs.migration.conversion.draft import Draft, Takeover, Yaml, without_empty
from jobs.migration.conversion.error_handling import errors_block, restart_block, say_state
from jobs.migration.conversion.iceberg.catalog import connect_catalog
from jobs.migration.conversion.iceberg.replaced_rows import changelog_of, replaces_rows
from jobs.migration.conversion.iceberg.sink_tables import output_blocks, sink_tables
from jobs.migration.conversion.source import names_in, source_block, stream_name, trigger_block
from jobs.migration.conversion.transforms import transform_blocks

Generation = Literal["apache", "tabular"]
_TABLES = "iceberg.tables"
_INTERVAL = "iceberg.control.commit.interval-ms"


def convert_iceberg_sink(draft: Draft) -> None:
    """Fill the draft of an Iceberg sink."""
    draft.generation = generation = _generation(draft)
    draft.takeover = _takeover(draft, generation)
    tables = sink_tables(draft)
    source = source_block(draft)
    trigger = trigger_block(draft, _INTERVAL, 300_000)
    values = value_format(draft)
    connect_catalog(draft)
    errors, restart = errors_block(draft), restart_block(draft)
    changes = changelog_of(draft, generation)
    steps, predicates = transform_blocks(draft, changes.replaced if changes else None)
    decode, evolve = _decode(draft, values, shaped=bool(steps) or changes is not None, dynamic=tables.is_dynamic)
    if changes is not None:
        decode["key"] = changes.key
        _answer_partitions(draft)
    else:
        leave_keys(draft)
    _answer_protocol(draft)
    _say_first_release(draft)
    _answer_id_columns(draft, generation, changes is not None)
    common: Yaml = {
        "decode": decode,
        "changes": changes.block if changes else None,
        "transform": steps,
        "predicates": predicates,
    }
    output = output_blocks(draft, tables, decode, "mirrors[0].table" if changes else "table.name")
    if changes is not None:
        changes.mirror(draft, output)
    stream = {"stream": stream_name(draft), "source": source, **common, **output}
    stream |= {"errors": errors, "trigger": trigger, "evolve": evolve, "restart": restart}
    draft.streams.append(without_empty(stream))
    say_state(draft)
    draft.note(
        "the sink's tables have no _kafka_* columns: `frazil schema apply STREAM` adds them; "
        "table.kafka_columns: false goes without them, and then audits, replays and changes do not work"
    )
    draft.note(
        "source.start counts for a stream without a position: take the connector's position over before the first run"
    )


def _generation(draft: Draft) -> Generation:
    """Generation of the sink; of another package's class as its keys say."""
    name = draft.connector.connector_class
    if name.startswith("org.apache."):
        return "apache"
    if name.startswith("io.tabular."):
        return "tabular"
    tabular = ("iceberg.tables.cdc-field", "iceberg.tables.upsert-mode-enabled", "iceberg.control.group-id")
    found: Generation = "tabular" if any(draft.keys.has(key) for key in tabular) else "apache"
    what = "a fork of the sink" if "." in name else "written without its package"
    draft.ask(
        f"the class is {what}, taken for one of {found}'s: does it keep its position in the group of the report?",
        blocks=True,
    )
    return found


def _takeover(draft: Draft, generation: Generation) -> Takeover:
    """Consumer group, control topic and snapshot key, of what the connector's generation reads."""
    keys, name = draft.keys, draft.connector.name
    topic: str | None = keys.get("iceberg.control.topic") or "control-iceberg"
    own = "iceberg.control.group-id" if generation == "tabular" else "iceberg.connect.group-id"
    group: str | None = keys.get(own) or (f"cg-control-{name}" if generation == "tabular" else f"connect-{name}")
    member = "consumer.override.group.id"
    if open_keys := [key for key in ("iceberg.control.topic", own, member) if keys.is_open(key)]:
        draft.ask(f"{', '.join(open_keys)}: the name is a template or stands elsewhere, and a takeover needs it")
        topic = None if keys.is_open("iceberg.control.topic") else topic
        group = None if keys.is_open(own) or keys.is_open(member) else group
    branches = {
        match[1]: keys.get(key) or MAIN_BRANCH
        for key in keys.keys("iceberg.table.")
        if (match := re.fullmatch(r"iceberg\.table\.(.+)\.commit-branch", key))
    }
    return Takeover(
        group,
        topic,
        f"kafka.connect.offsets.{topic}.{group}" if topic and group else None,
        read_uncommitted=keys.get("consumer.override.isolation.level") != "read_committed",
        member_group=keys.get(member),
        topics=tuple(names_in(keys.get("topics"))),
        dynamic=keys.flag("iceberg.tables.dynamic-enabled"),
        branch=keys.get("iceberg.tables.default-commit-branch"),
        branches=branches,
    )


def _decode(draft: Draft, values: Format, *, shaped: bool, dynamic: bool) -> tuple[Yaml, Yaml]:
    """Blocks `decode` and `evolve`."""
    keys = draft.keys
    evolves = keys.flag(f"{_TABLES}.evolve-schema-enabled")
    creates = keys.flag(f"{_TABLES}.auto-create-enabled")
    if values.has_registry:
        origin = "registry"
    elif values.name not in ("json", "connect_json"):
        origin = "value string"
        draft.ask(f"the columns of values in the format {values.name}: correct decode.schema", blocks=True)
    elif creates or evolves or shaped or dynamic:
        origin = "infer"
    else:
        origin = "table"
    decode: Yaml = {"value": values.written, "schema": origin}
    if keys.flag(f"{_TABLES}.schema-case-insensitive"):
        decode["case_insensitive"] = True
    keys.same(f"{_TABLES}.schema-case-insensitive", "decode.case_insensitive")
    said = (
        "the first run creates" if creates else "the first run creates a table that lacks; the sink dropped its records"
    )
    keys.not_needed(f"{_TABLES}.auto-create-enabled", said)
    keys.same(f"{_TABLES}.evolve-schema-enabled", "evolve")
    if evolves or origin not in ("registry", "infer"):
        return decode, {}
    if not keys.has(f"{_TABLES}.evolve-schema-enabled"):
        draft.default(f"{_TABLES}.evolve-schema-enabled", "false", "evolve", "ignore")
    draft.note("evolve-schema-enabled is not true: fields that come later were left out, and stay so (evolve: ignore)")
    return decode, {"add": "ignore", "widen": "ignore", "relax": "ignore"}


def _answer_protocol(draft: Draft) -> None:
    """Answer the keys of the sink's own commit protocol."""
    keys = draft.keys
    keys.not_needed("iceberg.control.topic", "no control topic")
    said = "the worker's or the consumer's keys say how Kafka is reached; this is of the control topic's clients"
    for key in keys.keys("iceberg.kafka."):
        if not keys.is_answered(key):
            keys.not_needed(key, said)


def _say_first_release(draft: Draft) -> None:
    entries = {key: find_key(key, "connector") for key in draft.keys.keys("iceberg.")}
    if early := [key for key, entry in entries.items() if entry is not None and entry.read_by == ("first",)]:
        draft.ask(
            f"{', '.join(early)}: the sink's first releases alone read these. If the connector is one, write them with "
            "hyphens, as in the table of Connect's keys, and import again."
        )


def _answer_partitions(draft: Draft) -> None:
    """Answer the partitions of tables that become mirrors."""
    keys, said = draft.keys, "a mirror is partitioned by buckets of its key; for the changelog write table.partition_by"
    for key in [f"{_TABLES}.default-partition-by", *keys.keys("iceberg.table.")]:
        if key.endswith("partition-by"):
            keys.approximated(key, said, "mirrors[0].buckets")


def _answer_id_columns(draft: Draft, generation: Generation, changes: bool) -> None:
    keys = draft.keys
    said = "the sink appended every record, and identifier columns change nothing then"
    for key in [f"{_TABLES}.default-id-columns", *keys.keys("iceberg.table.")]:
        if key.endswith("id-columns") and keys.has(key) and not keys.is_answered(key):
            keys.no_effect(key, said)
    if changes:
        return
    for key, lost in replaces_rows(draft):
        if generation == "apache":
            keys.no_effect(key, f"Apache's releases ignore it: the sink appended every record, {lost}")
            draft.note(
                f"{key} was ignored by Apache's release: rows that it should have replaced are in the table twice"
            )
        else:
            keys.no_effect(key, "is false or empty")
