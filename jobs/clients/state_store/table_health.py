"""Health of a table as it was measured last: `health.json` beside its maintenance history, for who does not measure.

Whoever maintains the table writes it. A driver reads it, which is to land less often while the table is red.
"""

from __future__ import annotations

import contextlib

import msgspec

from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore

KEY = "health.json"
RED_BELOW = 40
"""Of 100: a table with a lower score is red, an error of the check `table_health`."""
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
        """Whether the table counts as red at a time, seconds since 1970; what was measured long ago says nothing."""
        return self.score < RED_BELOW and now - self.at < _MEASURED_SECONDS


_DECODER = typed_decoder(TableHealth)


def table_part(store: StateStore, table_uuid: str) -> StateStore:
    """The part of a deployment's store that is of a table, whatever the table is called."""
    return store.below(f"tables/{table_uuid}")


def read_health(store: StateStore) -> TableHealth | None:
    """The newest measurement of the table whose part of the store this is; None without one that can be read.

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
