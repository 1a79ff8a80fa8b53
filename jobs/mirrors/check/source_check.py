"""Check of a mirror against its source: counts and digests by leaf of keys, then the rows of leaves that differ.

Both sides change while they are compared, so a difference may be a change that is not merged yet. Keys that differ are
compared again when the mirror has reached the log position at which the source was read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror, MirrorSource
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.check import compared_rows
from jobs.mirrors.check.compared_columns import (
    ComparedColumn,
    RowDigests,
    compared_columns,
    postgresql_digests,
    spark_digests,
)
from jobs.mirrors.check.compared_rows import Key, Leaves, MirrorRow, MirrorRows, SourceRow, SourceTable
from jobs.mirrors.check.consistency import BUCKETS, EXAMPLES, stamped_mirror
from jobs.mirrors.check.source_report import SourceConsistency, WrongKey, lsn
from jobs.mirrors.fold.merge_sql import table_path
from jobs.mirrors.fold.merging_session import interruptible_jobs, merging_session
from jobs.mirrors.model.merge_plan import DELETED_COLUMN, ORDER_COLUMN
from jobs.mirrors.model.mirror_stamp import MirrorStamp, source_position
from jobs.streaming.supervision.documents.waiting import wait_until_deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 60.0
MOST_ROWS = 500_000
"""Limit of rows, in leaves that differ, that are compared one by one."""
_POLL_SECONDS = 1.0
_POSTGRESQL = "postgresql/"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MirrorPlace:
    """Progress of a mirror in its source's log; None if unknown.

    Attributes:
        reached: Log position through which the mirror has all commits.
        greatest: Greatest log position of the mirror's changes; their transactions may end behind it.
    """

    reached: int | None
    greatest: int | None


@dataclass(frozen=True, slots=True)
class Look:
    """Rows that differ in one comparison; the mirror is read first, then the source.

    Attributes:
        mirror, source: Rows that differ, by key. A key without a row on one side has one on the other.
        before: Log position of the source. All rows that it showed were committed before it.
    """

    mirror: Mapping[Key, MirrorRow]
    source: Mapping[Key, SourceRow]
    before: int

    @property
    def keys(self) -> list[Key]:
        """Keys that differ, in order."""
        return sorted(self.mirror.keys() | self.source.keys())


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Key with different rows in mirror and source.

    Attributes:
        key: Texts of the key's columns.
        what: `missing` in the mirror, `extra` there, or `different`.
        columns: Indices of the columns that differ, if both sides have the row.
        certain: True if no change that is still to be merged can be the reason.
    """

    key: Key
    what: str
    columns: tuple[int, ...] = ()
    certain: bool = False


def disagreements(first: Look, second: Look, reached: int | None) -> list[Disagreement]:
    """Return the keys that differ in both comparisons.

    A key is certainly wrong if the mirror has reached the log position of the first comparison, and the row has not
    changed since: the source's row has the same version, or the source has no row and the mirror's is the same.

    Args:
        reached: Log position through which the mirror had all commits in the second comparison; None if unknown.
    """
    found: list[Disagreement] = []
    for key in first.keys:
        have, there = second.mirror.get(key), second.source.get(key)
        if have is None and there is None:
            continue
        before = first.source.get(key)
        if there is None:
            same = before is None and first.mirror.get(key) == have
        else:
            same = before is not None and before.version == there.version
        found.append(_disagreement(key, have, there, certain=same and reached is not None and reached >= first.before))
    return found


