"""Changes of a certificate's source, as events of Debezium with what has to become of each, and the rows they make.

The same seed gives the same changes. They are of few keys, so that each changes often; some are sent twice, and some
leave out a value that did not change.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jobs.local.certify.load import (
    BAD_KINDS,
    BAD_SHARE,
    Kind,
    Record,
)
from jobs.local.certify.shapes import TYPES

CHANGES_SCHEMA = (
    "op string, ts_ms long, before struct<id: string not null, amount: long, note: string>, "
    "after struct<id: string not null, amount: long, note: string>, "
    "source struct<connector: string, name: string, db: string, sequence: string, ts_ms: long>"
)
NOT_SENT = "__debezium_unavailable_value"
KEYS = 400

_BEGAN_MS = 1_790_000_000_000
_SENT_AGAIN_SHARE = 0.05
_FARTHEST_BACK = 60
_OPS: tuple[Literal["c", "u", "d"], ...] = ("c", "u", "d")
_OF_OPS = (2, 6, 2)
_NOT_SENT_SHARE = 0.3

Row = tuple[int, str | None]
"""The columns of a row beside its key: amount and note."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change of the source.

    Attributes:
        number: Position of the change in the source's log, ascending.
        id: Key of the row.
        note: Value of the column; `NOT_SENT` if the change leaves it as it was.
    """

    number: int
    id: str
    op: Literal["c", "u", "d"]
    amount: int
    note: str


def source_change(seed: int, number: int) -> Change:
    """The change at a place in the source's log."""
    rng = random.Random(f"{seed}/change/{number}")
    op = rng.choices(_OPS, _OF_OPS)[0]
    unsent = op == "u" and rng.random() < _NOT_SENT_SHARE
    note = NOT_SENT if unsent else f"{rng.getrandbits(40):010x}"
    return Change(number, f"account-{rng.randrange(KEYS):03d}", op, rng.randrange(1_000_000), note)


def change_to_load(seed: int, number: int, added: Sequence[str] = (), further: Sequence[str] = ()) -> Record:
    """The record of the load that has a number: the event of a change, or one that was sent before; or a bad one.

    Args:
        seed: Seed of the load.
        number: Number of the record in production order; the change itself may have another one.
        added, further: Nothing; as of other loads.
    """
    rng = random.Random(f"{seed}/event/{number}")
    if number and rng.random() < _SENT_AGAIN_SHARE:
        return change_to_load(seed, number - rng.randint(1, min(number, _FARTHEST_BACK)))
    change = source_change(seed, number)
    kind: Kind = rng.choice(BAD_KINDS) if rng.random() < BAD_SHARE else "good"
    return Record(number, change.id.encode(), _event(change, kind, rng), kind, TYPES[0])


def partition_of(record: Record, partitions: int) -> int:
    """The partition of a record by its key: all changes of a row are in one."""
    return zlib.crc32(record.key) % partitions


def _event(change: Change, kind: Kind, rng: random.Random) -> bytes | None:
    if kind == "tombstone":
        return None
    if kind == "empty":
        return b""
    row: dict[str, object] = {"id": change.id, "amount": change.amount, "note": change.note}
    if kind == "wrong_type":
        row["amount"] = rng.choice(("a lot", True, [1, 2], {"value": 3}))
    if kind == "missing_field":
        del row["id"]
    if kind == "null_in_required":
        row["id"] = None
    at = _BEGAN_MS + 1000 * change.number
    source = {"connector": "postgresql", "name": "certify", "db": "shop", "ts_ms": at}
    source["sequence"] = json.dumps([str(change.number), str(change.number + 1)])
    gone = change.op == "d"
    event = {
        "op": change.op,
        "ts_ms": at,
        "before": row if gone else None,
        "after": None if gone else row,
        "source": source,
    }
    value = json.dumps(event, separators=(",", ":")).encode()
    # Cut within the object, so that no prefix of it is JSON.
    return value[: rng.randrange(1, len(value))] if kind == "truncated" else value


@dataclass(slots=True)
class ChangedRows:
    """The rows that changes make, one change at a time, in the order of a partition's offsets.

    Attributes:
        rows: Rows by key.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    _greatest: int = -1

    def follow(self, changes: Iterable[Change]) -> None:
        """Apply further changes; a change that was sent before, and is behind a later one, has no effect."""
        for each in changes:
            if each.number < self._greatest:
                continue
            self._greatest = each.number
            if each.op == "d":
                self.rows.pop(each.id, None)
                continue
            before = self.rows.get(each.id)
            kept = before[1] if before is not None else None
            self.rows[each.id] = each.amount, kept if each.note == NOT_SENT else each.note
