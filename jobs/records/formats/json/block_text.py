"""Text of a block: the bytes of all its records, read side by side, eight of each at a place of its own.

A byte position counts from the start of the block's text. Behind the text lies padding in which no JSON matches, so
that reading on from any position inside the text stays inside the buffer: at most LONGEST_STEP bytes at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

LONGEST_STEP = 512
MOST_DIGITS = 40
"""Longest run of digits that is read here."""

_PADDING = 4 * LONGEST_STEP
_MOST_ROOM = 64 << 20
_FEW = 32
_QUOTE_ROUNDS = 16
_QUOTE = ord('"')


def _each(byte: int) -> np.uint64:
    return np.uint64(int.from_bytes(bytes([byte]) * 8))


_QUOTES, _ZEROS, _ONES = _each(_QUOTE), _each(ord("0")), _each(0x01)
_HIGH, _LOW, _BEYOND_NINE = _each(0x80), _each(0x7F), _each(0x80 - 10)
# The product's highest byte is the number of the lowest byte that is 1, where all others are 0.
_NUMBER_OF_BYTE = np.uint64(0x0001020304050607)
_EIGHT, _SEVEN, _TOP = np.uint64(8), np.uint64(7), np.uint64(56)
_TENS = np.array([10**n for n in range(20)], np.uint64)


@dataclass(frozen=True, slots=True)
class Constant:
    """Bytes to look for, in words of eight; the last words overlap.

    Attributes:
        size: In bytes.
        initial: The first byte.
        words: Each word's offset, a mask if it is shorter, and its value.
    """

    size: int
    initial: int
    words: tuple[tuple[int, np.uint64 | None, np.uint64], ...]

    @classmethod
    def of(cls, text: bytes) -> Constant:
        """The constant of a text of 1 to LONGEST_STEP bytes."""
        if len(text) < 8:
            mask = np.uint64((1 << 8 * len(text)) - 1)
            return cls(len(text), text[0], ((0, mask, np.uint64(int.from_bytes(text, "little"))),))
        offsets = [*range(0, len(text) - 8, 8), len(text) - 8]
        words = [(at, None, np.uint64(int.from_bytes(text[at : at + 8], "little"))) for at in offsets]
        return cls(len(text), text[0], tuple(words))


class BlockText:
    """The text of a block.

    Args:
        values: One value per record.
        room: Memory of an earlier block, to use again.

    Attributes:
        starts: Where each record begins.
        ends: Where it ends.
        bytes: The text and the padding.
        nowhere: A position at which nothing matches.
    """

    def __init__(self, values: pa.BinaryArray, room: bytearray | None = None) -> None:
        _, offsets, data = values.buffers()
        if offsets is None or not len(values):
            bounds = np.zeros(len(values) + 1, np.int64)
        else:
            bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        first, size = int(bounds[0]), int(bounds[-1] - bounds[0])
        self.starts: Indices = bounds[:-1] - first
        self.ends: Indices = bounds[1:] - first
        self.nowhere: int = size
        self._room: bytearray = _room_for(size, room)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._room, np.uint8, size + _PADDING)
        if size:
            self.bytes[:size] = np.frombuffer(data, np.uint8, size, first)
        self.bytes[size:] = 0
        # A search for the end of a text beyond the last record ends at this quotation mark.
        self.bytes[size + LONGEST_STEP] = _QUOTE
        self.buffer: pa.Buffer = pa.py_buffer(self._room)
        self._words: Words = np.ndarray((size + _PADDING - 7,), "<u8", buffer=self._room, strides=(1,))

    @property
    def room(self) -> bytearray | None:
        """Return the memory that holds the text, for the next block: new memory costs more than copying into it."""
        return self._room if len(self._room) <= _MOST_ROOM else None

    def has(self, byte: int) -> bool:
        """Return whether the text has such a byte."""
        return self._room.find(byte, 0, self.nowhere) >= 0

    @property
    def text(self) -> npt.NDArray[np.uint8]:
        """Return the bytes without the padding."""
        return self.bytes[: self.nowhere]

    def blank(self, records: list[int]) -> None:
        """Overwrite records that nobody reads."""
        for record in records:
            self.bytes[self.starts[record] : self.ends[record]] = 0

    def records_of(self, positions: npt.NDArray[np.intp]) -> Indices:
        """Return the records that the bytes at these positions belong to, ascending."""
        return np.unique(np.searchsorted(self.ends, positions, "right"))

    def matches(self, at: Indices, constant: Constant) -> Mask:
        """Return a mask of the positions at which the constant stands."""
        found: Mask | None = None
        for offset, mask, value in constant.words:
            words = self._words[at + offset if offset else at]
            same = (words if mask is None else words & mask) == value
            found = same if found is None else found & same
        assert found is not None
        return found

    def next_quote(self, at: Indices) -> Indices:
        """Return the position of the first quotation mark from each position on."""
        found, where = self._quote_in_word(at)
        for _ in range(_QUOTE_ROUNDS):
            if len(where) <= _FEW:
                break
            further, left = self._quote_in_word(found[where])
            found[where] = further
            where = where[left]
        if len(where):
            find = self._room.find
            found[where] = [find(_QUOTE, position) for position in found[where].tolist()]
        return found

    def _quote_in_word(self, at: Indices) -> tuple[Indices, Indices]:
        """Return the quotation mark's position in the next eight bytes, or their end; and the positions without one."""
        words = self._words[at] ^ _QUOTES
        # The lowest zero byte of a word is marked for certain; higher ones may be marked wrongly.
        marks = (words - _ONES) & ~words & _HIGH
        missing = np.flatnonzero(marks == 0)
        numbers = _number_of_first(marks)
        numbers[missing] = 8
        return at + numbers, missing

    def digits(self, at: Indices) -> tuple[Words, Indices]:
        """Read the run of decimal digits from each position on.

        Returns:
            The number (modulo 2**64) and its count of digits; MOST_DIGITS or more means that there may be more.
        """
        words = self._words[at]
        words ^= _ZEROS
        others = (((words & _LOW) + _BEYOND_NINE) | words) & _HIGH
        counts = _number_of_first(others)
        missing = np.flatnonzero(others == 0)
        counts[missing] = 8
        numbers = _eight_digits(words << ((8 - counts).view(np.uint64) << np.uint64(3)))
        if len(missing):
            self._further_digits(at[missing], missing, numbers, counts)
        return numbers, counts

    def _further_digits(self, at: Indices, where: Indices, numbers: Words, counts: Indices) -> None:
        for read in range(8, MOST_DIGITS, 8):
            words = self._words[at + read] ^ _ZEROS
            others = (((words & _LOW) + _BEYOND_NINE) | words) & _HIGH
            more = _number_of_first(others)
            more[others == 0] = 8
            further = _eight_digits(words << ((8 - more).view(np.uint64) << np.uint64(3)))
            numbers[where] = numbers[where] * _TENS[more] + further
            counts[where] += more
            on = np.flatnonzero(more == 8)
            if not len(on):
                return
            at, where = at[on], where[on]

    def segments(self, starts: Indices, ends: Indices) -> pa.StringArray:
        """Return the texts between positions; the caller must know that they are UTF-8."""
        if not len(starts):
            return pa.array([], pa.string())
        # The texts and the bytes between them, in turn; only the texts are used. Between records that were struck off
        # the length may be negative, but not in total.
        bounds = np.empty(2 * len(starts) + 2, np.int32)
        bounds[0], bounds[-1] = 0, len(self.bytes)
        bounds[1:-1:2] = starts
        bounds[2:-1:2] = ends
        pieces = pa.StringArray.from_buffers(len(bounds) - 1, pa.py_buffer(bounds), self.buffer)
        return pieces.take(pa.array(np.arange(1, len(bounds) - 1, 2, dtype=np.int32)))

    def parsed_doubles(self, starts: Indices, ends: Indices) -> npt.NDArray[np.float64]:
        """Return the doubles nearest to numbers as JSON writes them."""
        return pc.cast(self.segments(starts, ends), pa.float64()).to_numpy()


def _room_for(size: int, room: bytearray | None) -> bytearray:
    if room is not None and len(room) >= size + _PADDING:
        return room
    return bytearray(size + size // 8 + _PADDING)


def _number_of_first(marks: Words) -> Indices:
    """Return the number of the lowest byte whose highest bit is set; 0 if there is none."""
    lowest = marks & (~marks + np.uint64(1))
    lowest >>= _SEVEN
    lowest *= _NUMBER_OF_BYTE
    lowest >>= _TOP
    return lowest.view(np.int64)


def _eight_digits(words: Words) -> Words:
    """Return the number that the eight digits of a word write, the first one in the lowest byte."""
    pairs = words * np.uint64(10) + (words >> _EIGHT)
    mask = np.uint64(0x000000FF000000FF)
    high = (pairs & mask) * np.uint64(0x000F424000000064)
    low = ((pairs >> np.uint64(16)) & mask) * np.uint64(0x0000271000000001)
    return (high + low) >> np.uint64(32)
