"""Tables of an Iceberg sink: blocks `table` and `route`, of listed tables, static routes and dynamic names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.config.values.partitioning import PartitionError, parse_partition_expr
from jobs.config.values.targets import MAIN_BRANCH
from jobs.migration.conversion.draft import UNDECIDED, Draft, Yaml
from jobs.migration.conversion.references import is_secret_property
from jobs.migration.conversion.source import is_common_pattern, names_in
from jobs.migration.conversion.transforms import transform_classes
from jobs.records.expressions.parser import is_reserved

_TABLES = "iceberg.tables"
_PLAIN = re.compile(r"[^\W\d]\w*")
_SAME_COLUMNS = (
    "the tables of a route have the same columns, so one that lacks a column of the first needs route.tables[].columns"
)


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


def sink_tables(draft: Draft) -> Tables:
    """Tables of the connector. Answers `dynamic-enabled`, and `iceberg.tables` of a dynamic sink."""
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
        names = (f"{UNDECIDED}.{table_word(draft.connector.name)}",)
    return Tables(names, field, is_dynamic=False)


def output_blocks(draft: Draft, tables: Tables, decode: Yaml, at: str) -> Yaml:
    """Blocks `table` and `route` of the stream; `at` is the place of the sink's own table."""
    if tables.is_dynamic:
        return _dynamic(draft, tables, decode)
    if tables.route_field is not None:
        return _static(draft, tables, decode)
    if len(tables.names) == 1:
        draft.keys.same(_TABLES, at)
        return {"table": _table(draft, tables.names[0], decode)}
    draft.keys.same(_TABLES, "route.tables")
    draft.note(f"every table received every record, and does so here; {_SAME_COLUMNS}")
    return _routed(draft, decode, dict.fromkeys(tables.names, ".*"), "sql:'every record'")


def _static(draft: Draft, tables: Tables, decode: Yaml) -> Yaml:
    keys = draft.keys
    keys.same(f"{_TABLES}.route-field", "route.by")
    matches = {name: keys.raw(f"iceberg.table.{name}.route-regex") for name in tables.names}
    found = {name: pattern for name, pattern in matches.items() if pattern}
    lost = [name for name in tables.names if name not in found]
    if lost:
        verb, pronoun = ("has", "it") if len(lost) == 1 else ("have", "them")
        said = f"{', '.join(lost)} {verb} no route-regex, so no record ever reached {pronoun}: left out"
        keys.approximated(_TABLES, said, "route.tables")
    else:
        keys.same(_TABLES, "route.tables")
    if not found:
        draft.ask("no table has a route-regex, so the sink wrote nothing: write route.tables", blocks=True)
        found = {tables.names[0]: ".*"}
    unread = False
    for number, (name, pattern) in enumerate(found.items()):
        key, at = f"iceberg.table.{name}.route-regex", f"route.tables[{number}].match"
        if not keys.is_open(key) and is_common_pattern(pattern):
            keys.same(key, at)
            continue
        keys.decide(key, "a template, or a regular expression of Java that Python does not read in the same way")
        draft.ask(f"the values of {name}: {key} is a template, or only Java knows it. Write {at}", blocks=True)
        found[name] = re.escape(f"{UNDECIDED}: {name}")
        unread = True
    draft.note(f"records of other values were dropped in silence, and are dropped and counted here; {_SAME_COLUMNS}")
    blocks = _routed(draft, decode, found, _by(tables.route_field))
    if unread:
        # The stream stops at values that a pattern left out may have taken, and drops none.
        blocks["route"]["unmatched"] = "fail"
    return blocks


def _routed(draft: Draft, decode: Yaml, matches: Mapping[str, str], by: str) -> Yaml:
    """Blocks `table` and `route`, of tables with their patterns. The first is the stream's main table."""
    first, *_ = matches
    table = _table(draft, first, decode)
    entries: list[Yaml] = []
    for number, (name, pattern) in enumerate(matches.items()):
        entry: Yaml = {"match": pattern, "table": name}
        if number:
            at = f"route.tables[{number}]"
            partitions, branch = _partitions_of(draft, name, at), _branch_of(draft, name, at)
            # What an entry does not say is as in the block `table`.
            if partitions != table.get("partition_by", []):
                entry["partition_by"] = partitions
            if branch != table.get("branch", MAIN_BRANCH):
                entry["branch"] = branch
        entries.append(entry)
    return {"table": table, "route": {"by": by, "tables": entries, "unmatched": "drop"}}


def _by(field: str | None) -> str:
    if not field:
        return f"column:{UNDECIDED}"
    parts = [part if _PLAIN.fullmatch(part) else f"`{part}`" for part in field.split(".")]
    return field if all(map(_PLAIN.fullmatch, parts)) else f"column:{'.'.join(parts)}"


