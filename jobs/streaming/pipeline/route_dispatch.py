"""Dispatch of rows to the tables of a route, block by block: looks at each distinct value once, not at each row."""

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
"""Number of values whose tables are cached, and most values of a block that are looked up one by one."""

_MEANING = frozenset(r".^$*+?{}[]\()")
"""Characters with a meaning in a regular expression, beside the bar."""
_ALIKE = re.compile(
    r"(?:[^\\^$*+?{}\[\]()]|\\[dw.\-_/+*?|(){}\[\]^$]|\[\^?[A-Za-z0-9_ .:-]+\]|\((?:\?:|(?!\?))|\)"
    r"|[*+?](?![*+?{])|\{\d{1,3}(?:,\d{0,3})?\}(?![*+?{]))*"
)
"""Patterns with the same meaning in Arrow's engine (RE2) and in Python's."""


class Dispatched(NamedTuple):
    """Destinations of a block's rows.

    Attributes:
        tables: Rows of each table that has any, ascending.
        nowhere: Rows without a table, ascending.
    """

    tables: dict[str, Indices]
    nowhere: Indices


class Dispatch:
    """Dispatches rows by their values, as `Route.destinations` decides for each value.

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
        """Destinations of rows.

        Args:
            values: Texts, one for each row; null for a row without a value.
        """
        if len(values) and values.slice(1).equals(values.slice(0, len(values) - 1)):
            # A block with one value needs no hash of each. If others follow, the first different one shows it.
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
        """Number of the set of tables, for each of some distinct values."""
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
        """As `_sets_of`, for texts: values that match the same entries are found with vectorized patterns."""
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
    """Texts that a pattern such as `INS|UPD` lists; None for any other pattern."""
    return None if _MEANING.intersection(pattern) else tuple(pattern.split("|"))


def _matches(pattern: re.Pattern[str], values: pa.Array) -> np.ndarray:
    """Which whole values match a pattern."""
    text = pattern.pattern
    by_category = r"\d" in text or r"\w" in text
    if _ALIKE.fullmatch(text) and not (by_category and not pc.all(pc.string_is_ascii(values)).as_py()):
        try:
            found = pc.match_substring_regex(values, rf"\A(?:{text})\z")
            return found.to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass  # Arrow's engine refuses the pattern, such as for too many repetitions.
    return np.fromiter((pattern.fullmatch(each) is not None for each in values.to_pylist()), bool, len(values))


def grouped(sets: Indices, codes: np.ndarray) -> Iterable[tuple[int, Indices]]:
    """Rows of each set, ascending, by one sort.

    Args:
        sets: Set of each value.
        codes: Index of each row's value.
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
    """Rows of several sets, each ascending, merged in order."""
    if len(parts) == 1:
        return parts[0]
    if sum(map(len, parts)) == count:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.concatenate(parts), kind="stable")
