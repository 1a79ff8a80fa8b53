"""Converter of the Iceberg sink: Apache's, Tabular's, and forks that read the same keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from jobs.config.values.partitioning import PartitionError, parse_partition_expr
from jobs.migration.conversion.catalog import connect_catalog
from jobs.migration.conversion.decoding import Format, leave_keys, value_format
from jobs.migration.conversion.draft import UNDECIDED, Draft, Takeover, Yaml, without_empty
from jobs.migration.conversion.error_handling import errors_block, restart_block
from jobs.migration.conversion.replaced_rows import changelog_of, replaces_rows
from jobs.migration.conversion.source import names_in, source_block, stream_name, trigger_block
from jobs.migration.conversion.transforms import transform_blocks, transform_classes

Generation = Literal["apache", "tabular"]
_TABLES = "iceberg.tables"
_INTERVAL = "iceberg.control.commit.interval-ms"


@dataclass(frozen=True, slots=True)
class Tables:
    """Where the sink's rows go.

    Attributes:
        names: Tables that the connector lists; empty if records name them.
        route_field: Path of the field that decides; None if every table takes every record.
        is_dynamic: Whether records name their table.
    """

    names: tuple[str, ...]
    route_field: str | None
    is_dynamic: bool


def convert_iceberg_sink(draft: Draft) -> None:
    """Fill the draft of an Iceberg sink."""
    keys = draft.keys
    draft.generation = generation = _generation(draft)
    draft.takeover = _takeover(draft, generation)
    tables = _tables(draft)
    source = source_block(draft)
    trigger = trigger_block(draft, _INTERVAL, 300_000)
    values = value_format(draft)
    connect_catalog(draft)
    errors, restart = errors_block(draft), restart_block(draft)
    changes = changelog_of(draft, generation, tables.is_dynamic, values)
    steps, predicates = transform_blocks(draft, changes.replaced if changes else None)
    decode, evolve = _decode(draft, values, shaped=bool(steps) or changes is not None, dynamic=tables.is_dynamic)
    if changes is not None:
        decode["key"] = changes.key
    else:
        leave_keys(draft)
    _answer_protocol(draft)
    _answer_id_columns(draft, generation, changes is not None)
    common: Yaml = {
        "decode": decode,
        "changes": changes.block if changes else None,
        "transform": steps,
        "predicates": predicates,
    }
    outputs = _outputs(draft, tables, decode, "mirrors[0].table" if changes else "table.name")
    for output in outputs:
        more = output.pop("more", "")
        if changes is not None:
            changes.mirror(draft, output)
        stream = {"stream": stream_name(draft, more), "source": dict(source), **common, **output}
        stream |= {"errors": errors, "trigger": trigger, "evolve": evolve, "restart": restart}
        draft.streams.append(without_empty(stream))
    if len(outputs) > 1:
        draft.note("every table received every record, so each table has a stream; they read the topics on their own")
    _say_state(draft)
    draft.note(
        "the sink's tables have no _kafka_* columns: `frazil schema apply STREAM` adds them; "
        "table.kafka_columns: false goes without them, and then audits, replays and changes do not work"
    )
    draft.note(
        "source.start counts for a stream without a position: take the connector's position over before the first run"
    )


def _generation(draft: Draft) -> Generation:
    return "tabular" if draft.connector.connector_class.startswith("io.tabular.") else "apache"


def _takeover(draft: Draft, generation: Generation) -> Takeover:
    """Consumer group, control topic and snapshot key, of what the connector's generation reads."""
    keys, name = draft.keys, draft.connector.name
    topic = keys.get("iceberg.control.topic") or "control-iceberg"
    if keys.is_open("iceberg.control.topic"):
        draft.ask("the control topic: its name is a template, and a takeover needs it")
    if generation == "tabular":
        group = keys.get("iceberg.control.group-id") or f"cg-control-{name}"
    else:
        own = keys.get("consumer.override.group.id")
        group = keys.get("iceberg.connect.group-id") or own or f"connect-{name}"
    isolation = keys.get("consumer.override.isolation.level")
    return Takeover(group, topic, f"kafka.connect.offsets.{topic}.{group}", isolation != "read_committed")