def _in_expression(field: str) -> str:
    """A path as an expression names it: words of expressions and odd characters stand in quotes."""
    parts = [
        part if _PLAIN.fullmatch(part) and not is_reserved(part) else '"' + part.replace('"', '""') + '"'
        for part in field.split(".")
    ]
    return ".".join(parts)


def _dynamic(draft: Draft, tables: Tables, decode: Yaml) -> Yaml:
    keys = draft.keys
    namespace, pattern = _namespace(draft)
    prefix = re.escape(namespace).replace("\\.", "[.]").replace("\\", "")
    field = tables.route_field or UNDECIDED
    by = f"lower(regexp_replace({_in_expression(field)}, '^{prefix}[.]', ''))"
    keys.approximated(
        f"{_TABLES}.route-field",
        "dynamic names become route.to with the namespace of the pattern; values with characters other than letters, "
        "digits and _ have no table",
        "route.by",
    )
    draft.ask(
        "tables that the sink has made: `frazil schema apply STREAM --adopt 'NAMESPACE.*'` gives them to the stream; "
        "or list them in route.tables. route.to uses no others",
        blocks=True,
    )
    if pattern is None:
        draft.ask(f"the namespace of the tables that {field} names: it is written as {namespace}", blocks=True)
    table = _table(draft, f"{namespace}.frazil_{table_word(draft.connector.name)}", decode)
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


def _table(draft: Draft, name: str, decode: Yaml) -> Yaml:
    keys = draft.keys
    table: Yaml = {"name": name}
    if partitions := _partitions_of(draft, name, "table"):
        table["partition_by"] = partitions
    if (branch := _branch_of(draft, name, "table")) != MAIN_BRANCH:
        table["branch"] = branch
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


def _partitions_of(draft: Draft, name: str, at: str) -> list[str]:
    """Partition expressions of a table: its own, or the default."""
    own, default = f"iceberg.table.{name}.partition-by", f"{_TABLES}.default-partition-by"
    found = _partitions(draft, default, "table.partition_by")
    return _partitions(draft, own, f"{at}.partition_by") if draft.keys.has(own) else found


def _branch_of(draft: Draft, name: str, at: str) -> str:
    """Branch of a table: its own, the default, or `main`."""
    keys, own, default = draft.keys, f"iceberg.table.{name}.commit-branch", f"{_TABLES}.default-commit-branch"
    for key in (own, default):
        if keys.has(key) and not keys.is_answered(key):
            keys.same(key, f"{at}.branch")
    return keys.get(own) or keys.get(default) or MAIN_BRANCH


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
            if is_secret_property(name, value):
                _leave_secret_out(draft, key)
                continue
            other_files = name == "write.format.default" and value.lower() != "parquet"
            if name != "format-version" and not other_files:
                properties[name] = value
            at = f"table.properties.{name}" if name != "format-version" else "table.properties"
            if keys.is_answered(key):
                continue
            if other_files:
                keys.approximated(key, "frazil writes Parquet; a table may have files of both formats")
            elif name == "format-version":
                keys.approximated(key, "frazil makes tables of format 2; an existing one keeps its own", None)
            elif said:
                keys.approximated(key, said, at)
            else:
                keys.same(key, at)
    return {"properties": properties} if properties else {}


def _leave_secret_out(draft: Draft, key: str) -> None:
    if not draft.keys.is_answered(key):
        draft.keys.impossible(key, "it looks like a secret, and all readers of a table see its properties: left out")
        draft.ask(f"{key} looks like a secret, and is left out of table.properties", blocks=True)


def _partitions(draft: Draft, key: str, at: str) -> list[str]:
    """Partition expressions of a key, in frazil's order of arguments; the key is answered."""
    keys = draft.keys
    if (written := keys.get(key)) is None:
        return []
    found: list[str] = []
    for part in re.split(r",\s*(?![^()]*\))", written):
        text = part.strip()
        if call := re.fullmatch(r"(year|month|day|hour)s?\((\S.*?)\)", text):
            text = f"{call[1]}({call[2]})"
        elif call := re.fullmatch(r"(bucket|truncate)\(\s*([^,()]+?)\s*,\s*([0-9]+)\s*\)", text):
            text = f"{call[1]}({call[3]}, {call[2]})"
        elif "(" in text:
            # Another order of arguments, and words in other cases: the sink does not know them.
            text = ""
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


def table_word(name: str) -> str:
    """A name of a connector as part of a table's name."""
    return re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_") or "connector"
