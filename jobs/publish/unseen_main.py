"""Records of an interval on main: landed there by the stream itself, or perhaps, where no stamp is left that tells."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.commit.branch import seen_on
from jobs.commit.lineage import ancestors
from jobs.commit.stamp_history import stamps_along_main
from jobs.commit.stamps import Stamp
from jobs.publish.continuity import Break, landed_on_main
from jobs.publish.interval import Interval

_OF_ROLLBACKS = ("rollback_keep", "rollback_reland")


def break_on_main(metadata: TableMetadata, stream: str, found: Interval | None, newest: Stamp | None) -> Break | None:
    """Whether main has, or may have, records of an interval by the stream's own commits."""
    if found is None:
        return None
    return landed_on_main(metadata, stream, found) or unseen_main(metadata, stream, found, newest)


def unseen_main(metadata: TableMetadata, stream: str, found: Interval, newest: Stamp | None) -> Break | None:
    """Whether main may have records of an interval by commits of the stream whose snapshots have expired.

    A stream that comes back to its branch from another one has been asked, and its answer stands on the branch. Stamps
    on main would say what it has landed there meanwhile. Where some of main's since have expired, nobody can say.

    Args:
        metadata: The table's own, not as a branch has it.
        found: What is to be published.
        newest: The stamp of the last publication, which may be an answer to this.
    """
    since = max(found.after, newest.sequence if newest else 0)
    answers = [
        stamp
        for _, stamp in stamps_along_main(seen_on(metadata, found.branch), stream, since)
        if stamp.kind == "accept" and stamp.decision is not None and stamp.decision.answer in _OF_ROLLBACKS
    ]
    oldest = next(reversed(list(ancestors(metadata))), None)
    if not answers or not found.files or oldest is None or (oldest.sequence_number or 0) <= found.after:
        return None
    return Break(
        stream,
        f"it was moved to branch {found.branch}, or back on it, with the answer to a rollback ({answers[0].note}), and "
        f"snapshots of {MAIN_BRANCH} since it had all of {found.branch} have expired: nobody can say whether the "
        f"stream has landed records of what {found.branch} has on {MAIN_BRANCH} itself meanwhile.",
        leave_out=found.until,
        again=found.after,
    )
