"""A small world whose further tables are parked, and what holds of its records whatever becomes of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any, cast

from jobs.base.errors import StreamStopped
from jobs.streaming.driver.context.open_stream import known_targets
from jobs.streaming.operator.unpark import unpark_table
from jobs.tables.commit.history.parked_places import lost_letters, parked_id, parked_places
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.stamp.errors import TableUnableError
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.unit.tables.commit.protocol_driver import EveryonesLease
from tests.unit.tables.commit.protocol_world import (
    DEAD,
    TABLE,
    TARGETS,
    WAYS,
    World,
)
from tests.unit.tables.commit.test_protocol import WORLD, recover, target_in_memory

FURTHER = [each.name for each in TARGETS[2:]]


class ParkingWorld(World):
    """A world whose further tables are parked.

    Args:
        own_columns: Whether some of them have columns that cannot hold each record.
    """

    def __init__(self, *, own_columns: bool = False) -> None:
        super().__init__(TARGETS)
        self.own_columns = own_columns
        self.parkable = tuple(FURTHER)
        # What a record holds for a table is of no use to its letters: a file that was changed is put back for them.
        self.pending_was_lost = True

    def drop(self, name: str) -> None:
        """Somebody drops a table, or renames it, once the stream has it."""
        if history(self.tables[TABLE].metadata(), "payments").newest is not None:
            super().drop(name)

    def counted(self, name: str) -> Counter[tuple]:
        """What stands in a table; of the dead letters, those of records that failed."""
        found = super().counted(name)
        return found if name != DEAD else Counter({each: times for each, times in found.items() if len(each) == 2})

    def letters(self, name: str) -> Counter[tuple]:
        """The records that wait for a table among the dead letters."""
        found = super().counted(DEAD)
        return Counter({each[:2]: times for each, times in found.items() if len(each) > 2 and each[2] == name})

    @property
    def parked(self) -> set[str]:
        newest = history(self.tables[TABLE].metadata(), "payments").newest
        return set(newest.parked) if newest else set()

    def unpark(self, name: str) -> None:
        """An operator says that a table takes commits again; nothing happens where that cannot be."""
        if name not in self.parked or name not in self.tables or name in self.refusing | self.forbidden | self.misfits:
            return
        spec, world = self.spec("one"), cast(Any, self)
        targets = known_targets(spec, world, {})
        session = CommitSession("payments", "one", EveryonesLease(self), targets)
        with session.held(), contextlib.suppress(StreamStopped):
            unpark_table(
                session, spec, world, name, "ada: it is back", make_target=target_in_memory, ensure=lambda *_: None
            )

    def never_fits(self, partition: TopicPartition, offset: int) -> set[str]:
        """The tables that cannot hold a record, whatever else is decided of it."""
        if not self.own_columns:
            return set()
        return set().union(*(self.unfit(partition, offset, way) for way in WAYS))

    def becomes(self, partition: TopicPartition, offset: int, rows: set[str], letters: set[str]) -> bool:
        """Whether this may become of a record; of one that a table cannot hold it is one ordinary letter, or a letter
        of each such table, which was parked then, and a row of all others.

        Args:
            rows: The tables that have it, or the dead letters.
            letters: The tables that it waits for, or has waited for.
        """
        unfit = self.never_fits(partition, offset)
        if unfit and rows == {DEAD} and not letters:
            return True
        kept = unfit <= letters and not unfit & rows
        return kept and (rows | letters) in [self.destinations(partition, offset, way) for way in WAYS]

    def replay(self) -> None:
        """What a replay does for tables that are not parked: each record lands where it is missing."""
        for name in FURTHER:
            if name not in self.parked:
                waiting = {each for each in self.letters(name) if name not in self.never_fits(*each)}
                lacks = waiting - set(self.counted(name))
                path = f"mem://replay-{name}"
                self.files[path] = sorted(lacks)
                self.tables[name].files.append(path)


def new_parking_world(*, own_columns: bool = False) -> ParkingWorld:
    world = ParkingWorld(own_columns=own_columns)
    WORLD[:] = [world]
    return world


def finish(world: ParkingWorld, config: str) -> None:
    """Recover, and see that nothing keeps the stream from going on, whatever has become of its dependent tables."""
    for _ in range(6):
        try:
            return recover(world, config)
        except Exception as problem:
            # A driver that meets such a table while it runs opens the stream again.
            if isinstance(problem, TableUnableError):
                continue
            if not world.own_columns or "it is unknown which records did not fit it" not in str(problem):
                raise
            world.forbidden.clear()
            for name in FURTHER:
                world.put_back(name)
    raise AssertionError("it opens again and again")


def assert_nothing_lost_or_doubled(world: ParkingWorld) -> None:
    """Every record has, for each of its tables, a row or a letter; no row twice."""
    counted = {name: world.counted(name) for name in world.names}
    waiting = {name: world.letters(name) for name in FURTHER}
    wrong: list[str] = []
    for partition, end in world.log.items():
        for offset in range(end):
            at = (partition, offset)
            rows = {name: each.pop(at, 0) for name, each in counted.items()}
            letters = {name: each.pop(at, 0) for name, each in waiting.items()}
            has = ({name for name in rows if rows[name]}, {name for name in letters if letters[name]})
            if max(rows.values()) > 1 or max(letters.values()) > 1:
                wrong.append(f"{at} twice: {rows} {letters}")
            elif not world.becomes(partition, offset, *has):
                wrong.append(f"{at}: {has}")
    assert not wrong and not any(counted.values()) and not any(waiting.values()), (wrong, counted, waiting)
    letters_table = world.tables[DEAD].metadata()
    for name in FURTHER:
        newest = history(letters_table, parked_id("payments", name)).newest
        assert world.letters(name).total() == (newest.totals.read if newest else 0)
    anchored = history(world.tables[TABLE].metadata(), "payments").newest
    assert not lost_letters(anchored, parked_places(letters_table, "payments")), "none is missed that is there"


def assert_exactly_once_in_tables(world: ParkingWorld) -> None:
    """Every record is once in each of its tables, and in no other; where one cannot hold it, in none or all others."""
    counted, letters = {name: world.counted(name) for name in world.names}, {n: world.letters(n) for n in FURTHER}

    def waiting(partition: TopicPartition, offset: int) -> set[str]:
        return {name for name in FURTHER if letters[name][partition, offset]}

    wrong: list[str] = []
    for partition, end in world.log.items():
        for offset in range(end):
            there = Counter({name: each.pop((partition, offset), 0) for name, each in counted.items()})
            has = (
                {name for name in there if there[name]},
                world.never_fits(partition, offset) & waiting(partition, offset),
            )
            if max(there.values()) > 1 or not world.becomes(partition, offset, *has):
                wrong.append(f"{partition} {offset}: {dict(+there)}")
    assert not wrong and not any(counted.values()), (wrong, counted)
