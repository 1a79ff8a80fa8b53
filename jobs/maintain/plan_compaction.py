"""Compaction in a plan: which partitions' data files are rewritten, and why. Pure.

A rule is due only where fewer files come out than go in, so that what one run leaves the next one leaves as well.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote_plus, urlsplit

from jobs.maintain.health_facts import PartitionFacts, TableFacts
from jobs.maintain.maintenance_history import MAX_ENTRIES
from jobs.maintain.plan import (
    UNDERSIZED_SHARE,
    Candidate,
    PlanInput,
    Skip,
    Step,
    files_written,
    is_mirror,
    written_by_frazil,
)
from jobs.maintain.plan_partition_specs import one_step_for_unpartitioned, with_other_specs, without_dropped_column
from jobs.maintain.text import duration_text, files_text, size_text, sized_text

if TYPE_CHECKING:
    from jobs.spec.maintenance_policy import Compact, Policy

# Larger files are left as they are: to split them costs more than it wins (Iceberg's own share).
_OVERSIZED_SHARE = 1.8
# A few small files are brought together once their writers have left, but not every time that one more comes.
_FEW_EVERY = timedelta(hours=1)
# Deletes may come to a partition with every merge, and each time all of it is rewritten.
_DELETES_EVERY = timedelta(days=1)
# Of a file system, and of an object store, in bytes; and what a key has beside the partition: the name of a file.
_MOST_OF_NAME, _MOST_OF_KEY, _REST_OF_KEY = 255, 1_024, 100
# Of a mirror they come with most merges: a day's would be thousands.
_DELETES_OF_MIRRORS_EVERY = timedelta(hours=1)


def plan_compactions(at: PlanInput, policy: Policy) -> tuple[list[Candidate], list[Skip]]:
    """Returns what would pay, the best first, and what would not."""
    facts, compact = at.facts, policy.compact
    if not compact.enabled:
        return [], [Skip("compact", "", "compact.enabled is false.")]
    if (hindered := facts.hindered(loads=True)) is not None:
        return [], [Skip("compact", "", hindered)]
    if facts.partitions is None:
        said = f"{facts.data_files:,} data files of {size_text(facts.average_file)} on average and no deletes"
        return [], [Skip("compact", "", f"Healthy: {said}; its partitions were not looked at.")]
    candidates: list[Candidate] = []
    skips: list[Skip] = []
    for partition in facts.partitions:
        found = _of_partition(at, compact, partition)
        if isinstance(found, Candidate):
            found = (
                without_dropped_column(found, partition)
                or _without_place(found, partition, facts)
                or with_other_specs(found, partition, facts, policy.budget)
            )
        if isinstance(found, Candidate):
            candidates.append(found)
        elif found is not None:
            skips.append(found)
    candidates, along = one_step_for_unpartitioned(candidates, facts)
    skips += along
    healthy = len(facts.partitions) - len(candidates) - len(skips)
    if healthy:
        whole = len(facts.partitions) == 1 and not facts.partitions[0].values
        what = "the table" if whole else f"{healthy:,} partitions"
        skips.append(Skip("compact", "", f"Healthy: there is nothing to win in the files of {what}."))
    return sorted(candidates, key=lambda each: each.rank), skips


def _without_place(found: Candidate, partition: PartitionFacts, facts: TableFacts) -> Skip | None:
    """A partition into whose folder Spark cannot write, as its name is too long; frazil shortens those of its own."""
    if (said := no_place(partition, facts)) is None:
        return None
    return Skip("compact", partition.name, f"{said} {found.step.reason}")


def no_place(partition: PartitionFacts, facts: TableFacts) -> str | None:
    """Why Spark cannot write files of a partition, with the way on; None if it can."""
    switches = [facts.properties.get(f"write.object-storage.{each}") for each in ("enabled", "partitioned-paths")]
    if partition.spec_id != facts.spec_id or switches == ["true", "false"]:
        return None
    names = [f"{quote_plus(value.name)}={quote_plus(value.text)}" for value in partition.values]
    place = urlsplit(facts.properties.get("write.data.path", f"{facts.location}/data"))
    if place.scheme in ("", "file", "hdfs"):
        longest, most, what = max(map(len, names), default=0), _MOST_OF_NAME, "a folder's name"
    else:
        longest, most, what = len(place.path) + sum(map(len, names)) + _REST_OF_KEY, _MOST_OF_KEY, "a key"
    if longest <= most:
        return None
    properties = "'write.object-storage.enabled' = 'true', 'write.object-storage.partitioned-paths' = 'false'"
    return (
        f"Spark cannot write its files: {what} would have {longest:,} bytes, and may have {most:,}. ALTER TABLE "
        f"{facts.name} SET TBLPROPERTIES ({properties}) leaves the partition out of the paths of new files."
    )


def is_cold(partition: PartitionFacts, at: PlanInput, compact: Compact) -> bool:
    """Whether its writers have left it: no new file for so long, or none whose snapshot is still there."""
    return partition.newest_at is None or partition.newest_at <= at.now - compact.cold_after


def _of_partition(at: PlanInput, compact: Compact, partition: PartitionFacts) -> Candidate | Skip | None:
    cold = is_cold(partition, at, compact)
    if not partition.files:
        return None
    found = None
    if cold and compact.strategy != "binpack":
        found = _sorting(at, compact, partition)
    found = found or _of_deletes(at, compact, partition)
    if not isinstance(found, Candidate):
        found = _of_small(at, compact, partition, cold=cold) or found
    if isinstance(found, Candidate) and not cold and (why := _must_wait(at, partition)):
        newest = f"{partition.newest_at:%H:%M} UTC" if partition.newest_at else "now"
        waits = f"{found.step.reason} It waits until {duration_text(compact.cold_after)} pass without a new file"
        return Skip("compact", partition.name, f"{waits} (the newest is of {newest}): {why}.")
    return found


def _must_wait(at: PlanInput, partition: PartitionFacts) -> str | None:
    """Why a partition that is still written to must not be rewritten now; None if only appends come."""
    if is_mirror(at.facts):
        return None
    # A run that has applied all deletes does not end the merges that they came from.
    if at.facts.delete_files or partition.delete_files or any(at.history.of("position_deletes")):
        return "the table has or had delete files, and a merge that meets a compaction fails"
    if not written_by_frazil(at.facts):
        return "frazil does not know its writers, and a merge that meets a compaction fails"
    return None


def _sorting(at: PlanInput, compact: Compact, partition: PartitionFacts) -> Candidate | Skip | None:
    order = ", ".join(str(column) for column in compact.sort_by)
    order = f"zorder({order.replace(', ', ',')})" if compact.strategy == "zorder" else order
    if at.history.sorted_as(partition.spec_id, partition.name) == order:
        return None
    forgotten = at.done("compact", partition) is None and len(at.history.entries) >= MAX_ENTRIES
    if forgotten and partition.newest_at is None:
        said = f"Whether it has been laid out by {order} is not known any more: only {MAX_ENTRIES:,} entries are kept."
        return Skip("compact", partition.name, said)
    after = files_written(partition.bytes, compact.target, UNDERSIZED_SHARE * compact.target)
    reason = (
        f"Its writers have left it, and its {files_text(partition.files)} of {size_text(partition.bytes)} are not laid "
        f"out by {order} yet."
    )
    detail = _detail(compact, partition, UNDERSIZED_SHARE * compact.target)
    detail |= {"strategy": compact.strategy, "sort_order": order, "rewrite_all": 1}
    if partition.delete_files:
        detail["remove_dangling_deletes"] = 1
    return Candidate(_step(at, partition, reason, partition.bytes + partition.delete_bytes, after, detail))


def _of_deletes(at: PlanInput, compact: Compact, partition: PartitionFacts) -> Candidate | Skip | None:
    many = partition.delete_files > compact.max_delete_files
    if not partition.delete_files or not (many or partition.delete_ratio >= compact.delete_ratio):
        return None
    limits = f"at most {compact.max_delete_files} delete files, less than {compact.delete_ratio:.0%}"
    reason = (
        f"{partition.delete_files:,} delete files for {files_text(partition.files)}, {partition.delete_ratio:.1%} of "
        f"the rows deleted ({limits})."
    )
    since = at.since("compact", partition)
    if since is not None and since < (_DELETES_OF_MIRRORS_EVERY if is_mirror(at.facts) else _DELETES_EVERY):
        return Skip("compact", partition.name, f"Not due: {reason} It was compacted {duration_text(since)} ago.")
    left = round(partition.bytes * (1 - partition.delete_ratio))
    after = files_written(left, compact.target, UNDERSIZED_SHARE * compact.target)
    detail = _detail(compact, partition, UNDERSIZED_SHARE * compact.target)
    detail |= {"delete_file_threshold": 1, "remove_dangling_deletes": 1}
    return Candidate(_step(at, partition, reason, partition.bytes + partition.delete_bytes, after, detail))


def _of_small(at: PlanInput, compact: Compact, partition: PartitionFacts, *, cold: bool) -> Candidate | Skip | None:
    """Brings together all that is undersized where that pays, else what is small."""
    since = at.since("compact", partition)
    few_due = cold and (since is None or since >= _FEW_EVERY)
    limit = max(UNDERSIZED_SHARE * compact.target, compact.small)
    undersized, small = partition.smaller(limit), partition.smaller(compact.small)
    # The small ones alone cost least to bring together: the others have to win more than that.
    alone = files_written(sum(small), compact.target, compact.small) if small else 0
    if _pays(len(undersized) - len(small) + alone, undersized, compact.target, limit):
        sized = f"{sized_text(undersized)} below {size_text(limit)}"
        if sum(undersized) >= compact.target:
            return _merging(at, compact, partition, undersized, limit, f"{sized}, enough for a whole file")
        if few_due:
            return _merging(at, compact, partition, undersized, limit, f"{sized}, and its writers have left it")
    if not _pays(len(small), small, compact.target, compact.small):
        return None
    sized = f"{sized_text(small)} below {size_text(compact.small)}"
    if len(small) >= compact.min_files:
        return _merging(at, compact, partition, small, compact.small, f"{sized} (at least {compact.min_files})")
    if sum(small) >= compact.target:
        return _merging(at, compact, partition, small, compact.small, f"{sized}, enough for a whole file")
    if few_due:
        return _merging(at, compact, partition, small, compact.small, f"{sized}, and its writers have left it")
    why = "it is still written to" if not cold else f"it was compacted {duration_text(since)} ago" if since else ""
    return Skip("compact", partition.name, f"Below the threshold: {sized} (at least {compact.min_files}), and {why}.")


def _merging(
    at: PlanInput, compact: Compact, partition: PartitionFacts, sizes: tuple[int, ...], limit: float, reason: str
) -> Candidate:
    written = files_written(sum(sizes), compact.target, limit)
    reason = f"{reason}: they become {files_text(written)}."
    after = partition.files - len(sizes) + written
    step = _step(at, partition, reason, sum(sizes), after, _detail(compact, partition, limit))
    return Candidate(step, sizes)


def _pays(files: int, sizes: tuple[int, ...], target: int, limit: float) -> bool:
    """Whether half of the files go, so that a byte is rewritten a few times in its life and not every hour."""
    return files >= 2 and 2 * files_written(sum(sizes), target, limit) <= files


def _step(
    at: PlanInput,
    partition: PartitionFacts,
    reason: str,
    size: int,
    after: int,
    detail: dict[str, str | int | float],
) -> Step:
    seconds = at.seconds("compact", size)
    return Step("compact", partition.name, partition, reason, partition.files, after, size, seconds, detail)


def _detail(compact: Compact, partition: PartitionFacts, limit: float) -> dict[str, str | int | float]:
    largest = partition.sizes[-1] if partition.sizes else 0
    return {
        "strategy": "binpack",
        "target_file_size_bytes": compact.target,
        "min_file_size_bytes": math.ceil(limit),
        # What lies outside of the two is rewritten as well; nothing that is there is too large.
        "max_file_size_bytes": max(int(_OVERSIZED_SHARE * compact.target), largest) + 1,
        "min_input_files": 2,
    }