def check_source(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    spark: Callable[[], SparkSession],
    buckets: Collection[int] | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> SourceConsistency | None:
    """Compare a mirror with its source; None before its first merge, or if its file names no source.

    Args:
        spark: Returns a session for SQL; called only if there is something to compare.
        buckets: Buckets to compare; None for all.
        wait_seconds: If keys differ, how long to wait for the mirror to reach the log position of the source.

    Raises:
        RolledBackError: The mirror was rolled back to before its newest merge.
        FrazilError: The source does not answer, or has no such table, or another key.
    """
    if mirror.source is None:
        return None
    compared_rows.refuse_unknown_source(spec.stream, mirror.source.connection, settings)
    found = stamped_mirror(spec, mirror, catalog)
    if found is None:
        return None
    table, stamp = found
    named = mirror.source.table or _table_of_topics(spec, mirror, stamp)
    work = _SourceCheck(spec, mirror, mirror.source, named, settings, catalog, spark())
    return work.run(table, stamp, None if buckets is None else sorted(buckets), wait_seconds)


@dataclass(frozen=True, slots=True)
class _SourceCheck:
    """One comparison."""

    spec: StreamSpec
    mirror: Mirror
    source: MirrorSource
    source_table: str
    settings: Settings
    catalog: Catalog
    spark: SparkSession

    def run(
        self, table: Table, stamp: MirrorStamp, buckets: Collection[int] | None, wait_seconds: float
    ) -> SourceConsistency:
        with self._source() as now:
            key, columns, left_out = self._columns(now, table, stamp)
        digests = postgresql_digests(key, columns)
        session, path = merging_session(self.spark, self.settings), table_path(self.settings, table)

        def mirror_rows(table: Table) -> MirrorRows:
            head = table.current_snapshot()
            assert head is not None, "it has a merge"
            return MirrorRows(session, path, head.snapshot_id, stamp.deletes == "soft", spark_digests(key, columns))

        mirror = mirror_rows(table)
        ours = self._asked(lambda: mirror.leaves(buckets))
        with self._source() as now:
            theirs = now.leaves(digests, buckets)
            leaves, unread = _to_read(ours, theirs)
            position = now.before
        first = self._look(mirror, stamp, digests, leaves)
        wrong: list[Disagreement] = []
        if first.keys:
            table, stamp = self._when_reached(first.before, table, stamp, time.monotonic() + wait_seconds)
            second = self._look(mirror_rows(table), stamp, digests, leaves)
            wrong = disagreements(first, second, mirror_place(stamp, self.spec.stream).reached)
            wrong.sort(key=lambda each: not each.certain)
        return SourceConsistency(
            self.mirror.table,
            f"{self.source.connection}, table {self.source_table}",
            BUCKETS if buckets is None else len(buckets),
            sum(rows for rows, _ in theirs.values()),
            sum(rows for rows, _ in ours.values()),
            position,
            mirror_place(stamp, self.spec.stream).reached,
            Counter(each.what for each in wrong if each.certain),
            Counter(each.what for each in wrong if not each.certain),
            len(first.keys),
            unread,
            tuple(_example(key, columns, each) for each in wrong[:EXAMPLES]),
            tuple(each.name for each in (*key, *columns)),
            left_out,
        )

    def _look(self, mirror: MirrorRows, stamp: MirrorStamp, digests: RowDigests, leaves: Collection[int]) -> Look:
        """Return the rows of some leaves that differ now.

        Raises:
            FrazilError: The source's log ends before the mirror's changes, so it is another database.
        """
        mine, its = self._asked(lambda: mirror.rows(leaves)) if leaves else {}, dict[Key, SourceRow]()
        with self._source() as now:
            refuse_behind(self.spec.stream, self.mirror.table, self.source.connection, now.before, stamp)
            for key, row in now.rows(digests, leaves) if leaves else ():
                have = mine.get(key)
                if have is not None and have.count == 1 and have.columns == row.columns:
                    del mine[key]
                else:
                    its[key] = row
            return Look(mine, its, now.before)

    def _when_reached(self, place: int, table: Table, stamp: MirrorStamp, deadline: float) -> tuple[Table, MirrorStamp]:
        """Wait until the mirror reaches a log position, or the deadline passes; return its table and newest stamp."""
        newest = table, stamp

        def reached() -> bool:
            nonlocal newest
            newest = stamped_mirror(self.spec, self.mirror, self.catalog) or newest
            at = mirror_place(newest[1], self.spec.stream).reached
            return at is not None and at >= place

        wait_until_deadline(reached, deadline, _POLL_SECONDS)
        return newest

    def _columns(
        self, now: SourceTable, table: Table, stamp: MirrorStamp
    ) -> tuple[tuple[ComparedColumn, ...], tuple[ComparedColumn, ...], tuple[tuple[str, str], ...]]:
        """Return the key's columns, the other compared columns, and the columns left out."""
        names = [each.name for each in table.schema().fields if each.name not in (ORDER_COLUMN, DELETED_COLUMN)]
        compared, left_out = compared_columns(now.columns(), table.schema(), names, self.source.exclude)
        known = {each.name: each for each in compared}
        for name in stamp.key:
            if name not in known:
                why = dict(left_out).get(name, "the mirror has no such column")
                raise FrazilError(
                    f"stream {self.spec.stream}: mirror {self.mirror.table} cannot be compared with source "
                    f"{self.source.connection}, table {self.source_table}, by column {name} of its key: {why}.",
                    fix=f"correct source in mirrors of streams/{self.spec.stream}.yaml",
                )
        key = tuple(known[name] for name in stamp.key)
        return key, tuple(each for each in compared if each.name not in stamp.key), left_out

    def _source(self) -> AbstractContextManager[SourceTable]:
        settings = self.settings.sources[self.source.connection]
        return compared_rows.source_table(self.source.connection, settings, self.source_table, self.source.where)

    def _asked(self, call: Callable[[], T]) -> T:
        return interruptible_jobs(self.spark, "source", call)


def refuse_behind(stream: str, mirror: str, source: str, before: int, stamp: MirrorStamp) -> None:
    """Refuse a source whose log ends before the mirror's changes.

    Args:
        source: Name of the source in the settings.
        before: Log position of the source. All rows that it shows were committed before it.
        stamp: Stamp of the mirror, read before the source.

    Raises:
        FrazilError: The mirror has changes behind `before`.
    """
    greatest = mirror_place(stamp, stream).greatest
    if greatest is not None and before < greatest:
        raise FrazilError(
            f"stream {stream}: source {source} has come to {lsn(before)} of its log, and mirror {mirror} has changes "
            f"up to {lsn(greatest)}. It is another database, or it was restored.",
            fix=f"name the mirror's source in sources.{source}.url of frazil.yaml",
        )


def mirror_place(stamp: MirrorStamp, stream: str) -> MirrorPlace:
    """Return the progress of a mirror in its source's log."""
    where = source_position(stamp, stream)
    if where is None or not (where.lineage or "").startswith(_POSTGRESQL):
        return MirrorPlace(None, None)
    # The position's first part is the end of the transaction before the change: all commits up to there came before.
    reached, *_ = _numbers(where.position)
    known = [each.position for each in stamp.state.partitions.values() if each.position is not None]
    return MirrorPlace(reached, max(number for each in known for number in _numbers(each)))


def _numbers(position: str) -> list[int]:
    return [int(each, 16) for each in position.split("/") if each]


def _table_of_topics(spec: StreamSpec, mirror: Mirror, stamp: MirrorStamp) -> str:
    """Return the table in the name of Debezium's topic: the last two parts."""
    topics = sorted({each.topic for each in stamp.state.partitions})
    parts = topics[0].split(".") if len(topics) == 1 else []
    if len(parts) < 3:
        raise FrazilError(
            f"stream {spec.stream}: {'topics' if len(topics) > 1 else 'topic'} {', '.join(topics) or '(none yet)'} "
            f"name no table that mirror {mirror.table} could be compared with.",
            fix=f"write source: {{table: SCHEMA.TABLE}} into mirrors of streams/{spec.stream}.yaml",
        )
    return ".".join(parts[-2:])


def _to_read(ours: Leaves, theirs: Leaves) -> tuple[list[int], int]:
    """Return the leaves to compare row by row, and the number of rows in further leaves that differ."""
    read: list[int] = []
    rows = unread = 0
    for leaf in sorted(each for each in ours.keys() | theirs.keys() if ours.get(each) != theirs.get(each)):
        count = max(ours.get(leaf, (0, 0))[0], theirs.get(leaf, (0, 0))[0])
        if read and rows + count > MOST_ROWS:
            unread += count
            continue
        rows += count
        read.append(leaf)
    return read, unread


def _disagreement(key: Key, have: MirrorRow | None, there: SourceRow | None, *, certain: bool) -> Disagreement:
    if have is None:
        return Disagreement(key, "missing", certain=certain)
    if there is None or have.count > 1:
        return Disagreement(key, "extra", certain=certain)
    pairs = zip(have.columns.split(","), there.columns.split(","), strict=True)
    differ = tuple(at for at, (mine, its) in enumerate(pairs) if mine != its)
    return Disagreement(key, "different", differ, certain)


def _example(key: tuple[ComparedColumn, ...], columns: tuple[ComparedColumn, ...], found: Disagreement) -> WrongKey:
    values = {each.name: each.kind.shown(text) for each, text in zip(key, found.key, strict=True)}
    return WrongKey(found.what, values, tuple(columns[at].name for at in found.columns), found.certain)
