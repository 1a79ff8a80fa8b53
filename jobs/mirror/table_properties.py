"""Table properties of a mirror: how merges write it."""

from __future__ import annotations

from jobs.mirror.merge_plan import ORDER_COLUMN

MIRROR_PROPERTIES = {
    # A merge writes what changed, and which rows it replaces; copy-on-write writes every file anew that it touches.
    **{f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")},
    # Nobody else adds rows: what a merge has to be safe from is told by the publication.
    **{f"write.{what}.isolation-level": "snapshot" for what in ("merge", "update", "delete")},
    # Where the bound of a file is whole, it tells that all changes of an increment are later than the file's rows.
    f"write.metadata.metrics.column.{ORDER_COLUMN}": "full",
}
"""Over frazil's own for new tables, below those of the spec."""
