"""Configurations that offsets were read under, as the ledger's rows of the coordinator say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.verify.ledger_row import LedgerRow, effective_rows

Offsets = npt.NDArray[np.int64]


class ReadConfigurations:
    """Tells by which configurations an offset was read: by several, if it was read again.

    Args:
        rows: The ledger's, of the coordinator; also of a former table of its name.
    """

    def __init__(self, rows: Iterable[LedgerRow]) -> None:
        ranges: dict[TopicPartition, list[tuple[OffsetRange, str]]] = {}
        for row in effective_rows(rows):
            if row.kind == "batch" and row.range.end > row.range.start:
                ranges.setdefault(row.partition, []).append((row.range, row.config))
        self.configs: tuple[str, ...] = tuple(sorted({config for each in ranges.values() for _, config in each}))
        self._spans: dict[TopicPartition, tuple[Offsets, list[frozenset[str]]]] = {
            place: _spans(each) for place, each in ranges.items()
        }

    def of(self, place: TopicPartition, offsets: Offsets) -> Iterator[tuple[frozenset[str], Offsets]]:
        """The configurations of some offsets of a partition, with the indices of those that have them.

        Offsets that no batch read are left out.
        """
        if place not in self._spans:
            return
        starts, configs = self._spans[place]
        at = np.searchsorted(starts, offsets, side="right") - 1
        numbers = {each: number for number, each in enumerate(dict.fromkeys(configs))}
        of_span = np.array([numbers[each] for each in configs], np.int64)
        known = np.where(at >= 0, of_span[at], -1)
        for each, number in numbers.items():
            if each and len(found := np.flatnonzero(known == number)):
                yield each, found


def _spans(ranges: list[tuple[OffsetRange, str]]) -> tuple[Offsets, list[frozenset[str]]]:
    """Where the set of configurations changes, ascending, with the set from there on."""
    changes: dict[int, list[tuple[str, int]]] = {}
    for range_, config in ranges:
        changes.setdefault(range_.start, []).append((config, 1))
        changes.setdefault(range_.end, []).append((config, -1))
    open_: dict[str, int] = {}
    starts: list[int] = []
    sets: list[frozenset[str]] = []
    for offset in sorted(changes):
        for config, step in changes[offset]:
            open_[config] = open_.get(config, 0) + step
        now = frozenset(config for config, count in open_.items() if count > 0)
        if not sets or sets[-1] != now:
            starts.append(offset)
            sets.append(now)
    return np.array(starts, np.int64), sets
