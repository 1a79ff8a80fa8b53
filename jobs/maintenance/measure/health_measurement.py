"""Measurement of a table's health facts from its metadata, through PyIceberg: no JVM, no data file is opened.

Free sources come first: the totals of the head's summary, the list of snapshots, the manifest list. The head's
manifests are only read if these do not prove the files healthy. PyIceberg's `inspect` is not used: it makes an Arrow
table of every column's statistics, and `all_*` also reads what no snapshot needs any more.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from jobs.base.errors import FrazilError
from jobs.base.spark_names import spark_name
from jobs.maintenance.measure.health_facts import (
    BranchFacts,
    MisnamedColumn,
    PartitionFacts,
    TableFacts,
)
from jobs.maintenance.measure.manifest_reader import NamedFile, named_files
from jobs.maintenance.measure.partition_measurement import measure_partitions
from jobs.quality.publishing.interval import PART_MARK, UnpublishableError, branch_begin
from jobs.records.schema.column_names import partition_names, unreadable_names
from jobs.records.schema.iceberg_schema import unread_by_spark
from jobs.records.schema.needs import column_name
from jobs.tables.commit.history.branch import branches
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.publications import published_through
from jobs.tables.commit.history.stamp_history import streams_on_branch
from jobs.tables.commit.stamp.stamps import (
    BACKFILL_KEY,
    PROPERTY_PREFIX,
    SUMMARY_KEY,
    Stamp,
)

if TYPE_CHECKING:
    from jobs.config.services.maintenance_policy import Policy


_DAY_SECONDS = 86_400.0
# Commits of a few minutes do not represent a day.
_LEAST_SECONDS = 3_600.0

# If the average file has this share of the target size, compaction gains nothing (Amoro's rule).
GOOD_SHARE = 0.75
_NUMBERED = re.compile(r"/(?:(\d+)-[^/]+|v(\d+))(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_SUMMED = ("bytes", "records", "delete_files", "position_deletes", "equality_deletes")
_TOTALS = ("total-data-files", "total-files-size", "total-records")


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth by data commits over the existing part of main's history, without compactions.

    Attributes:
        bytes_per_day: Bytes of data added minus removed.
        files_per_day: Data files added.
        commits_per_day: All commits, compactions included.
        small_files: Data files added by commits with small files on average.
    """

    bytes_per_day: float = 0.0
    files_per_day: float = 0.0
    commits_per_day: float = 0.0
    small_files: int = 0


def growth(metadata: TableMetadata, now: datetime, small_below: float) -> Growth:
    """Growth up to now: without further writes, a table's growth shrinks with the time that is looked at.

    Args:
        small_below: Average size below which a commit's files are small, bytes.
    """
    kept = list(ancestors(metadata))
    if not kept:
        return Growth()
    # The oldest snapshot's commit was before the time that is looked at.
    counted = kept[:-1]
    seconds = max(now.timestamp() - kept[-1].timestamp_ms / 1000, _LEAST_SECONDS)
    days = seconds / _DAY_SECONDS
    added = [_added(snapshot) for snapshot in counted]
    return Growth(
        bytes_per_day=max(0.0, sum(net for net, _, _ in added) / days),
        files_per_day=sum(files for _, files, _ in added) / days,
        commits_per_day=len(counted) / days,
        small_files=sum(files for _, files, size in map(_added, kept) if files and size / files < small_below),
    )


def _added(snapshot: Snapshot) -> tuple[int, int, int]:
    """Bytes added minus removed, files added, bytes added; zero for a rewrite."""
    summary = snapshot.summary
    if summary is None or summary.operation is Operation.REPLACE or BACKFILL_KEY in summary.additional_properties:
        return 0, 0, 0
    counts = summary.additional_properties
    size = int(counts.get("added-files-size", 0))
    return size - int(counts.get("removed-files-size", 0)), int(counts.get("added-data-files", 0)), size


