"""Publication text: what a snapshot of main says of the interval of a branch that it brought."""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.publish.interval import Interval

PUBLISHED_KEY = "frazil.published"
FORMAT = 1


def left_out_property(branch: str) -> str:
    """The table property with the sequence number through which a branch may have rows that were left out of main."""
    return f"frazil.left_out.{branch}"


def publication_text(interval: Interval, by: str, **more: Any) -> str:
    """The entry of main's snapshot that says what of the branch it brought.

    Args:
        by: Who published it.
        more: What else there is to say, of a gate.
    """
    ranges: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), range_ in sorted(interval.ranges.items()):
        ranges.setdefault(topic, {})[str(partition)] = list(range_)
    said: dict[str, Any] = {
        "v": FORMAT,
        "branch": interval.branch,
        "after": interval.after,
        "until": interval.until,
        "head": interval.head,
        "snapshots": len(interval.snapshots),
        "files": len(interval.files),
        "rows": interval.rows,
        "ranges": ranges,
        "by": by,
        **more,
    }
    return msgspec.json.encode(said).decode()
