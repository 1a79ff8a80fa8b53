"""Incremental scan of a changelog: the data files that its stream has landed since a mirror's position.

These are the files of the stamped append snapshots since then, including replays, even if compactions have replaced
them. If snapshots since then have expired, all files of the changelog are read: changes that the mirror has are not
applied again, because none is later than the mirror's row. If the changelog was rolled back to before the position, it
lacks changes that the mirror has, and they cannot be removed from the mirror.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.model.mirror_stamp import MirrorStamp
from jobs.quality.incremental_scan.increment import increment_since
from jobs.quality.incremental_scan.validated_position import ValidatedPosition
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.lineage import ancestors, line_of, stands_on
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.commit.stamp.expired_changes import ExpiredChanges, expired_changes
from jobs.tables.commit.stamp.offsets import Positions
from jobs.tables.commit.stamp.stamps import PROPERTY_PREFIX, SUMMARY_KEY, Stamp
from jobs.tables.commit.stamp.table_properties import READER_PREFIX
from jobs.tables.commit.stamp.target_directory import MOST_NAMED

EPOCH = datetime.fromtimestamp(0, UTC)


class ChangelogMovedError(FrazilError):
    """The changelog was rolled back or replaced, and does not continue from the mirror's position.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: bring the changelog's snapshots back; or `frazil mirror rebuild S`
    """


@dataclass(frozen=True, slots=True)
class ChangelogIncrement:
    """Data files of a changelog that a mirror has not merged.

    Attributes:
        until: Snapshot that the scan reaches up to; None if the changelog has no snapshot.
        files: Data files to merge.
        positions: Offsets of the stream, its replays and its queues in that snapshot, by the id of their stamps.
        why: If all files of the changelog are read, a sentence with the reason.
    """

    until: Snapshot | None
    files: tuple[DataFile, ...] = ()
    positions: Mapping[str, Positions] = field(default_factory=dict)
    why: str = ""

    @property
    def rows(self) -> int:
        """Number of rows in the files."""
        return sum(each.record_count for each in self.files)


def changelog_increment(
    metadata: TableMetadata, io: FileIO, stream: str, mirror: str, position: MirrorStamp | None
) -> ChangelogIncrement:
    """Return the files that a mirror lacks, up to the changelog's head.

    Args:
        metadata: Metadata of the changelog.
        io: Reads its manifests.
        stream: Id of the stream.
        mirror: Name of the mirror.
        position: Newest stamp of the mirror; None if nothing is merged yet.

    Raises:
        ChangelogMovedError: The changelog was rolled back to before the position, or is another table.
        FrazilError: All files have to be read, and somebody has deleted rows by delete files.
        FileNotFoundError: A manifest is missing, because snapshots expire at the same time.
    """
    until = _newest_stamped(metadata)
    if until is None:
        return ChangelogIncrement(None)
    if position is None:
        found = increment_since(metadata, io, stream, None)
        files = every_file(metadata, io, stream)
        return ChangelogIncrement(until, files, found.positions, "the mirror had nothing of it yet")
    expired = refuse_moved(metadata, stream, mirror, position)
    since = ValidatedPosition(position.snapshot_id, position.sequence, position.positions, EPOCH)
    found = increment_since(metadata, io, stream, since)
    if expired and found.found != "files":
        why = "snapshots of the changelog since its last merge have expired, so all of the changelog is read"
        return ChangelogIncrement(until, every_file(metadata, io, stream), found.positions, why)
    return ChangelogIncrement(until, found.files, found.positions)


def refuse_moved(metadata: TableMetadata, stream: str, mirror: str, position: MirrorStamp) -> bool:
    """Refuse a changelog that does not continue a mirror's position; return whether snapshots in between have expired.

    Raises:
        ChangelogMovedError: The changelog does not continue the position, or that cannot be shown.
    """
    fix = (
        f"`frazil mirror rebuild {stream} --table {mirror}`, which rebuilds the mirror from what the changelog has now"
    )
    if str(metadata.table_uuid) != position.changelog:
        raise ChangelogMovedError(
            f"stream {stream}: mirror {mirror} was made from another changelog, which was dropped or replaced since.",
            fix=fix,
        )
    along = list(ancestors(metadata))
    if position.snapshot_id in (along[-1].parent_snapshot_id, *(each.snapshot_id for each in along)):
        return False
    line = line_of(metadata.properties)
    known = metadata.snapshot_by_id(position.snapshot_id) is not None
    if not known and line and line.covers(position.sequence) and stands_on(metadata, line.snapshot_id):
        return True
    said = "was moved back to before" if known else "cannot be shown to go on from"
    raise ChangelogMovedError(
        f"stream {stream}: the changelog {said} snapshot {position.snapshot_id}, through which mirror {mirror} has "
        "its changes. Those that are not in it any more are in the mirror.",
        fix=fix,
    )


def every_file(metadata: TableMetadata, io: FileIO, stream: str) -> tuple[DataFile, ...]:
    """Return all data files of the changelog's head.

    Raises:
        FrazilError: The head has delete files.
    """
    head = metadata.current_snapshot()
    files: list[DataFile] = []
    for manifest in head.manifests(io) if head else ():
        if manifest.content != ManifestContent.DATA:
            if manifest.has_added_files() or manifest.has_existing_files():
                raise FrazilError(
                    f"stream {stream}: somebody has deleted rows of its changelog by delete files, and all of the "
                    "changelog is to be read for a mirror.",
                    fix="apply the deletes first, in Spark: CALL system.rewrite_data_files(table => …, options => "
                    "map('delete-file-threshold', '1'))",
                )
            continue
        files += [each.data_file for each in manifest.fetch_manifest_entry(io, discard_deleted=True)]
    return tuple(files)


def _newest_stamped(metadata: TableMetadata) -> Snapshot | None:
    """Return the head's newest ancestor with a stamp: the property `frazil.line` still names it after an expiry."""
    along = list(ancestors(metadata))
    stamped = (each for each in along if each.summary and SUMMARY_KEY in each.summary.additional_properties)
    return next(stamped, along[0] if along else None)


