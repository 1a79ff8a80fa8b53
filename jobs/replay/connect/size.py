"""How many records of a queue a batch takes, of which nobody knows the size before they are read."""

from __future__ import annotations

from jobs.replay.dry_run import MAX_BYTES

FIRST_RECORDS = 2_000
MAX_RECORDS = 20_000
_GROWTH = 4


class QueueSize:
    """Learns from each batch how many records the next one may have, to hold about `MAX_BYTES`."""

    def __init__(self) -> None:
        self.most: int = FIRST_RECORDS

    def learn(self, records: int, size: int) -> None:
        """A batch held so many records, of so many bytes in memory together."""
        if records:
            average = max(1, size // records)
            self.most = max(1, min(MAX_RECORDS, self.most * _GROWTH, MAX_BYTES // average))
