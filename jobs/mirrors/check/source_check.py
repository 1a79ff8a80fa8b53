"""Check of a mirror against its source: counts and digests by leaf of keys, then each key that differs.

Both sides go on while they are compared, so a key that differs may only be a change on its way. Such keys are looked at
again whenever the mirror was merged, the mirror first and then the source, until they agree, are certainly wrong, or
time is up.
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
from jobs.mirrors.check.compared_columns import (
    ComparedColumn,
    compared_columns,
    postgresql_digests,
    spark_digests,
)
from jobs.mirrors.check.compared_rows import (
    Key,
    Leaves,
    MirrorRow,
    MirrorRows,
    SourcePlace,
    SourceRow,
    SourceTable,
    refuse_unknown_source,
    source_table,
)
from jobs.mirrors.check.consistency import BUCKETS, EXAMPLES, stamped_mirror
from jobs.mirrors.check.source_report import SourceConsistency, WrongKey
from jobs.mirrors.fold.merge_sql import table_path
from jobs.mirrors.fold.merging_session import interruptible_jobs, merging_session
from jobs.mirrors.model.merge_plan import DELETED_COLUMN, ORDER_COLUMN
from jobs.mirrors.model.mirror_stamp import MirrorStamp, source_position
from jobs.streaming.supervision.documents.waiting import wait_until_deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 60.0
MOST_ROWS = 500_000
"""So many rows of leaves that differ are looked at one by one."""
_POLL_SECONDS = 1.0
_POSTGRESQL = "postgresql/"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MirrorPlace:
    """How far a mirror has come in its source's log; None where it is not known.

    Attributes:
        reached: The mirror has all that was committed through this place.
        greatest: No change that it has begins behind this place; their transactions may end behind it.
    """

    reached: int | None
    greatest: int | None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Key with different rows in mirror and source.

    Attributes:
        key: The texts of its columns.
        what: `missing` in the mirror, `extra` there, or `different`.
        columns: The places of the columns that differ, if both sides have the row.
    """

    key: Key
    what: str
    columns: tuple[int, ...] = ()


class Disagreements:
    """Keys that differ, and what is known of each.

    A key is wrong if the mirror has come past the place at which the source was first seen to differ, and the source's
    row is the same as then, or the mirror's, where the source has none. That holds if the source shows all that the
    mirror had. A standby may not, so nothing there is certain.

    Attributes:
        wrong: Keys that are certainly wrong.
        pending: Keys that have differed at every look, while changes may be on their way.
        suspects: How many keys differed at the first look.
        behind: Whether the source showed less than the mirror had at the last look: a standby that lags, or another
            database.
    """

    def __init__(self) -> None:
        self.wrong: dict[Key, Disagreement] = {}
        self.pending: dict[Key, Disagreement] = {}
        self.suspects: int | None = None
        self.behind: bool = False
        # By key: the version of the source's row, or the mirror's row where it has none, and from which place on.
        self._since: dict[Key, tuple[object, int]] = {}

    def look(
        self,
        ours: MirrorPlace,
        theirs: SourcePlace,
        mirror: Mapping[Key, MirrorRow],
        source: Mapping[Key, SourceRow],
    ) -> None:
        """Take in one more look.

        Args:
            ours: How far the mirror had come.
            theirs: What the source shows.
            mirror: Rows of the mirror, at least all that differ.
            source: Rows of the source, likewise, looked at after the mirror's.
        """
        self.behind = ours.greatest is not None and theirs.through < ours.greatest
        for key in list(self.pending) if self.suspects is not None else sorted(mirror.keys() | source.keys()):
            have, there = mirror.get(key), source.get(key)
            if _agree(have, there):
                self.pending.pop(key, None)
                continue
            self.pending[key] = found = _disagreement(key, have, there)
            if self.behind or theirs.standby or ours.reached is None:
                self._since.pop(key, None)
                continue
            seen = there.version if there is not None else have
            known, before = self._since.get(key, (None, 0))
            if known != seen:
                self._since[key] = seen, theirs.before
            elif ours.reached >= before:
                self.wrong[key] = found
                del self.pending[key]
        if self.suspects is None:
            self.suspects = len(self.pending)


