"""Partition specs in a plan: what a compaction takes along of files that were written under another spec. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from jobs.maintain.health_facts import PartitionFacts, TableFacts
from jobs.maintain.plan import Candidate, Skip, files_written
from jobs.maintain.text import size_text, sized_text


def one_step_for_unpartitioned(candidates: list[Candidate], facts: TableFacts) -> tuple[list[Candidate], list[Skip]]:
    """Makes one step of small files where the table was not partitioned before: no condition leaves any of them out."""
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
        # Rows of the earlier spec fall into partitions of the present one: most likely into those that are there.
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
    gone = f"Its column was dropped ({partition.dropped}), so no condition tells its files from others"
    return Skip("compact", partition.name, f"{gone}: rewrite them in Spark. {found.step.reason}")


def with_other_specs(found: Candidate, partition: PartitionFacts, facts: TableFacts, budget: int) -> Candidate | Skip:
    """Counts what Iceberg takes along: of files under another partition spec all that may hold rows of the partition.

    Only their statistics tell which those are, so it is all of them. Those of an earlier spec are rewritten by steps
    of their own, after which they are of the current one.
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
