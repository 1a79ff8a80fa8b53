"""Columns at the opening of a stream: what its table becomes so that the rows of the stream's file go there.

A step that was added, or another one, gives other columns than the table has; what `evolve` lets records change, the
file may change as well. Steps that change columns have the decoded ones kept with the table.
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
    """What becomes of a table.

    Attributes:
        metadata: The table's, with the decoded columns that it keeps from now on.
        decoded: Those, where the table does not keep them yet; else None.
        refused: Why it would still not take the rows, as sentences.
        problems: What the file says of columns that are not so, each with its place; nothing else is looked at then.
    """

    metadata: TableMetadata
    decoded: DecodedColumns | None = None
    changes: tuple[SchemaChange, ...] = ()
    refused: tuple[str, ...] = ()
    problems: tuple[tuple[Location, str], ...] = ()

    def unasked(self, spec: StreamSpec) -> tuple[SchemaChange, ...]:
        """The changes that `evolve` does not make by itself."""
        return tuple(each for each in self.changes if spec.evolution.answer(each.change) != "auto")


def opening_columns(
    spec: StreamSpec,
    metadata: TableMetadata,
    new: Callable[[], DecodedColumns] | None,
    *,
    relax_missing: bool = False,
) -> OpeningColumns:
    """What becomes of the table of a stream whose file does not declare all columns.

    Args:
        metadata: Of its table, which is there.
        new: Gives the decoded columns of a stream that has not landed anything yet, as with a new table; None: they
            are those of the table.
        relax_missing: Whether required columns that the rows lack are relaxed, as somebody has asked for it.

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
        # Its rows had all of that, so the file has not changed, but the table.
        said = f"it had what the steps make, and somebody has altered it: {'; '.join(map(str, fit.changes))}"
        return OpeningColumns(metadata, decoded, (), (said,))
    return OpeningColumns(metadata, decoded, fit.changes, fit.refused)


def stamped_digest(properties: Mapping[str, str], stream: str) -> str | None:
    """The digest of the decoded columns that the stream's newest stamp names; None if it names none."""
    stamp = _stamp(properties, stream)
    return stamp.decoded if stamp else None


def opening_operation(
    spec: StreamSpec, metadata: TableMetadata, found: OpeningColumns, by: str = "", further: Sequence[str] = ()
) -> ChangeSchema | None:
    """The commit that makes it so; None where there is nothing to change.

    Args:
        metadata: The table's, as it was judged.
        by: Who asks for it; without a name it is the file that does.
        further: What the same commit changes beside columns, in words, for the table's history.
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
    """Whether the stream has landed a batch in its table, or may have."""
    stamp = _stamp(metadata.properties, spec.stream)
    return stamp is not None and (stamp.schema_id is not None or bool(stamp.totals.read))


def _first(spec: StreamSpec, metadata: TableMetadata, new: Callable[[], DecodedColumns] | None) -> DecodedColumns:
    name = decoded_property(spec.stream)
    if stamped_digest(metadata.properties, spec.stream) is not None:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} has lost its property {name}, which keeps the columns that "
            "the stream decodes: without it nobody knows what the table's columns are made of.",
            fix="set it again as an older version of the table's metadata has it, or give the stream another id",
        )
    return _of_table(spec, metadata) if new is None or has_landed(spec, metadata) else new()


def _of_table(spec: StreamSpec, metadata: TableMetadata) -> DecodedColumns:
    """The columns of a table as those that were decoded until now.

    A column of a name that a step gives may be one of them, or what steps before have added. It is decoded, as far as
    the steps can be taken so, but asked of no record.
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
    """Whether rows of these very steps have landed in the table."""
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
    """The change of a table's schema, with what its properties say from then on.

    Args:
        metadata: The table's, as it was judged.
        changes: Judged before, of the columns that `evolving_schema` gives.
        decided: The digest of the decoded columns that the coordinator's newest stamp names of a table that has columns
            of its own: they stay with the table, as those of its own newest stamp do.
        whose: Epoch, batch and example of a driver, or by whom, for the table's history.
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
        made.told,
        properties=properties,
        same_schema=not made.changes,
        added=_size(grown[0]) - _size(grown[1]),
        **whose,
    )


def _size(schema: Schema) -> int:
    """How many columns there are, nested ones counted."""
    return len(index_by_id(schema))
