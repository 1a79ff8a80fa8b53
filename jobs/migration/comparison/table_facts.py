"""Facts of two tables beside each other: columns, partitioning, sort order, format, deletes and properties. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from jobs.tables.write.table_sort_order import sort_order_of, sort_order_text

PROPERTIES = (
    "write.format.default",
    "write.parquet.compression-codec",
    "write.target-file-size-bytes",
    "write.distribution-mode",
    "write.delete.mode",
    "write.update.mode",
    "write.merge.mode",
    "write.object-storage.enabled",
    "write.data.path",
    "write.metadata.delete-after-commit.enabled",
    "history.expire.max-snapshot-age-ms",
    "history.expire.min-snapshots-to-keep",
    "gc.enabled",
    "commit.retry.num-retries",
    "schema.name-mapping.default",
)
"""Properties that change files, readers or maintenance; the longest are compared, and shown as set or not."""
_SHOWN_LENGTH = 60
_COMMIT_ID, _VALID_THROUGH = "kafka.connect.commit-id", "kafka.connect.valid-through-ts"


@dataclass(frozen=True, slots=True)
class TableFact:
    """One fact of both tables.

    Attributes:
        name: What it is about, such as `partitioning` or `column qty`.
        ours: What frazil makes; None if it has no such column or property.
        theirs: What the table has.
        note: What the difference means; empty if nothing is known of it.
    """

    name: str
    ours: str | None
    theirs: str | None
    note: str = ""

    @property
    def same(self) -> bool:
        """Whether both have the same."""
        return self.ours == self.theirs


def table_facts(ours: TableMetadata, columns: Schema, theirs: TableMetadata, head: Snapshot | None) -> list[TableFact]:
    """Facts of both tables, in a fixed order; columns and properties only if they differ.

    Args:
        ours: Metadata of the table as frazil has it, or would make it.
        columns: Its columns, with those that records lead to.
        theirs: Metadata of the other table.
        head: Its snapshot that is compared; None without one.
    """
    mine, other = ours.schema(), theirs.schema()
    deletes = delete_files(head)
    return [
        *column_facts(columns, other),
        TableFact("identifier fields", _identifiers(mine), _identifiers(other)),
        TableFact("partitioning", partitioning(ours.spec(), mine), partitioning(theirs.spec(), other)),
        TableFact(
            "sort order", sort_order_text(sort_order_of(ours), mine), sort_order_text(sort_order_of(theirs), other)
        ),
        TableFact("format version", str(ours.format_version), str(theirs.format_version)),
        TableFact("delete files", "none", deletes, "" if deletes == "none" else "rows that they delete are left out"),
        *_property_facts(ours.properties, theirs.properties),
    ]


def column_facts(ours: Schema, theirs: Schema) -> Iterator[TableFact]:
    """Columns, nested ones included, that only one side has, or has otherwise."""
    mine, other = dict(_columns(ours.as_struct(), "")), dict(_columns(theirs.as_struct(), ""))
    folded = {name.casefold(): name for name in other}
    for name, text in mine.items():
        if name in other:
            if (found := other.pop(name)) != text:
                yield TableFact(f"column {name}", text, found, _type_note(text, found))
        elif (spelt := folded.get(name.casefold())) in other and spelt not in mine:
            yield TableFact(f"column {name}", text, f"{spelt}: {other.pop(spelt)}", "the case of the name differs")
        else:
            yield TableFact(f"column {name}", text, None, "the table lacks it")
    for name, text in other.items():
        yield TableFact(f"column {name}", None, text, "frazil's table lacks it")


def partitioning(spec: PartitionSpec, schema: Schema) -> str:
    """A partition spec in words, such as `day(at), bucket[16](id)`; `nothing` without fields."""
    texts: list[str] = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id) or f"field {field.source_id}"
        transform = str(field.transform)
        texts.append(column if transform == "identity" else f"{transform}({column})")
    return ", ".join(texts) or "nothing"


def delete_files(head: Snapshot | None) -> str:
    """The delete files of a snapshot in words; `none` if there are none."""
    if head is None or head.summary is None:
        return "none"
    summary = head.summary.additional_properties
    parts = [
        f"{count:,} {kind} deletes"
        for kind in ("position", "equality")
        if (count := int(summary.get(f"total-{kind}-deletes", "0") or 0))
    ]
    return " and ".join(parts) or "none"


def equality_deletes(head: Snapshot | None) -> int:
    """How many equality deletes a snapshot has, which PyIceberg cannot apply."""
    if head is None or head.summary is None:
        return 0
    return int(head.summary.additional_properties.get("total-equality-deletes", "0") or 0)


def sink_marks(theirs: TableMetadata, head: Snapshot | None) -> dict[str, str]:
    """What the Iceberg sink says in the newest of its snapshots: commit id, valid-through time and control offsets."""
    by_id = {each.snapshot_id: each for each in theirs.snapshots}
    while head is not None:
        summary = head.summary.additional_properties if head.summary else {}
        marks = {name: value for name, value in summary.items() if name.startswith("kafka.connect.")}
        if _COMMIT_ID in marks:
            known = {_COMMIT_ID, _VALID_THROUGH}
            return {name: marks[name] for name in sorted(marks) if name in known or ".offsets." in name}
        head = by_id.get(head.parent_snapshot_id) if head.parent_snapshot_id is not None else None
    return {}


def _columns(struct: StructType, above: str) -> Iterator[tuple[str, str]]:
    for field in struct.fields:
        name = f"{above}{field.name}"
        yield name, f"{_type_text(field.field_type)}{' not null' if field.required else ''}"
        yield from _below(field.field_type, name)


def _below(of_type: IcebergType, name: str) -> Iterator[tuple[str, str]]:
    match of_type:
        case StructType():
            yield from _columns(of_type, f"{name}.")
        case ListType():
            yield f"{name}[]", _type_text(of_type.element_type)
            yield from _below(of_type.element_type, f"{name}[]")
        case MapType():
            yield f"{name}{{}}", f"{_type_text(of_type.key_type)} to {_type_text(of_type.value_type)}"
            yield from _below(of_type.value_type, f"{name}{{}}")
        case _:
            pass


def _type_text(of_type: IcebergType) -> str:
    match of_type:
        case StructType():
            return "struct"
        case ListType():
            return "list"
        case MapType():
            return "map"
        case _:
            return str(of_type)


def _type_note(ours: str, theirs: str) -> str:
    if ours.removesuffix(" not null") == theirs.removesuffix(" not null"):
        return "only the requirement of a value differs"
    pair = (ours.removesuffix(" not null"), theirs.removesuffix(" not null"))
    return {
        ("long", "int"): "the sink wraps numbers beyond 32 bits",
        ("double", "float"): "the sink narrows to four bytes",
        ("double", "long"): "the sink cuts fractions off",
        ("double", "int"): "the sink cuts fractions off",
        ("timestamptz", "timestamp"): "the sink drops offsets of time zones",
        ("timestamp", "timestamptz"): "the sink takes times without a zone for UTC",
        ("timestamptz", "long"): "the sink had no type for times",
        ("timestamptz", "string"): "the sink had no type for times",
        ("struct", "string"): "the sink writes objects as JSON",
    }.get(pair, "")


def _identifiers(schema: Schema) -> str:
    return ", ".join(sorted(schema.identifier_field_names())) or "none"


def _property_facts(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[TableFact]:
    for name in PROPERTIES:
        mine, other = ours.get(name), theirs.get(name)
        if mine != other:
            yield TableFact(f"property {name}", _short(mine), _short(other))


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
