"""Schema evolution of a stream's table: what the tasks of a batch need is judged and committed, and they run again.

One commit alters the table, on exactly the head and the schema that were judged, so a driver that was taken over cannot
alter it any more. The files that were written for the schema before are dropped: they lack what the change is for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.columns_operation import columns_operation
from jobs.commit.errors import SchemaChangeError
from jobs.commit.operations import ChangeSchema
from jobs.commit.proposals import Proposal, Seen
from jobs.commit.schema_history import added_since, schema_history
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.errors import FrazilError
from jobs.formats.decoder import EVERY_FIELD
from jobs.formats.known_formats import FORMATS
from jobs.schema.evolution import Evolution, judged
from jobs.schema.kept_fields import EXTRA_COLUMN
from jobs.schema.needs import Change, Path, RecordNeed
from jobs.schema.rename import with_former_names
from jobs.schema.schema_change import RefusedChange
from jobs.spec.transform.passing import followed
from jobs.spec.transform.shaping import evolving_maintained, evolving_protected, evolving_schema
from jobs.steps import step
from jobs.stream.field_place import field_place
from jobs.stream.open_stream import OpenStream
from jobs.stream.results import TaskResults, drop_files
from jobs.stream.schema_proposals import keep_proposal

log = logging.getLogger(__name__)

ROUNDS = 3
"""Changes of the table that one batch may lead to behind a survey; what it needs beyond them is refused."""
_MOST_RUNS = 20
_HOUR_SECONDS = 3600.0
MOST_REFUSED = 1_000
"""Refused fields that are told apart; beyond them each record with a new field fails."""
_TOO_MANY = f"more than {MOST_REFUSED:,} fields of records have got no column"
_LEFT = f"one batch changes a table {ROUNDS} times at most"


class SchemaEvolution:
    """Lets the tasks of batches run until the table has what their records need, as far as the stream's policy goes.

    Args:
        stream: The open stream; its table is read anew with each change.
    """

    def __init__(self, stream: OpenStream) -> None:
        self._stream: OpenStream = stream
        # What was decided and is not asked again, until the table is altered or an hour has passed.
        self._settled: set[tuple[Change, Path]] = set()
        # A survey has led to no change: until then none is made, or each batch would be run twice.
        self._in_vain: bool = False
        # Columns that were proposed since: as many as could be added, or documents would be without an end.
        self._proposed: int = 0
        self._columns: tuple[int, str | None] = (-1, None)
        self._since: float = time.monotonic()

    def run(self, tasks: Callable[[bool], TaskResults], batch: int) -> tuple[dict[str, Seen], TaskResults]:
        """Run the tasks of a batch, again after each change of the table.

        The first run may be a survey: a task whose records need a change that is likely to be made leaves them
        undecided, and the next run decides.

        Args:
            tasks: Runs them, by a plan of what the table is then, as a survey or not.
            batch: Its number.

        Returns:
            The tables as the tasks saw them, and what they wrote.

        Raises:
            SchemaChangeError: The policy is to stop the stream for such a change; the files are dropped.
            FencedError: Another driver has taken the stream over.
        """
        targets, made = self._stream.targets, 0
        for number in range(_MOST_RUNS):
            if self._settled or self._in_vain:
                self._forget()
            seen = {name: target.seen() for name, target in targets.items()}
            results = tasks(number == 0 and self._surveys())
            try:
                verdict = self._decide(results.needs, batch, may_change=made < ROUNDS)
            except BaseException:
                drop_files(results, targets, keep=frozenset())
                raise
            again = verdict is not None and (self._refuse(verdict) or self._differs(seen))
            if not again and not results.undecided:
                return seen, results
            if results.undecided and not self._differs(seen):
                self._remember()
                self._in_vain = True
            made += verdict is not None and bool(verdict.changes) and not results.undecided
            drop_files(results, targets, keep=frozenset())
        raise FrazilError(
            f"stream {self._stream.spec.stream}: batch {batch} was run {_MOST_RUNS} times and each time the schema of "
            f"table {self._table.name} had changed meanwhile.",
            fix="let the other writers finish, then start the stream again",
        )

    def run_again(self, tasks: Callable[[bool], TaskResults], schema: Schema) -> tuple[dict[str, Seen], TaskResults]:
        """Run the tasks of a batch whose rows have landed: the table is not changed, and what it lacked stays refused.

        Args:
            tasks: As in `run`, by a plan of what the table was; never as a survey.
            schema: The schema that the table had.

        Returns:
            As `run`.
        """
        stream = self._stream
        before, changes_before = dict(stream.refused), set(stream.refused_changes)
        try:
            while True:
                seen = {name: target.seen() for name, target in stream.targets.items()}
                results = tasks(False)
                if not self._refuse_again(results.needs, schema):
                    return seen, results
                drop_files(results, stream.targets, keep=frozenset())
        finally:
            stream.refused.clear()
            stream.refused.update(before)
            stream.refused_changes = changes_before

    def _refuse_again(self, needs: tuple[RecordNeed, ...], schema: Schema) -> bool:
        """Refuse what the table has not got for these needs; returns whether the decoders have to know."""
        refused = self._stream.refused
        changes = self._refuse_changes(needs)
        if not needs or self._stream.spec.evolution.add != "auto" or EVERY_FIELD in refused:
            return changes
        before, own = len(refused), self._elsewhere
        for each in needs:
            if each.change == "add" and each.path[0] not in own:
                refused.setdefault(field_place(schema, each.path), _LEFT)
        if len(refused) >= MOST_REFUSED:
            refused[EVERY_FIELD] = _TOO_MANY
        return changes or len(refused) > before

    def _refuse_changes(self, changes: Iterable[RecordNeed | RefusedChange]) -> bool:
        """Take note of changes of columns that are not made; returns whether decoders wait for them with texts."""
        policy, known = self._stream.spec.evolution, self._stream.refused_changes
        kinds = {change for change in ("widen", "relax") if policy.answer(change) == "auto"}
        new = {(each.change, each.path) for each in changes if each.change in kinds} - known
        known |= new if policy.clash == "shadow" else set()
        return policy.clash == "shadow" and bool(new)

    @property
    def _elsewhere(self) -> frozenset[str]:
        """The columns that are not from the value."""
        return self._stream.spec.columns_from_elsewhere

    @property
    def _table(self) -> Target:
        return self._stream.targets[self._stream.spec.table.name]

    def _differs(self, seen: dict[str, Seen]) -> bool:
        now, before = self._table.seen(), seen[self._table.name]
        return (now.schema_id, now.decoded) != (before.schema_id, before.decoded)

    @property
    def _columns_now(self) -> tuple[int, str | None]:
        """By what the table's columns, and the decoded ones that it keeps, are known to be others."""
        now = self._table.seen()
        return now.schema_id, now.decoded

    def _surveys(self) -> bool:
        spec = self._stream.spec
        if self._in_vain or not spec.evolution.surveys or not FORMATS[spec.decode.format].surveys:
            return False
        return all(change == "add" for change, _ in self._settled)

    def _forget(self) -> None:
        """Ask anew about what was refused: once the table is another one, or as many columns may come again."""
        if self._columns_now != self._columns or time.monotonic() - self._since > _HOUR_SECONDS:
            self._settled, self._columns, self._since = set(), self._columns_now, time.monotonic()
            self._proposed, self._in_vain = 0, False
            self._stream.refused.clear()
            self._stream.refused_changes.clear()

    def _decide(self, needs: tuple[RecordNeed, ...], batch: int, *, may_change: bool) -> Evolution | None:
        """What becomes of needs, with the change committed and the table read anew; None without needs."""
        if not needs:
            return None
        stream = self._stream
        # What the value has under the name of a column from elsewhere is left out: no change makes room for it.
        own = self._elsewhere
        new = [each for each in needs if (each.change, each.path) not in self._settled and each.path[0] not in own]

        def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[Evolution]:
            found = self._judged(new, metadata)
            if not may_change and found.changes:
                left = tuple(RefusedChange(each.change, each.path, _LEFT, each.at) for each in found.changes if each.at)
                found = replace(found, changes=(), refused=(*found.refused, *left))
            if not found.changes or found.failed:
                return Proposal(found)
            return Proposal(found, self._change(found, metadata, batch))

        if new:
            step("before_schema_commit")
        verdict = self._table.swap(propose, epoch=stream.epoch, check=stream.lease.verify)
        if verdict.failed:
            raise self._stopped(verdict)
        if verdict.changes:
            made = schema_history(self._table.table.metadata.properties)
            log.info("table %s: %s", self._table.name, "; ".join(made[-1].changes) if made else verdict.changes)
            step("after_schema_commit")
        for each in verdict.proposed:
            keep_proposal(stream.folder.store, stream.spec.stream, self._table.name, each)
            self._settle(each.change, each.path)
            self._proposed += each.change == "add"
        return verdict

    def _judged(self, needs: list[RecordNeed], metadata: TableMetadata) -> Evolution:
        spec = self._stream.spec
        schema = evolving_schema(spec, metadata)
        hour_ago_ms = (time.time_ns() // 1_000_000) - int(_HOUR_SECONDS * 1000)
        found = judged(
            needs,
            schema,
            spec.evolution,
            protected=evolving_protected(spec, metadata),
            added_lately=added_since(metadata.properties, hour_ago_ms) + self._proposed,
            json=spec.decode.format == "json",
            maintained=evolving_maintained(spec),
            always={(EXTRA_COLUMN,)} if spec.decode.unknown_fields == "keep" else (),
        )
        found = followed(spec, found, metadata)
        if spec.shapes:
            # The table's columns are those behind the steps, which name them.
            return found
        return replace(
            found,
            changes=with_former_names(found.changes, needs, schema),
            proposed=with_former_names(found.proposed, needs, schema),
            failed=with_former_names(found.failed, needs, schema),
        )

    def _change(self, found: Evolution, metadata: TableMetadata, batch: int) -> ChangeSchema:
        example = min(each.at for each in found.changes if each.at)
        whose = {"epoch": self._stream.epoch, "batch": batch, "example": example}
        return columns_operation(self._stream.spec, metadata, found.changes, **whose)

    def _settle(self, change: Change, path: Path) -> None:
        self._remember()
        self._settled.add((change, path))

    def _remember(self) -> None:
        if not self._settled and not self._in_vain:
            self._columns, self._since = self._columns_now, time.monotonic()

    def _refuse(self, verdict: Evolution) -> bool:
        """Take note of what is refused; returns whether the decoders have to know, so that the tasks run again."""
        schema, refused = evolving_schema(self._stream.spec, self._table.table.metadata), self._stream.refused
        before = len(refused)
        for each in verdict.refused:
            if each.change == "add" and EVERY_FIELD in refused:
                # Keys that are data would be without an end.
                continue
            self._settle(each.change, each.path)
            log.warning("table %s is not changed: %s, as %s would need", self._table.name, each, each.at)
            if each.change == "add":
                refused[field_place(schema, each.path)] = each.why
            if len(refused) == MOST_REFUSED:
                log.warning("table %s: %s; each record with a new field fails", self._table.name, _TOO_MANY)
                refused[EVERY_FIELD] = _TOO_MANY
        return self._refuse_changes(verdict.refused) or len(refused) > before

    def _stopped(self, verdict: Evolution) -> SchemaChangeError:
        stream, first = self._stream.spec.stream, verdict.failed[0]
        others = f" and {len(verdict.failed) - 1} more" if len(verdict.failed) > 1 else ""
        return SchemaChangeError(
            f"stream {stream}: the record at {first.at} needs a change of table {self._table.name}: "
            f"{first.told}{others}; evolve.{first.change} is fail. Nothing of the batch is committed.",
            fix=f"alter the table, or set evolve.{first.change} in streams/{stream}.yaml; then frazil run {stream}",
        )
