"""Unpublished snapshots of a stream: the data files that it has landed on its branch and main does not have.

They are in the branch's head and came after a sequence number: the one through which main has the branch. Each file has
to be of a stamped snapshot, by this stream, its replays or queues, or by another stream. Files without a stamp, or
whose snapshot has expired, are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError
from jobs.base.spark_names import spark_name
from jobs.tables.commit.history.branch import begin_property
from jobs.tables.commit.history.discards import Discard, is_discarded
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.reissue import as_landed, reissued
from jobs.tables.commit.stamp.event_times import NO_EVENTS, EventTimes
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition
from jobs.tables.commit.stamp.stamps import (
    BACKFILL_KEY,
    PUBLISH_PART,
    SUMMARY_KEY,
    Stamp,
)
from jobs.tables.write.manifest_doubles import exact_entries


class ManifestMemo:
    """Cache of manifests, each of which is read once.

    While a stream commits, a rebase of its branch is attempted repeatedly. With thousands of manifests, only the first
    attempt may take long. Otherwise each one would find that the branch has moved.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, int], list[ManifestEntry]] = {}

    def entries(self, io: FileIO, manifest: ManifestFile, spec: PartitionSpec, schema: Schema) -> list[ManifestEntry]:
        """All entries of a manifest, those of deleted files included, with exact bounds.

        Args:
            io: FileIO of the table.
            manifest: Manifest in the snapshot's list.
            spec: Partition spec of its files.

        Raises:
            FileNotFoundError: The manifest is missing.
        """
        key = manifest.manifest_path, schema.schema_id
        if key not in self._read:
            found = manifest.fetch_manifest_entry(io, discard_deleted=False)
            exact_entries(io, manifest, found, spec, schema)
            self._read[key] = found
        return self._read[key]


# Mark in an id before a stream's replays, queues, or publications.
PART_MARK = "~"


class UnpublishableError(FrazilError):
    """A branch does not hold exactly the files that its streams landed there.

    Safe: `main` is as it was.
    Next: undo what was changed on the branch, then `frazil publish S`

    If the message names `--after-rollback`, `again` publishes all rows in question: first delete from `main` those that
    it has already. `leave-out` goes on behind them: copy to `main` by hand those that it lacks. `again` is refused if
    rows would exist twice.

    If files were written before the table's partitioning changed, set the former partitioning, publish, then change
    it again.
    """


