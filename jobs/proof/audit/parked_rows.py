"""Parked rows, as an audit counts them: letters that wait, or have waited, for a table that was parked.

The ledger says that the records landed, which is so of their other tables. What a parked table did not get is as many
letters as the stamps of its place say. Of one that was brought back a row stands in the table, and no record of any of
them stands there twice, unless it was read twice: behind a reset of offsets it lands beside the row of the replay.
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
    """The letters of one table that is, or was, parked.

    Attributes:
        states: How many are in each state; null counts as `new`.
        of: Offsets of all, ascending, by partition; those of several readings of a record as often.
        back: Offsets of those whose row a replay has landed, likewise.
    """

    states: dict[str, int] = field(default_factory=dict)
    of: dict[TopicPartition, np.ndarray] = field(default_factory=dict)
    back: dict[TopicPartition, np.ndarray] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.states.values())

    @property
    def waiting(self) -> int:
        """How many have not come back, and were not dismissed."""
        return sum(count for state, count in self.states.items() if state not in ("replayed", "dismissed"))


def parked_letters(letters: Table, stream: str, table: str, since: datetime | None = None) -> ParkedLetters:
    """The letters that wait, or have waited, for a table.

    Args:
        since: Of those that a replay has brought back only the ones that it did since then.
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
    """Holds the letters of parked tables against what was stamped, and against the rows that came back.

    Args:
        letters: Its dead letters; None if there is no such table.
        newest: The coordinator's newest stamp.
        audited: The tables whose rows are looked at.
        ledger: Gives all rows of the ledger of a table, by its name.
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
        """Whether letters have held the place of any table."""
        return bool(self._parked or self._places)

    def _found(self, name: str) -> ParkedLetters:
        assert self._letters is not None, "its places are told by it"
        if name not in self._known:
            first = _first_kept(self._audited.get(name))
            self._known[name] = parked_letters(self._letters, self._spec.stream, name, first)
        return self._known[name]

    def of_batches(self, name: str, ranges: Sequence[PartitionRange], counted: list[np.ndarray]) -> list[np.ndarray]:
        """How often each offset stands in a table without the rows that replays of its letters brought, of offsets that
        were read twice: the ledger tells of the other row alone.

        Args:
            counted: How often each of them stands there.
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
        """How often batches have read each offset of a range for a table, by all of the ledger."""
        if name not in self._batches:
            rows = effective_rows(self._ledger(name))
            self._batches[name] = [row for row in rows if row.kind in ("batch", "unknown")]
        reads = np.zeros(range_.end - range_.start, np.int16)
        for row in self._batches[name]:
            if row.partition == place and uuid in (None, row.table_uuid) and ranges_overlap(row.range, range_):
                reads[slice_of_range(row.range, range_.start)] += 1
        return reads

    def problems(self) -> Iterator[AuditProblem]:
        """What is wrong; notes follow."""
        for name, stamp in self._places.items():
            assert self._letters is not None, "its places are told by it"
            each = self._audited.get(name)
            found = self._found(name)
            yield from self._of_letters(name, stamp.totals.read, found)
            if each is not None and each.table is not None and each.facts.method == "rows":
                yield from self._of_rows(each, found)
            self._note(name, found)
        yield from self._of_lost()

    def _of_rows(self, audited: AuditedTable, found: ParkedLetters) -> Iterator[AuditProblem]:
        """What is wrong with the rows of a table at the offsets of its letters.

        A record that was read again may have a row of each reading, so nobody can say that it stands there too often.
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
                said = f"{len(twice):,} records that have waited for table {name} stand there more than once"
                yield from _problem("doubled", name, place, range_, twice, said)
                said = f"{len(lacks):,} rows that replays brought back are not there"
                yield from _problem("missing", name, place, range_, lacks, said)

    def _of_lost(self) -> Iterator[AuditProblem]:
        """Letters that the coordinator counts, and that went with dead letters which were dropped or rolled back."""
        if self._newest is None or not (lost := lost_letters(self._newest, self._places)):
            return
        for (name, count), said in zip(lost.items(), told_lost(self._newest, lost), strict=True):
            if self._left_out(name):
                self.notes.append(f"{said}. An operator has answered to leave them out")
            else:
                dead = self._spec.dead_letter_table
                yield AuditProblem("dead_letters", dead, None, None, count, said, exact=False, surplus=False)

    def _left_out(self, name: str) -> bool:
        """Whether an operator has answered to a rollback that a table's letters stay out."""
        if self._letters is None:
            return False
        kept = stamps_along_main(self._letters.metadata, parked_id(self._spec.stream, name))
        return any(each.decision and each.decision.answer == "rollback_keep" for _, each in kept)

    def _of_letters(self, name: str, stamped: int, found: ParkedLetters) -> Iterator[AuditProblem]:
        assert self._letters is not None, "its places are told by it"
        if found.total == stamped or self._letters.metadata.properties.get(EXPIRED_BEFORE):
            return
        said = f"{found.total:,} dead letters are there of the {stamped:,} that were written for table {name}, parked"
        off, more = abs(found.total - stamped), found.total > stamped
        yield AuditProblem(
            "dead_letters", self._spec.dead_letter_table, None, None, off, said, exact=False, surplus=more
        )

    def _note(self, name: str, found: ParkedLetters) -> None:
        if name in self._parked:
            since = datetime.fromtimestamp(self._parked[name] / 1000, UTC)
            self.notes.append(
                f"table {name} is parked since {since:%Y-%m-%d %H:%M} UTC: {found.waiting:,} dead letters wait for it"
            )
        elif found.waiting:
            self.notes.append(
                f"{found.waiting:,} dead letters of when table {name} was parked wait: frazil replay "
                f"{self._spec.stream} brings them back"
            )


def _first_kept(audited: AuditedTable | None) -> datetime | None:
    """When the oldest snapshot of a table was made that is kept: a former one of its name had what came back before."""
    table = audited.table if audited is not None else None
    if table is None or not table.metadata.snapshots:
        return None
    return datetime.fromtimestamp(min(each.timestamp_ms for each in table.metadata.snapshots) / 1000, UTC)


def _within(offsets: np.ndarray, range_: OffsetRange) -> np.ndarray:
    """Those of a range, each once."""
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
