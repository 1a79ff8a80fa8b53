"""Last measured health of a table: `health.json` beside its maintenance history, for processes that do not measure.

Maintenance writes it. A driver reads it, because it lands less often while the table is red.
"""

from __future__ import annotations

import contextlib

import msgspec

from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore

KEY = "health.json"
RED_BELOW = 40
"""Score, of 100, below which a table is red: an error of the check `table_health`."""
_MEASURED_SECONDS = 3 * 3600.0


class TableHealth(msgspec.Struct, frozen=True):
    """A measurement.

    Attributes:
        score: 0 to 100.
        at: Seconds since 1970.
    """

    score: int
    at: float

    def red(self, now: float) -> bool:
        """Whether the table counts as red at a time in seconds since 1970; an old measurement does not count."""
        return self.score < RED_BELOW and now - self.at < _MEASURED_SECONDS


_DECODER = typed_decoder(TableHealth)


def table_part(store: StateStore, table_uuid: str) -> StateStore:
    """Return the part of a deployment's store for a table, by its UUID."""
    return store.below(f"tables/{table_uuid}")


def read_health(store: StateStore) -> TableHealth | None:
    """Return the newest measurement in a table's part of the store; None if there is none, or it cannot be read.

    Raises:
        OSError: The store cannot be reached.
    """
    with contextlib.suppress(*DAMAGED):
        content = store.get(KEY)
        return _DECODER.decode(content) if content is not None else None
    return None


def write_health(store: StateStore, health: TableHealth) -> None:
    """Replace the newest measurement.

    Raises:
        OSError: The store cannot be written.
    """
    store.put(KEY, msgspec.json.encode(health), durable=False)