@dataclass(frozen=True, slots=True)
class Interval:
    """Unpublished snapshots of a stream on a branch.

    Attributes:
        after: Sequence number through which main has all of the branch.
        until: Sequence number of the branch's head.
        head: Id of the branch's head.
        files: Data files of the stream.
        ranges: Offsets that its batches read, by partition.
        snapshots: Ids of the snapshots that added the files, oldest first.
        first_at: Commit time of the first of them.
        last_at: Commit time of the last of them.
        others: Number of files of other streams on the branch, which publish them.
        valid_through_ms: Completeness in the stream's newest stamp; milliseconds since 1970, None if unknown.
        event_time: Event times of the stream over them, see `interval_event_times`.
        landed: Positions in the stream's newest stamp; empty without one.
    """

    branch: str
    after: int
    until: int
    head: int
    files: tuple[DataFile, ...] = ()
    ranges: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    snapshots: tuple[int, ...] = ()
    first_at: datetime | None = None
    last_at: datetime | None = None
    others: int = 0
    valid_through_ms: int | None = None
    event_time: EventTimes | None = None
    landed: Positions = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows in the files."""
        return sum(each.record_count for each in self.files)

    @property
    def paths(self) -> frozenset[str]:
        """Paths of the files."""
        return frozenset(each.file_path for each in self.files)


def interval_since(
    metadata: TableMetadata,
    io: FileIO,
    stream: str,
    branch: str,
    published: int,
    until: int | None = None,
    *,
    without: Sequence[Discard] = (),
) -> Interval | None:
    """Unpublished snapshots of a stream's branch; None if the branch does not exist yet.

    Args:
        metadata: The table's whole metadata, not seen from a branch.
        io: FileIO of the manifests.
        published: Sequence number through which the branch was published; 0 if it never was.
        until: Last sequence number to include; None: the branch's head.
        without: Discards of the branch, whose rows are left out.

    Raises:
        UnpublishableError: Other writers have written to the branch, or snapshots of it have expired.
        FileNotFoundError: A manifest is missing, because snapshots expire at this moment.
    """
    ref = metadata.refs.get(branch)
    along = list(ancestors(metadata, ref.snapshot_id)) if ref else []
    if not along:
        return None
    head, after = along[0], max(published, branch_begin(metadata, branch))
    last = (head.sequence_number or 0) if until is None else until
    new = [each for each in along if after < (each.sequence_number or 0) <= last][::-1]
    found = Interval(branch, after, last, head.snapshot_id)
    own, foreign = _sorted_out(new, stream)
    _refuse_unstamped(new, own.keys() | foreign, stream, branch)
    out = {each.snapshot_id for each in new if is_discarded(without, each.sequence_number or 0)}
    taken = own.keys() - out
    files, others = _files_of(head, metadata, io, stream, found, taken, foreign, own.keys() & out)
    adding = [each for each in landed_snapshots(new, stream) if each.snapshot_id in taken]
    expected = sum(_number(each, "added-data-files") for each in adding)
    if len(files) != expected:
        raise UnpublishableError(
            f"stream {stream}: its snapshots on branch {branch} since sequence number {after} added {expected:,} data "
            f"files, and {len(files):,} of them stand there: somebody has removed some, or brought some back.",
            fix=_undo(branch, stream),
        )
    times = [datetime.fromtimestamp(as_landed(each).timestamp_ms / 1000, UTC) for each in adding]
    stamps = [own[each.snapshot_id] for each in new if each.snapshot_id in taken and not _in_main(each)]
    through = [each.valid_through_ms for each in stamps if each.stream == stream]
    stood = [each.position for each in own.values() if each.stream == stream]
    return Interval(
        branch,
        after,
        found.until,
        found.head,
        tuple(files),
        _ranges(stamps),
        tuple(each.snapshot_id for each in adding),
        min(times, default=None),
        max(times, default=None),
        others,
        through[-1] if through else None,
        interval_event_times(each for each in stamps if each.stream == stream),
        stood[-1] if stood else {},
    )


def branch_begin(metadata: TableMetadata, branch: str) -> int:
    """Sequence number through which a branch has nothing that main lacks, apart from publications.

    Common ancestors of branch and main are in both. The stream's first commit records the last of them, in case it
    expires. If the branch was recreated from main, or main was set to the branch, the ancestors show it.

    Raises:
        UnpublishableError: Neither shows it.
    """
    said = metadata.properties.get(begin_property(branch), "")
    noted = int(said) if said.isdigit() else None
    on_main = {each.snapshot_id for each in ancestors(metadata)}
    of_both = (each for each in ancestors(metadata, metadata.refs[branch].snapshot_id) if each.snapshot_id in on_main)
    common = next((each.sequence_number or 0 for each in of_both), None)
    known = [each for each in (noted, common) if each is not None]
    if not known:
        raise UnpublishableError(
            f"branch {branch} and {MAIN_BRANCH} have no snapshot in common any more, and it is unknown where {branch} "
            "began.",
            fix=f"in Spark: CALL system.fast_forward('<table>', '{MAIN_BRANCH}', '{branch}'), if {MAIN_BRANCH} has "
            f"nothing that {branch} lacks; or drop {branch} once all of it is in {MAIN_BRANCH}",
        )
    return max(known)


def _sorted_out(new: Sequence[Snapshot], stream: str) -> tuple[dict[int, Stamp], set[int]]:
    """Stamps of the stream, its replays and its queues by snapshot; and the snapshots of other streams."""
    own: dict[int, Stamp] = {}
    foreign: set[int] = set()
    for each in new:
        text = each.summary.additional_properties.get(SUMMARY_KEY) if each.summary else None
        if not text:
            continue
        stamp = Stamp.from_json(text)
        if stamp.stream.endswith(PUBLISH_PART):
            # It is on main, and its rows are from the branch.
            continue
        if stamp.stream.partition(PART_MARK)[0] == stream:
            own[each.snapshot_id] = stamp
        else:
            foreign.add(each.snapshot_id)
    return own, foreign


def landed_snapshots(snapshots: Sequence[Snapshot], stream: str) -> list[Snapshot]:
    """Snapshots by which the stream, its replays or its queues landed rows."""
    own, _ = _sorted_out(snapshots, stream)
    return [each for each in snapshots if each.snapshot_id in own and _number(each, "added-data-files")]


def _refuse_unstamped(new: Sequence[Snapshot], stamped: set[int], stream: str, branch: str) -> None:
    for each in new:
        changes = sum(_number(each, name) for name in ("added-data-files", "deleted-data-files", "added-delete-files"))
        summary = each.summary.additional_properties if each.summary else {}
        if (each.snapshot_id in stamped and BACKFILL_KEY not in summary) or not changes:
            continue
        did = each.summary.operation.value if each.summary else "change"
        raise UnpublishableError(
            f"stream {stream}: snapshot {each.snapshot_id} on branch {branch} is no commit of a stream ({did}): rows "
            "that were rewritten or added there by others cannot be distinguished from those that the stream landed.",
            fix=_undo(branch, stream),
        )


def _undo(branch: str, stream: str) -> str:
    return (
        f"in Spark: ALTER TABLE … REPLACE BRANCH {spark_name(branch)} AS OF VERSION <the snapshot before>, then "
        f"`frazil accept {stream} --rollback reland` if the stream had landed since"
    )


def _files_of(
    head: Snapshot,
    metadata: TableMetadata,
    io: FileIO,
    stream: str,
    found: Interval,
    own: Set[int],
    foreign: Set[int],
    out: Set[int],
) -> tuple[list[DataFile], int]:
    """The stream's files in the head that came after main, in commit order; and the number of others' files."""
    mine: list[tuple[int, DataFile]] = []
    others = 0
    for snapshot_id, sequence, file in interval_entries(head, metadata, io, found):
        if snapshot_id in own:
            mine.append((sequence, file))
        elif snapshot_id in foreign:
            others += 1
        elif snapshot_id not in out:
            raise UnpublishableError(
                f"stream {stream}: branch {found.branch} has files of snapshot {snapshot_id}, which has expired, so "
                f"the stream of their rows is unknown. {MAIN_BRANCH} is as it was published last.",
                fix=f"`frazil stop {stream}`; in Spark: ALTER TABLE … DROP BRANCH {spark_name(found.branch)}; then "
                f"`frazil accept {stream} --rollback reland`, which lands again what {MAIN_BRANCH} lacks, and start "
                "the stream. Leave the expiry to `frazil maintain`",
            )
    return [file for _, file in sorted(mine, key=lambda each: each[0])], others


def interval_entries(
    head: Snapshot, metadata: TableMetadata, io: FileIO, found: Interval, memo: ManifestMemo | None = None
) -> Iterator[tuple[int | None, int, DataFile]]:
    """Unpublished data files in a snapshot, of any writer: added snapshot, its sequence number, and the file.

    Raises:
        UnpublishableError: Somebody has deleted rows there.
        FileNotFoundError: A manifest is missing.
    """
    specs, schema, after, until, branch = metadata.specs(), metadata.schema(), found.after, found.until, found.branch
    read = memo or ManifestMemo()
    for manifest in head.manifests(io):
        if manifest.sequence_number <= after:
            continue
        if manifest.content != ManifestContent.DATA:
            raise UnpublishableError(
                f"branch {branch} has deletes that are newer than what was published: somebody has taken rows out of "
                "it.",
                fix=_undo(branch, "<stream>"),
            )
        for entry in read.entries(io, manifest, specs[manifest.partition_spec_id], schema):
            if entry.status != ManifestEntryStatus.DELETED and after < (entry.sequence_number or 0) <= until:
                yield entry.snapshot_id, entry.sequence_number or 0, entry.data_file


def _in_main(snapshot: Snapshot) -> bool:
    """Whether it was copied for its stamp only, as main has its rows."""
    before = reissued(snapshot)
    return before is not None and before.published


def _number(snapshot: Snapshot, name: str) -> int:
    return int(snapshot.summary.additional_properties.get(name, 0)) if snapshot.summary else 0


def _ranges(stamps: Iterable[Stamp]) -> dict[TopicPartition, OffsetRange]:
    """Offset ranges that the batches of a stream read, by partition; replays and queues have no offsets of topics."""
    found: dict[TopicPartition, OffsetRange] = {}
    for stamp in stamps:
        if stamp.kind != "batch" or PART_MARK in stamp.stream:
            continue
        for partition, end in stamp.position.items():
            start = stamp.start.get(partition, 0)
            if end > start:
                known = found.get(partition, OffsetRange(start, end))
                found[partition] = OffsetRange(min(known.start, start), max(known.end, end))
    return found


def interval_event_times(stamps: Iterable[Stamp]) -> EventTimes | None:
    """Event times of unpublished snapshots, for the stamp of a publication; None if the newest stamp has none.

    The bound is that of the first batch: what had closed by then was closed before all of them.

    Args:
        stamps: Stamps of the stream itself, oldest first.
    """
    known = [each for each in stamps if each.event_time]
    if not known or (newest := known[-1].event_time) is None:
        return None
    batches = [each.event_time for each in known if each.kind == "batch" and each.event_time]
    same = [each for each in batches if each.column == newest.column]
    bound = same[0].bound_ms if same else newest.watermark_ms
    counts = sum((each.batch for each in same), NO_EVENTS)
    return EventTimes(newest.column, newest.watermark_ms, bound, first_ms=newest.first_ms, batch=counts.bounded())


PUBLISHED_KEY = "frazil.published"
FORMAT = 1


def left_out_property(branch: str) -> str:
    """Name of the table property with the sequence number up to which a branch may have rows left out of main."""
    return f"frazil.left_out.{branch}"


def publication_text(interval: Interval, by: str, **more: Any) -> str:
    """Entry of the summary of main's snapshot: what it published of the branch.

    Args:
        by: Author.
        more: Further entries of write-audit-publish.
    """
    ranges: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), range_ in sorted(interval.ranges.items()):
        ranges.setdefault(topic, {})[str(partition)] = list(range_)
    said: dict[str, Any] = {
        "v": FORMAT,
        "branch": interval.branch,
        "after": interval.after,
        "until": interval.until,
        "head": interval.head,
        "snapshots": len(interval.snapshots),
        "files": len(interval.files),
        "rows": interval.rows,
        "ranges": ranges,
        "by": by,
        **more,
    }
    return msgspec.json.encode(said).decode()
