"""Report of a discard: its facts as one document, for the command line and for Dagster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.stamp.offsets import by_topic

if TYPE_CHECKING:
    from jobs.quality.publishing.discard_decision import DiscardResult


def discard_document(spec: StreamSpec, done: DiscardResult) -> dict[str, Any]:
    """The discarded rows, or those that would be; times in UTC, offsets by topic and partition."""
    what, letters = done.discard, done.letters
    return {
        "stream": spec.stream,
        "table": spec.table.name,
        "dead_letter_table": spec.dead_letter_table,
        "branch": what.branch,
        "done": done.snapshot_id is not None,
        "resumed": done.resumed,
        "discard": what.id or None,
        "snapshot_id": done.snapshot_id,
        "rows": what.rows,
        "snapshots": list(done.interval.snapshots),
        "from": by_topic({p: range_.start for p, range_ in what.ranges.items()}),
        "to": by_topic({p: range_.end for p, range_ in what.ranges.items()}),
        "letters": letters.letters,
        "letters_as_rows": letters.as_rows,
        "letters_masked": letters.masked,
        "reasons": list(what.reasons),
        "by": what.by,
        "why": what.why or None,
        "at": what.at.isoformat(),
    }