def measure_branches(metadata: TableMetadata, io: FileIO, main: Sequence[ManifestFile]) -> tuple[BranchFacts, ...]:
    """Measure each branch other than main.

    Args:
        metadata: The table's whole metadata, not seen from a branch.
        main: Manifests of main's head.

    Raises:
        FileNotFoundError: A manifest is missing, because snapshots expire at this moment.
    """
    found: list[BranchFacts] = []
    of_main: set[str] | None = None
    for name in sorted(branches(metadata)):
        head = metadata.snapshot_by_id(metadata.refs[name].snapshot_id)
        if name == MAIN_BRANCH or head is None:
            continue
        manifests = head.manifests(io)
        # Manifests that both have need not be read.
        shared = {each.manifest_path for each in main} & {each.manifest_path for each in manifests}
        own = [each for each in manifests if each.manifest_path not in shared]
        if own and of_main is None:
            of_main = {file.path for file in _files(main, io)}
        lacking = [file for file in _files(own, io) if file.path not in (of_main or set())]
        had = _known_to_main(metadata, name)
        replaced = [file for file in lacking if had(file)]
        size, replaced_size = (sum(file.size for file in each) for each in (lacking, replaced))
        summary = head.summary.additional_properties if head.summary else {}
        total, total_size = (int(summary.get(key, 0)) for key in ("total-data-files", "total-files-size"))
        more = len(lacking) - len(replaced)
        found.append(BranchFacts(name, total, total_size, len(replaced), replaced_size, more, size - replaced_size))
    return tuple(found)


def _files(manifests: Iterable[ManifestFile], io: FileIO) -> Iterable[NamedFile]:
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA:
            yield from named_files(io, manifest)


def _known_to_main(metadata: TableMetadata, branch: str) -> Callable[[NamedFile], bool]:
    """As `_had_by_main`; an unreadable stamp of another version is reported by the expiry of snapshots."""
    try:
        return _had_by_main(metadata, branch)
    except (ValueError, KeyError, TypeError):
        return lambda file: False


def _had_by_main(metadata: TableMetadata, branch: str) -> Callable[[NamedFile], bool]:
    """Returns whether main has had a file of a branch, by the publications of the stream that added it."""
    try:
        begin = branch_begin(metadata, branch)
    except UnpublishableError:
        begin = 0
    streams = {each.partition(PART_MARK)[0] for each in streams_on_branch(metadata, branch)}
    stands = {each: max(published_through(metadata, each, branch) or 0, begin) for each in streams}
    whose: dict[int, str] = {}
    for each in ancestors(metadata, metadata.refs[branch].snapshot_id):
        text = each.summary.additional_properties.get(SUMMARY_KEY) if each.summary else None
        if text:
            whose[each.snapshot_id] = Stamp.from_json(text).stream.partition(PART_MARK)[0]
    furthest = max(stands.values(), default=begin)
    return lambda file: file.sequence <= stands.get(whose.get(file.snapshot_id or -1, ""), furthest)


def measure_health(table: Table, policy: Policy, now: datetime, *, deep: bool | None = None) -> TableFacts:
    """Measure a table's health from its metadata.

    Args:
        table: The table as loaded; it is loaded again if somebody expired what is about to be read.
        policy: Limits for small and for many.
        deep: Whether to read the partitions; None: if the totals do not prove the files healthy.

    Raises:
        FrazilError: The metadata name a file that does not exist.
    """
    try:
        return _measured(table, policy, now, deep)
    except FileNotFoundError:
        # Most likely the snapshot expired since the table was loaded.
        table.refresh()
    try:
        return _measured(table, policy, now, deep)
    except FileNotFoundError as gone:
        name = ".".join(table.name())
        raise FrazilError(
            f"table {name}: its metadata name a file that is not there. {gone}",
            fix=f"restore that file, or in Spark: CALL system.rollback_to_snapshot('{spark_name(name)}', "
            "<an earlier snapshot>)",
        ) from None


def _measured(table: Table, policy: Policy, now: datetime, deep: bool | None) -> TableFacts:
    metadata, head = table.metadata, table.current_snapshot()
    manifests = head.manifests(table.io) if head else []
    small_below = policy.compact.small
    rates = growth(metadata, now, small_below)
    facts = replace(
        _from_snapshots(table, now),
        manifests=len(manifests),
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
        delete_manifests=sum(manifest.content == ManifestContent.DELETES for manifest in manifests),
        manifest_groups=_groups(manifests),
        mixed_specs=any(_lists_files(m) and m.partition_spec_id != metadata.default_spec_id for m in manifests),
        bytes_per_day=rates.bytes_per_day,
        files_per_day=rates.files_per_day,
        commits_per_day=rates.commits_per_day,
        branches=measure_branches(metadata, table.io, manifests),
    )
    totals = _totals(head)
    if totals is not None:
        facts = replace(facts, **totals)
        hidden = rates.small_files >= policy.compact.min_files
        # Whether files are sorted depends on their partition, however large they are.
        sorts = policy.compact.strategy != "binpack"
        if deep is None:
            deep = hidden or sorts or not is_healthy(facts, policy)
    if deep or (deep is None and head is not None):
        return _with_partitions(facts, measure_partitions(metadata, table.io, manifests))
    return facts


