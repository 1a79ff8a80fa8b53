"""Reader of a certificate's mirror: what main has ever shown is compared with the changes up to where its stamps say.

Each snapshot that main has pointed at is one that somebody may have read. Iceberg keeps them all, so they are looked at
after the kills, and each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.local.certify.changes import ChangedRows, Row, source_change
from jobs.local.certify.load import Load
from jobs.local.certify.workspace import STREAM
from jobs.mirrors.model.mirror_stamp import abandoned_branches, mirror_id, mirrored
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Merge:
    """Published merge.

    Attributes:
        epoch: Epoch of the session that made it.
        at: Seconds since 1970.
    """

    snapshot_id: int
    epoch: int
    at: float


class MirrorReader:
    """Reads the mirror of a certificate's stream.

    Args:
        mirror: Name of the mirror.
        catalog: Open for as long as this is used.
        load: Load of the changelog's topic.

    Attributes:
        wrong: Number of problems found.
    """

    def __init__(self, mirror: str, catalog: Catalog, load: Load) -> None:
        self.id: str = mirror_id(STREAM, mirror)
        self._mirror: str = mirror
        self._catalog: Catalog = catalog
        self._load: Load = load
        self.wrong: int = 0
        self._looked_at: int = 0
        self._epoch: int = 0
        self._through: dict[TopicPartition, int] = {}
        self._made: dict[TopicPartition, ChangedRows] = {}

    @property
    def looked_at(self) -> int:
        """Number of compared snapshots of main."""
        return self._looked_at

    def merges(self) -> list[Merge]:
        """The merges that were published, oldest first."""
        table = self._table()
        if table is None:
            return []
        times = {snapshot.snapshot_id: snapshot.timestamp_ms / 1000 for snapshot in table.metadata.snapshots}
        return [
            Merge(snapshot, stamp.epoch, times[snapshot])
            for snapshot, stamp in reversed(stamps_along_main(table.metadata, self.id))
            if stamp.kind == "batch"
        ]

    def problems(self) -> list[str]:
        """Problems of main's snapshots since the last look, as sentences."""
        table = self._table()
        if table is None:
            return []
        stamps = dict(stamps_along_main(table.metadata, self.id))
        shown = table.metadata.snapshot_log[self._looked_at :]
        self._looked_at += len(shown)
        problems: list[str] = []
        for head in (each.snapshot_id for each in shown):
            stamp = stamps.get(head)
            if stamp is None:
                problems.append(f"the mirror showed snapshot {head}, which is no merge that was published")
                continue
            if stamp.epoch < self._epoch:
                problems.append(f"snapshot {head} of the mirror is of epoch {stamp.epoch}, behind one of {self._epoch}")
            self._epoch = max(self._epoch, stamp.epoch)
            said = mirrored(stamp, STREAM, self._mirror)
            through = said.positions.get(STREAM, {}) if said is not None else {}
            back = [f"{each}" for each, at in self._through.items() if through.get(each, 0) < at]
            if back:
                problems.append(f"snapshot {head} of the mirror goes back in {', '.join(back)}")
                continue
            problems += [f"snapshot {head} of the mirror: {each}" for each in self._wrong(table, head, through)]
        self.wrong += len(problems)
        return problems

    def lacking(self) -> list[str]:
        """Problems of the mirror after the last merge: missing records of the load, and branches left by attempts."""
        table = self._table()
        left = abandoned_branches(table.metadata) if table is not None else []
        problems = [f"the mirror has branches of attempts: {', '.join(left)}"] if left else []
        if self._through != self._load.ends():
            problems.append(f"the mirror is its source through {self._through}, not {self._load.ends()}")
        self.wrong += len(problems)
        return problems

    def _wrong(self, table: Table, head: int, through: Positions) -> list[str]:
        for partition, end in through.items():
            start = self._through.get(partition, 0)
            numbers = self._load.numbers(partition.partition, start, end)
            made = self._made.setdefault(partition, ChangedRows())
            made.follow(source_change(self._load.seed, number) for number in numbers)
        self._through = dict(through)
        wanted = {key: row for made in self._made.values() for key, row in made.rows.items()}
        found = table.scan(snapshot_id=head, selected_fields=("id", "amount", "note")).to_arrow()
        keys, amounts, notes = (found[name].to_pylist() for name in ("id", "amount", "note"))
        twice = [key for key, times in Counter(keys).items() if times > 1]
        return [
            *([f"keys with several rows: {_some(twice)}"] if twice else []),
            *row_problems(dict(zip(keys, zip(amounts, notes, strict=True), strict=True)), wanted),
        ]

    def _table(self) -> Table | None:
        return existing_table(self._catalog, self._mirror)


def row_problems(found: Mapping[str, Row], wanted: Mapping[str, Row]) -> list[str]:
    """Problems of a mirror's rows, as sentences.

    Args:
        found: Actual rows by key.
        wanted: Expected rows by key, by their changes.
    """
    wrong = {
        "lacks": sorted(wanted.keys() - found.keys()),
        "has and their changes do not make": sorted(found.keys() - wanted.keys()),
        "has otherwise than their changes say": sorted(
            key for key in found.keys() & wanted.keys() if found[key] != wanted[key]
        ),
    }
    return [f"{len(keys)} rows that it {how}: {_some(keys)}" for how, keys in wrong.items() if keys]


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:_SHOWN]) + (" …" if len(keys) > _SHOWN else "")
