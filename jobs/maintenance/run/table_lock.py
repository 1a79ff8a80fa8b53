"""Lock of a table for processes that rewrite or remove its files: a lease with an expiry, so that a crash frees it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.base.errors import FrazilError
from jobs.clients.state_store.lease import Lease, LeaseHeldError
from jobs.config.settings.settings import Settings
from jobs.maintenance.measure.maintenance_history import table_store
from jobs.tables.commit.stamp.errors import FencedError

_POLL_SECONDS = 0.2


class TableBusyError(FrazilError):
    """Another process maintains the table.

    Safe: Nothing was changed.
    Next: wait for it to end, then repeat the command
    """


@dataclass(frozen=True, slots=True)
class TableLock:
    """The held lock of one table.

    Attributes:
        lease: The held lease.
        table: The table's name, for messages.
    """

    lease: Lease
    table: str

    def verify(self) -> None:
        """Raise unless the lock is still this process's.

        Raises:
            FrazilError: It expired, or another process took it.
        """
        try:
            self.lease.verify()
        except (FencedError, OSError):
            raise FrazilError(
                f"table {self.table}: the lock of its maintenance was lost: it ran out, somebody took it, or the "
                "state folder cannot be written. Nothing more is done to it.",
                fix=f"frazil maintain {self.table}, which carries on",
            ) from None


@contextlib.contextmanager
def table_lock(settings: Settings, table: str, uuid: str, wait_seconds: float = 0.0) -> Iterator[TableLock]:
    """Hold the lock of a table during the block.

    It is in the state folder, so it works for processes that share one. It keeps maintenance runs, and merges into a
    mirror, from working against each other. A stream neither takes it nor waits for it.

    Args:
        wait_seconds: Time to wait for its holder.

    Raises:
        TableBusyError: Another process holds it for longer.
    """
    lease = Lease(table_store(settings, uuid), f"table {table}", settings.lease_ttl.total_seconds())
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            lease.acquire(above=0)
            break
        except LeaseHeldError:
            if time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                continue
            holder = lease.read()
            who = f"process {holder.pid} on {holder.host}" if holder else "another process"
            raise TableBusyError(
                f"table {table} is being maintained by {who}.", fix=f"wait for it to end, then frazil maintain {table}"
            ) from None
    try:
        yield TableLock(lease, table)
    finally:
        lease.release()
