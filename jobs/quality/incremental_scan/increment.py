"""Incremental scan: the rows that a stream has landed in a table since a position, by files, offsets, or all rows.

A stream's landed rows are the data files that its stamped append snapshots added: batches, replays and queues. Replace,
overwrite and backfill add no new rows. As long as every snapshot since the position exists, these files are scanned as
they landed, whatever compactions have made of them. If some have expired, the remaining stamps and the ledger give the
offsets, which are looked up in the table's head. If rows do not have their coordinates, the whole table is scanned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Literal

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from jobs.quality.incremental_scan.offset_ranges import (
    RangesByPartition,
    lost_ranges,
    merged_ranges,
    read_ranges,
)
from jobs.quality.incremental_scan.validated_position import CheckSummary, ValidatedPosition
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.discards import Discard, Discards, is_discarded
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.reissue import as_landed, last_remade, reissued
from jobs.tables.commit.stamp.offsets import PartitionRange, Positions
from jobs.tables.commit.stamp.stamps import (
    BACKFILL_KEY,
    PROPERTY_PREFIX,
    PUBLISH_PART,
    SUMMARY_KEY,
    Stamp,
)
from jobs.tables.ledger.ledger_row import LedgerRow

Found = Literal["files", "offsets", "table"]
LedgerRows = Callable[[int], Sequence[LedgerRow]]
"""Returns rows of the ledger about a stream on a table, of commits with a greater sequence number."""


@dataclass(frozen=True, slots=True)
class Increment:
    """Rows of a stream on a branch of a table since a position.

    Attributes:
        found: How the rows are found: by added files, by their offsets in the head, or as all rows.
        why: Reason, a sentence, if they are not found by their files.
        head: Last snapshot of the scan; None for a table without one.
        files: With `files`, all added files; with `offsets`, those that replays and queues added.
        ranges: Offset ranges of the stream, by partition; with `offsets`, those to look up in the head.
        snapshots: Ids of the existing snapshots that added rows, oldest first.
        first_at, last_at: Commit times of the first and the last of those.
        begin: Snapshot before the first one, as far as known.
    """

    branch: str
    found: Found
    why: str
    head: Snapshot | None
    files: tuple[DataFile, ...] = ()
    ranges: RangesByPartition = field(default_factory=dict)
    snapshots: tuple[int, ...] = ()
    first_at: datetime | None = None
    last_at: datetime | None = None
    begin: int | None = None
    positions: Mapping[str, Positions] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether it is known to have no rows, before any is read."""
        if self.head is None:
            return True
        return not self.files and (self.found == "files" or (self.found == "offsets" and not self.ranges))

    def validated(self, at: datetime, summary: CheckSummary) -> ValidatedPosition | None:
        """Position after these rows are checked; None for a table without a snapshot.

        Args:
            at: Start of the check.
            summary: Result of the check.
        """
        if self.head is None:
            return None
        return ValidatedPosition(self.head.snapshot_id, self.head.sequence_number or 0, self.positions, at, summary)


@dataclass(frozen=True, slots=True)
class _Landed:
    """A snapshot that landed rows of a stream, a replay or a queue, or that stamped a position."""

    snapshot: Snapshot
    stamp: Stamp

    def of(self, discards: Sequence[Discard]) -> bool:
        """Whether its rows were discarded, and are dead letters, which are not checked again."""
        return is_discarded(discards, self.snapshot.sequence_number or 0)

    @property
    def sequence(self) -> int:
        """Sequence number of the commit, or of its original (see `reissue`)."""
        return as_landed(self.snapshot).sequence_number or 0

    @property
    def adds(self) -> bool:
        summary = self.snapshot.summary
        return (
            summary is not None
            and summary.operation == Operation.APPEND
            and BACKFILL_KEY not in summary.additional_properties
            and summary.additional_properties.get("added-data-files", "0") != "0"
        )


def increment_since(
    metadata: TableMetadata,
    io: FileIO,
    stream: str,
    position: ValidatedPosition | None,
    *,
    branch: str = MAIN_BRANCH,
    locatable: bool = True,
    ledger: LedgerRows = lambda after: (),
) -> Increment:
    """Rows that a stream has landed on a branch since a position, up to its head.

    Args:
        io: FileIO of its manifests.
        position: Position; None: everything is new.
        branch: The branch; a missing one has no rows.
        locatable: Whether the table has the columns of the records' coordinates.
        ledger: Called only if snapshots since the position have expired.

    Raises:
        FileNotFoundError: A manifest is missing, because snapshots expire at this moment.
    """
    ref = metadata.refs.get(branch)
    along = list(ancestors(metadata, ref.snapshot_id)) if ref else []
    if not along:
        return Increment(branch, "files", "", None)
    head, landed = along[0], _landed(along, stream, branch)
    positions = _positions(landed, metadata, stream, position, branch)
    found = Increment(branch, "files", "", head, begin=position.snapshot_id if position else None, positions=positions)
    if position is None:
        return _told(replace(found, found="table", why="no check of its rows is recorded"), landed, stream)
    begin, complete = _begin(metadata, along, position, stream, branch)
    discards = Discards.of(metadata.properties, stream).on(branch)
    since = [each for each in landed if each.sequence > begin and not _stamp_alone(each.snapshot)]
    new = [each for each in since if not each.of(discards)]
    found = _told(found, new, stream)
    if complete:
        return _with_files(found, new, io)
    lost, others = lost_ranges(position.positions, [each.stamp for each in since], positions, stream)
    kept = {as_landed(each).snapshot_id for each in along if not _stamp_alone(each)}
    uuid = str(metadata.table_uuid)
    lost += [
        PartitionRange(row.partition, row.range)
        for row in ledger(begin)
        if row.kind == "batch" and row.table_uuid == uuid and row.sequence > begin and row.snapshot_id not in kept
    ]
    if not lost and not others:
        return _with_files(found, new, io)
    why = f"snapshots since snapshot {position.snapshot_id}, up to which rows were checked, have expired"
    if others:
        return replace(found, found="table", why=f"{why}, rows of {' and '.join(others)} among them")
    if not locatable:
        return replace(found, found="table", why=f"{why}, and rows do not say which record they are of")
    sought = merged_ranges([*lost, *read_ranges(each.stamp for each in new if each.stamp.stream == stream)])
    found = replace(found, found="offsets", why=f"{why}: their rows are sought by their offsets", ranges=sought)
    return _with_files(found, [each for each in new if each.stamp.stream != stream], io)


