"""History of snapshots: whether a catalog shows it, as some show a table's newest snapshot alone.

A stream's stamps stand in the snapshots, and so does what becomes of a commit whose answer is unclear. Nothing tells a
table whose snapshots have expired from a catalog that forgets them, but a commit: what was the head before it is there
after it.
"""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.catalog import MetastoreCatalog

from jobs.commit.target import Target
from jobs.errors import StreamStopped

_TRIES = 3


class NoHistoryError(StreamStopped):
    """The catalog forgets the snapshots of a table, and with them how far its streams have come."""


def refuse_forgetful_catalog(target: Target, claim_again: Callable[[], object]) -> None:
    """See that the snapshot before this driver's claim is still to be seen.

    Where a client of PyIceberg's writes the metadata by itself, nothing is asked for.

    Args:
        target: Claimed just now.
        claim_again: Commits another empty snapshot: the first one of a table has none before it, and beside an expiry
            of everything one claim says nothing.

    Raises:
        NoHistoryError: It is not, time and again.
    """
    if isinstance(target.catalog, MetastoreCatalog):
        return
    for attempt in range(_TRIES):
        if attempt:
            claim_again()
        if _former_head_is_there(target):
            return
    raise NoHistoryError(
        f"stream {target.owner}: catalog {target.catalog.name} shows no snapshot of table {target.name} but the "
        "newest. How far a stream has come stands in the snapshots, so nothing could be landed exactly once.",
        fix="use a catalog that keeps the snapshots of a table: docs/catalogs.md names some",
    )


def _former_head_is_there(target: Target) -> bool:
    claim = target.table.metadata.current_snapshot()
    if claim is None or claim.parent_snapshot_id is None:
        return False
    shown = target.catalog.load_table(target.name).metadata
    if shown.snapshot_by_id(claim.snapshot_id) is None:
        # Another driver's claim is there by now: it is as good for this as ours.
        return len(shown.snapshots) > 1
    return shown.snapshot_by_id(claim.parent_snapshot_id) is not None
