"""A partition's key as people read it and as a predicate needs it, under whichever spec its files were written."""

from __future__ import annotations

from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType

from jobs.maintain.facts import PartitionValue

_NULL = "null"


class PartitionKeys:
    """Makes keys of the values that manifests hold.

    Args:
        metadata: Of the table; with all of its specs and schemas.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id != metadata.current_schema_id)
        # Of a column that was dropped, an older schema knows the name.
        columns: dict[int, tuple[str, IcebergType]] = {}
        for schema in schemas:
            for field_id in schema.field_ids:
                if field_id not in columns:
                    columns[field_id] = (schema.find_column_name(field_id) or "", schema.find_type(field_id))
        self._present: frozenset[int] = frozenset(metadata.schema().field_ids)
        self._fields: dict[int, list[tuple[PartitionField, tuple[str, IcebergType] | None]]] = {
            spec_id: [(field, columns.get(field.source_id)) for field in spec.fields]
            for spec_id, spec in metadata.specs().items()
        }

    def values(self, spec_id: int, partition: tuple[Any, ...]) -> tuple[PartitionValue, ...]:
        """The key of a partition.

        Args:
            spec_id: The spec that it belongs to.
            partition: Values in Iceberg's internal form, in the order of the spec's fields.
        """
        return tuple(
            PartitionValue(
                name=field.name,
                source=column[0] if column else "",
                source_type=str(column[1]) if column else "unknown",
                transform=str(field.transform),
                value=value,
                text=_text(field, column[1] if column else None, value),
                dropped=field.source_id not in self._present and str(field.transform) != "void",
            )
            for (field, column), value in zip(self._fields[spec_id], partition, strict=True)
        )


def partition_name(values: tuple[PartitionValue, ...]) -> str:
    """`created_at_day=2026-01-31/country=CH`, without fields that were dropped from the spec."""
    return "/".join(f"{value.name}={_escaped(value.text)}" for value in values if value.transform != "void")


def _text(field: PartitionField, source: IcebergType | None, value: Any) -> str:
    if value is None:
        return _NULL
    if source is None:
        return str(value)
    try:
        text = field.transform.to_human_string(source, value)
    except (OverflowError, ValueError, TypeError):
        # Dates past the year 9999, which Python has no words for.
        text = str(value)
    # The text "null" is another partition than null.
    return f'"{text}"' if text == _NULL else text


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")