def _stamp_alone(snapshot: Snapshot) -> bool:
    """Whether it was copied for its stamp only, on a rebased branch: its rows are main's."""
    mark = reissued(snapshot)
    return mark is not None and mark.published


def _told(found: Increment, landed: Sequence[_Landed], stream: str) -> Increment:
    """The scan with what snapshots record, without their manifests."""
    adding = [each.snapshot for each in landed if each.adds]
    times = [datetime.fromtimestamp(as_landed(each).timestamp_ms / 1000, UTC) for each in adding]
    return replace(
        found,
        ranges=merged_ranges(read_ranges(each.stamp for each in landed if each.stamp.stream == stream)),
        snapshots=tuple(each.snapshot_id for each in adding),
        first_at=min(times, default=None),
        last_at=max(times, default=None),
    )


def _with_files(found: Increment, landed: Sequence[_Landed], io: FileIO) -> Increment:
    """The scan with the files that snapshots added."""
    files = [file for each in landed if each.adds for file in added_files(each.snapshot, io)]
    return replace(found, files=tuple(files))


def added_files(snapshot: Snapshot, io: FileIO) -> Iterator[DataFile]:
    """Data files that a snapshot added.

    Raises:
        FileNotFoundError: A manifest is missing.
    """
    for manifest in snapshot.manifests(io):
        others = manifest.content != ManifestContent.DATA or manifest.added_snapshot_id != snapshot.snapshot_id
        if others or manifest.added_files_count == 0:
            continue
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            # A merged manifest also lists earlier files.
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id in (None, snapshot.snapshot_id):
                yield entry.data_file


def snapshots_since(metadata: TableMetadata, stream: str, sequence: int, branch: str = MAIN_BRANCH) -> list[Snapshot]:
    """Existing snapshots of a branch with rows of a stream, after a sequence number, oldest first.

    Reads no manifest.
    """
    ref = metadata.refs.get(branch)
    along = takewhile(
        lambda each: (each.sequence_number or 0) > sequence, ancestors(metadata, ref.snapshot_id) if ref else ()
    )
    discards = Discards.of(metadata.properties, stream).on(branch)
    landed = [each for each in _landed(list(along), stream, branch) if each.adds and each.sequence > sequence]
    return [each.snapshot for each in landed if not each.of(discards)]


def _begin(
    metadata: TableMetadata, along: Sequence[Snapshot], position: ValidatedPosition, stream: str, branch: str
) -> tuple[int, bool]:
    """Sequence number after which snapshots of a branch count, and whether all of those exist."""
    ids = {each.snapshot_id for each in along}
    if position.snapshot_id in ids or along[-1].parent_snapshot_id == position.snapshot_id:
        return position.sequence, True
    remade = last_remade(metadata, branch)
    if remade is not None and position.sequence < remade.first and (along[0].sequence_number or 0) >= remade.first:
        # Main's part at that time is no longer on the branch as snapshots.
        return position.sequence, remade.published.get(stream, 0) <= position.sequence
    # The branch was moved away from it: the common ancestors were checked.
    for each in ancestors(metadata, position.snapshot_id):
        if each.snapshot_id in ids:
            return each.sequence_number or 0, True
    return position.sequence, False


def _landed(along: Sequence[Snapshot], stream: str, branch: str) -> list[_Landed]:
    """Stamped snapshots of a stream, its replays and its queues, oldest first.

    After a rebase, main's publications on the branch came from the branch itself, and do not count as landed.
    """
    publishes = f'"{stream}{PUBLISH_PART}"' if branch != MAIN_BRANCH else None
    found: list[_Landed] = []
    for each in reversed(along):
        text = each.summary.additional_properties.get(SUMMARY_KEY) if each.summary else None
        # The text contains the stream's name, so stamps of other streams need no parsing.
        if text and publishes is not None and publishes in text:
            continue
        if text and f'"{stream}' in text and (stamp := Stamp.from_json(text)).stream.partition("~")[0] == stream:
            found.append(_Landed(each, stamp))
    return found


def _positions(
    landed: Sequence[_Landed], metadata: TableMetadata, stream: str, before: ValidatedPosition | None, branch: str
) -> dict[str, Positions]:
    """Positions of the stream, its replays and its queues on the branch, by the newest known stamp of each."""
    found: dict[str, Positions] = dict(before.positions) if before else {}
    for name, stamp in _recorded(metadata, stream).items():
        # A stamp of another branch says nothing about this one.
        if (stamp.branch or MAIN_BRANCH) == branch:
            found[name] = stamp.position
    return found | {each.stamp.stream: each.stamp.position for each in landed}


def _recorded(metadata: TableMetadata, stream: str) -> dict[str, Stamp]:
    found: dict[str, Stamp] = {}
    for key in metadata.properties:
        name = key.removeprefix(PROPERTY_PREFIX)
        if key.startswith(PROPERTY_PREFIX) and name.partition("~")[0] == stream:
            text = whole_property(metadata.properties, key)
            if text:
                found[name] = Stamp.from_json(text)
    return found