def _tables(draft: Draft) -> Tables:
    keys = draft.keys
    field = keys.get(f"{_TABLES}.route-field")
    if keys.flag(f"{_TABLES}.dynamic-enabled"):
        keys.not_needed(f"{_TABLES}.dynamic-enabled", "a route")
        if not field:
            draft.ask("the field that names the tables: write route.by", blocks=True)
        keys.no_effect(_TABLES, "the connector refuses it beside dynamic-enabled")
        return Tables((), field or UNDECIDED, is_dynamic=True)
    keys.not_needed(f"{_TABLES}.dynamic-enabled", "the tables are listed")
    names = tuple(names_in(keys.get(_TABLES)))
    if not names:
        draft.ask("the table: write table.name", blocks=True)
        names = (f"{UNDECIDED}.{_word(draft.connector.name)}",)
    return Tables(names, field, is_dynamic=False)


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


def _outputs(draft: Draft, tables: Tables, decode: Yaml, at: str) -> list[Yaml]:
    """Blocks `table` and `route` of each stream; `at` is the place of the sink's own table."""
    if tables.is_dynamic:
        return [_dynamic(draft, tables)]
    if tables.route_field is None:
        draft.keys.same(_TABLES, at)
        several = len(tables.names) > 1
        return [
            {"more": name if several else "", "table": _table(draft, name, decode, several=several)}
            for name in tables.names
        ]
    return [_static(draft, tables, decode)]


def _static(draft: Draft, tables: Tables, decode: Yaml) -> Yaml:
    keys = draft.keys
    keys.same(f"{_TABLES}.route-field", "route.by")
    entries: list[Yaml] = []
    lost: list[str] = []
    for name in tables.names:
        key = f"iceberg.table.{name}.route-regex"
        if (pattern := keys.get(key)) is None:
            lost.append(name)
            continue
        keys.same(key, f"route.tables[{len(entries)}].match")
        entry: Yaml = {"match": pattern, "table": name}
        at = f"route.tables[{len(entries)}]"
        if partitions := _partitions(draft, f"iceberg.table.{name}.partition-by", f"{at}.partition_by"):
            entry["partition_by"] = partitions
        if branch := keys.get(f"iceberg.table.{name}.commit-branch"):
            entry["branch"] = branch
            keys.same(f"iceberg.table.{name}.commit-branch", f"{at}.branch")
        entries.append(entry)
    if lost:
        verb, pronoun = ("has", "it") if len(lost) == 1 else ("have", "them")
        said = f"{', '.join(lost)} {verb} no route-regex, so no record ever reached {pronoun}: left out"
        keys.approximated(_TABLES, said, "route.tables")
    else:
        keys.same(_TABLES, "route.tables")
    if not entries:
        draft.ask("no table has a route-regex, so the sink wrote nothing: write route.tables", blocks=True)
        entries = [{"match": ".*", "table": tables.names[0]}]
    draft.note(
        "records of other values were dropped in silence, and are dropped and counted here; the tables of a route have "
        "the same columns, so one that lacks a column of the first needs route.tables[].columns"
    )
    table = _table(draft, entries[0]["table"], decode, several=True, own=False)
    return {"table": table, "route": {"by": _by(tables.route_field), "tables": entries, "unmatched": "drop"}}


def _by(field: str | None) -> str:
    return field if field and re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", field) else f"column:{field or UNDECIDED}"


def _dynamic(draft: Draft, tables: Tables) -> Yaml:
    keys = draft.keys
    namespace, pattern = _namespace(draft)
    prefix = re.escape(namespace).replace("\\.", "[.]").replace("\\", "")
    field = tables.route_field or UNDECIDED
    by = f"lower(regexp_replace({field}, '^{prefix}[.]', ''))"
    keys.approximated(
        f"{_TABLES}.route-field",
        "dynamic names become route.to with the namespace of the pattern; values with characters other than letters, "
        "digits and _ have no table",
        "route.by",
    )
    draft.ask(
        "tables that the sink has made are not used by route.to: each has to be an entry of route.tables", blocks=True
    )
    if pattern is None:
        draft.ask(f"the namespace of the tables that {field} names: it is written as {namespace}", blocks=True)
    table: Yaml = {"name": f"{namespace}.frazil_{_word(draft.connector.name)}"} | _creation(draft)
    partitions = _partitions(draft, f"{_TABLES}.default-partition-by", "table.partition_by")
    if partitions:
        table["partition_by"] = partitions
    if branch := keys.get(f"{_TABLES}.default-commit-branch"):
        table["branch"] = branch
        keys.same(f"{_TABLES}.default-commit-branch", "table.branch")
    return {"table": table, "route": {"by": by, "to": f"{namespace}.{{value}}", "unmatched": "drop"}}