EVERY = timedelta(minutes=10)


def hold_property(mirror: str) -> str:
    """Return the name of the changelog's property with the snapshot that a mirror continues from."""
    return f"{READER_PREFIX}mirror.{mirror}"


def hold_changelog(
    catalog: Catalog, changelog: str, stream: str, mirror: str, snapshot_id: int, *, every: timedelta = EVERY
) -> bool:
    """Record on the changelog which snapshot a mirror continues from; return whether it was recorded.

    So expiry keeps the snapshots that the mirror has not merged. Each record is a commit that competes with the
    stream's, so it is seldom made.

    Args:
        snapshot_id: Snapshot through which the mirror has all changes.
        every: Least time between the recorded snapshot and `snapshot_id` for a new record.

    Raises:
        CommitRefusedError: Others committed to the changelog at each attempt; the former record stands.
    """
    name = hold_property(mirror)

    def attempt() -> bool:
        table = catalog.load_table(changelog)
        if not _is_due(table, table.metadata.properties.get(name, ""), snapshot_id, every):
            return False
        with conflicts_as_moved_head(), table.transaction() as change:
            change.set_properties({name: str(snapshot_id)})
        return True

    def given_up(said: str) -> CommitRefusedError:
        return CommitRefusedError(
            f"stream {stream}: how far mirror {mirror} has its changelog was not noted there: {said}",
            fix=f"frazil mirror run {stream}",
        )

    return compare_and_swap(changelog, attempt, given_up)


def _is_due(table: Table, noted: str, snapshot_id: int, every: timedelta) -> bool:
    if noted == str(snapshot_id):
        return False
    before = table.metadata.snapshot_by_id(int(noted)) if noted.isdigit() else None
    now = table.metadata.snapshot_by_id(snapshot_id)
    return before is None or now is None or now.timestamp_ms - before.timestamp_ms >= every.total_seconds() * 1000


def refuse_incomplete(spec: StreamSpec, mirror: Mirror, changelog: Table) -> None:
    """Refuse to build a mirror from a changelog that has fewer rows than its stream has landed there.

    Expired rows count as present.

    Raises:
        FrazilError: The changelog has fewer rows.
    """
    landed, there = landed_rows(changelog.metadata, spec.stream), rows_there(changelog.metadata, spec.table.name)
    if landed is not None and there < landed:
        expired = expired_changes(changelog.metadata.properties, spec.table.name)
        raise FrazilError(
            f"stream {spec.stream}: changelog {spec.table.name} has {there:,} rows{_with(expired)}, and {landed:,} "
            f"were landed there: somebody has removed some, so mirror {mirror.table} made of the rest may lack rows.",
            fix=f"bring them back; or `frazil mirror rebuild {spec.stream} --table {mirror.table} --incomplete`, "
            "which makes it of what is left",
        )


def _with(expired: ExpiredChanges | None) -> str:
    return f" with those that have expired ({expired.rows:,})" if expired else ""


def landed_rows(metadata: TableMetadata, stream: str) -> int | None:
    """Return the rows that the stream, its replays and its queues have landed in a changelog, by their stamps.

    None for the coordinator of a stream with several tables, because its stamps count the rows of all tables.
    """
    total = 0
    for key in metadata.properties:
        name = key.removeprefix(PROPERTY_PREFIX)
        if key.startswith(PROPERTY_PREFIX) and name.partition("~")[0] == stream:
            text = whole_property(metadata.properties, key)
            stamp = Stamp.from_json(text, metadata.properties) if text else None
            if stamp is not None and len(stamp.targets) > MOST_NAMED:
                return None
            total += stamp.totals.landed if stamp else 0
    return total


def rows_there(metadata: TableMetadata, table: str) -> int:
    """Return the number of rows in a changelog, by any writer, including expired ones.

    Args:
        table: Name of the changelog.
    """
    head, expired = metadata.current_snapshot(), expired_changes(metadata.properties, table)
    there = int(head.summary["total-records"] or 0) if head and head.summary else 0
    return there + (expired.rows if expired else 0)
