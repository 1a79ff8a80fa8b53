"""What is said of a table that was rolled back."""

from __future__ import annotations

from jobs.commit.errors import RolledBackError
from jobs.commit.history import History
from jobs.commit.offsets import describe


def rolled_back(stream: str, table: str, past: History) -> RolledBackError:
    """The stop for a table that was rolled back, or may have been."""
    if past.doubt:
        return RolledBackError(
            f"stream {stream}: it cannot be shown that table {table} still holds the stream's last commit: the "
            "snapshots since then were committed by others and have expired, so somebody may have rolled the table "
            "back, or replaced it.",
            fix=f"`frazil audit {stream} --full` to see whether records are missing; `frazil accept {stream} "
            f"--rollback keep` to go on where the stream stands, or `frazil accept {stream} --rollback reland` to land "
            "again all that Kafka still keeps",
        )
    return RolledBackError(
        f"stream {stream}: table {table} was rolled back to before the stream's last commit; "
        f"the records {describe(past.removed)} are no longer in it.",
        fix=f"`frazil accept {stream} --rollback keep` to leave them out, or "
        f"`frazil accept {stream} --rollback reland` to land them again",
    )
