"""Dispatch of rows to the tables of a route, a block at a time: each value that comes is looked at once, no row is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.config.stream.route import Route
from jobs.streaming.pipeline.block import Indices

MOST_KNOWN = 4_096
"""Values whose tables are remembered, and the most of a block that are looked up one by one."""

_MEANING = frozenset(r".^$*+?{}[]\()")
"""Characters that mean something in a regular expression, beside the bar."""
_ALIKE = re.compile(
    r"(?:[^\\^$*+?{}\[\]()]|\\[dw.\-_/+*?|(){}\[\]^$]|\[\^?[A-Za-z0-9_ .:-]+\]|\((?:\?:|(?!\?))|\)"
    r"|[*+?](?![*+?{])|\{\d{1,3}(?:,\d{0,3})?\}(?![*+?{]))*"
)
"""Patterns that mean the same to Arrow's engine (RE2) as to Python's."""


class Dispatched(NamedTuple):
    """Which rows of a block go where.

    Attributes:
        tables: For each table that has any, its rows, ascending.
        nowhere: The rows that no table takes, ascending.
    """

    tables: dict[str, Indices]
    nowhere: Indices


class Dispatch:
    """Tells where rows go, by their values, as `Route.destinations` says of each value.

    Args:
        route: The route.
    """

    def __init__(self, route: Route) -> None:
        self._route: Route = route
        self._sets: list[tuple[str, ...]] = []
        self._numbers: dict[tuple[str, ...], int] = {}
        self._known: dict[str, int] = {}
        self._none: int = self._number(route.destinations(None))
        literals: dict[str, list[int]] = {}
        self._others: list[tuple[int, re.Pattern[str]]] = []
        for at, each in enumerate(route.tables):
            values = each.match if isinstance(each.match, tuple) else _literals(each.match)
            if values is None:
                self._others.append((at, re.compile(str(each.match))))
            for value in dict.fromkeys(values or ()):
                literals.setdefault(value, []).append(at)
        self._literals: pa.Array = pa.array(literals, pa.string())
        self._of_literal: list[list[int]] = list(literals.values())

    def rows_of(self, values: pa.Array) -> Dispatched:
        """Which rows go where.

        Args:
            values: Texts, one for each row; null where a row has no value.
        """
        if len(values) and values.slice(1).equals(values.slice(0, len(values) - 1)):
            # One value throughout, which is told without a hash of each; where it is not so, the first other one tells.
            tables = self._sets[int(self._sets_of(values.slice(0, 1))[0])]
            rows = np.arange(len(values), dtype=np.int64)
            return Dispatched(dict.fromkeys(tables, rows), np.zeros(0, np.int64) if tables else rows)
        encoded = values.dictionary_encode(null_encoding="encode")
        sets = self._sets_of(encoded.dictionary)
        found: dict[str, list[Indices]] = {}
        nowhere = np.zeros(0, np.int64)
        for number, rows in grouped(sets, np.asarray(encoded.indices)):
            for name in self._sets[number]:
                found.setdefault(name, []).append(rows)
            if not self._sets[number]:
                nowhere = rows
        return Dispatched({name: _ascending(parts, len(values)) for name, parts in found.items()}, nowhere)

    def _sets_of(self, values: pa.Array) -> Indices:
        """For each of some values that differ, the number of the set of tables that its rows go to."""
        sets = np.full(len(values), -1, np.int64)
        if len(values) <= MOST_KNOWN:
            known = self._known
            texts = values.to_pylist()
            sets = np.array([self._none if text is None else known.get(text, -1) for text in texts], np.int64)
        elif values.null_count:
            sets[np.asarray(values.is_null())] = self._none
        new = np.flatnonzero(sets < 0)
        if len(new):
            sets[new] = self._matched(values if len(new) == len(values) else values.take(pa.array(new)))
            if len(self._known) + len(new) <= MOST_KNOWN:
                self._known |= zip((values[at].as_py() for at in new.tolist()), sets[new].tolist(), strict=True)
        return sets

    def _matched(self, values: pa.Array) -> Indices:
        """As `_sets_of`, of texts: those that match the same entries are told apart side by side."""
        at = pc.fill_null(pc.index_in(values, value_set=self._literals), -1).to_numpy(zero_copy_only=False)
        masks = [(entry, _matches(pattern, values)) for entry, pattern in self._others]
        keys = at.astype(np.int64) + 1
        for _, mask in masks:
            keys = keys * 2 + mask
            if keys.max() >= 2**61:
                keys = np.unique(keys, return_inverse=True)[1].astype(np.int64)
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers: list[int] = []
        for row in first.tolist():
            entries = list(self._of_literal[at[row]]) if at[row] >= 0 else []
            entries += [entry for entry, mask in masks if mask[row]]
            numbers.append(self._number(self._route.tables_of(sorted(entries))))
        return np.array(numbers, np.int64)[inverse]

    def _number(self, tables: tuple[str, ...]) -> int:
        if tables not in self._numbers:
            self._numbers[tables] = len(self._sets)
            self._sets.append(tables)
        return self._numbers[tables]


def _literals(pattern: str) -> tuple[str, ...] | None:
    """The texts that a pattern such as `INS|UPD` names; None if it is another kind of pattern."""
    return None if _MEANING.intersection(pattern) else tuple(pattern.split("|"))


def _matches(pattern: re.Pattern[str], values: pa.Array) -> np.ndarray:
    """Which whole values match."""
    text = pattern.pattern
    by_category = r"\d" in text or r"\w" in text
    if _ALIKE.fullmatch(text) and not (by_category and not pc.all(pc.string_is_ascii(values)).as_py()):
        try:
            found = pc.match_substring_regex(values, rf"\A(?:{text})\z")
            return found.to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass  # It is beyond what Arrow's engine takes: too many repetitions, say.
    return np.fromiter((pattern.fullmatch(each) is not None for each in values.to_pylist()), bool, len(values))


def grouped(sets: Indices, codes: np.ndarray) -> Iterable[tuple[int, Indices]]:
    """The rows of each set, ascending, by one sort.

    Args:
        sets: Of each value.
        codes: For each row, which value it has.
    """
    present, narrow = np.unique(sets, return_inverse=True)
    if len(present) <= 1:
        return [(int(number), np.arange(len(codes), dtype=np.int64)) for number in present]
    # Numbers of two bytes are sorted by counting.
    of_rows = narrow.astype(np.uint16 if len(present) <= 2**16 else np.int64)[codes]
    order = np.argsort(of_rows, kind="stable")
    ends = np.cumsum(np.bincount(of_rows, minlength=len(present)))
    return list(zip(present.tolist(), np.split(order, ends[:-1]), strict=True))


def _ascending(parts: Sequence[Indices], count: int) -> Indices:
    """Rows of several sets, each ascending, as one."""
    if len(parts) == 1:
        return parts[0]
    if sum(map(len, parts)) == count:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.concatenate(parts), kind="stable")
