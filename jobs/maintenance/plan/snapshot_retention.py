"""Snapshot retention: which snapshots Iceberg would keep, and how far policy and holds allow expiry. Pure functions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError
from jobs.config.services.maintenance_policy import Expire
from jobs.proof.lookup.tags import ends_at, tags_of
from jobs.tables.commit.history.branch import branches
from jobs.tables.commit.history.lineage import ancestors

# Summary entries of Iceberg's write-audit-publish: of a staged write, and of its publication.
_STAGED, _PUBLISHED = "wap.id", "published-wap-id"


@dataclass(frozen=True, slots=True)
class SnapshotHold:
    """Reason to keep snapshots: somebody who still needs them.

    Attributes:
        what: Holder, such as `reader dashboards`, `ledger`.
        since: Snapshots from this instant on stay.
        why: Reason, a sentence without its full stop.
        warn: Whether a person should look into it.
    """

    what: str
    since: datetime
    why: str
    warn: bool = False


@dataclass(frozen=True, slots=True)
class ExpiryCutoff:
    """Cutoff of an expiry.

    Attributes:
        older_than: Older snapshots go, except `retain_last`.
        retain_last: Number of main's snapshots that always stay.
        going: Number of expiring snapshots; never one between two that stay.
        staying: Number of remaining snapshots.
        holds: Holds on snapshots that the policy would let go, the one that keeps the most first; tags last, each of
            which keeps one.
        oldest_going: Commit time of the oldest expiring snapshot; None without one.
    """

    older_than: datetime
    retain_last: int
    going: int
    staying: int
    holds: tuple[SnapshotHold, ...] = ()
    oldest_going: datetime | None = None


def without_age_limit(table: str, branch: str) -> str:
    """The command that takes the age limits of a branch away, and leaves it at its snapshot.

    Spark's `REPLACE BRANCH` would keep the limits, and without a version it moves the branch to the head of main.
    """
    name = json.dumps(branch, ensure_ascii=False)
    statements = (
        f"table = catalog.load_table({json.dumps(table, ensure_ascii=False)})",
        f"head = table.refs()[{name}].snapshot_id",
        f"table.manage_snapshots().create_branch(head, {name}).commit()",
    )
    return f"frazil shell -c {shlex.quote('; '.join(statements))}"


def expiry_cutoff(
    metadata: TableMetadata,
    policy: Expire,
    holds: Iterable[SnapshotHold],
    now: datetime,
    table: str,
    written: Collection[str] = (),
) -> ExpiryCutoff:
    """Cutoff by age, or by number if that takes more; never beyond a hold.

    Args:
        written: Branches beside main that streams write; they have to stay.

    Raises:
        FrazilError: A branch has its own age limit, by which Iceberg would expire held snapshots, or the branch of a
            stream.
    """
    wanted = now - policy.keep
    if len(metadata.snapshots) > policy.max_snapshots:
        # Ordered by commit: by time, a host whose clock is ahead would make others' newest snapshots expire.
        ordered = sorted(metadata.snapshots, key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
        wanted = max(wanted, min(snapshot_time(snapshot) for snapshot in ordered[-policy.max_snapshots :]))
    everybody = [*holds, *_promised(metadata, policy, now), *_staged(metadata, policy, now)]
    held = sorted(everybody, key=lambda hold: hold.since)
    needed = cutoff_since(metadata, held[0].since) if held else now
    older_than = min(wanted, needed)
    for branch in sorted({MAIN_BRANCH, *written} & set(metadata.refs)):
        ref = metadata.refs[branch]
        if held and ref.max_snapshot_age_ms is not None:
            limit = now - timedelta(milliseconds=ref.max_snapshot_age_ms)
            if limit > needed:
                raise FrazilError(
                    f"table {table}: its branch {branch} has an age limit of its own, {ref.max_snapshot_age_ms} ms, by "
                    f"which Iceberg would take snapshots that are needed by {held[0].what}. Nothing expired.",
                    fix=without_age_limit(table, branch),
                )
        head = metadata.snapshot_by_id(ref.snapshot_id)
        lives = timedelta(milliseconds=ref.max_ref_age_ms) if ref.max_ref_age_ms is not None else None
        if branch != MAIN_BRANCH and lives is not None and head is not None and snapshot_time(head) < now - lives:
            raise FrazilError(
                f"table {table}: its branch {branch}, which a stream writes, has an age limit of its own, "
                f"{ref.max_ref_age_ms} ms, by which Iceberg would drop it. Nothing expired.",
                fix=without_age_limit(table, branch),
            )
    stay = kept_snapshots(metadata, older_than, policy.min_snapshots, now)
    gone = [snapshot_time(snapshot) for snapshot in metadata.snapshots if snapshot.snapshot_id not in stay]
    keeping = [hold for hold in held if hold.since < wanted or hold.warn or (hold is held[0] and needed < wanted)]
    return ExpiryCutoff(
        older_than,
        policy.min_snapshots,
        len(gone),
        len(stay),
        (*keeping, *_tagged(metadata, older_than, policy.min_snapshots, now)),
        min(gone, default=None),
    )


def _tagged(metadata: TableMetadata, older_than: datetime, retain_last: int, now: datetime) -> Iterator[SnapshotHold]:
    """Tags whose snapshots would expire without them; a tag keeps nothing else."""
    untagged = {k: ref for k, ref in metadata.refs.items() if ref.snapshot_ref_type == SnapshotRefType.BRANCH}
    without = kept_snapshots(metadata.model_copy(update={"refs": untagged}), older_than, retain_last, now)
    for tag in tags_of(metadata):
        if tag.snapshot_id not in without and tag.committed_at and (tag.until is None or tag.until >= now):
            yield SnapshotHold(f"tag {tag.name} ({tag.reason})", tag.committed_at, tag.reason)


def _promised(metadata: TableMetadata, policy: Expire, now: datetime) -> Iterator[SnapshotHold]:
    if policy.time_travel is not None:
        since = head_time_at(metadata, now - policy.time_travel)
        yield SnapshotHold("expire.time_travel", since, "readers are promised to see so far back")


def _staged(metadata: TableMetadata, policy: Expire, now: datetime) -> Iterator[SnapshotHold]:
    """Staged writes of Iceberg's write-audit-publish that are on no branch yet, held for `expire.keep`."""
    reached = {each.snapshot_id for ref in metadata.refs.values() for each in ancestors(metadata, ref.snapshot_id)}
    summaries = [each.summary.additional_properties if each.summary else {} for each in metadata.snapshots]
    published = {summary.get(_PUBLISHED) for summary in summaries}
    for snapshot, summary in zip(metadata.snapshots, summaries, strict=True):
        staged, since = summary.get(_STAGED), snapshot_time(snapshot)
        if staged and staged not in published and snapshot.snapshot_id not in reached and since >= now - policy.keep:
            yield SnapshotHold(
                f"staged write {staged}", since, f"its snapshot {snapshot.snapshot_id} is not published yet"
            )


