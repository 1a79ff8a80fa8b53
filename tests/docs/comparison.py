"""Comparison of the output that a page shows with the output of a run.

What differs from run to run is masked on both sides: times, durations, rates, sizes, ports, processes, ids and folders.
"""

from __future__ import annotations

import difflib
import re

_MASKS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?UTC|Z|[+-]\d\d:?\d\d)?)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
        (r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b", "<id>"),
        (r"\b\d{15,20}\b", "<id>"),
        (r"\b\d{8}T\d{6}Z-\d+-[0-9a-f]{6}\b", "<id>"),
        # Which partition a record without a key goes to is chance.
        (r"\bpartition \d+, offset \d+", "<record>"),
        (r"\b[\w.]+-\d+@\d+", "<record>"),
        (r"\b[\w.]+-\d+ \[\d+, \d+\)(?:, [\w.]+-\d+ \[\d+, \d+\))*", "<offsets>"),
        (r"^( *_kafka_(?:partition|offset)\b).*", r"\1"),
        (r"^(records per (?:CPU-)?second, whole run|share of time in commits|seconds)\s+[\d.,]+%?$", r"\1 <number>"),
        (r"(?:127\.0\.0\.1|localhost):\d+", "<address>"),
        (r"\b(process|pid) \d+", r"\1 <number>"),
        (r"(?:/[\w.@+-]+){2,}/(?=[\w.])", "<folder>/"),
        (r"\b(?:\d+ d )?(?:\d+ h )?\d+ (?:min|h|d) ago", "<amount>"),
        (r"\b[\d,]+(?:\.\d+)? ?(?:ms|s|min|h|d|kB|KB|MB|GB|B)\b(?:ytes)?(?: ago)?", "<amount>"),
        (r"\b\d+ (?:second|minute|hour|day)s?\b(?: ago)?", "<amount>"),
        (r"[\d,.]+(?=/s\b)", "<rate>"),
        # Bytes of tables and partitions in a preview: a dead letter's file has the time of the run in it.
        (r"^(\S+ +(?:exists|would be created) .*[\d,]) +[\d,]+$", r"\1 <bytes>"),
        (r"^( +\w+=.*[\d,]) +[\d,]+$", r"\1 <bytes>"),
    )
)

# Progress of commands that take longer than ten seconds, which depends on the machine.
_PROGRESS = re.compile(r"^\w[^:]*: .*, \d+ (?:s|min)(?:, about .* left)?$")


def masked(line: str) -> str:
    """A line without what differs from run to run; runs of spaces count as one."""
    for pattern, mask in _MASKS:
        line = pattern.sub(mask, line)
    return re.sub(r"[ ─━-]{2,}", " ", line).strip()


def difference(shown: list[str], printed: list[str]) -> str:
    """How the printed output differs from the shown one; empty if it does not.

    Args:
        shown: Lines of the page. A line `...` stands for any number of lines.
        printed: Lines of the run.
    """
    want = [masked(line) if line.strip() != "..." else "..." for line in _trimmed(shown)]
    got = [masked(line) for line in _trimmed(printed)]
    return "" if _matches(want, got) else "\n".join(difflib.unified_diff(want, got, "page", "run", lineterm=""))


def _trimmed(lines: list[str]) -> list[str]:
    lines = [line.rstrip() for line in lines]
    return [line for line in lines if line and not _PROGRESS.match(line)]


def _matches(want: list[str], got: list[str]) -> bool:
    """Match lines greedily: between two `...` the first occurrence of what is shown is as good as any other."""
    if not want:
        return not got
    if "..." not in want:
        return want == got
    first = want.index("...")
    if want[:first] != got[:first]:
        return False
    rest, got = want[first + 1 :], got[first:]
    if not rest:
        return True
    return any(_matches(rest, got[at:]) for at in range(len(got) + 1))
