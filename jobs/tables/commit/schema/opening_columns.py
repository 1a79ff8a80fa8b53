"""Changes of a stream's main table at opening, so that it takes the rows of the stream's file.

A new or changed step makes other columns than the table has. The file may change whatever `evolve` lets records change.
If steps change columns, the decoded columns are kept with the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.documents.base import Location
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import (
    can_be_taken,
    changed_columns,
    evolving_schema,
    fitting_table,
)
from jobs.records.schema.decoded_columns import (
    DecodedColumns,
    decoded_columns,
    decoded_properties,
    decoded_property,
    whole_property,
)
from jobs.records.schema.evolution import Fitting
from jobs.records.schema.schema_change import SchemaChange, changed_schema
from jobs.tables.commit.schema.operations import ChangeSchema
from jobs.tables.commit.schema.schema_operation import schema_operation
from jobs.tables.commit.stamp.stamps import Stamp, property_key

_MOST_DOUBTFUL = 6


@dataclass(frozen=True, slots=True)
class OpeningColumns:
    """Changes that a table needs.

    Attributes:
        metadata: The table's metadata, with the decoded columns that it keeps from now on.
        decoded: The decoded columns, if the table does not keep them yet; else None.
        refused: Reasons why it would still not take the rows, as sentences.
        problems: Wrong statements of the file about columns, each with its place; if any, nothing else is checked.
    """

    metadata: TableMetadata
    decoded: DecodedColumns | None = None
    changes: tuple[SchemaChange, ...] = ()
    refused: tuple[str, ...] = ()
    problems: tuple[tuple[Location, str], ...] = ()

    def unasked(self, spec: StreamSpec) -> tuple[SchemaChange, ...]:
        """Changes that `evolve` does not make by itself."""
        return tuple(each for each in self.changes if spec.evolution.answer(each.change) != "auto")


def opening_columns(
    spec: StreamSpec,
    metadata: TableMetadata,
    new: Callable[[], DecodedColumns] | None,
    *,
    relax_missing: bool = False,
) -> OpeningColumns:
    """Changes that the main table needs, of a stream whose file does not declare all columns.

    Args:
        metadata: Metadata of the existing main table.
        new: Makes the decoded columns of a stream that has not landed anything yet, as for a new table; None: they are
            those of the table.
        relax_missing: Whether required columns that the rows lack become optional, by request.

    Raises:
        FrazilError: The table has lost the decoded columns.
    """
    decoded = None
    if spec.shapes and decoded_columns(metadata.properties, spec.stream) is None:
        decoded = _first(spec, metadata, new)
        own = decoded_properties(metadata.properties, spec.stream, decoded, None)
        metadata = metadata.model_copy(update={"properties": {**metadata.properties, **own}})
    table, properties = metadata.schema(), metadata.properties
    if problems := spec.problems_with(table, properties):
        return OpeningColumns(metadata, decoded, problems=tuple(problems))
    fit = Fitting()
    if (spec.chain or spec.shapes) and spec.decode.declared is None:
        fit = fitting_table(spec, metadata, spec.decoded_for(table, properties), relax_missing=relax_missing)
    if fit.changes and not relax_missing and _has_made(spec, metadata):
        # Rows of these steps have landed, so somebody has changed the table, not the file.
        said = f"it had the columns of the steps, and somebody has altered it: {'; '.join(map(str, fit.changes))}"
        return OpeningColumns(metadata, decoded, (), (said,))
    return OpeningColumns(metadata, decoded, fit.changes, fit.refused)


def stamped_digest(properties: Mapping[str, str], stream: str) -> str | None:
    """The digest of the decoded columns that the stream's newest stamp names; None if it names none."""
    stamp = _stamp(properties, stream)
    return stamp.decoded if stamp else None


def opening_operation(
    spec: StreamSpec, metadata: TableMetadata, found: OpeningColumns, by: str = "", further: Sequence[str] = ()
) -> ChangeSchema | None:
    """Commit operation that makes the changes; None if nothing changes.

    Args:
        metadata: The table's metadata, as it was judged.
        by: Author of the request; empty if the file asks for it.
        further: Other changes of the same commit, in words, for the table's history.
    """
    if not found.changes and found.decoded is None:
        return None
    after = changed_schema(metadata.schema(), found.changes, metadata.last_column_id, spec.kafka_columns.names)
    properties: dict[str, str] = {}
    if found.decoded:
        properties = decoded_properties(metadata.properties, spec.stream, found.decoded, None)
    return schema_operation(
        spec.stream,
        metadata,
        after,
        found.changes,
        [*map(str, found.changes), *(["keep the decoded columns"] if found.decoded else []), *further],
        properties=properties,
        same_schema=not found.changes,
        by=by or f"streams/{spec.stream}.yaml",
    )


