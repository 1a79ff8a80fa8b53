"""A table's health from its metadata, through PyIceberg: no JVM, no data file is opened.

What costs nothing comes first: the totals of the head's summary, the list of snapshots, the manifest list. Only where
they do not say that the files are well are the head's manifests read, once each. PyIceberg's `inspect` is not used: it
makes an Arrow table of every column's statistics, and `all_*` reads what no snapshot needs any more.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.commit.stamps import PROPERTY_PREFIX
from jobs.errors import FrazilError
from jobs.maintain.facts import PartitionFacts, TableFacts
from jobs.maintain.growth import growth
from jobs.maintain.live_files import LiveFile, live_files
from jobs.maintain.partition_keys import PartitionKeys, partition_name
from jobs.write.partitioning import partition_key

if TYPE_CHECKING:
    from jobs.spec.policy import Policy

# Where the average file has this share of the target, compaction has nothing to win (Amoro's rule).
GOOD_SHARE = 0.75
_DATA, _POSITIONS = 0, 1
_NUMBERED = re.compile(r"/(?:(\d+)-[^/]+|v(\d+))(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_READERS = 8
_TOTALS = ("total-data-files", "total-files-size", "total-records")


def measure(table: Table, policy: Policy, now: datetime, *, deep: bool | None = None) -> TableFacts:
    """What the table's metadata say of its health.

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
        small_manifests=sum(
            manifest.content == ManifestContent.DATA and manifest.manifest_length < policy.manifests.target / 4
            for manifest in manifests
        ),
        delete_manifests=sum(manifest.content == ManifestContent.DELETES for manifest in manifests),
        manifest_groups=_groups(manifests),
        mixed_specs=any(_lists_files(m) and m.partition_spec_id != metadata.default_spec_id for m in manifests),
        bytes_per_day=rates.bytes_per_day,
        files_per_day=rates.files_per_day,
        commits_per_day=rates.commits_per_day,
    )
    totals = _totals(head)
    if totals is not None:
        facts = replace(facts, **totals)
        hidden = rates.small_files >= policy.compact.min_files
        # Whether files are sorted is a matter of their partition, however large they are.
        sorts = policy.compact.strategy != "binpack"
        if deep is None:
            deep = hidden or sorts or not well(facts, policy)
    if deep or (deep is None and head is not None):
        return _with_partitions(facts, partitions_of(metadata, table.io, manifests))
    return facts


def well(facts: TableFacts, policy: Policy) -> bool:
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
    metadata_bytes = 0
    with contextlib.suppress(FileNotFoundError):
        metadata_bytes = len(table.io.new_input(table.metadata_location))
    return TableFacts(
        name=".".join(table.name()),
        uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        location=table.location(),
        spec_id=metadata.default_spec_id,
        measured_at=now,
        snapshot_id=head.snapshot_id if head else None,
        sequence=(head.sequence_number or 0) if head else 0,
        snapshots=len(times),
        oldest_at=times[0] if times else None,
        newest_at=times[-1] if times else None,
        snapshot_times=times,
        metadata_bytes=metadata_bytes,
        created_at=_created_at(table),
        previous_metadata=len(metadata.metadata_log),
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
    return replace(
        facts,
        partitions=partitions,
        data_files=sum(each.files for each in partitions),
        bytes=sum(each.bytes for each in partitions),
        records=sum(each.records for each in partitions),
        delete_files=sum(each.delete_files for each in partitions),
        position_deletes=sum(each.position_deletes for each in partitions),
        equality_deletes=sum(each.equality_deletes for each in partitions),
    )


@dataclass(slots=True)
class _Sum:
    sizes: list[int] = field(default_factory=list)
    records: int = 0
    delete_files: int = 0
    delete_bytes: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0
    newest_ms: int = -1

    def add(self, file: LiveFile, committed_ms: int) -> None:
        if file.content == _DATA:
            self.sizes.append(file.size)
            self.records += file.records
            self.newest_ms = max(self.newest_ms, committed_ms)
            return
        self.delete_files += 1
        self.delete_bytes += file.size
        if file.content == _POSITIONS:
            self.position_deletes += file.records
        else:
            self.equality_deletes += file.records


def partitions_of(metadata: TableMetadata, io: FileIO, manifests: Sequence[ManifestFile]) -> tuple[PartitionFacts, ...]:
    """The files of some manifests of one snapshot by partition, those of older specs first.

    Raises:
        FileNotFoundError: A manifest is gone.
    """
    committed = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    sums: defaultdict[tuple[int, tuple[Any, ...]], _Sum] = defaultdict(_Sum)
    values: dict[tuple[int, tuple[Any, ...]], tuple[Any, ...]] = {}
    for manifest, files in zip(manifests, _read(io, manifests), strict=True):
        for file in files:
            key = (manifest.partition_spec_id, partition_key(file.partition))
            values.setdefault(key, file.partition)
            sums[key].add(file, committed.get(file.snapshot_id or -1, -1))
    keys = PartitionKeys(metadata)
    found = [_facts(keys, key[0], values[key], total) for key, total in sums.items()]
    return tuple(sorted(found, key=lambda each: (each.spec_id, each.name)))


def _read(io: FileIO, manifests: Sequence[ManifestFile]) -> Iterable[list[LiveFile]]:
    if len(manifests) < 2:
        return [live_files(io, manifest) for manifest in manifests]
    # In an object store each is a round trip, which they can wait for together.
    with ThreadPoolExecutor(min(_READERS, len(manifests)), "manifests") as pool:
        return list(pool.map(partial(live_files, io), manifests))


def _facts(keys: PartitionKeys, spec_id: int, partition: tuple[Any, ...], total: _Sum) -> PartitionFacts:
    values = keys.values(spec_id, partition)
    return PartitionFacts(
        spec_id=spec_id,
        values=values,
        name=partition_name(values),
        sizes=tuple(sorted(total.sizes)),
        records=total.records,
        delete_files=total.delete_files,
        delete_bytes=total.delete_bytes,
        position_deletes=total.position_deletes,
        equality_deletes=total.equality_deletes,
        newest_at=_time(total.newest_ms) if total.newest_ms >= 0 else None,
    )
