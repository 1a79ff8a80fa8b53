"""Compaction in a plan: the partitions whose data files are rewritten, and why. Pure functions.

A rule is due only if it leaves fewer files than before, so that its own result is never due again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote_plus, urlsplit

from jobs.maintenance.measure.health_facts import PartitionFacts, TableFacts
from jobs.maintenance.measure.maintenance_history import MAX_ENTRIES
from jobs.maintenance.measure.text import (
    duration_text,
    files_text,
    size_text,
    sized_text,
)
from jobs.maintenance.plan.plan import (
    UNDERSIZED_SHARE,
    Candidate,
    PlanInput,
    Skip,
    Step,
    files_written,
    is_mirror,
    written_by_frazil,
)

if TYPE_CHECKING:
    from jobs.config.services.maintenance_policy import Compact, Policy

# Larger files stay: splitting them costs more than it gains (Iceberg's own share).
_OVERSIZED_SHARE = 1.8
# A few small files are merged once their writers have left, but not whenever one more arrives.
_FEW_EVERY = timedelta(hours=1)
# Every merge may add deletes to a partition, and each time all of it would be rewritten.
_DELETES_EVERY = timedelta(days=1)
# Limits of a file system and of an object store, in bytes; and what a key has beside the partition, the file name.
_MOST_OF_NAME, _MOST_OF_KEY, _REST_OF_KEY = 255, 1_024, 100
# On a mirror, most merges add deletes: a day's would be thousands.
_DELETES_OF_MIRRORS_EVERY = timedelta(hours=1)
# With many small delete files, a reader opens one for each data file.
_MANY_DELETE_FILES = 100
_SMALL_DELETE_FILE = 8 * 1024**2
# If they are only small, and not many: Iceberg's own limit.
_A_FEW = 5
_JOINED_EVERY = timedelta(days=1)


def one_step_for_unpartitioned(candidates: list[Candidate], facts: TableFacts) -> tuple[list[Candidate], list[Skip]]:
    """Make one step of small files if the table was unpartitioned before: no condition excludes any of them."""
    whole = next((each for each in candidates if each.candidates and _is_everywhere(each, facts)), None)
    if whole is None:
        return candidates, []
    limit = max(float(each.step.detail["min_file_size_bytes"]) for each in candidates if each.candidates)
    target, own = int(whole.step.detail["target_file_size_bytes"]), whole.step.partition
    sizes: list[int] = []
    written = untouched = 0
    for partition in facts.partitions or ():
        taken = partition.smaller(limit)
        if partition is not own and len(taken) < 2:
            continue
        sizes += taken
        # Rows of the earlier spec fall into partitions of the present one, most likely into existing ones.
        spread = len(facts.partitions or ()) - 1 if partition is own else 1
        written += max(spread, files_written(sum(taken), target, limit))
        untouched += partition.files - len(taken)
    step = replace(
        whole.step,
        reason=f"{whole.step.reason} With it go the small files of all partitions, {sized_text(tuple(sizes))} in all.",
        files_before=len(sizes) + untouched,
        files_after=written + untouched,
        bytes=sum(sizes),
        detail={**whole.step.detail, "min_file_size_bytes": math.ceil(limit)},
    )
    left = [each for each in candidates if not each.candidates]
    along = [
        Skip(
            "compact",
            each.step.scope,
            f"It goes along with the files of the spec without partitions: {each.step.reason}",
        )
        for each in candidates
        if each.candidates and each is not whole
    ]
    return [replace(whole, step=step, candidates=tuple(sorted(sizes))), *left], along


def _is_everywhere(candidate: Candidate, facts: TableFacts) -> bool:
    partition = candidate.step.partition
    return partition is not None and not partition.values and partition.spec_id != facts.spec_id


def without_dropped_column(found: Candidate, partition: PartitionFacts) -> Skip | None:
    if partition.dropped is None:
        return None
    gone = f"Its column was dropped ({partition.dropped}), so no condition selects its files"
    return Skip("compact", partition.name, f"{gone}: rewrite them in Spark. {found.step.reason}")


def with_other_specs(found: Candidate, partition: PartitionFacts, facts: TableFacts, budget: int) -> Candidate | Skip:
    """Count what Iceberg rewrites along: all files under another partition spec that may hold rows of the partition.

    Only their statistics could decide that, so all of them count. Files of an earlier spec are rewritten by steps of
    their own, which give them the current one.
    """
    step, current, whole = found.step, partition.spec_id == facts.spec_id, "rewrite_all" in found.step.detail
    if not (whole or "delete_file_threshold" in step.detail) or not (current or not partition.values):
        return found
    least, most = int(step.detail["min_file_size_bytes"]), int(step.detail["max_file_size_bytes"])
    others = [each for each in facts.partitions or () if each.spec_id != partition.spec_id]
    sizes = [(size, whole or each.delete_files) for each in others for size in each.sizes]
    beside = sum(size for size, always in sizes if always or not least <= size <= most)
    if not beside:
        return found
    if current and (whole or step.bytes + beside > budget):
        waits = "It waits until the files of the earlier partition spec are rewritten"
        return Skip("compact", partition.name, f"{step.reason} {waits}, of which it would take {size_text(beside)}.")
    reason = f"{step.reason} With it go {size_text(beside)} of files of another partition spec."
    return replace(found, step=replace(step, bytes=step.bytes + beside, reason=reason))


def plan_compactions(at: PlanInput, policy: Policy) -> tuple[list[Candidate], list[Skip]]:
    """Compactions that pay, the best first, and skips."""
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
        skips.append(Skip("compact", "", f"Healthy: nothing to gain in the files of {what}."))
    return sorted(candidates, key=lambda each: each.rank), skips


def _without_place(found: Candidate, partition: PartitionFacts, facts: TableFacts) -> Skip | None:
    """Skip for a partition whose folder name is too long for Spark; frazil shortens its own."""
    if (said := no_place(partition, facts)) is None:
        return None
    return Skip("compact", partition.name, f"{said} {found.step.reason}")


def no_place(partition: PartitionFacts, facts: TableFacts) -> str | None:
    """Reason why Spark cannot write files of a partition, with the next step; None if it can."""
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
    """Whether its writers have left it: no recent new file, or none whose snapshot still exists."""
    return partition.newest_at is None or partition.newest_at <= at.now - compact.cold_after


def _of_partition(at: PlanInput, compact: Compact, partition: PartitionFacts) -> Candidate | Skip | None:
    cold = is_cold(partition, at, compact)
    if not partition.files:
        return None
    found = None
    if cold and compact.strategy != "binpack":
        found = _sorting(at, compact, partition)
    found = found or _applying_deletes(at, compact, partition)
    if not isinstance(found, Candidate):
        found = _of_small(at, compact, partition, cold=cold) or found
    waits = not cold and not _hides_rows(at, partition)
    if isinstance(found, Candidate) and waits and (why := _must_wait(at, partition)):
        newest = f"{partition.newest_at:%H:%M} UTC" if partition.newest_at else "now"
        waits = f"{found.step.reason} It waits until {duration_text(compact.cold_after)} pass without a new file"
        return Skip("compact", partition.name, f"{waits} (the newest is of {newest}): {why}.")
    return found


def _hides_rows(at: PlanInput, partition: PartitionFacts) -> bool:
    """Whether equality deletes of an earlier writer keep audits and replays from reading a stream's rows.

    No merge adds to them any more, so applying them collides with none.
    """
    return partition.equality_deletes > 0 and written_by_frazil(at.facts)


def _must_wait(at: PlanInput, partition: PartitionFacts) -> str | None:
    """Reason why a partition with writers must not be rewritten now; None if they only append."""
    if is_mirror(at.facts):
        return None
    # A run that has applied all deletes does not end the merges that made them.
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


def _applying_deletes(at: PlanInput, compact: Compact, partition: PartitionFacts) -> Candidate | Skip | None:
    many = partition.delete_files > compact.max_delete_files
    many = many or partition.delete_ratio >= compact.delete_ratio
    if not partition.delete_files or not (many or _hides_rows(at, partition)):
        return None
    limits = f"at most {compact.max_delete_files} delete files, less than {compact.delete_ratio:.0%}"
    reason = (
        f"{partition.delete_files:,} delete files for {files_text(partition.files)}, {partition.delete_ratio:.1%} of "
        f"the rows deleted ({limits})."
    )
    if not many:
        reason = f"{partition.equality_deletes:,} equality deletes: no audit reads the table until they are applied."
    since = at.since("compact", partition)
    if since is not None and since < (_DELETES_OF_MIRRORS_EVERY if is_mirror(at.facts) else _DELETES_EVERY):
        return Skip("compact", partition.name, f"Not due: {reason} It was compacted {duration_text(since)} ago.")
    left = round(partition.bytes * (1 - partition.delete_ratio))
    after = files_written(left, compact.target, UNDERSIZED_SHARE * compact.target)
    detail = _detail(compact, partition, UNDERSIZED_SHARE * compact.target)
    detail |= {"delete_file_threshold": 1, "remove_dangling_deletes": 1}
    return Candidate(_step(at, partition, reason, partition.bytes + partition.delete_bytes, after, detail))


def _of_small(at: PlanInput, compact: Compact, partition: PartitionFacts, *, cold: bool) -> Candidate | Skip | None:
    """Merge all undersized files if that pays, otherwise the small ones."""
    since = at.since("compact", partition)
    few_due = cold and (since is None or since >= _FEW_EVERY)
    limit = max(UNDERSIZED_SHARE * compact.target, compact.small)
    undersized, small = partition.smaller(limit), partition.smaller(compact.small)
    # Merging the small ones alone is cheapest, so merging all has to save more files.
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
        # Files outside of these sizes are rewritten as well; no existing file is too large.
        "max_file_size_bytes": max(int(_OVERSIZED_SHARE * compact.target), largest) + 1,
        "min_input_files": 2,
    }


def plan_position_deletes(at: PlanInput, policy: Policy, compacted: Collection[Step]) -> Iterator[Step | Skip]:
    """Partitions whose delete files are merged, after data files were rewritten.

    Args:
        compacted: Steps of the same run that apply deletes; the delete files that they make obsolete are dropped here.
    """
    facts = at.facts
    if facts.format_version != 2 or not policy.compact.enabled:
        if facts.position_deletes:
            why = "has a deletion vector for each data file" if facts.format_version > 2 else "is not to be compacted"
            yield Skip("position_deletes", "", f"The table {why}: there is nothing to bring together.")
        return
    applied = {_partition_key(step.partition) for step in compacted if step.partition}
    partitions = [each for each in facts.partitions or () if each.position_deletes]
    left = [each for each in partitions if _partition_key(each) not in applied]
    files, size = sum(each.delete_files for each in left), sum(each.delete_bytes for each in left)
    fewest = 2 if files > _MANY_DELETE_FILES else _A_FEW if files and size / files < _SMALL_DELETE_FILE else 0
    for partition in partitions:
        if _partition_key(partition) in applied:
            yield _joining_deletes(at, partition, "Drops what its compaction leaves of deletes that are applied.")
        elif fewest and partition.delete_files >= fewest and partition.dropped is not None:
            gone = f"Its column was dropped ({partition.dropped}), so no condition selects its delete files."
            yield Skip("position_deletes", partition.name, gone)
        elif fewest and partition.delete_files >= fewest and (why := no_place(partition, facts)) is not None:
            yield Skip("position_deletes", partition.name, why)
        # Equality deletes are not rewritten, and the count does not separate the two.
        elif fewest and partition.delete_files >= fewest and not partition.equality_deletes:
            said = f"{partition.delete_files:,} delete files of {size_text(partition.delete_bytes)}"
            said = f"{said} ({files:,} in the table, of {size_text(size / files)} on average)"
            since = at.since("position_deletes", partition)
            if not is_cold(partition, at, policy.compact) and not is_mirror(at.facts):
                why = f"{said}: it is still written to, and a merge may add to them."
                yield Skip("position_deletes", partition.name, why)
            elif is_mirror(at.facts) and partition.delete_files <= partition.files:
                # Spark's merges rewrite a data file's delete file with each addition; small ones merge eight of a
                # group.
                why = f"{said}: merges bring them together."
                yield Skip("position_deletes", partition.name, why)
            elif since is not None and since < _JOINED_EVERY:
                yield Skip("position_deletes", partition.name, f"Not due: {said}; done {duration_text(since)} ago.")
            else:
                yield _joining_deletes(at, partition, f"{said}.")


def _partition_key(partition: PartitionFacts) -> tuple[int, str]:
    return partition.spec_id, partition.name


def _joining_deletes(at: PlanInput, partition: PartitionFacts, reason: str) -> Step:
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
