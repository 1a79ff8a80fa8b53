"""Rows of suspended tables in an audit: dead letters that wait, or have waited, for such a table.

By the ledger the records landed, which is true for their other tables. A suspended table lacks as many rows as its
placeholder's stamps count dead letters. A replayed dead letter has a row in the table. No record has two rows there
unless it was read twice: after a reset of offsets it lands beside the row of the replay.
"""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table

from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import DEAD_LETTER_COORDINATES
from jobs.proof.audit.audit_ranges import OffsetRanges, ranges_overlap, slice_of_range
from jobs.proof.audit.audit_result import AuditProblem
from jobs.proof.audit.audited_tables import AuditedTable
from jobs.tables.commit.history.parked_places import (
    lost_letters,
    parked_id,
    parked_places,
    told_lost,
)
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.parked_letters import TARGET, of_parked
from jobs.tables.dead_letter_table.retention import EXPIRED_BEFORE
from jobs.tables.ledger.ledger_row import LedgerRow, effective_rows
from jobs.tables.ledger.row_counter import RowCounter

_WINDOW = 4_000_000
_NO_OFFSETS = np.zeros(0, np.int64)


@dataclass(slots=True)
class ParkedLetters:
    """Dead letters of one table that is or was suspended.

    Attributes:
        states: Number in each state; null counts as `new`.
        of: Offsets of all dead letters, ascending, by partition; repeated if a record was read repeatedly.
        back: Offsets of those whose row a replay has landed, likewise.
    """

    states: dict[str, int] = field(default_factory=dict)
    of: dict[TopicPartition, np.ndarray] = field(default_factory=dict)
    back: dict[TopicPartition, np.ndarray] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Number of dead letters."""
        return sum(self.states.values())

    @property
    def waiting(self) -> int:
        """Number that have not come back and were not dismissed."""
        return sum(count for state, count in self.states.items() if state not in ("replayed", "dismissed"))


def parked_letters(letters: Table, stream: str, table: str, since: datetime | None = None) -> ParkedLetters:
    """Dead letters that wait, or have waited, for a table.

    Args:
        since: Limits replayed ones to those replayed since then.
    """
    found, of, back = ParkedLetters(), dict[TopicPartition, list[int]](), dict[TopicPartition, list[int]]()
    columns = letters.schema().column_names
    if TARGET not in columns:
        return found
    wanted = And(EqualTo("stream", stream), of_parked(letters.schema()), EqualTo(TARGET, table))
    fields = (*DEAD_LETTER_COORDINATES, "state", "state_at", "replay_snapshot_id")
    for batch in letters.scan(row_filter=wanted, selected_fields=fields).to_arrow_batch_reader():
        for topic, partition, offset, state, at, snapshot in zip(
            *(batch.column(name).to_pylist() for name in fields), strict=True
        ):
            found.states[state or "new"] = found.states.get(state or "new", 0) + 1
            place = TopicPartition(topic, partition)
            of.setdefault(place, []).append(offset)
            if state == "replayed" and snapshot is not None and (since is None or (at is not None and at >= since)):
                back.setdefault(place, []).append(offset)
    found.of = {place: np.sort(np.array(offsets, np.int64)) for place, offsets in of.items()}
    found.back = {place: np.sort(np.array(offsets, np.int64)) for place, offsets in back.items()}
    return found


class ParkedRows:
    """Compares dead letters of suspended tables with their stamps and with the rows that came back.

    Args:
        letters: The dead-letter table; None if it does not exist.
        newest: The coordinator's newest stamp.
        audited: The audited tables.
        ledger: Returns all ledger rows of a table, by its name.
    """

    def __init__(
        self,
        spec: StreamSpec,
        letters: Table | None,
        newest: Stamp | None,
        audited: list[AuditedTable],
        ledger: Callable[[str], list[LedgerRow]],
    ) -> None:
        self._spec: StreamSpec = spec
        self._letters: Table | None = letters
        self._newest: Stamp | None = newest
        self._parked: Mapping[str, int] = newest.parked if newest else {}
        self._audited: dict[str, AuditedTable] = {each.name: each for each in audited}
        self._ledger: Callable[[str], list[LedgerRow]] = ledger
        self._batches: dict[str, list[LedgerRow]] = {}
        self._places: dict[str, Stamp] = parked_places(letters.metadata, spec.stream) if letters is not None else {}
        self._known: dict[str, ParkedLetters] = {}
        self.notes: list[str] = []

    @property
    def any(self) -> bool:
        """Whether any table ever had a placeholder."""
        return bool(self._parked or self._places)

    def _found(self, name: str) -> ParkedLetters:
        assert self._letters is not None, "it has its placeholders"
        if name not in self._known:
            first = _first_kept(self._audited.get(name))
            self._known[name] = parked_letters(self._letters, self._spec.stream, name, first)
        return self._known[name]

    def of_batches(self, name: str, ranges: Sequence[PartitionRange], counted: list[np.ndarray]) -> list[np.ndarray]:
        """Number of rows at each offset without those of replays, for offsets that were read twice.

        The ledger has only the other rows.

        Args:
            counted: Number of all rows at each offset.
        """
        if name not in self._places:
            return counted
        back = self._found(name).back
        for (place, range_), counts in zip(ranges, counted, strict=True):
            came = _within(back.get(place, _NO_OFFSETS), range_) - range_.start
            if len(came := came[counts[came] > 1]):
                counts[came[self._reads(self._spec.coordinator, place, range_)[came] > 1]] -= 1
        return counted

    def _reads(self, name: str, place: TopicPartition, range_: OffsetRange, uuid: str | None = None) -> np.ndarray:
        """Number of times that batches have read each offset of a range for a table, by the whole ledger."""
        if name not in self._batches:
            rows = effective_rows(self._ledger(name))
            self._batches[name] = [row for row in rows if row.kind in ("batch", "unknown")]
        reads = np.zeros(range_.end - range_.start, np.int16)
        for row in self._batches[name]:
            if row.partition == place and uuid in (None, row.table_uuid) and ranges_overlap(row.range, range_):
                reads[slice_of_range(row.range, range_.start)] += 1
        return reads

    def problems(self) -> Iterator[AuditProblem]:
        """Problems; notes follow."""
        for name, stamp in self._places.items():
            assert self._letters is not None, "it has its placeholders"
            each = self._audited.get(name)
            found = self._found(name)
            yield from self._of_letters(name, stamp.totals.read, found)
            if each is not None and each.table is not None and each.facts.method == "rows":
                yield from self._of_rows(each, found)
            self._note(name, found)
        yield from self._of_lost()

    def _of_rows(self, audited: AuditedTable, found: ParkedLetters) -> Iterator[AuditProblem]:
        """Problems of a table's rows at the offsets of its dead letters.

        A record that was read again may have a row of each reading, so a surplus cannot be determined.
        """
        table, name = audited.table, audited.name
        assert table is not None, "its rows are counted"
        counter = RowCounter(table, audited.columns)
        for place, offsets in sorted(found.of.items()):
            back = found.back.get(place, _NO_OFFSETS)
            for start in range(int(offsets[0]), int(offsets[-1]) + 1, _WINDOW):
                range_ = OffsetRange(start, min(start + _WINDOW, int(offsets[-1]) + 1))
                (rows,) = counter.count([PartitionRange(place, range_)])
                mine, came = _within(offsets, range_), _within(back, range_)
                twice = mine[rows[mine - start] > 1]
                if len(twice):
                    landed = self._reads(name, place, range_, str(table.metadata.table_uuid))
                    both = landed.copy()
                    both[came - start] += 1
                    reads = self._reads(self._spec.coordinator, place, range_)
                    allowed = np.maximum(landed, np.minimum(both, reads))
                    twice = twice[rows[twice - start] > np.maximum(allowed, 1)[twice - start]]
                lacks = came[(rows[came - start] == 0) & (came >= audited.begins.get(place, 0))]
                said = f"{len(twice):,} records that have waited for table {name} are there more than once"
                yield from _problem("doubled", name, place, range_, twice, said)
                said = f"{len(lacks):,} rows that replays brought back are not there"
                yield from _problem("missing", name, place, range_, lacks, said)

    def _of_lost(self) -> Iterator[AuditProblem]:
        """Dead letters that the coordinator counts and that are missing after a drop or rollback of their table."""
        if self._newest is None or not (lost := lost_letters(self._newest, self._places)):
            return
        for (name, count), said in zip(lost.items(), told_lost(self._newest, lost), strict=True):
            if self._left_out(name):
                self.notes.append(f"{said}. An operator has answered to leave them out")
            else:
                dead = self._spec.dead_letter_table
                yield AuditProblem("dead_letters", dead, None, None, count, said, exact=False, surplus=False)

    def _left_out(self, name: str) -> bool:
        """Whether an operator has answered that a table's dead letters stay out after a rollback."""
        if self._letters is None:
            return False
        kept = stamps_along_main(self._letters.metadata, parked_id(self._spec.stream, name))
        return any(each.decision and each.decision.answer == "rollback_keep" for _, each in kept)

    def _of_letters(self, name: str, stamped: int, found: ParkedLetters) -> Iterator[AuditProblem]:
        assert self._letters is not None, "it has its placeholders"
        if found.total == stamped or self._letters.metadata.properties.get(EXPIRED_BEFORE):
            return
        said = f"{found.total:,} of the {stamped:,} dead letters that were written for suspended table {name} exist"
        off, more = abs(found.total - stamped), found.total > stamped
        yield AuditProblem(
            "dead_letters", self._spec.dead_letter_table, None, None, off, said, exact=False, surplus=more
        )

    def _note(self, name: str, found: ParkedLetters) -> None:
        if name in self._parked:
            since = datetime.fromtimestamp(self._parked[name] / 1000, UTC)
            self.notes.append(
                f"table {name} is suspended since {since:%Y-%m-%d %H:%M} UTC: {found.waiting:,} dead letters "
                "wait for it"
            )
        elif found.waiting:
            self.notes.append(
                f"{found.waiting:,} dead letters wait from when table {name} was suspended: frazil replay "
                f"{self._spec.stream} brings them back"
            )


def _first_kept(audited: AuditedTable | None) -> datetime | None:
    """Commit time of the oldest existing snapshot; a former table of its name has what came back before."""
    table = audited.table if audited is not None else None
    if table is None or not table.metadata.snapshots:
        return None
    return datetime.fromtimestamp(min(each.timestamp_ms for each in table.metadata.snapshots) / 1000, UTC)


def _within(offsets: np.ndarray, range_: OffsetRange) -> np.ndarray:
    """Offsets within a range, each once."""
    return np.unique(offsets[(offsets >= range_.start) & (offsets < range_.end)])


def _problem(
    kind, table: str, partition: TopicPartition, range_: OffsetRange, offsets: np.ndarray, said: str
) -> Iterator[AuditProblem]:
    if not len(offsets):
        return
    where = OffsetRanges()
    where.add(offsets - range_.start, range_.start)
    yield AuditProblem(
        kind, table, partition, range_, len(offsets), said, tuple(where.kept), not where.more, where.more
    )
