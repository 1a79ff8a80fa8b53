"""Check of a mirror against its source itself: counts and digests by bucket of keys, and each key that disagrees.

The source is read as it was at one moment, the mirror as its newest merge left it. What disagrees then may be changes
on their way, so those keys are looked at again until it is certain (`disagreements`), or time is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.errors import FrazilError
from jobs.mirror.compared_columns import ComparedColumn, compared_columns
from jobs.mirror.consistency import BUCKETS, EXAMPLES, stamped_mirror
from jobs.mirror.disagreements import Disagreement, Disagreements
from jobs.mirror.merge_plan import DELETED_COLUMN, ORDER_COLUMN
from jobs.mirror.merge_sql import table_path
from jobs.mirror.merging_session import interruptible_jobs, merging_session
from jobs.mirror.mirror_digests import MirrorLook
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.mirror.source_connection import source_look, source_settings
from jobs.mirror.source_consistency import SourceConsistency, WrongKey
from jobs.mirror.source_place import MirrorPlace, databases_of, place_of
from jobs.mirror.source_rows import Leaves, SourceLook
from jobs.spec.mirror import Mirror, MirrorSource
from jobs.spec.models import StreamSpec
from jobs.spec.settings import SETTINGS_FILE, Settings
from jobs.supervise.waiting import wait_until_deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 60.0
MOST_ROWS = 2_000_000
"""So many rows of leaves that disagree are looked at one by one."""
MOST_KEYS = 10_000
"""So many keys that disagree are looked at again."""
_POLL_SECONDS = 1.0
T = TypeVar("T")


def check_source(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    spark: Callable[[], SparkSession],
    buckets: Collection[int] | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> SourceConsistency | None:
    """Compare a mirror with its source; None before its first merge, and of one whose file names no source.

    Args:
        spark: Gives a session for SQL; asked if there is something to compare.
        buckets: Those that are looked at; None: all.
        wait_seconds: How long keys that disagree are looked at again, as the mirror goes on.

    Raises:
        RolledBackError: The mirror was moved back to before its newest merge.
        FrazilError: The source does not answer, or has no such table, or another key.
    """
    if mirror.source is None:
        return None
    source_settings(spec.stream, mirror.source.connection, settings.sources)
    found = stamped_mirror(spec, mirror, catalog)
    if found is None:
        return None
    table, stamp = found
    named = mirror.source.table or _table_of_topics(spec, mirror, stamp)
    return _SourceCheck(spec, mirror, mirror.source, named, settings, catalog, spark()).run(
        table, stamp, buckets, wait_seconds
    )


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
        part = None if buckets is None else sorted(buckets)
        with self._source() as now:
            self._refuse_another_database(now.database, stamp)
            key, columns, left_out = self._columns(now, table, stamp)
        mirror = self._mirror(table, stamp, key, columns)
        ours = self._asked(lambda: mirror.leaves(part))
        with self._source() as now:
            theirs = now.leaves(key, columns, part)
            read, unread = _to_read(ours, theirs)
            digests = now.digests(key, columns, read) if read else {}
            position = now.place.before
        mine = self._asked(lambda: mirror.digests(read)) if read else {}
        suspects = sorted(each for each in mine.keys() | digests.keys() if mine.get(each) != digests.get(each))
        state = Disagreements(suspects[:MOST_KEYS])
        reached = self._settle(state, mirror, stamp, wait_seconds)
        unread += max(0, len(suspects) - MOST_KEYS)
        pending = [each for each in state.pending.values() if each is not None]
        return SourceConsistency(
            self.mirror.table,
            f"{self.source.connection}, table {self.source_table}",
            BUCKETS if part is None else len(part),
            sum(rows for rows, _ in theirs.values()),
            sum(rows for rows, _ in ours.values()),
            position,
            reached,
            state.behind,
            _counted(state.wrong.values()),
            _counted(pending),
            min(len(suspects), MOST_KEYS),
            unread,
            _examples(key, columns, list(state.wrong.values()), pending),
            tuple(each.name for each in (*key, *columns)),
            left_out,
        )

    def _settle(self, state: Disagreements, mirror: MirrorLook, stamp: MirrorStamp, wait_seconds: float) -> int | None:
        """Look at keys again until all are decided, or time is up; through which position the mirror was last."""
        deadline = time.monotonic() + wait_seconds
        while state.pending:
            self._look_again(state, mirror, place_of(stamp, self.spec.stream))
            if not state.pending or not self._moved_on(mirror.snapshot_id, deadline):
                break
            found = stamped_mirror(self.spec, self.mirror, self.catalog)
            if found is None:
                break
            table, stamp = found
            mirror = self._mirror(table, stamp, mirror.key, mirror.columns)
        return place_of(stamp, self.spec.stream).reached

    def _look_again(self, state: Disagreements, mirror: MirrorLook, ours: MirrorPlace) -> None:
        keys = list(state.pending)
        rows = self._asked(lambda: mirror.rows(keys))
        with self._source() as now:
            state.look(ours, now.place, rows, now.rows(mirror.key, mirror.columns, keys))

    def _moved_on(self, snapshot_id: int, deadline: float) -> bool:
        """Wait until the mirror has another snapshot; False if it has none in time, or time is up."""

        def moved() -> bool:
            head = self.catalog.load_table(self.mirror.table).current_snapshot()
            return head is not None and head.snapshot_id != snapshot_id

        return wait_until_deadline(moved, deadline, _POLL_SECONDS)

    def _refuse_another_database(self, database: str, stamp: MirrorStamp) -> None:
        known = databases_of(stamp)
        if known and database not in known:
            raise FrazilError(
                f"stream {self.spec.stream}: source {self.source.connection} is database {database}, and the changes "
                f"in mirror {self.mirror.table} are of database {', '.join(known)}.",
                fix=f"correct sources.{self.source.connection}.url in {SETTINGS_FILE}, or source.connection in mirrors "
                f"of streams/{self.spec.stream}.yaml",
            )

    def _columns(
        self, now: SourceLook, table: Table, stamp: MirrorStamp
    ) -> tuple[tuple[ComparedColumn, ...], tuple[ComparedColumn, ...], tuple[tuple[str, str], ...]]:
        """The columns of the key, all others that are compared, and those that are not."""
        names = [each.name for each in table.schema().fields if each.name not in (ORDER_COLUMN, DELETED_COLUMN)]
        compared, left_out = compared_columns(now.columns(), table.schema(), names, self.source.exclude)
        known = {each.name: each for each in compared if each.kind.value is not None}
        for name in stamp.key:
            if name not in known:
                why = dict(left_out).get(name, "such values tell no rows apart")
                raise FrazilError(
                    f"stream {self.spec.stream}: mirror {self.mirror.table} cannot be compared with source "
                    f"{self.source.connection}, table {self.source_table}, by column {name} of its key: {why}.",
                    fix=f"correct source in mirrors of streams/{self.spec.stream}.yaml",
                )
        key = tuple(known[name] for name in stamp.key)
        return key, tuple(each for each in compared if each.name not in stamp.key), left_out

    def _mirror(
        self, table: Table, stamp: MirrorStamp, key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn]
    ) -> MirrorLook:
        head = table.current_snapshot()
        assert head is not None
        session = merging_session(self.spark, self.settings)
        path = table_path(self.settings, table)
        return MirrorLook(session, path, head.snapshot_id, stamp.deletes == "soft", key, columns)

    def _source(self) -> AbstractContextManager[SourceLook]:
        known = source_settings(self.spec.stream, self.source.connection, self.settings.sources)
        return source_look(self.source.connection, known, self.source_table, self.source.where)

    def _asked(self, call: Callable[[], T]) -> T:
        return interruptible_jobs(self.spark, "source", call)


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
    """The leaves that disagree and are looked at row by row, and the rows of those that are too many."""
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


def _counted(found: Collection[Disagreement]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in found:
        counts[each.what] = counts.get(each.what, 0) + 1
    return counts


def _examples(
    key: Sequence[ComparedColumn],
    columns: Sequence[ComparedColumn],
    wrong: Sequence[Disagreement],
    pending: Sequence[Disagreement],
) -> tuple[WrongKey, ...]:
    def shown(found: Disagreement, certain: bool) -> WrongKey:
        values = {each.name: each.kind.shown(text) for each, text in zip(key, found.key, strict=True)}
        return WrongKey(found.what, values, tuple(columns[at].name for at in found.columns), certain)

    every = [*(shown(each, True) for each in wrong), *(shown(each, False) for each in pending)]
    return tuple(every[:EXAMPLES])
