"""Misfits of a block: the records whose bytes are not a value of their schema, found by stepping over all side by side.

It looks at little more than where each value ends, so it is a hint and no proof: what it does not find, the read of the
block does (`jobs.formats.avro.container`), and of what it finds the reference says what is wrong.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.formats.avro.nodes import Array, Enum, Fixed, Json, Map, Node, Null, Plain, Record, Union, Within

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MOST_ITEMS = 10_000
"""Steps over values of lists and maps; what would take more is left to the reference, which takes less time."""

_LONGEST_NUMBER = 10
_BOUNDS = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_SIZES = {"boolean": 1, "float": 4, "double": 8}
_SIZE_BOUNDS = (0, 2**63 - 1)


def misfits(node: Node, values: pa.BinaryArray) -> Mask:
    """Which records end too early or too late, or have a number out of its bounds, or a text that is not UTF-8.

    Good records with very long lists may be among them.

    Args:
        node: The schema.
        values: Records, none of them null.
    """
    steps = _Steps(values)
    steps.over(node, np.arange(len(values)))
    return steps.bad | (steps.at != steps.ends)


class _Steps:
    """Steps over the records of a block.

    Attributes:
        at: Where each record is stepped to, among the bytes of all.
        ends: Where each ends.
        bad: The misfits; they are not stepped on.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        # One byte more: there is none to be looked at where the last record ends.
        self._data: npt.NDArray[np.uint8] = np.append(np.frombuffer(data or b"", np.uint8), np.uint8(0))
        self.at: Indices = bounds[:-1].copy()
        self.ends: Indices = bounds[1:]
        self.bad: Mask = np.zeros(len(values), np.bool_)
        self._items: int = MOST_ITEMS
        self._beyond_ascii: Indices = np.flatnonzero(self._data >= 0x80)

    def over(self, node: Node, rows: Indices) -> None:
        """Over a value in each of some records."""
        rows = self._good(rows)
        if not len(rows):
            return
        match node:
            case Null():
                pass
            case Plain("int" | "long" as name):
                self._numbers(rows, _BOUNDS[name])
            case Plain("bytes"):
                self._bytes(rows, self._numbers(rows, _SIZE_BOUNDS))
            case Plain("string"):
                self._text(rows, self._numbers(rows, _SIZE_BOUNDS))
            case Plain(name):
                self._bytes(rows, np.full(len(rows), _SIZES[name]))
            case Fixed(_, size):
                self._bytes(rows, np.full(len(rows), size))
            case Enum(_, symbols):
                self._numbers(rows, (0, len(symbols) - 1))
            case Record(_, fields):
                for each in fields:
                    self.over(each.node, rows)
            case Union(branches):
                which = self._numbers(rows, (0, len(branches) - 1))
                for number, branch in enumerate(branches):
                    self.over(branch.node, rows[which == number])
            case Array(items):
                self._blocks(rows, (items,))
            case Map(items):
                self._blocks(rows, (Plain("string"), items))
            case Within() | Json():
                raise AssertionError("no block has it")

    def _good(self, rows: Indices) -> Indices:
        return rows[~self.bad[rows]]

    def _blocks(self, rows: Indices, members: tuple[Node, ...]) -> None:
        """Over lists: blocks of values, each with their count before it, until a count of 0."""
        while len(rows):
            counts = self._numbers(rows, _BOUNDS["long"])
            sized = rows[counts < 0]
            self._numbers(sized, _SIZE_BOUNDS)
            counts = np.abs(counts)
            # Values that take no bytes are the reference's, as is the one number that has no opposite.
            self.bad[rows[(counts > self.ends[rows] - self.at[rows]) | (counts < 0)]] = True
            left = ~self.bad[rows] & (counts > 0)
            rows, counts = rows[left], counts[left]
            inside = rows
            while len(inside):
                self._items -= 1
                if self._items < 0:
                    self.bad[inside] = True
                for each in members:
                    self.over(each, inside)
                counts = counts - 1
                inside = rows[(counts > 0) & ~self.bad[rows]]
            rows = self._good(rows)

    def _numbers(self, rows: Indices, bounds: tuple[int, int]) -> Indices:
        """Over a number in each of some records; what it is, where it is within bounds."""
        found, left = np.zeros(len(rows), np.uint64), np.arange(len(rows))
        at = self.at[rows]
        for place in range(_LONGEST_NUMBER):
            byte = self._data[np.minimum(at[left], len(self._data) - 1)]
            found[left] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            at[left] += 1
            left = left[byte >= 0x80]
            if not len(left):
                break
        numbers = (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)
        bad = (at > self.ends[rows]) | (numbers < bounds[0]) | (numbers > bounds[1])
        bad[left] = True
        self.at[rows] = at
        self.bad[rows[bad]] = True
        return numbers

    def _bytes(self, rows: Indices, sizes: Indices) -> None:
        """Over so many bytes in each of some records."""
        fit = ~self.bad[rows] & (sizes <= self.ends[rows] - self.at[rows])
        self.at[rows[fit]] += sizes[fit]
        self.bad[rows[~fit]] = True

    def _text(self, rows: Indices, sizes: Indices) -> None:
        """Over a text of so many bytes in each of some records."""
        starts = self.at[rows]
        self._bytes(rows, sizes)
        begin, end = (np.searchsorted(self._beyond_ascii, each) for each in (starts, self.at[rows]))
        other = (begin < end) & ~self.bad[rows]
        for row, start in zip(rows[other].tolist(), starts[other].tolist(), strict=True):
            try:
                self._data[start : self.at[row]].tobytes().decode()
            except UnicodeDecodeError:
                self.bad[row] = True
