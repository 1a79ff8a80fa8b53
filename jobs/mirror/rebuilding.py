"""Rebuilding of a mirror: whether its changelog still has every change that its stream has landed there."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.expired_changes import ExpiredChanges, expired_changes
from jobs.commit.stamps import PROPERTY_PREFIX, Stamp
from jobs.commit.target_directory import MOST_NAMED
from jobs.errors import FrazilError
from jobs.schema.decoded_columns import whole_property
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec


def refuse_incomplete(spec: StreamSpec, mirror: Mirror, changelog: Table) -> None:
    """Refuse to make a mirror of a changelog that has fewer rows than its stream has landed there.

    Those that have expired, for which mirrors have bases, count as if they were there.

    Raises:
        FrazilError: It has.
    """
    landed, there = landed_rows(changelog.metadata, spec.stream), rows_there(changelog.metadata, spec.table.name)
    if landed is not None and there < landed:
        expired = expired_changes(changelog.metadata.properties, spec.table.name)
        raise FrazilError(
            f"stream {spec.stream}: changelog {spec.table.name} has {there:,} rows{_with(expired)}, and {landed:,} "
            f"were landed there: somebody has removed some, so mirror {mirror.table} made of the rest may lack rows.",
            fix=f"bring them back; or `frazil mirror rebuild {spec.stream} --table {mirror.table} --incomplete`, "
            "which makes it of what is left",
        )


def _with(expired: ExpiredChanges | None) -> str:
    return f" with those that have expired ({expired.rows:,})" if expired else ""


def landed_rows(metadata: TableMetadata, stream: str) -> int | None:
    """How many rows the stream, its replays and its queues say that they have landed in a changelog.

    None of the coordinator of a stream with several tables: its stamps count the rows of all.
    """
    total = 0
    for key in metadata.properties:
        name = key.removeprefix(PROPERTY_PREFIX)
        if key.startswith(PROPERTY_PREFIX) and name.partition("~")[0] == stream:
            text = whole_property(metadata.properties, key)
            stamp = Stamp.from_json(text, metadata.properties) if text else None
            if stamp is not None and len(stamp.targets) > MOST_NAMED:
                return None
            total += stamp.totals.landed if stamp else 0
    return total


def rows_there(metadata: TableMetadata, table: str) -> int:
    """How many rows a changelog has, whoever wrote them, with those that have expired.

    Args:
        table: Its name.
    """
    head, expired = metadata.current_snapshot(), expired_changes(metadata.properties, table)
    there = int(head.summary["total-records"] or 0) if head and head.summary else 0
    return there + (expired.rows if expired else 0)
