"""Streams of an Iceberg sink that replaced rows (upserts and CDC of Tabular's releases): a changelog and a mirror."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.migration.conversion.decoding import Format, key_format
from jobs.migration.conversion.draft import Draft, Yaml
from jobs.migration.conversion.source import names_in
from jobs.migration.conversion.transforms import transform_classes

_TABLES = "iceberg.tables"
_UPSERT, _CDC, _IDS = f"{_TABLES}.upsert-mode-enabled", f"{_TABLES}.cdc-field", f"{_TABLES}.default-id-columns"
# The sink looks at the first letter alone; these are the words that tools write.
_WORDS = {"update": ["U", "UPDATE", "u"], "delete": ["D", "DELETE", "d"], "insert": ["I", "INSERT", "c", "r"]}
_KEY = "_change_key"


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
        """Make the sink's table the mirror, and give the changelog a name of its own."""
        table = output["table"]
        name = table["name"]
        table.pop("partition_by", None)
        mirror: Yaml = {"table": name}
        if "route" in output:
            output["route"]["to"] = output["route"]["to"].replace("{value}", "{value}_log")
            mirror["table"] = output["route"]["to"].rpartition(".")[0] + ".{table}_now"
        else:
            table["name"] = f"{name}_log"
        if self.key_columns:
            mirror["key"] = list(self.key_columns)
        output["mirrors"] = [mirror]
        draft.note("the changelog keeps every change; the mirror is merged from it, on demand or by mirrors[].every")


def replaces_rows(draft: Draft) -> Iterator[tuple[str, str]]:
    """Keys by which a sink replaces rows, each with what is lost where they are ignored."""
    for key, lost in ((_UPSERT, "also for a key that exists"), (_CDC, "also those of deletes")):
        if draft.keys.has(key):
            yield key, lost


def changelog_of(draft: Draft, generation: str, dynamic: bool, values: Format) -> Changelog | None:
    """Changelog of a sink that replaced rows; None of one that only appended.

    Answers `upsert-mode-enabled`, `cdc-field`, `default-id-columns` and the keys' converter.

    Args:
        draft: Draft of the connector.
        generation: Generation of its keys; Apache's releases ignore both keys.
        dynamic: Whether records name their tables.
        values: Format of values.
    """
    keys = draft.keys
    upserts, field_name = keys.flag(_UPSERT), keys.get(_CDC)
    if generation != "tabular" or not (upserts or field_name):
        _ask_about_changes(draft)
        return None
    ids = _ids(draft)
    chain = transform_classes(draft)
    unwraps = next((alias for alias, name in chain.items() if name.endswith(".DebeziumTransform")), None)
    dms = next((alias for alias, name in chain.items() if name.endswith(".DmsTransform")), None)
    key = _key(draft, values)
    if field_name:
        keys.approximated(_CDC, "a changelog, and a mirror that is merged; no equality deletes", "changes")
    if keys.has(_UPSERT):
        if upserts:
            said = "a changelog, and a mirror that is merged; no equality deletes"
            keys.approximated(_UPSERT, said, "changes")
        else:
            keys.no_effect(_UPSERT, "is false")
    _say_equality_deletes(draft)
    replaced: dict[str, str] = {}
    block: Yaml
    if field_name and unwraps is not None and len(chain) == 1:
        block, replaced = {"envelope": "debezium"}, {unwraps: "changes"}
    elif field_name and dms is not None and len(chain) == 1:
        block, replaced = {"envelope": "dms"}, {dms: "changes"}
    elif field_name:
        block = {"envelope": "columns", "op": {"column": field_name, **_WORDS}}
        draft.ask(f"the words of {field_name}: the sink took those that begin with U or D; see changes.op", blocks=True)
    else:
        block = {"envelope": "upsert"}
        if len(ids) == 1 and key["format"] in ("string", "long", "int", "short"):
            block["key"] = ids[0]
            draft.ask(f"is the record’s key the column {ids[0]}? a mirror of upserts goes by record keys", blocks=True)
        else:
            draft.ask("do the records' keys name the row? a mirror of upserts goes by record keys", blocks=True)
        return Changelog(block, key, ())
    if dynamic:
        draft.ask("mirrors of dynamic tables are named by mirrors[].table: correct the names", blocks=True)
    return Changelog(block, key, ids, replaced)


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


def _key(draft: Draft, values: Format) -> Yaml:
    """Block `decode.key`, which a changelog needs."""
    found = key_format(draft)
    key: Yaml = {"format": found.name, **found.options, "into": _KEY}
    if found.has_registry and values.has_registry:
        key["schema"] = "registry"
    elif found.name in ("json", "connect_json"):
        key["schema"] = "infer"
    return key


def _say_equality_deletes(draft: Draft) -> None:
    draft.ask(
        "the table has equality deletes: a mirror is not made of it before they are applied (rewrite_data_files)",
        blocks=True,
    )


def _ask_about_changes(draft: Draft) -> None:
    names = [name.rpartition(".")[2] for name in transform_classes(draft).values()]
    if "DebeziumTransform" in names or "MongoDebeziumTransform" in names:
        draft.ask("append of changes (as now), or a changelog with mirrors", blocks=False)
