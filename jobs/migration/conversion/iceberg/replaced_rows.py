"""Streams of an Iceberg sink that replaced rows (upserts and CDC of Tabular's releases): a changelog and a mirror."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.migration.conversion.change_form import change_form, change_key
from jobs.migration.conversion.draft import Draft, Yaml
from jobs.migration.conversion.source import names_in
from jobs.migration.conversion.transforms import transform_classes

_TABLES = "iceberg.tables"
_UPSERT, _CDC, _IDS = f"{_TABLES}.upsert-mode-enabled", f"{_TABLES}.cdc-field", f"{_TABLES}.default-id-columns"
# The sink looks at the first letter alone; these are the words that tools write.
_WORDS = {"update": ["U", "UPDATE", "u"], "delete": ["D", "DELETE", "d"], "insert": ["I", "INSERT", "c", "r"]}


@dataclass(frozen=True, slots=True)
class Changelog:
    """What a stream of changes has beside others.

    Attributes:
        block: Block `changes`.
        key: Block `decode.key`.
        key_columns: Key of the mirror; empty if the record's keys say it.
        replaced: Aliases of transforms for which `changes` stands, with its place.
    """

    block: Yaml
    key: Yaml
    key_columns: tuple[str, ...]
    replaced: Mapping[str, str] = field(default_factory=dict)

    def mirror(self, draft: Draft, output: dict[str, Any]) -> None:
        """Make the sink's tables mirrors, and give the changelogs names of their own."""
        table = output["table"]
        table.pop("partition_by", None)
        if (route := output.get("route")) is None:
            mirror: Yaml = {"table": table["name"]}
            table["name"] = f"{table['name']}_changes"
        else:
            mirror = {"table": f"{_namespace(draft, table, route)}.{{table}}"}
            table["name"] = _changelog(table["name"])
            if "to" in route:
                route["to"] = _changelog(route["to"])
                if self.replaced:
                    # Nothing adds _cdc.target to a change; the topic of a source's table ends with its name.
                    route["by"] = "lower(regexp_replace(_topic, '^.*[.]', ''))"
            for entry in route.get("tables", ()):
                entry["table"] = _changelog(entry["table"])
                entry.pop("partition_by", None)
        if self.key_columns:
            mirror["key"] = list(self.key_columns)
        output["mirrors"] = [mirror]
        draft.note("the changelog keeps every change; the mirror is merged from it, on demand or by mirrors[].every")


def _changelog(table: str) -> str:
    """Name of the changelog of one of several tables: in a namespace of its own."""
    namespace, _, name = table.rpartition(".")
    return f"{namespace}_changes.{name}"


def _namespace(draft: Draft, table: Yaml, route: Yaml) -> str:
    """Namespace of the mirrors of a route; a question if its tables have several."""
    names = [table["name"], *([route["to"]] if "to" in route else []), *(e["table"] for e in route.get("tables", ()))]
    found = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    if len(found) > 1:
        draft.ask("mirrors of a route are in one namespace, and the sink's tables in several: mirrors[]", blocks=True)
    return found[0]


def replaces_rows(draft: Draft) -> Iterator[tuple[str, str]]:
    """Keys by which a sink replaces rows, each with what is lost where they are ignored."""
    for key, lost in ((_UPSERT, "also for a key that exists"), (_CDC, "also those of deletes")):
        if draft.keys.has(key):
            yield key, lost


def changelog_of(draft: Draft, generation: str) -> Changelog | None:
    """Changelog of a sink that replaced rows; None of one that only appended.

    Answers `upsert-mode-enabled`, `cdc-field`, `default-id-columns` and the keys' converter.

    Args:
        draft: Draft of the connector.
        generation: Generation of its keys; Apache's releases ignore both keys.
    """
    keys = draft.keys
    upserts, field_name = keys.flag(_UPSERT), keys.get(_CDC)
    if generation != "tabular" or not (upserts or field_name):
        _ask_about_changes(draft)
        return None
    ids = _ids(draft)
    form = change_form(draft.sources, draft.connector)
    said = "a changelog, and a mirror that is merged; no equality deletes"
    if field_name:
        keys.approximated(_CDC, said, "changes")
    if upserts:
        keys.approximated(_UPSERT, said, "changes")
    else:
        keys.no_effect(_UPSERT, "is false")
    key, single = change_key(draft)
    _say_equality_deletes(draft)
    chain = transform_classes(draft)
    if form.replaced and len(chain) == len(form.replaced):
        return Changelog(form.block, key, ids, dict.fromkeys(form.replaced, "changes"))
    dms = [alias for alias, name in chain.items() if name.endswith(".DmsTransform")]
    if dms and len(chain) == 1:
        return Changelog({"envelope": "dms"}, key, ids, {dms[0]: "changes"})
    if field_name:
        block: Yaml = {"envelope": "columns", "op": {"column": field_name, **_WORDS}}
        draft.ask(
            f"the values of {field_name}: the sink took those that begin with U or D; see changes.op", blocks=True
        )
        return Changelog(block, key, ids)
    if not form.assumed and not form.replaced:
        return Changelog(form.block, key, ids)
    block = {"envelope": "upsert"}
    if len(ids) == 1 and single:
        block["key"] = ids[0]
        draft.ask(f"is the record’s key the column {ids[0]}? a mirror of upserts goes by record keys", blocks=True)
    else:
        draft.ask("do the records' keys name the row? a mirror of upserts goes by record keys", blocks=True)
    return Changelog(block, key, ())


def _ids(draft: Draft) -> tuple[str, ...]:
    keys = draft.keys
    found = names_in(keys.get(_IDS))
    if keys.has(_IDS):
        keys.approximated(_IDS, "the mirror’s key", "mirrors[0].key")
    for key in keys.keys("iceberg.table."):
        match = re.fullmatch(r"iceberg\.table\.(.+)\.id-columns", key)
        if match is None:
            continue
        if "." in match[1] and found:
            keys.no_effect(key, "the sink looks for a table's name without its namespace")
        else:
            found = found or names_in(keys.get(key))
            keys.approximated(key, "the mirror’s key", "mirrors[0].key")
    return tuple(found)


def _say_equality_deletes(draft: Draft) -> None:
    draft.ask(
        "the table has equality deletes: a mirror is not made of it before they are applied (rewrite_data_files)",
        blocks=True,
    )


def _ask_about_changes(draft: Draft) -> None:
    names = [name.rpartition(".")[2] for name in transform_classes(draft).values()]
    if "DebeziumTransform" in names or "MongoDebeziumTransform" in names:
        draft.ask("append of changes (as now), or a changelog with mirrors", blocks=False)