def is_healthy(facts: TableFacts, policy: Policy) -> bool:
    """Whether the totals alone prove the table healthy; the average can hide small files, see `Growth`."""
    return (
        (not facts.data_files or facts.average_file >= GOOD_SHARE * policy.compact.target)
        and not facts.delete_files
        and facts.manifests <= policy.manifests.max
        and facts.snapshots <= policy.expire.max_snapshots
    )


def _from_snapshots(table: Table, now: datetime) -> TableFacts:
    metadata, head = table.metadata, table.current_snapshot()
    times = tuple(sorted(_time(snapshot.timestamp_ms) for snapshot in metadata.snapshots))
    metadata_bytes, partitions = 0, partition_names(table.schema(), metadata.partition_specs)
    with contextlib.suppress(FileNotFoundError):
        metadata_bytes = len(table.io.new_input(table.metadata_location))
    return TableFacts(
        name=".".join(table.name()),
        uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        spec_id=metadata.default_spec_id,
        measured_at=now,
        snapshot_id=head.snapshot_id if head else None,
        sequence=(head.sequence_number or 0) if head else 0,
        snapshots=len(times),
        snapshot_times=times,
        metadata_bytes=metadata_bytes,
        created_at=_created_at(table),
        previous_metadata=len(metadata.metadata_log),
        location=metadata.location,
        unread=tuple(unread_by_spark(table.schema())),
        misnamed=tuple(
            MisnamedColumn(name := column_name(path), why, loads=name not in partitions)
            for path, why in unreadable_names(metadata)
        ),
        refs=tuple(sorted(name for name in metadata.refs if name != MAIN_BRANCH)),
        properties=dict(metadata.properties),
        streams=tuple(
            sorted(key.removeprefix(PROPERTY_PREFIX) for key in metadata.properties if key.startswith(PROPERTY_PREFIX))
        ),
    )


def _created_at(table: Table) -> datetime | None:
    """Time of the first metadata file, if the present one lists all before it.

    Catalogs number the files from 0: `00012-….metadata.json` has twelve before it. So does a Hadoop catalog's `v13`.
    """
    found = _NUMBERED.search(table.metadata_location)
    if found is None:
        return None
    before = int(found[1]) if found[1] else int(found[2]) - 1
    former = table.metadata.metadata_log
    if before != len(former):
        return None
    return _time(min([table.metadata.last_updated_ms, *(each.timestamp_ms for each in former)]))


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _lists_files(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()


def _groups(manifests: Iterable[ManifestFile]) -> tuple[int, ...]:
    sizes: defaultdict[tuple[int, ManifestContent], int] = defaultdict(int)
    for manifest in manifests:
        if _lists_files(manifest):
            sizes[manifest.partition_spec_id, manifest.content] += manifest.manifest_length
    return tuple(size for _, size in sorted(sizes.items()))


def _totals(head: Snapshot | None) -> dict[str, int] | None:
    """Totals of the head's summary; None if its writer left them out."""
    summary = head.summary.additional_properties if head and head.summary else {}
    if any(key not in summary for key in _TOTALS):
        return None
    data_files, size, records = (int(summary[key]) for key in _TOTALS)
    return {
        "data_files": data_files,
        "bytes": size,
        "records": records,
        "delete_files": int(summary.get("total-delete-files", 0)),
        "position_deletes": int(summary.get("total-position-deletes", 0)),
        "equality_deletes": int(summary.get("total-equality-deletes", 0)),
    }


def _with_partitions(facts: TableFacts, partitions: tuple[PartitionFacts, ...]) -> TableFacts:
    """Totals counted from the files: a summary's are sums over all commits, and some writers miscount."""
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in partitions) for name in _SUMMED}
    return replace(facts, partitions=partitions, data_files=sum(each.files for each in partitions), **sums)
