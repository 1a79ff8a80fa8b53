"""Comparison of tables with what they have to hold, record by record, and of stamps with each other.

Pure: offsets in, sentences out. No sentence means that all is well.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from jobs.local.certify.load import (
    NO_VALUE,
    Added,
    Fate,
    Fates,
)
from jobs.tables.commit.stamp.stamps import Stamp

Offsets = Mapping[int, npt.NDArray[np.int64]]
Values = Mapping[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
"""Rows by partition: their offsets, and a column's values, NO_VALUE for null."""

NOWHERE: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing the tables with the load.

    Attributes:
        landed, dead, tombstones, passed_over: Records up to where the stamps say that the tables are complete; the
            first two as the tables hold them, each counted once.
        problems: Lost, duplicated and misplaced records, as sentences.
        added_values: Values of columns that the table has got meanwhile, as the table holds them.
    """

    landed: int
    dead: int
    tombstones: int
    passed_over: int
    problems: tuple[str, ...]
    added_values: int = 0

    def __add__(self, other: Comparison) -> Comparison:
        """Both, of two streams."""
        return Comparison(
            self.landed + other.landed,
            self.dead + other.dead,
            self.tombstones + other.tombstones,
            self.passed_over + other.passed_over,
            self.problems + other.problems,
            self.added_values + other.added_values,
        )


@dataclass(frozen=True, slots=True)
class TableRows:
    """Actual and expected rows of a table.

    Attributes:
        name: Name for people.
        rows: The offsets of its rows, by partition, in any order.
        wanted: Whether the record of each offset is expected, by partition.
        through: The next offset that it is complete up to, by its stamps, and holds nothing behind.
    """

    name: str
    rows: Offsets
    wanted: Mapping[int, npt.NDArray[np.bool_]]
    through: Mapping[int, int]


def compare(fates: Fates, landed: Sequence[TableRows], dead: TableRows) -> Comparison:
    """Compare what tables hold with what they have to hold, by partition and offset.

    Args:
        fates: Expected fate of the record at each offset.
        landed: The tables of rows; a record may have to be in several.
        dead: Rows of the dead letters.
    """
    problems: list[str] = []
    nowhere = {Fate.TOMBSTONE: 0, Fate.PASSED_OVER: 0}
    for table in (*landed, dead):
        unknown = sorted(set(table.rows) - set(fates))
        if unknown:
            problems.append(f"{table.name}: rows of partitions that were never produced to: {unknown}")
        for partition in sorted(fates):
            problems += _problems_of(table, partition)
    for partition, wanted in fates.items():
        complete = wanted[: min(each.through.get(partition, 0) for each in (*landed, dead))]
        for fate in nowhere:
            nowhere[fate] += int(np.count_nonzero(complete == fate))
    return Comparison(
        _records(fates, landed),
        _records(fates, [dead]),
        nowhere[Fate.TOMBSTONE],
        nowhere[Fate.PASSED_OVER],
        tuple(problems),
    )


def _records(fates: Fates, tables: Sequence[TableRows]) -> int:
    """Number of records in any of the tables, each counted once."""
    count = 0
    for partition, wanted in fates.items():
        there = np.zeros(len(wanted), np.bool_)
        for table in tables:
            offsets = table.rows.get(partition, NOWHERE)
            there[offsets[(offsets >= 0) & (offsets < len(wanted))]] = True
        count += int(np.count_nonzero(there))
    return count


def rows_of(offsets: Offsets) -> int:
    """Number of rows."""
    return sum(map(len, offsets.values()))


def main_problems(main: Offsets, branch: Offsets, *, whole: bool) -> list[str]:
    """Problems of main, compared with the published part of a branch.

    Args:
        main: The offsets of its rows, by partition.
        branch: Rows of the branch; read later, unless main has to have all of them.
        whole: Whether all of the branch is published.
    """
    problems: list[str] = []
    for partition in sorted({*main, *branch}):
        there, landed = main.get(partition, NOWHERE), branch.get(partition, NOWHERE)
        found, times = np.unique(there, return_counts=True)
        wrong = {"are more than once in main": found[times > 1]}
        if whole:
            wrong["are published, and not in main"] = np.setdiff1d(landed, found)
        else:
            wrong["are in main, and not on the branch"] = np.setdiff1d(found, landed)
        for how, offsets in wrong.items():
            if len(offsets):
                shown = ", ".join(map(str, offsets[:_SHOWN]))
                problems.append(f"{len(offsets)} records {how}: partition {partition}, offsets {shown}")
    return problems


def with_values(compared: Comparison, added: Added, values: Mapping[str, Values]) -> Comparison:
    """A comparison with what columns hold that the table has got meanwhile, record by record.

    Args:
        compared: Comparison of the offsets.
        added: Expected values of each row.
        values: Actual values of the table's rows, by partition.
    """
    problems, count = list(compared.problems), 0
    for column, wanted in added.items():
        for partition, (offsets, found) in values.get(column, {}).items():
            known = (offsets >= 0) & (offsets < len(wanted[partition]))
            offsets, found = offsets[known], found[known]
            count += int(np.count_nonzero(found != NO_VALUE))
            wrong = np.zeros(len(wanted[partition]), np.bool_)
            wrong[offsets] = found != wanted[partition][offsets]
            if wrong.any():
                problems.append(
                    f"{int(np.count_nonzero(wrong))} records have not in column {column} what was sent: "
                    f"partition {partition}, offsets {_some(wrong)}"
                )
    return replace(compared, problems=tuple(problems), added_values=count)


def stamp_problems(stamps: Sequence[Stamp]) -> list[str]:
    """Problems of a table's stamps: each has to begin where the one before ended.

    Args:
        stamps: Oldest first.
    """
    problems: list[str] = []
    for before, after in itertools.pairwise(stamps):
        which = f"stamp of batch {after.batch}, epoch {after.epoch} ({after.kind})"
        if after.epoch < before.epoch:
            problems.append(f"{which}: its epoch is below the one before, {before.epoch}")
        if after.kind == "batch":
            problems += [f"{which}: {each}" for each in _batch_problems(before, after)]
        elif after.kind == "claim" and after.position != before.position:
            problems.append(f"{which}: a claim moved the position")
    return problems


def _batch_problems(before: Stamp, after: Stamp) -> list[str]:
    problems: list[str] = []
    passed = 0
    for partition, position in sorted(after.position.items()):
        stood = before.position.get(partition, after.start.get(partition, position))
        start = after.start.get(partition, stood)
        passed += position - stood
        if start != stood:
            problems.append(f"{partition} begins at {start}, the stamp before ended at {stood}")
        if position < stood:
            problems.append(f"{partition} goes back from {stood} to {position}")
    counts = after.counts
    if counts.read != passed:
        problems.append(f"it counts {counts.read} records read, its ranges hold {passed}")
    if counts.read != counts.landed + counts.dead + counts.tombstones + counts.filtered:
        problems.append(f"its counts do not add up: {counts}")
    if after.totals != before.totals + counts:
        problems.append(f"its totals {after.totals} are not those before and its counts")
    return problems


def _problems_of(table: TableRows, partition: int) -> list[str]:
    name, ours = table.name, table.wanted[partition]
    offsets, through, count = table.rows.get(partition, NOWHERE), table.through.get(partition, 0), len(ours)
    foreign = np.unique(offsets[(offsets < 0) | (offsets >= count)])
    times = np.bincount(offsets[(offsets >= 0) & (offsets < count)], minlength=count)
    complete = np.arange(count) < through
    found = {
        "lost from": ours & complete & (times == 0),
        "more than once in": times > 1,
        "in, but not stamped in,": ours & ~complete & (times > 0),
        "wrongly in": ~ours & (times > 0),
    }
    problems = [
        f"{int(np.count_nonzero(which))} records {how} {name}: partition {partition}, offsets {_some(which)}"
        for how, which in found.items()
        if which.any()
    ]
    if len(foreign):
        shown = ", ".join(map(str, foreign[:_SHOWN]))
        problems.append(f"{len(foreign)} rows of {name} are of no record: partition {partition}, offsets {shown}")
    return problems


def _some(which: npt.NDArray[np.bool_]) -> str:
    """Ranges of offsets as words, cut after a few."""
    at = np.flatnonzero(which)
    runs = np.split(at, np.flatnonzero(np.diff(at) != 1) + 1)
    named = [f"[{run[0]}, {run[-1] + 1})" for run in runs[:_SHOWN]]
    more = f" and {len(runs) - _SHOWN} more ranges" if len(runs) > _SHOWN else ""
    return ", ".join(named) + more
