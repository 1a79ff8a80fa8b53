"""Schema evolution of a table: judges what records need, and commits the changes.

One commit alters the table, on exactly the head and the schema that were judged. So a zombie driver cannot alter it any
more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Mapping

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.base.failpoints import step
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import evolving_schema
from jobs.records.formats.interface.decoder import EVERY_FIELD, LEFT_OUT
from jobs.records.schema.evolution import Evolution
from jobs.records.schema.needs import Change, Path, RecordNeed
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.schema.schema_change import RefusedChange
from jobs.streaming.driver.context.column_refusals import MOST_REFUSED, field_place
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.tables.schema_proposals import keep_proposal
from jobs.tables.commit.protocol.parked_target import ParkedTarget
from jobs.tables.commit.protocol.proposals import Proposal, Seen
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.followers import follower_names, needed_changes
from jobs.tables.commit.schema.opening_columns import columns_operation
from jobs.tables.commit.schema.operations import ChangeSchema
from jobs.tables.commit.schema.schema_history import added_within_hour, schema_history
from jobs.tables.commit.stamp.errors import SchemaChangeError
from jobs.tables.commit.stamp.stamps import Stamp

log = logging.getLogger(__name__)

ROUNDS = 3
"""Most changes of the table that one batch may cause after a survey; further ones are refused."""
_HOUR_SECONDS = 3600.0
CHANGES_LEFT = f"one batch changes a table {ROUNDS} times at most"


class SchemaEvolution:
    """Gives one table what records need, within the stream's policy, and remembers what was refused."""

    def __init__(self, stream: OpenStream, table: str) -> None:
        self._stream: OpenStream = stream
        self._name: str = table
        # Decided changes, which are not judged again until the table is altered or an hour has passed.
        self._settled: set[tuple[Change, Path]] = set()
        # Whether a survey led to no change. Until it is reset no survey is made, as each batch would run twice.
        self._in_vain: bool = False
        # Number of columns proposed since. It is limited like additions, so that the documents stay bounded.
        self._proposed: int = 0
        self._columns: tuple[int, str | None] = (-1, None)
        self._since: float = time.monotonic()
        # Number of the present batch, and of the last one with a refusal.
        self._batch: int = -1
        self._refused_in: int = -1

    def refuse_again(self, needs: tuple[RecordNeed, ...], schema: Schema) -> bool:
        """Refuse what the table lacks for these needs; returns whether the decoders need the refusals."""
        refusals = self._stream.refused_by(self._name)
        refused = refusals.fields
        changes = refusals.refuse_changes(needs, self._stream.spec.evolution)
        before, own = len(refused), self._elsewhere
        if self._stream.spec.evolution.add == "propose":
            for each in needs:
                if self._goes_without(each):
                    refused.setdefault(field_place(schema, each.path), LEFT_OUT)
        if not needs or self._stream.spec.evolution.add != "auto" or EVERY_FIELD in refused:
            return changes or len(refused) > before
        for each in needs:
            if each.change == "add" and each.path[0] not in own and not self._goes_without(each):
                refused.setdefault(field_place(schema, each.path), CHANGES_LEFT)
        refusals.limit()
        return changes or len(refused) > before

    @property
    def _elsewhere(self) -> frozenset[str]:
        """Columns that do not come from the value."""
        return self._spec.columns_from_elsewhere

    @property
    def _spec(self) -> StreamSpec:
        return self._stream.spec.for_table(self._name)

    @property
    def _table(self) -> Target:
        return self._stream.targets[self._name]

    def differs(self, seen: Mapping[str, Seen]) -> bool:
        """Whether the table has another schema, or other decoded columns, than the tasks saw."""
        now, before = self._table.seen(), seen[self._name]
        return (now.schema_id, now.decoded) != (before.schema_id, before.decoded)

    @property
    def _columns_now(self) -> tuple[int, str | None]:
        """Version of the table's columns, and of the decoded columns that it keeps."""
        now = self._table.seen()
        return now.schema_id, now.decoded

    def surveys(self) -> bool:
        """Whether a survey may lead to a change of the table."""
        return not self._in_vain and all(change == "add" for change, _ in self._settled)

    def surveyed_in_vain(self) -> None:
        """Note that a survey led to no change, so that none is made for now; otherwise each batch would run twice."""
        self._remember()
        self._in_vain = True

    def forget(self) -> None:
        """Forget refusals: the table has changed, or further columns may be added again."""
        if not self._settled and not self._in_vain:
            return
        if self._columns_now != self._columns or time.monotonic() - self._since > _HOUR_SECONDS:
            self._settled, self._columns, self._since = set(), self._columns_now, time.monotonic()
            self._proposed, self._in_vain = 0, False
            self._stream.refused.pop(self._name, None)

    def decide(self, needs: tuple[RecordNeed, ...], batch: int, *, may_change: bool) -> Evolution | None:
        """Judge needs, commit the change and reload the table; None without needs.

        Raises:
            SchemaChangeError: The policy stops the stream for such a change.
        """
        if not needs:
            return None
        self._batch, stream = batch, self._stream
        # A value's field with the name of a column from elsewhere is left out, as no change makes room for it.
        own = self._elsewhere
        new = [each for each in needs if (each.change, each.path) not in self._settled and each.path[0] not in own]

        def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[Evolution]:
            found = self._judged(new, metadata)
            if may_change:
                failing = [each for each in found.refused if not self._goes_without(each)]
                schema = evolving_schema(self._spec, metadata)
                found = stream.refused_by(self._name).without_columns_of_failing(found, schema, failing)
            elif found.changes:
                found = found.refusing_changes(CHANGES_LEFT)
            if not found.changes or found.failed:
                return Proposal(found)
            return Proposal(found, self._change(found, metadata, batch))

        if new:
            step("before_schema_commit")
        verdict = self._table.swap(propose, epoch=stream.epoch, check=self._refuse_taken_over)
        if verdict.failed:
            raise self._stopped(verdict)
        if verdict.changes:
            made = schema_history(self._table.table.metadata.properties)
            log.info("table %s: %s", self._table.name, "; ".join(made[-1].changes) if made else verdict.changes)
            step("after_schema_commit")
            if self._refused_in == batch:
                # A batch's own change is no reason to judge its refusals again.
                self._columns = self._columns_now
        for each in verdict.proposed:
            keep_proposal(stream.folder.store, stream.spec.stream, self._table.name, each)
            self._settle(each.change, each.path)
            self._proposed += each.change == "add"
        return verdict

    def _refuse_taken_over(self) -> None:
        """Raise after a takeover: a later driver claims the coordinator, and perhaps no other table."""
        self._stream.lease.verify()
        if self._table is not self._stream.anchor:
            self._stream.anchor.refuse_later_claim(self._stream.epoch)

    def _judged(self, needs: list[RecordNeed], metadata: TableMetadata) -> Evolution:
        spec, tables = self._spec, self._stream.targets
        followers = {name: tables[name] for name in follower_names(spec)}
        known = {name: each.table.metadata for name, each in followers.items() if not isinstance(each, ParkedTarget)}
        return needed_changes(
            spec,
            needs,
            metadata,
            added_lately=added_within_hour(metadata.properties) + self._proposed,
            always=_unasked(spec),
            followers=known if spec.tables_follow else None,
        )

    def _change(self, found: Evolution, metadata: TableMetadata, batch: int) -> ChangeSchema:
        example = min(each.at for each in found.changes if each.at)
        whose = {"epoch": self._stream.epoch, "batch": batch, "example": example}
        newest = self._stream.anchor.newest
        # The table's own stamp may be older: a batch without landed records for it does not stamp it.
        decided = newest.decoded_of.get(self._name) if newest else None
        return columns_operation(self._spec, metadata, found.changes, decided, **whose)

    def _settle(self, change: Change, path: Path) -> None:
        self._remember()
        self._refused_in = self._batch
        self._settled.add((change, path))

    def _remember(self) -> None:
        if not self._settled and not self._in_vain:
            self._columns, self._since = self._columns_now, time.monotonic()

    def refuse(self, verdict: Evolution) -> bool:
        """Note refusals; returns whether the decoders need them, so that the tasks run again."""
        schema = evolving_schema(self._spec, self._table.table.metadata)
        refusals = self._stream.refused_by(self._name)
        refused = refusals.fields
        before = len(refused)
        for each in verdict.refused:
            if self._goes_without(each):
                # Without a limit, keys that are data would make endless entries.
                if len(self._settled) < MOST_REFUSED:
                    self._settle(each.change, each.path)
                    if self._spec.evolution.add == "propose":
                        # Otherwise records with this field would wait for its column.
                        refused[field_place(schema, each.path)] = LEFT_OUT
                continue
            if each.change == "add" and EVERY_FIELD in refused:
                # Without a limit, keys that are data would make endless entries.
                continue
            self._settle(each.change, each.path)
            log.warning("table %s is not changed: %s, as %s would need", self._table.name, each, each.at)
            if each.change == "add":
                refusals.refuse_field(schema, each.path, each.why)
            if (too_many := refusals.limit()) is not None:
                log.warning("table %s: %s; each record with a new field fails", self._table.name, too_many)
        waiting = refusals.refuse_changes(verdict.refused, self._stream.spec.evolution)
        return waiting or len(refused) > before

    def _goes_without(self, change: RecordNeed | RefusedChange) -> bool:
        """Whether a field needs no column, because the table would not have it anyway: records land without it."""
        spec = self._spec
        if change.change != "add" or spec.evolution.add == "ignore" or spec.lane_columns is None or spec.chain:
            return False
        return change.path in spec.lane_columns.unseen()

    def _stopped(self, verdict: Evolution) -> SchemaChangeError:
        stream, first = self._stream.spec.stream, verdict.failed[0]
        others = f" and {len(verdict.failed) - 1} more" if len(verdict.failed) > 1 else ""
        return SchemaChangeError(
            f"stream {stream}: the record at {first.at} needs a change of table {self._table.name}: "
            f"{first.sentence}{others}; evolve.{first.change} is fail. Nothing of the batch is committed.",
            fix=f"alter the table, or set evolve.{first.change} in streams/{stream}.yaml; then frazil run {stream}",
        )


def _unasked(spec: StreamSpec) -> Container[Path]:
    """Columns that records get under any policy: that of kept fields, and those that no table shows."""
    kept = {(EXTRA_COLUMN,)} if spec.decode.unknown_fields == "keep" else frozenset[Path]()
    if spec.lane_columns is None or spec.chain:
        return kept
    return spec.lane_columns.unseen(kept)
