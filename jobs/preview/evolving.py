"""Evolving table of a preview: the changes that its driver would make for the records, made of its metadata alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.changed_metadata import with_operation
from jobs.commit.columns_operation import columns_operation
from jobs.commit.followers import followable
from jobs.commit.schema_history import added_since
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.preview.record import TableChanges
from jobs.schema.evolution import Evolution, judged
from jobs.schema.needs import Change, Path, RecordNeed
from jobs.schema.rescued_data import EXTRA_COLUMN
from jobs.schema.schema_change import RefusedChange, SchemaChange
from jobs.spec.models import StreamSpec
from jobs.spec.transform.passing import followed
from jobs.spec.transform.shaping import changed_columns, evolving_rules, evolving_schema
from jobs.stream.field_place import field_place, refused_places
from jobs.stream.schema_evolution import ROUNDS

_HOUR_MS = 3_600_000


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
        self._left_out: dict[str, str] = {}
        self._waiting: set[tuple[Change, Path]] = set()
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
        if self._left_out:
            refused = dict(found.decoder.options.get("refused", ())) | self._left_out
            found = found.with_options({"refused": tuple(refused.items())})
        if self._waiting:
            found = found.with_options({"refused_changes": tuple(sorted(self._waiting))})
        return found

    def decide(self, needs: Iterable[RecordNeed]) -> bool:
        """Judge what the records need; returns whether they have to be run again, as the table is another one."""
        own = self._spec.columns_from_elsewhere
        new = [each for each in needs if (each.change, each.path) not in self._settled and each.path[0] not in own]
        if not new or self._failed:
            return False
        found = self._judged(new)
        schema = evolving_schema(self._spec, self.metadata)
        if any(each.change == "add" and field_place(schema, each.path) not in self._left_out for each in found.refused):
            # As a driver does: what fails by such a field needs no column.
            found = found.without_additions()
        self._failed += found.failed
        if found.failed:
            return False
        self._proposed += found.proposed
        self._settled |= {(each.change, each.path) for each in (*found.proposed, *found.refused)}
        again = self._refuse(found.refused)
        if found.changes and self._rounds < ROUNDS:
            self._change(found.changes)
            again = True
        elif found.changes:
            left = [RefusedChange(each.change, each.path, _LEFT, each.at) for each in found.changes if each.at]
            self._settled |= {(each.change, each.path) for each in left}
            again = self._refuse(left) or again
        return again

    def _judged(self, needs: list[RecordNeed]) -> Evolution:
        spec, schema = self._spec, evolving_schema(self._spec, self.metadata)
        hour_ago_ms = time.time_ns() // 1_000_000 - _HOUR_MS
        found = judged(
            needs,
            schema,
            spec.evolution,
            added_lately=added_since(self.metadata.properties, hour_ago_ms),
            json=spec.decode.format == "json",
            always={(EXTRA_COLUMN,)} if spec.decode.unknown_fields == "keep" else (),
            **evolving_rules(spec, self.metadata),
        )
        found = followed(spec, found, self.metadata)
        return followable(spec, found, self.metadata, self._followers) if spec.tables_follow else found

    def _change(self, changes: tuple[SchemaChange, ...]) -> None:
        made = changed_columns(self._spec, self.metadata, changes)
        self.metadata = with_operation(self.metadata, columns_operation(self._spec, self.metadata, changes))
        self._made += made.told
        self._rounds += 1

    def _refuse(self, refused: Iterable[RefusedChange]) -> bool:
        """Take note of what is refused; returns whether the decoders have to know."""
        schema, policy = evolving_schema(self._spec, self.metadata), self._spec.evolution
        again = False
        for each in refused:
            self._refused.append(each)
            if each.change == "add":
                self._left_out |= dict.fromkeys(refused_places(schema, each.path), each.why)
                again = True
            elif policy.clash == "shadow" and policy.answer(each.change) == "auto":
                self._waiting.add((each.change, each.path))
                again = True
        return again


_LEFT = f"one batch changes a table {ROUNDS} times at most"
