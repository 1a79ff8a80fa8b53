"""A source that changes at random and tells it as Debezium does: at least once, with values that it leaves out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.helpers.mirror_world import BEGIN, Row, change

PARTITIONS = 3
ROW = "id long, part string, name string, note string, tags list<string>, place struct<city string, at long not null>"
KEY = ("id", "part")
LARGE = ("note", "tags", "place")
"""Columns whose values are left out of changes that do not concern them."""


@dataclass
class SourceTable:
    """The table at the source, and the log of what happened to it.

    Attributes:
        simple: Whether no key changes, and nothing is truncated.
        rows: The rows by key.
        log: Sent changes in order; a change may occur twice.
        events: Distinct changes in order.
    """

    seed: int
    keys: int = 25
    simple: bool = False
    rows: dict[Any, Row] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random: random.Random = random.Random(self.seed)
        self.position: int = 0
        self.offsets: list[int] = [0] * PARTITIONS

    def run(self, changes: int) -> None:
        """Make so many changes, some of them twice in the log."""
        for _ in range(changes):
            self._happen()
            if self.events and self.random.random() < 0.02:
                self._send_again()

    def late(self, count: int = 6) -> list[Row]:
        """Some changes of the log that may land after later ones, like replayed dead letters."""
        sent = Counter(each["_change_position"] for each in self.log)
        moves = [each for each in self.events if each["_change_old_key"]]
        moved = {(each["id"], each["part"]) for each in moves} | {
            tuple(each["_change_old_key"].values()) for each in moves
        }
        may = [
            each
            for each in self.log
            if sent[each["_change_position"]] == 1
            and (each["id"], each["part"]) not in moved
            and each["_change_op"] != "t"
        ]
        return self.random.sample(may, min(len(may), count))

    def _values(self) -> Row:
        number = self.position
        r = self.random
        return {
            "name": f"n{number}",
            "note": r.choice([None, f"note {number}" * 3]),
            "tags": r.choice([None, [], [str(number), None]]),
            "place": r.choice([None, {"city": None, "at": number}, {"city": "x", "at": number}]),
        }

    def _happen(self) -> None:
        r = self.random
        key = (r.randrange(self.keys), r.choice("pq"))
        there, kind = self.rows.get(key), r.random()
        if kind < 0.004 and not self.simple:
            self.rows.clear()
            self._tell("t", (0, "p"), dict.fromkeys(("id", "part", *self._values())))
        elif there is None:
            self.rows[key] = self._row(key, self._values())
            self._tell("c", key, self.rows[key])
        elif kind < 0.25:
            del self.rows[key]
            self._tell("d", key, dict.fromkeys(there) | {"id": key[0], "part": key[1]})
        elif kind < 0.35 and not self.simple:
            self._move(key, there)
        else:
            left_out = [name for name in LARGE if r.random() < 0.5]
            new = {name: value for name, value in self._values().items() if name not in left_out}
            self.rows[key] = there | new
            self._tell("u", key, self.rows[key], left_out)

    def _move(self, key: tuple[int, str], there: Row) -> None:
        new = (self.random.randrange(self.keys), self.random.choice("pq"))
        if new in self.rows:
            return
        left_out = [name for name in LARGE if self.random.random() < 0.6]
        del self.rows[key]
        self._tell("d", key, dict.fromkeys(there) | {"id": key[0], "part": key[1]})
        # Both have one position in the source's log.
        self.position -= 1
        self.rows[new] = there | self._row(new, {"name": f"moved {self.position}"})
        self._tell("c", new, self.rows[new], left_out, old_key={"id": key[0], "part": key[1]})

    def _row(self, key: tuple[int, str], values: Row) -> Row:
        return {"id": key[0], "part": key[1], **values}

    def _tell(
        self, op: str, key: tuple[int, str], row: Row, left_out: Iterable[str] = (), old_key: Row | None = None
    ) -> None:
        self.position += 1
        shown = {name: None if name in left_out else value for name, value in row.items()}
        partition = (key[0] * 2 + (key[1] == "q")) % PARTITIONS
        told = change(
            op, 0, self.position, partition=partition, at=BEGIN + timedelta(seconds=self.position),
            unavailable=list(left_out) or None, old_key=old_key, **shown,
        )  # fmt: skip
        self.events.append(told)
        self._send(told)

    def _send(self, told: Row) -> None:
        partition = told["_kafka_partition"]
        self.log.append(told | {"_kafka_offset": self.offsets[partition]})
        self.offsets[partition] += 1

    def _send_again(self) -> None:
        """The connector was killed, and begins where it was some changes ago."""
        for told in self.events[-self.random.randint(1, 12) :]:
            self._send(told)


def state_after(changes: Iterable[Row]) -> dict[Any, Row]:
    """The rows after changes, whatever they were sent in, one change at a time by their positions."""
    # The deletion of a former key is at the place of the change that it is a part of.
    once = {(each["_change_position"], each["_change_op"] != "d"): each for each in changes}
    rows: dict[Any, Row] = {}
    moved: dict[Any, Row] = {}
    for _, told in sorted(once.items(), key=lambda each: each[0]):
        key = (told["id"], told["part"])
        if told["_change_op"] == "t":
            rows.clear()
            continue
        if told["_change_op"] == "d":
            moved[key] = rows.pop(key, {})
            continue
        old = told["_change_old_key"]
        before = moved.get((old["id"], old["part"]), {}) if old else rows.get(key, {})
        left_out = told["_change_unavailable"] or ()
        values = {name: told[name] for name in ("id", "part", "name", *LARGE)}
        rows[key] = values | {name: before.get(name) for name in left_out}
    return rows