def _namespace(draft: Draft) -> tuple[str, str | None]:
    """Namespace of dynamic tables, and the pattern that names it; `undecided` without one."""
    for alias, name in transform_classes(draft).items():
        if not name.endswith(".DebeziumTransform"):
            continue
        pattern = draft.keys.raw(f"transforms.{alias}.cdc.target.pattern") or "{db}.{table}"
        namespace, dot, table = pattern.rpartition(".")
        if dot and table == "{table}" and re.fullmatch(r"\w+(\.\w+)*", namespace):
            return namespace.lower(), pattern
    return UNDECIDED, None


def _table(draft: Draft, name: str, decode: Yaml, *, several: bool, own: bool = True) -> Yaml:
    keys = draft.keys
    table: Yaml = {"name": name}
    own_partitions, default = f"iceberg.table.{name}.partition-by", f"{_TABLES}.default-partition-by"
    partitions = _partitions(draft, own_partitions, "table.partition_by") if own else []
    if not partitions or several:
        partitions = partitions or _partitions(draft, default, "table.partition_by")
    elif keys.has(default):
        keys.no_effect(default, "the table's own partition-by counts before it")
    if partitions:
        table["partition_by"] = partitions
    own_branch, branch_key = f"iceberg.table.{name}.commit-branch", f"{_TABLES}.default-commit-branch"
    for key in ([own_branch] if own else []) + [branch_key]:
        if (branch := keys.get(key)) and "branch" not in table:
            table["branch"] = branch
        if keys.has(key) and not keys.is_answered(key):
            keys.same(key, "table.branch")
    table |= _creation(draft)
    force = f"{_TABLES}.schema-force-optional"
    if keys.flag(force) and decode["schema"] in ("registry", "infer"):
        table["force_optional"] = True
    if not keys.is_answered(force):
        if decode["schema"] == "table":
            keys.not_needed(force, "the table exists")
        else:
            keys.same(force, "table.force_optional")
    return table


def _creation(draft: Draft) -> Yaml:
    """Properties of new tables: `auto-create-props.*`, and `write-props.*` of the writer."""
    keys = draft.keys
    properties: Yaml = {}
    for above, said in (
        (f"{_TABLES}.auto-create-props.", None),
        (f"{_TABLES}.write-props.", "of new tables; an existing one keeps its own"),
        ("iceberg.table.write-props.", "of new tables; an existing one keeps its own"),
    ):
        for key in keys.keys(above):
            name, value = key.removeprefix(above), keys.get(key)
            if value is None:
                continue
            if name != "format-version":
                properties[name] = value
            at = f"table.properties.{name}" if name != "format-version" else "table.properties"
            if keys.is_answered(key):
                continue
            if name == "format-version":
                keys.approximated(key, "frazil makes tables of format 2; an existing one keeps its own", None)
            elif said:
                keys.approximated(key, said, at)
            else:
                keys.same(key, at)
    return {"properties": properties} if properties else {}


def _partitions(draft: Draft, key: str, at: str) -> list[str]:
    """Partition expressions of a key, in frazil's order of arguments; the key is answered."""
    keys = draft.keys
    if (written := keys.get(key)) is None:
        return []
    found: list[str] = []
    for part in re.split(r",\s*(?![^()]*\))", written):
        call = re.fullmatch(r"(\w+)\s*\(\s*([^,()]+?)\s*(?:,\s*([0-9]+)\s*)?\)", part.strip())
        text = part.strip()
        if call:
            name = call[1].lower()
            name = name.removesuffix("s") if name in ("years", "months", "days", "hours") else name
            text = f"{name}({call[3]}, {call[2]})" if call[3] else f"{name}({call[2]})"
        try:
            found.append(str(parse_partition_expr(text)))
        except PartitionError:
            if not keys.is_answered(key):
                keys.no_effect(key, "is no partition expression, so the sink made tables without partitions")
            draft.note(f"{key} has an expression that is none, and the sink then made tables without partitions")
            return []
    if not keys.is_answered(key):
        keys.same(key, at)
    return found


def _answer_protocol(draft: Draft) -> None:
    """Answer the keys of the sink's own commit protocol."""
    keys = draft.keys
    keys.not_needed("iceberg.control.topic", "no control topic")
    said = "the worker's or the consumer's keys say how Kafka is reached; this is of the control topic's clients"
    for key in keys.keys("iceberg.kafka."):
        if not keys.is_answered(key):
            keys.not_needed(key, said)


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


def _say_state(draft: Draft) -> None:
    state = draft.connector.state
    if state in ("paused", "stopped"):
        draft.ask(f"{draft.connector.name} is {state}: leave it stopped after the import")
    for failed in draft.connector.failed:
        draft.note(f"{failed} at the worker")


def _word(name: str) -> str:
    return re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_") or "connector"
