"""Maintenance history of a table: actions and their times, in `<state>/tables/<uuid>/maintained.json`.

It saves work and informs people; nothing depends on it for correctness. A missing or damaged file counts as empty.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import state_store
from jobs.clients.state_store.table_health import table_part
from jobs.config.settings.settings import Settings

log = logging.getLogger(__name__)

KEY = "maintained.json"
FORMAT = 1
# A table partitioned by day gets a partition each day; the oldest ones matter least.
MAX_ENTRIES = 5_000
_ERROR_CHARACTERS = 500
_COMPACT = "compact"

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Key = tuple[str, int | None, str]


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """Last execution of an action on a table or a partition, and failures since.

    Attributes:
        action: Name in a plan: `compact`, `position_deletes`, `manifests`, `expire`, `orphans`, `metadata`.
        spec_id: Partition spec; None for the table.
        scope: Name of the partition; empty for the table.
        at: Time of the last success; None without one.
        sort_order: Order of the last sort or z-order, as passed to Iceberg; plain merging keeps it.
        files_before, files_after, bytes, seconds: Figures of the last success.
        total_bytes, total_seconds: Sums over all successes.
        runs: Number of successes.
        failures: Consecutive failures since the last success.
        failed_at: Time of the last failure; None if it has not failed since.
        error: Its reason, cut short.
    """

    action: str
    spec_id: int | None = None
    scope: str = ""
    at: Instant | None = None
    sort_order: str = ""
    files_before: int = 0
    files_after: int = 0
    bytes: int = 0
    seconds: float = 0.0
    total_bytes: int = 0
    total_seconds: float = 0.0
    runs: int = 0
    failures: int = 0
    failed_at: Instant | None = None
    error: str = ""

    @property
    def key(self) -> Key:
        """What the action was done to."""
        return self.action, self.spec_id, self.scope

    @property
    def tried_at(self) -> datetime | None:
        """Time of the last attempt, successful or not."""
        return max((time for time in (self.at, self.failed_at) if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class MaintenanceHistory:
    """Maintenance of a table so far.

    Attributes:
        since: Time when frazil first looked at it; None if it never has.
        entries: Records by action, partition spec and name of the partition.
        created_at: Creation time of the table, recorded while its metadata still had it.
    """

    since: datetime | None = None
    entries: Mapping[Key, ActionRecord] = field(default_factory=dict)
    created_at: datetime | None = None

    def seen(self, now: datetime) -> MaintenanceHistory:
        """This history with `since` set, unless it is known."""
        return self if self.since is not None else replace(self, since=now)

    def of(self, action: str) -> Iterator[ActionRecord]:
        """Records of an action, for the table and its partitions."""
        return (entry for entry in self.entries.values() if entry.action == action)

    def last(self, action: str) -> datetime | None:
        """Time of the action's last success, on the table or any of its partitions."""
        return max((entry.at for entry in self.of(action) if entry.at is not None), default=None)

    def entry(self, action: str, spec_id: int | None = None, scope: str = "") -> ActionRecord | None:
        """Record of the action there; None if it was never tried."""
        return self.entries.get((action, spec_id, scope))

    def sorted_as(self, spec_id: int, name: str) -> str | None:
        """Order of the partition's last sort or z-order; None without one."""
        found = self.entry(_COMPACT, spec_id, name)
        return (found.sort_order or None) if found else None

    def speed(self, action: str) -> float | None:
        """Bytes per second of the action here, over all times; None if it has rewritten nothing yet."""
        done = list(self.of(action))
        seconds, size = sum(each.total_seconds for each in done), sum(each.total_bytes for each in done)
        return size / seconds if seconds > 0 and size else None

    def done(
        self,
        action: str,
        at: datetime,
        *,
        spec_id: int | None = None,
        scope: str = "",
        sort_order: str = "",
        files_before: int = 0,
        files_after: int = 0,
        size: int = 0,
        seconds: float = 0.0,
    ) -> MaintenanceHistory:
        """This history after a success.

        Args:
            at: Time, with its zone.
            spec_id, scope: The partition; None and empty for the table.
            sort_order: Order of a sort or z-order; empty for any other action.
            size: Bytes rewritten, or deleted.
        """
        before = self.entries.get((action, spec_id, scope), ActionRecord(action, spec_id, scope))
        entry = ActionRecord(
            action,
            spec_id,
            scope,
            at,
            sort_order or before.sort_order,
            files_before,
            files_after,
            size,
            seconds,
            total_bytes=before.total_bytes + size,
            total_seconds=before.total_seconds + seconds,
            runs=before.runs + 1,
        )
        return self._with(entry, at)

    def failed(
        self, action: str, at: datetime, error: str, *, spec_id: int | None = None, scope: str = ""
    ) -> MaintenanceHistory:
        """This history after a failure; `error` must hold no secret."""
        before = self.entries.get((action, spec_id, scope), ActionRecord(action, spec_id, scope))
        entry = replace(before, failures=before.failures + 1, failed_at=at, error=error[:_ERROR_CHARACTERS])
        return self._with(entry, at)

    def _with(self, entry: ActionRecord, at: datetime) -> MaintenanceHistory:
        return replace(self, since=self.since or at, entries={**self.entries, entry.key: entry})


class _Document(msgspec.Struct):
    v: int
    since: Instant | None
    entries: list[ActionRecord]
    born: Instant | None = None


def table_store(settings: Settings, table_uuid: str) -> StateStore:
    """Part of the state store for a table's maintenance history, whatever the table's name."""
    return table_part(state_store(settings), table_uuid)


def read_history(store: StateStore) -> MaintenanceHistory:
    """History of the table with this part of the store; empty if it is missing or unreadable."""
    place = store.place(KEY)
    try:
        content = store.get(KEY)
        if content is None:
            return MaintenanceHistory()
        document = decode_json(content, _Document)
    except (OSError, ValueError) as problem:
        log.warning("%s cannot be read (%s): it counts as empty, and the next run writes it again", place, problem)
        return MaintenanceHistory()
    if document.v != FORMAT:
        log.warning("%s is of format %d, which another version wrote: it counts as empty", place, document.v)
        return MaintenanceHistory()
    return MaintenanceHistory(document.since, {entry.key: entry for entry in document.entries}, document.born)


def write_history(store: StateStore, history: MaintenanceHistory) -> None:
    """Replace the history of the table.

    Raises:
        OSError: The store cannot be written.
    """
    entries = sorted(history.entries.values(), key=_newest_first)[:MAX_ENTRIES]
    ordered = sorted(entries, key=lambda each: (each.action, each.scope))
    document = _Document(FORMAT, history.since, ordered, history.created_at)
    store.put(KEY, msgspec.json.encode(document))


def _newest_first(entry: ActionRecord) -> tuple[bool, float]:
    # Records of the whole table are always kept.
    return entry.spec_id is not None, -(entry.tried_at.timestamp() if entry.tried_at else 0.0)