def check_source(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    spark: Callable[[], SparkSession],
    buckets: Collection[int] | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> SourceConsistency | None:
    """Compare a mirror with its source; None before its first merge, and if its file names no source.

    Args:
        spark: Gives a session for SQL; asked if there is something to compare.
        buckets: Buckets that are compared; None: all.
        wait_seconds: How long keys that differ are looked at again, as the mirror goes on.

    Raises:
        RolledBackError: The mirror was moved back to before its newest merge.
        FrazilError: The source does not answer, or has no such table, or another key.
    """
    if mirror.source is None:
        return None
    refuse_unknown_source(spec.stream, mirror.source.connection, settings)
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
            position = now.place.before
        state, deadline = Disagreements(), time.monotonic() + wait_seconds
        while leaves:
            mine, its = self._asked(lambda mirror=mirror: mirror.rows(leaves)), dict[Key, SourceRow]()
            with self._source() as now:
                for each, row in now.rows(digests, leaves):
                    if _agree(mine.get(each), row):
                        del mine[each]
                    else:
                        its[each] = row
                state.look(mirror_place(stamp, self.spec.stream), now.place, mine, its)
            if not state.pending or not self._moved_on(mirror.snapshot_id, deadline):
                break
            newest = stamped_mirror(self.spec, self.mirror, self.catalog)
            if newest is None:
                break
            table, stamp = newest
            mirror = mirror_rows(table)
        pending = list(state.pending.values())
        return SourceConsistency(
            self.mirror.table,
            f"{self.source.connection}, table {self.source_table}",
            BUCKETS if buckets is None else len(buckets),
            sum(rows for rows, _ in theirs.values()),
            sum(rows for rows, _ in ours.values()),
            position,
            mirror_place(stamp, self.spec.stream).reached,
            state.behind,
            Counter(each.what for each in state.wrong.values()),
            Counter(each.what for each in pending),
            state.suspects or 0,
            unread,
            tuple(_example(key, columns, each, state) for each in [*state.wrong.values(), *pending][:EXAMPLES]),
            tuple(each.name for each in (*key, *columns)),
            left_out,
        )

    def _moved_on(self, snapshot_id: int, deadline: float) -> bool:
        """Wait until the mirror has another snapshot; False if it has none in time, or time is up."""

        def moved() -> bool:
            head = self.catalog.load_table(self.mirror.table).current_snapshot()
            return head is not None and head.snapshot_id != snapshot_id

        return wait_until_deadline(moved, deadline, _POLL_SECONDS)

    def _columns(
        self, now: SourceTable, table: Table, stamp: MirrorStamp
    ) -> tuple[tuple[ComparedColumn, ...], tuple[ComparedColumn, ...], tuple[tuple[str, str], ...]]:
        """The columns of the key, all others that are compared, and those that are not."""
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
        return source_table(self.source.connection, settings, self.source_table, self.source.where)

    def _asked(self, call: Callable[[], T]) -> T:
        return interruptible_jobs(self.spark, "source", call)


def mirror_place(stamp: MirrorStamp, stream: str) -> MirrorPlace:
    """How far a mirror has come in its source's log."""
    where = source_position(stamp, stream)
    if where is None or not (where.lineage or "").startswith(_POSTGRESQL):
        return MirrorPlace(None, None)
    # Its first part is the end of the transaction before the change: what was committed up to there came before it.
    reached, *_ = _numbers(where.position)
    known = [each.position for each in stamp.state.partitions.values() if each.position is not None]
    return MirrorPlace(reached, max(number for each in known for number in _numbers(each)))


def _numbers(position: str) -> list[int]:
    return [int(each, 16) for each in position.split("/") if each]


def _table_of_topics(spec: StreamSpec, mirror: Mirror, stamp: MirrorStamp) -> str:
    """The table that Debezium names a topic for: the last two parts of its name."""
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
    """The leaves that differ and are looked at row by row, and the rows of those that are too many."""
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


def _agree(have: MirrorRow | None, there: SourceRow | None) -> bool:
    if have is None or there is None:
        return have is None and there is None
    return have.count == 1 and have.columns == there.columns


def _disagreement(key: Key, have: MirrorRow | None, there: SourceRow | None) -> Disagreement:
    if have is None:
        return Disagreement(key, "missing")
    if there is None or have.count > 1:
        return Disagreement(key, "extra")
    pairs = zip(have.columns.split(","), there.columns.split(","), strict=True)
    return Disagreement(key, "different", tuple(at for at, (mine, its) in enumerate(pairs) if mine != its))


def _example(
    key: tuple[ComparedColumn, ...], columns: tuple[ComparedColumn, ...], found: Disagreement, state: Disagreements
) -> WrongKey:
    values = {each.name: each.kind.shown(text) for each, text in zip(key, found.key, strict=True)}
    return WrongKey(found.what, values, tuple(columns[at].name for at in found.columns), found.key in state.wrong)
