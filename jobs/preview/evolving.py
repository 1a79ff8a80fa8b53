"""Evolving table of a preview: the changes that its driver would make for the records, made of its metadata alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.followers import needed_changes
from jobs.commit.opening_columns import columns_operation
from jobs.commit.schema_history import added_within_hour
from jobs.commit.schema_operation import with_operation
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.preview.record import TableChanges
from jobs.schema.evolution import Evolution
from jobs.schema.needs import Change, Path, RecordNeed
from jobs.schema.rescued_data import EXTRA_COLUMN
from jobs.schema.schema_change import RefusedChange, SchemaChange
from jobs.spec.models import StreamSpec
from jobs.spec.transform.shaping import changed_columns, evolving_schema
from jobs.stream.column_refusals import ColumnRefusals
from jobs.stream.schema_evolution import CHANGES_LEFT, ROUNDS


class EvolvingTable:
    """The stream's own table while the records of a sample are run: their needs are judged as a driver judges them.

    Args:
        spec: The stream.
        metadata: Of its table as it is, or as it would be made.
        followers: Metadata of the tables that follow it, by name.

    Attributes:
        metadata: As it would be by now.
    """

    def __init__(
        self, spec: StreamSpec, metadata: TableMetadata, followers: Mapping[str, TableMetadata] = MappingProxyType({})
    ) -> None:
        self._spec: StreamSpec = spec
        self._followers: Mapping[str, TableMetadata] = followers
        self.metadata: TableMetadata = metadata
        self._made: list[str] = []
        self._proposed: list[SchemaChange] = []
        self._failed: list[SchemaChange] = []
        self._refused: list[RefusedChange] = []
        self._settled: set[tuple[Change, Path]] = set()
        self._refusals: ColumnRefusals = ColumnRefusals()
        self._rounds: int = 0

    @property
    def changes(self) -> TableChanges:
        """What the records of the sample lead to."""
        return TableChanges(
            tuple(self._made),
            tuple(map(str, self._proposed)),
            tuple(map(str, self._refused)),
            tuple(map(str, self._failed)),
        )

    @property
    def resolved(self) -> ResolvedSchema:
        """The rows that values become by the table as it would be by now, and their decoder."""
        found = self._spec.resolved_for(self.metadata.schema(), self.metadata.properties, evolving=True)
        return self._refusals.known_to(found)

    def decide(self, needs: Iterable[RecordNeed]) -> bool:
        """Judge what the records need; returns whether they have to be run again, as the table is another one."""
        own = self._spec.columns_from_elsewhere
        new = [each for each in needs if (each.change, each.path) not in self._settled and each.path[0] not in own]
        if not new or self._failed:
            return False
        found = self._judged(new)
        if self._rounds < ROUNDS:
            schema = evolving_schema(self._spec, self.metadata)
            found = self._refusals.without_columns_of_failing(found, schema, found.refused)
        else:
            found = found.refusing_changes(CHANGES_LEFT)
        self._failed += found.failed
        if found.failed:
            return False
        self._proposed += found.proposed
        self._settled |= {(each.change, each.path) for each in (*found.proposed, *found.refused)}
        again = self._refuse(found.refused)
        if found.changes:
            self._change(found.changes)
        return again or bool(found.changes)

    def _judged(self, needs: list[RecordNeed]) -> Evolution:
        spec = self._spec
        return needed_changes(
            spec,
            needs,
            self.metadata,
            added_lately=added_within_hour(self.metadata.properties),
            always={(EXTRA_COLUMN,)} if spec.decode.unknown_fields == "keep" else (),
            followers=self._followers if spec.tables_follow else None,
        )

    def _change(self, changes: tuple[SchemaChange, ...]) -> None:
        made = changed_columns(self._spec, self.metadata, changes)
        self.metadata = with_operation(self.metadata, columns_operation(self._spec, self.metadata, changes))
        self._made += made.told
        self._rounds += 1

    def _refuse(self, refused: Iterable[RefusedChange]) -> bool:
        """Take note of what is refused; returns whether the decoders have to know."""
        schema, changes = evolving_schema(self._spec, self.metadata), list(refused)
        self._refused += changes
        additions = [each for each in changes if each.change == "add"]
        for each in additions:
            self._refusals.refuse_field(schema, each.path, each.why)
        return self._refusals.refuse_changes(changes, self._spec.evolution) or bool(additions)
