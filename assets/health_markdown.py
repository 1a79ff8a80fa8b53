"""Health as Markdown tables: a table's files by size, its worst partitions, what would be done about them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from assets.metadata import cell
from jobs.maintain.health_facts import PartitionFacts
from jobs.maintain.text import size_text

if TYPE_CHECKING:
    from jobs.maintain.plan import Plan

_SHOWN_PARTITIONS = 10
_SHOWN_STEPS = 20
_SIZES = tuple(mebibytes * 1024**2 for mebibytes in (0, 1, 4, 16, 64, 256))


def histogram_markdown(partitions: Sequence[PartitionFacts]) -> str:
    """How many data files there are of which size, as a table in Markdown."""
    counts, sums = [0] * len(_SIZES), [0] * len(_SIZES)
    for size in (size for partition in partitions for size in partition.sizes):
        at = bisect_right(_SIZES, size) - 1
        counts[at] += 1
        sums[at] += size
    labels = [f"{size_text(low)} – {size_text(high)}" for low, high in pairwise(_SIZES)]
    labels[0] = f"below {size_text(_SIZES[1])}"
    labels.append(f"{size_text(_SIZES[-1])} and more")
    rows = [f"| {label} | {n:,} | {size_text(sum_)} |" for label, n, sum_ in zip(labels, counts, sums, strict=True)]
    return "\n".join(["| size | data files | in all |", "|---|---:|---:|", *rows])


def partitions_markdown(partitions: Sequence[PartitionFacts], small_below: float) -> str:
    """The partitions with the most small files and deletes; empty in a table that has none, or no partitions."""
    ranked = sorted(
        ((len(partition.smaller(small_below)), partition) for partition in partitions if partition.name),
        key=lambda item: (-item[0] - item[1].delete_files, item[1].name),
    )
    worst = [(small, partition) for small, partition in ranked if small > 1 or partition.delete_files]
    if not worst:
        return ""
    lines = ["| partition | small | data files | in all | delete files |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {cell(partition.name)} | {small:,} | {partition.files:,} | {size_text(partition.bytes)} | "
        f"{partition.delete_files:,} |"
        for small, partition in worst[:_SHOWN_PARTITIONS]
    ]
    if len(worst) > _SHOWN_PARTITIONS:
        lines.append(f"| {len(worst) - _SHOWN_PARTITIONS:,} more | | | | |")
    return "\n".join(lines)


def plan_markdown(plan: Plan) -> str:
    """The maintenance plan of a table as Markdown: what would be done, in its order."""
    lines = ["| action | where | why | files | bytes |", "|---|---|---|---:|---:|"]
    lines += [
        f"| {step.action} | {cell(step.scope)} | {cell(step.reason)} | "
        f"{step.files_before:,} → {step.files_after:,} | {size_text(step.bytes)} |"
        for step in plan.steps[:_SHOWN_STEPS]
    ]
    if len(plan.steps) > _SHOWN_STEPS:
        lines.append(f"| {len(plan.steps) - _SHOWN_STEPS:,} more | | | | |")
    return "\n".join(lines)


def left_markdown(plan: Plan) -> str:
    """What maintenance leaves as it is and why, and what of the policy cannot be kept, as Markdown; or empty."""
    said = [*plan.warnings, *plan.branches, *(_left(skip.action, skip.scope, skip.reason) for skip in plan.skips)]
    lines = [f"- {cell(each)}" for each in said[:_SHOWN_STEPS]]
    if len(said) > _SHOWN_STEPS:
        lines.append(f"- {len(said) - _SHOWN_STEPS:,} more")
    return "\n".join(lines)


def _left(action: str, scope: str, reason: str) -> str:
    return f"{action.replace('_', ' ')}{f' of {scope}' if scope else ''}: {reason}"
