"""Measurement of a table's health facts from its metadata, through PyIceberg: no JVM, no data file is opened.

What costs nothing comes first: the totals of the head's summary, the list of snapshots, the manifest list. Only where
they do not say that the files are well are the head's manifests read, once each. PyIceberg's `inspect` is not used: it
makes an Arrow table of every column's statistics, and `all_*` reads what no snapshot needs any more.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.commit.stamps import PROPERTY_PREFIX
from jobs.errors import FrazilError
from jobs.maintain.branch_measurement import measure_branches
from jobs.maintain.health_facts import MisnamedColumn, PartitionFacts, TableFacts
from jobs.maintain.partition_measurement import measure_partitions
from jobs.maintain.table_growth import growth
from jobs.schema.column_names import partition_names, unreadable_names
from jobs.schema.iceberg_schema import unread_by_spark
from jobs.schema.needs import column_name

if TYPE_CHECKING:
    from jobs.spec.maintenance_policy import Policy

# Where the average file has this share of the target, compaction has nothing to win (Amoro's rule).
GOOD_SHARE = 0.75
_NUMBERED = re.compile(r"/(?:(\d+)-[^/]+|v(\d+))(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_SUMMED = ("bytes", "records", "delete_files", "position_deletes", "equality_deletes")
_TOTALS = ("total-data-files", "total-files-size", "total-records")


def measure_health(table: Table, policy: Policy, now: datetime, *, deep: bool | None = None) -> TableFacts:
    """Measure a table's health from its metadata.

    Args:
        table: As loaded; loaded again where somebody expired what it was about to read.
        policy: What counts as small and as many.
        now: With its zone.
        deep: Whether to look at the partitions; None: where the totals do not say that the files are well.

    Raises:
        FrazilError: The metadata name a file that is not there.
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
            fix=f"restore that file, or in Spark: CALL system.rollback_to_snapshot('{name}', <an earlier snapshot>)",
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
        # Whether files are sorted is a matter of their partition, however large they are.
        sorts = policy.compact.strategy != "binpack"
        if deep is None:
            deep = hidden or sorts or not is_healthy(facts, policy)
    if deep or (deep is None and head is not None):
        return _with_partitions(facts, measure_partitions(metadata, table.io, manifests))
    return facts


def is_healthy(facts: TableFacts, policy: Policy) -> bool:
    """Whether the totals alone say that the table is well; the average can hide small files, see `Growth`."""
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
    """When the first metadata file was written, if the present one names all that came before it.

    Catalogs number the files from 0: `00012-….metadata.json` has twelve before it; a Hadoop catalog's `v13` as well.
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
    """The totals of the head's summary; None where its writer left them out."""
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
    """The totals as the files are: a summary's are sums over all commits, and some writers miscount."""
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in partitions) for name in _SUMMED}
    return replace(facts, partitions=partitions, data_files=sum(each.files for each in partitions), **sums)