def snapshot_time(snapshot: Snapshot) -> datetime:
    """Commit time of a snapshot."""
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


def head_time_at(metadata: TableMetadata, at: datetime) -> datetime:
    """Commit time of main's head at an instant; the instant itself if there was none."""
    return next((when for snapshot in ancestors(metadata) if (when := snapshot_time(snapshot)) <= at), at)


def cutoff_since(metadata: TableMetadata, since: datetime) -> datetime:
    """Cutoff that keeps everything committed since then.

    Iceberg walks each branch from its head, and expires everything from the first snapshot older than the cutoff. If
    hosts' clocks differ, that may be a snapshot committed after what has to stay.
    """
    cutoff = since
    for branch in branches(metadata):
        times = [snapshot_time(snapshot) for snapshot in ancestors(metadata, metadata.refs[branch].snapshot_id)]
        last = max((index for index, when in enumerate(times) if when >= since), default=-1)
        cutoff = min([cutoff, *times[: last + 1]])
    return cutoff


def kept_snapshots(metadata: TableMetadata, older_than: datetime, retain_last: int, now: datetime) -> set[int]:
    """Ids of the snapshots that Iceberg keeps.

    On a branch these are all snapshots before the first that may expire. Snapshots of tags stay as well, and young ones
    on neither. Tags and branches whose own age limit has passed are removed first, but never main.
    """
    stays: set[int] = set()
    reached: set[int] = set()
    for name, ref in metadata.refs.items():
        if name != MAIN_BRANCH and (ends := ends_at(metadata, ref)) is not None and ends < now:
            continue
        if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            stays.add(ref.snapshot_id)
            continue
        # A branch without its own limits uses those of the call.
        age, least = ref.max_snapshot_age_ms, ref.min_snapshots_to_keep or retain_last
        oldest = older_than if age is None else now - timedelta(milliseconds=age)
        chain = list(ancestors(metadata, ref.snapshot_id))
        reached |= {snapshot.snapshot_id for snapshot in chain}
        for index, snapshot in enumerate(chain):
            if index >= least and snapshot_time(snapshot) < oldest:
                break
            stays.add(snapshot.snapshot_id)
    young = {each.snapshot_id for each in metadata.snapshots if snapshot_time(each) >= older_than}
    return (stays | (young - reached)) & {each.snapshot_id for each in metadata.snapshots}
