"""What is done to a table as a whole: manifests, orphans, properties; and to delete files by partition. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobs.maintain.facts import PartitionFacts, TableFacts
from jobs.maintain.history import Maintained
from jobs.maintain.plan_compact import is_cold
from jobs.maintain.plan_expire import garbage_collection
from jobs.maintain.plan_parts import Moment, Skip, Step, duration_text, ours
from jobs.maintain.score import size_text
from jobs.spec.durations import format_duration

if TYPE_CHECKING:
    from jobs.spec.policy import Manifests, Metadata, Orphans, Policy

# Many small delete files make a reader open one for each data file.
_MANY_DELETE_FILES = 100
_SMALL_DELETE_FILE = 8 * 1024**2
# Where they are only small, and not many: as many as Iceberg itself waits for.
_A_FEW = 5
_EVERY = timedelta(days=1)
_SMALL_MANIFEST = 2 * 1024**2
_MANY_MANIFESTS = 20
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
_PREVIOUS_BY_DEFAULT = 100
MANIFEST_TARGET = "commit.manifest.target-size-bytes"
_MANIFEST_TARGET = 8 * 1024**2


def position_deletes(at: Moment, policy: Policy, compacted: Collection[Step]) -> Iterator[Step | Skip]:
    """Yields the partitions whose delete files are brought together, after data files were rewritten.

    Args:
        compacted: The steps that apply deletes in the same run; what each of them leaves behind is dropped here.
    """
    facts = at.facts
    if facts.format_version != 2 or not policy.compact.enabled:
        if facts.position_deletes:
            why = "has a deletion vector for each data file" if facts.format_version > 2 else "is not to be compacted"
            yield Skip("position_deletes", "", f"The table {why}: there is nothing to bring together.")
        return
    applied = {_key(step.partition) for step in compacted if step.partition}
    partitions = [each for each in facts.partitions or () if each.position_deletes]
    left = [each for each in partitions if _key(each) not in applied]
    files, size = sum(each.delete_files for each in left), sum(each.delete_bytes for each in left)
    fewest = 2 if files > _MANY_DELETE_FILES else _A_FEW if files and size / files < _SMALL_DELETE_FILE else 0
    for partition in partitions:
        if _key(partition) in applied:
            yield _of_deletes(at, partition, "Drops what its compaction leaves of deletes that are applied.")
        elif fewest and partition.delete_files >= fewest and partition.dropped is not None:
            gone = f"Its column was dropped ({partition.dropped}), so no condition tells its delete files from others."
            yield Skip("position_deletes", partition.name, gone)
        # Equality deletes are not rewritten, and nobody counts the two apart.
        elif fewest and partition.delete_files >= fewest and not partition.equality_deletes:
            said = f"{partition.delete_files:,} delete files of {size_text(partition.delete_bytes)}"
            said = f"{said} ({files:,} in the table, of {size_text(size / files)} on average)"
            since = at.since("position_deletes", partition)
            if not is_cold(partition, at, policy.compact):
                why = f"{said}: it is still written to, and a merge may add to them."
                yield Skip("position_deletes", partition.name, why)
            elif since is not None and since < _EVERY:
                yield Skip("position_deletes", partition.name, f"Not due: {said}; done {duration_text(since)} ago.")
            else:
                yield _of_deletes(at, partition, f"{said}.")


def _key(partition: PartitionFacts) -> tuple[int, str]:
    return partition.spec_id, partition.name


def _of_deletes(at: Moment, partition: PartitionFacts, reason: str) -> Step:
    size = partition.delete_bytes
    return Step(
        "position_deletes",
        partition.name,
        partition,
        reason,
        files_before=partition.delete_files,
        files_after=1,
        bytes=size,
        seconds=at.seconds("position_deletes", size),
        detail={"min_input_files": 2},
    )


def manifests(at: Moment, policy: Manifests, commits: int = 0) -> Step | Skip:
    """Returns whether the manifests are written anew: only where at least half of them go.

    Args:
        at: The table.
        policy: What is much.
        commits: That the steps before make in the same run, at most. Each adds a manifest, and what they leave is to be
            well, too: so it is judged with them.
    """
    facts = at.facts
    if not policy.enabled:
        return Skip("manifests", "", "manifests.enabled is false.")
    if not facts.manifests:
        return Skip("manifests", "", "Healthy: no manifests.")
    number = facts.manifests + commits
    average = facts.manifest_bytes / number
    after = _manifests_after(facts)
    said = f"{facts.manifests:,} manifests of {size_text(facts.manifest_bytes / facts.manifests)} on average"
    said += f", and up to {commits:,} more by the steps before" if commits else ""
    reasons: list[str] = []
    if number > policy.max:
        reasons.append(f"more than {policy.max}")
    if number > _MANY_MANIFESTS and average < _SMALL_MANIFEST:
        reasons.append(f"more than {_MANY_MANIFESTS} below {size_text(_SMALL_MANIFEST)}")
    if number > _MANY_MANIFESTS and facts.mixed_specs:
        reasons.append("of more than one partition spec")
    if not reasons:
        return Skip("manifests", "", f"Healthy: {said}.")
    if 2 * after > number:
        return Skip("manifests", "", f"{said}, {', '.join(reasons)}; but {after:,} would be left, too many to pay.")
    return Step(
        "manifests",
        "",
        None,
        f"{said}, {', '.join(reasons)}.",
        files_before=facts.manifests,
        files_after=after,
        bytes=facts.manifest_bytes,
        seconds=at.seconds("manifests", facts.manifest_bytes),
    )


def _manifests_after(facts: TableFacts) -> int:
    """How many are left: of each partition spec, of data and of deletes by themselves, as many as their bytes fill."""
    told = str(facts.properties.get(MANIFEST_TARGET, ""))
    # Iceberg's procedure takes no other size.
    target = int(told) if told.isdecimal() and int(told) else _MANIFEST_TARGET
    if facts.manifest_groups:
        return sum(max(1, math.ceil(size / target)) for size in facts.manifest_groups)
    kinds = 1 + bool(facts.delete_manifests) + facts.mixed_specs
    return max(kinds, math.ceil(facts.manifest_bytes / target) + kinds - 1)


def orphans(at: Moment, policy: Orphans) -> Step | Skip:
    """Returns whether files that nothing refers to are looked for."""
    facts = at.facts
    if not policy.enabled:
        return Skip("orphans", "", "orphans.enabled is false.")
    if (collected := garbage_collection(at)) is not None:
        return Skip("orphans", "", collected)
    older = format_duration(policy.older_than)
    born = birth(facts, at.maintained)
    if facts.snapshot_id is None or (born is not None and at.now - born < policy.older_than):
        return Skip("orphans", "", f"Not due: the table is younger than {older}, and so is every file of it.")
    since, every = at.since("orphans"), format_duration(policy.every)
    if since is not None and since < policy.every:
        return Skip("orphans", "", f"Not due: looked for {duration_text(since)} ago, which is done every {every}.")
    last = "Never looked for yet" if since is None else f"Last looked for {duration_text(since)} ago"
    return Step(
        "orphans",
        "",
        None,
        f"{last}, which is done every {every}: files older than {older} that nothing refers to.",
        seconds=at.seconds("orphans"),
        detail={
            "older_than": (at.now - policy.older_than).isoformat(),
            "max_share": policy.max_share,
            "max_files": policy.max_files,
        },
    )


def birth(facts: TableFacts, maintained: Maintained) -> datetime | None:
    """When the table was made, as far as anything tells; None if nothing does.

    Before that no file of it was written. Once snapshots have expired and metadata files have gone, only what was noted
    before tells.
    """
    # While no snapshot has expired there are as many as there were commits. Format version 1 does not number them.
    whole = facts.oldest_at if facts.sequence and facts.sequence == facts.snapshots else None
    known = (facts.created_at, maintained.born, whole)
    return min((each for each in known if each is not None), default=None)


def metadata(at: Moment, policy: Metadata) -> Step | Skip:
    """Returns the properties without which former versions of the metadata file would stay for ever, or too many."""
    facts = at.facts
    if not policy.enabled:
        return Skip("metadata", "", "metadata.enabled is false.")
    if not ours(facts):
        return Skip("metadata", "", "frazil does not write this table, and leaves its properties to those who do.")
    wanted: dict[str, str | int | float] = {}
    if str(facts.properties.get(DELETE_AFTER_COMMIT, "false")).lower() != "true":
        wanted[DELETE_AFTER_COMMIT] = "true"
    versions = str(facts.properties.get(PREVIOUS_VERSIONS, _PREVIOUS_BY_DEFAULT))
    if not versions.isdecimal() or int(versions) > policy.previous_versions:
        wanted[PREVIOUS_VERSIONS] = str(policy.previous_versions)
    before = facts.previous_metadata
    if not wanted:
        return Skip("metadata", "", f"Healthy: {before:,} former versions of the metadata, at most {versions}.")
    return Step(
        "metadata",
        "",
        None,
        f"{before:,} former versions of the metadata; to be set: {', '.join(f'{k}={v}' for k, v in wanted.items())}.",
        files_before=before,
        files_after=min(before, policy.previous_versions),
        seconds=at.seconds("metadata"),
        detail=wanted,
    )
