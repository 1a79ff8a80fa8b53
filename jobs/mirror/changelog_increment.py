"""Increment of a changelog: the data files that its stream has landed since a mirror's position.

These are the files of the stamped append snapshots since then, replays included, whatever compactions have made of
them. Where snapshots since then have expired, it is every file of the changelog: changes that the mirror has are not
applied again, as each is older than what the mirror says of its row. A changelog that somebody moved back to before
the position holds changes no more that the mirror has, and nobody can take them out of it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.commit.lineage import ancestors, line_of, stands_on
from jobs.commit.offsets import Positions
from jobs.commit.stamps import SUMMARY_KEY
from jobs.errors import FrazilError
from jobs.increment.increment import increment_since
from jobs.increment.validated_position import ValidatedPosition
from jobs.mirror.mirror_stamp import MirrorStamp

EPOCH = datetime.fromtimestamp(0, UTC)


class ChangelogMovedError(FrazilError):
    """The changelog does not go on from where a mirror has it."""


@dataclass(frozen=True, slots=True)
class ChangelogIncrement:
    """What a mirror lacks of its changelog.

    Attributes:
        until: The snapshot that it reaches up to; None of a changelog without one.
        files: The data files to be merged.
        positions: Where the stream, its replays and its queues stand in that snapshot, by the id that they stamp with.
        why: A sentence, if it is every file of the changelog.
    """

    until: Snapshot | None
    files: tuple[DataFile, ...] = ()
    positions: Mapping[str, Positions] = field(default_factory=dict)
    why: str = ""

    @property
    def rows(self) -> int:
        """Rows of the files."""
        return sum(each.record_count for each in self.files)


def changelog_increment(
    metadata: TableMetadata, io: FileIO, stream: str, mirror: str, position: MirrorStamp | None
) -> ChangelogIncrement:
    """What a mirror lacks of its changelog, up to the changelog's head.

    Args:
        metadata: The changelog's.
        io: Reads its manifests.
        stream: The stream's id.
        mirror: The mirror's name.
        position: Of the mirror; None: it has nothing yet.

    Raises:
        ChangelogMovedError: The changelog was moved back to before the position, or is another table.
        FrazilError: All of it is to be read, and somebody has deleted rows by delete files.
        FileNotFoundError: A manifest is gone: snapshots expire at this moment.
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
    """See that the changelog goes on from a mirror's position; returns whether snapshots in between have expired.

    Raises:
        ChangelogMovedError: It does not, or nobody can show it.
    """
    fix = (
        f"`frazil mirror rebuild {stream} --table {mirror}`, which makes the mirror anew of what the changelog has now"
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
    """All data files of the changelog's head.

    Raises:
        FrazilError: There are deletes to be applied to them.
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
    """The newest ancestor of the head that frazil committed: the line of those outlives an expiry."""
    along = list(ancestors(metadata))
    stamped = (each for each in along if each.summary and SUMMARY_KEY in each.summary.additional_properties)
    return next(stamped, along[0] if along else None)
