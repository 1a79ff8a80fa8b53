"""Delete files in a plan: which partitions' position deletes are brought together, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.maintain.health_facts import PartitionFacts
from jobs.maintain.plan import PlanInput, Skip, Step, is_mirror
from jobs.maintain.plan_compaction import is_cold, no_place
from jobs.maintain.text import duration_text, size_text

if TYPE_CHECKING:
    from jobs.spec.maintenance_policy import Policy

# Many small delete files make a reader open one for each data file.
_MANY_DELETE_FILES = 100

_SMALL_DELETE_FILE = 8 * 1024**2

# Where they are only small, and not many: as many as Iceberg itself waits for.
_A_FEW = 5

_EVERY = timedelta(days=1)


def plan_position_deletes(at: PlanInput, policy: Policy, compacted: Collection[Step]) -> Iterator[Step | Skip]:
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
        elif fewest and partition.delete_files >= fewest and (why := no_place(partition, facts)) is not None:
            yield Skip("position_deletes", partition.name, why)
        # Equality deletes are not rewritten, and nobody counts the two apart.
        elif fewest and partition.delete_files >= fewest and not partition.equality_deletes:
            said = f"{partition.delete_files:,} delete files of {size_text(partition.delete_bytes)}"
            said = f"{said} ({files:,} in the table, of {size_text(size / files)} on average)"
            since = at.since("position_deletes", partition)
            if not is_cold(partition, at, policy.compact) and not is_mirror(at.facts):
                why = f"{said}: it is still written to, and a merge may add to them."
                yield Skip("position_deletes", partition.name, why)
            elif is_mirror(at.facts) and partition.delete_files <= partition.files:
                # Spark's merges write that of a data file anew with what they add, small ones join eight of a kind.
                why = f"{said}: merges bring them together."
                yield Skip("position_deletes", partition.name, why)
            elif since is not None and since < _EVERY:
                yield Skip("position_deletes", partition.name, f"Not due: {said}; done {duration_text(since)} ago.")
            else:
                yield _of_deletes(at, partition, f"{said}.")


def _key(partition: PartitionFacts) -> tuple[int, str]:
    return partition.spec_id, partition.name


def _of_deletes(at: PlanInput, partition: PartitionFacts, reason: str) -> Step:
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