def keeps_decoded(spec: StreamSpec, metadata: TableMetadata) -> bool:
    """Whether the table keeps the columns that the stream decodes."""
    return decoded_columns(metadata.properties, spec.stream) is not None


def has_landed(spec: StreamSpec, metadata: TableMetadata) -> bool:
    """Whether the stream has landed a batch in its main table, or may have."""
    stamp = _stamp(metadata.properties, spec.stream)
    return stamp is not None and (stamp.schema_id is not None or bool(stamp.totals.read))


def _first(spec: StreamSpec, metadata: TableMetadata, new: Callable[[], DecodedColumns] | None) -> DecodedColumns:
    name = decoded_property(spec.stream)
    if stamped_digest(metadata.properties, spec.stream) is not None:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} has lost its property {name}, which keeps the columns "
            "that the stream decodes: without it the origin of the table's columns is unknown.",
            fix="set it again as an older version of the table's metadata has it, or give the stream another id",
        )
    return _of_table(spec, metadata) if new is None or has_landed(spec, metadata) else new()


def _of_table(spec: StreamSpec, metadata: TableMetadata) -> DecodedColumns:
    """Columns of a table, taken as the decoded columns so far.

    A column with the name of a step's column may be decoded, or made by earlier steps. It counts as decoded, as far as
    the steps allow, but no record needs to have it.
    """
    table = metadata.schema()
    known = spec.decoded_for(table, metadata.properties)
    names, own = {each.name for each in known.rows.fields}, spec.record_columns.names
    doubtful = [each for each in table.fields if each.name in spec.made_columns - own - names]
    if spec.decode.declared is not None or len(doubtful) > _MOST_DOUBTFUL:
        return known
    for count in range(len(doubtful), -1, -1):
        for chosen in itertools.combinations(doubtful, count):
            more = {each.name for each in chosen}
            fields = [
                each.model_copy(update={"required": each.required and each.name in names})
                for each in table.fields
                if each.name in names | more
            ]
            found = replace(known, rows=Schema(*fields))
            if can_be_taken(spec, metadata, found):
                return found
    return known


def _has_made(spec: StreamSpec, metadata: TableMetadata) -> bool:
    """Whether rows of exactly these steps have landed in the table."""
    stamp = _stamp(metadata.properties, spec.stream)
    return stamp is not None and has_landed(spec, metadata) and stamp.config == spec.config_hash


def _stamp(properties: Mapping[str, str], stream: str) -> Stamp | None:
    text = whole_property(properties, property_key(stream))
    return Stamp.from_json(text) if text else None


def columns_operation(
    spec: StreamSpec,
    metadata: TableMetadata,
    changes: tuple[SchemaChange, ...],
    decided: str | None = None,
    **whose: Any,
) -> ChangeSchema:
    """Change of a table's schema, with the properties about it.

    Args:
        metadata: The table's metadata, as it was judged.
        changes: Changes, judged before, to the columns that `evolving_schema` makes.
        decided: Digest of the decoded columns in the coordinator's newest stamp, for a table with its own columns. They
            stay with the table, as do those of its own newest stamp.
        whose: Epoch, batch and example of a driver, or the author, for the table's history.
    """
    before, made = metadata.schema(), changed_columns(spec, metadata, changes)
    grown = (made.decoded.rows, evolving_schema(spec, metadata)) if made.decoded else (made.schema, before)
    properties: dict[str, str] = {}
    if made.decoded is not None:
        stamped = (stamped_digest(metadata.properties, spec.stream), decided)
        known, under_way = (metadata.properties, spec.stream, made.decoded), "by" in whose
        properties = decoded_properties(*known, *stamped, under_way=under_way)
    return schema_operation(
        spec.stream,
        metadata,
        made.schema,
        made.changes,
        made.sentences,
        properties=properties,
        same_schema=not made.changes,
        added=_size(grown[0]) - _size(grown[1]),
        **whose,
    )


def _size(schema: Schema) -> int:
    """How many columns there are, nested ones counted."""
    return len(index_by_id(schema))
