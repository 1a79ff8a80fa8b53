"""Walk over a block: all records are read side by side along a plan, and each byte of each is compared.

A record is read without gaps, from its first byte to its last: a key with its punctuation equals the plan's bytes, a
text ends at the first quotation mark (no record here has a backslash or a control character), a number has JSON's
grammar. A record that deviates is struck off: from then on it follows the positions of a record that does not, so that
it does not hold up the others, and nothing is taken from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.records.formats.columns.primitive_columns import halfway
from jobs.records.formats.json.block_nodes import (
    BooleanPlan,
    EitherNode,
    ListNode,
    ListPlan,
    Member,
    Node,
    NullPlan,
    NumberNode,
    NumberPlan,
    ObjectPlan,
    Place,
    SpreadNode,
    StructNode,
    TextNode,
    TextPlan,
    UndeclaredKind,
    ValuePlan,
)
from jobs.records.formats.json.block_text import (
    LONGEST_STEP,
    MOST_DIGITS,
    BlockText,
    Constant,
    Indices,
    Mask,
    Words,
)
from jobs.records.schema.declared import Primitive

WITH_POINT = frozenset(("decimal", "float", "double"))
MOST_IN_A_WORD = 18
"""Limit of digits; a decimal with more is converted from its text."""

_DOT = ord(".")
_EXACT_MANTISSA, _EXACT_POWER = np.uint64(2**53), 22
_POWERS = 10.0 ** np.arange(_EXACT_POWER + 1)
_TENS = np.array([10**n for n in range(19)], np.uint64)
_FIVES = np.array([5**n for n in range(19)], np.uint64)


@dataclass(slots=True)
class Numbers:
    """Numbers in JSON's grammar without an exponent.

    Attributes:
        starts: Positions of the first digits.
        ends: Positions behind the last digits.
        negative: Mask of the numbers with a minus sign.
        whole: The digits before the point as a number, modulo 2**64.
        digits: Count of the digits before the point.
        fraction, places: Number and count of the digits after the point; 0 without any.
        bad: Mask of the positions without a number that can be read here.
    """

    text: BlockText
    starts: Indices
    ends: Indices
    negative: Mask
    whole: Words
    digits: Indices
    fraction: Words
    places: Indices
    bad: Mask

    @classmethod
    def read(cls, text: BlockText, at: Indices, *, pointed: bool) -> Numbers:
        """Read a number from each position on; if no point is expected, it ends before one."""
        negative = text.bytes[at] == _MINUS
        starts = at + negative
        whole, digits = text.digits(starts)
        bad = (digits == 0) | (digits >= MOST_DIGITS) | ((digits > 1) & (text.bytes[starts] == _ZERO))
        ends = starts + digits
        fraction, places = np.zeros(len(at), np.uint64), np.zeros(len(at), np.int64)
        if pointed:
            where = np.flatnonzero(text.bytes[ends] == _DOT)
            if len(where) == len(at):
                fraction, places = text.digits(ends + 1)
                bad |= (places == 0) | (places >= MOST_DIGITS)
                ends += places + 1
            elif len(where):
                fraction[where], places[where] = text.digits(ends[where] + 1)
                bad[where] |= (places[where] == 0) | (places[where] >= MOST_DIGITS)
                ends[where] += places[where] + 1
        return cls(text, starts, ends, negative, whole, digits, fraction, places, bad)

    def values(self, kind: Primitive) -> tuple[npt.NDArray[Any], Mask]:
        """Return the numbers in the type's form (a decimal without its point), and a mask of those not read here."""
        match kind:
            case Primitive("decimal", int() as precision, int() as scale):
                return self._unscaled(precision, scale)
            case Primitive("double"):
                return self._doubles()
            case Primitive("float"):
                doubles, unfit = self._doubles()
                return doubles, unfit | self._rounded_twice(doubles)
            case _:
                beyond = np.uint64(2 ** (_bits(kind) - 1) - 1) + self.negative.astype(np.uint64)
                return self._signed(self.whole.view(np.int64)), (self.digits > 19) | (self.whole > beyond)

    def _unscaled(self, precision: int, scale: int) -> tuple[npt.NDArray[np.int64], Mask]:
        unfit = (self.whole >= _TENS[precision - scale]) | (self.digits > 19) | (self.places > scale)
        lacking = np.clip(scale - self.places, 0, MOST_IN_A_WORD)
        return self._signed((self.whole * _TENS[scale] + self.fraction * _TENS[lacking]).view(np.int64)), unfit

    def _doubles(self) -> tuple[npt.NDArray[np.float64], Mask]:
        mantissa = self.whole * _TENS[np.minimum(self.places, MOST_IN_A_WORD)] + self.fraction
        # Doubles hold both numbers exactly, so their quotient is the double nearest to the text.
        numbers = mantissa.astype(np.float64) / _POWERS[np.minimum(self.places, _EXACT_POWER)]
        inexact = np.flatnonzero((self.digits + self.places > MOST_IN_A_WORD) | (mantissa > _EXACT_MANTISSA))
        if len(inexact):
            numbers[inexact] = self._parsed(inexact)
        # An exponent follows.
        return self._signed(numbers), (self.text.bytes[self.ends] | 0x20) == ord("e")

    def _rounded_twice(self, doubles: npt.NDArray[np.float64]) -> Mask:
        """Return a mask of doubles that lie halfway between two floats and are not exactly what the text says."""
        found = halfway(doubles)
        where = np.flatnonzero(found)
        if len(where):
            # A number with few digits after the point that the power of five divides: the quotient has no remainder.
            places = np.minimum(self.places[where], MOST_IN_A_WORD)
            mantissa = self.whole[where] * _TENS[places] + self.fraction[where]
            short = (self.digits[where] + self.places[where] <= MOST_IN_A_WORD) & (mantissa <= _EXACT_MANTISSA)
            found[where] = ~(short & (mantissa % _FIVES[places] == 0))
        return found

    def _parsed(self, where: Indices) -> npt.NDArray[np.float64]:
        found = np.zeros(len(where))
        readable = ~self.bad[where]
        found[readable] = self.text.parsed_doubles(self.starts[where[readable]], self.ends[where[readable]])
        return found

    def _signed(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where(self.negative, -numbers, numbers)


def _bits(kind: Primitive) -> int:
    if kind.name != "int":
        return 64
    return {"int8": 8, "int16": 16}.get(kind.encoding or "", 32)


Read = tuple[Indices, Node | None]

_NULL, _TRUE, _FALSE = Constant.of(b"null"), Constant.of(b"true"), Constant.of(b"false")
_QUOTE, _MINUS, _ZERO, _OPEN, _CLOSE, _ARRAY, _ARRAY_END = b'"-0{}[]'
_LONGEST_GUESS = LONGEST_STEP // 2
_MOST_ROUNDS = 512
# So few lists of this length have more elements that the reference is faster.
_ROUNDS_OF_FEW, _FEW = 16, 64


class Walk:
    """One walk over some records of a block.

    Args:
        text: The block.
        rows: The records, ascending.
        comma: The bytes between two members or elements.

    Attributes:
        good: Mask of the records that have been as planned so far.
        met: For each path of an undeclared key, the indices in `rows` of records that have it.
        seen: Values at places that are not declared: the kind, and the indices of records that have it there.
    """

    def __init__(self, text: BlockText, rows: Indices, comma: Constant) -> None:
        self._text: BlockText = text
        self._comma: Constant = comma
        self._rows: Indices = rows
        self.good: Mask = np.ones(len(rows), np.bool_)
        self.met: dict[str, list[Indices]] = {}
        self.seen: dict[tuple[Place, UndeclaredKind], list[Indices]] = {}

    def record(self, plan: ObjectPlan) -> StructNode:
        """Read the records, each to its end."""
        whole = np.arange(len(self._rows), dtype=np.int64)
        at, node = self._object(plan, self._text.starts[self._rows], whole)
        self.good &= at == self._text.ends[self._rows]
        assert isinstance(node, StructNode)
        return node

    def _strike(self, bad: Mask, at: Indices, owners: Indices) -> int:
        """Strike records off and let them follow one that is left.

        Returns:
            The index of that one.
        """
        self.good[owners[bad]] = False
        other = int(bad.argmin())
        at[bad] = self._text.nowhere if bad[other] else at[other]
        return other

    def _object(self, plan: ObjectPlan, at: Indices, owners: Indices) -> Read:
        fresh: Mask | None = np.ones(len(at), np.bool_)
        all_fresh = True
        nodes: dict[str, Node | None] = {}
        shared: dict[tuple[str, bool], list[tuple[Mask, Node | None]]] = {}
        for member in plan.members:
            if fresh is None:
                found, size = self._text.matches(at, member.later), member.later.size
            elif all_fresh:
                found, size = self._text.matches(at, member.first), member.first.size
            else:
                found = np.where(fresh, self._text.matches(at, member.first), self._text.matches(at, member.later))
                size = np.where(fresh, member.first.size, member.later.size)
            required = member.declared is not None and member.declared.required
            if required and not member.shared and not found.all():
                at = at.copy()
                other = self._strike(~found, at, owners)
                if fresh is not None:
                    fresh[~found] = fresh[other]
                if not isinstance(size, int):
                    size[~found] = size[other]
                found[~found] = found[other]
            if found.all():
                at, node = self._value(member.value, at + size, owners, required)
                fresh = None
                self._note(plan, member, owners)
            elif not found.any():
                node = None
            else:
                where = np.flatnonzero(found)
                inside = at[where] + (size if isinstance(size, int) else size[where])
                after, node = self._value(member.value, inside, owners[where], required)
                at = at.copy()
                at[where] = after
                if fresh is not None:
                    fresh, all_fresh = fresh & ~found, False
                    fresh = fresh if fresh.any() else None
                node = None if node is None else SpreadNode(node, where, len(at))
                self._note(plan, member, owners[where])
            name = member.name if member.declared is None else member.declared.name
            nodes[name] = node
            if member.shared:
                shared.setdefault((name, required), []).append((found, node))
        if plan.declared is not None and any(one.required and one.name not in nodes for one in plan.declared.fields):
            self.good[owners] = False
        at = at.copy()
        if fresh is not None:
            at[fresh & (self._text.bytes[at] == _OPEN)] += 1
            bad = fresh & (self._text.bytes[at - 1] != _OPEN)
            if bad.any():
                self._strike(bad, at, owners)
        closed = self._text.bytes[at] == _CLOSE
        if not closed.all():
            self._strike(~closed, at, owners)
        at += 1
        for (name, required), parts in shared.items():
            nodes[name] = self._either(parts, owners, required)
        return at, None if plan.declared is None else StructNode(plan.declared, nodes, len(at))

    def _either(self, parts: list[tuple[Mask, Node | None]], owners: Indices, required: bool) -> Node | None:
        """Merge the members for one field; a record with two of them, or with none if it is required, is struck off."""
        count = np.sum([found for found, _ in parts], axis=0)
        self.good[owners[(count > 1) | (required & (count == 0))]] = False
        filled = [(found, node) for found, node in parts if node is not None]
        return EitherNode(filled) if len(filled) > 1 else filled[0][1] if filled else None

    def _note(self, plan: ObjectPlan, member: Member, owners: Indices) -> None:
        member.idle = 0
        if member.declared is None and plan.declared is not None:
            self.met.setdefault(member.path, []).append(owners)

    def _see(self, place: Place, kind: UndeclaredKind, owners: Indices) -> None:
        if len(owners):
            self.seen.setdefault((place, kind), []).append(owners)

    def _value(self, plan: ValuePlan, at: Indices, owners: Indices, required: bool) -> Read:
        read, opens = self._reader(plan)
        initial = self._text.bytes[at]
        fits = opens(initial)
        if fits.all():
            return read(at, owners)
        null = np.zeros(len(at), np.bool_) if required else self._text.matches(at, _NULL)
        bad = ~(fits | null)
        if bad.any():
            other = self._strike(bad, at, owners)
            fits[bad], null[bad] = fits[other], null[other]
            if fits.all():
                return read(at, owners)
        where = np.flatnonzero(fits)
        out = at + _NULL.size * null
        if not len(where):
            return out, None
        out[where], node = read(at[where], owners[where])
        return out, None if node is None else SpreadNode(node, where, len(at))

    def _reader(self, plan: ValuePlan) -> tuple[Callable[[Indices, Indices], Read], Callable[[np.ndarray], Mask]]:
        match plan:
            case TextPlan():
                return lambda at, owners: self._string(plan, at, owners), lambda byte: byte == _QUOTE
            case NumberPlan():
                return (
                    lambda at, owners: self._number(plan, at, owners),
                    lambda byte: (byte - np.uint8(_ZERO) <= 9) | (byte == _MINUS),
                )
            case BooleanPlan():
                return (
                    lambda at, owners: self._boolean(plan, at, owners),
                    lambda byte: (byte == _TRUE.initial) | (byte == _FALSE.initial),
                )
            case ObjectPlan():
                return lambda at, owners: self._object(plan, at, owners), lambda byte: byte == _OPEN
            case ListPlan():
                return lambda at, owners: self._list(plan, at, owners), lambda byte: byte == _ARRAY
            case NullPlan():
                return lambda at, owners: (at, None), lambda byte: np.zeros(len(byte), np.bool_)

    def _string(self, plan: TextPlan, at: Indices, owners: Indices) -> Read:
        starts = at + 1
        ends = None if plan.size is None else starts + plan.size
        guessed = ends is not None and bool((self._text.bytes[ends] == _QUOTE).all())
        if ends is None or not guessed:
            guessed = bool(plan.least)
            ends = self._text.next_quote(starts + plan.least if plan.least else starts)
            sizes = ends - starts
            least, most = int(sizes.min()), int(sizes.max())
            plan.least = min(least, _LONGEST_GUESS if plan.least is None else plan.least)
            plan.size = least if least == most and least <= _LONGEST_GUESS else None
        if plan.declared is None:
            self._see(plan.place, "text", owners)
            if not guessed:
                return ends + 1, None
        # Called at once, while these bytes are in the processor's cache.
        texts = self._text.segments(starts, ends)
        node = TextNode(plan if guessed else None, plan.declared, texts, owners)
        if plan.declared is None:
            self.good[node.misread()] = False
            return ends + 1, None
        return ends + 1, node

    def _boolean(self, plan: BooleanPlan, at: Indices, owners: Indices) -> Read:
        true = self._text.matches(at, _TRUE)
        bad = ~(true | self._text.matches(at, _FALSE))
        if bad.any():
            other = self._strike(bad, at, owners)
            true[bad] = true[other]
        if plan.declared is None:
            self._see(plan.place, "boolean", owners)
        node = None if plan.declared is None else NumberNode(plan.declared, true, owners)
        return at + np.where(true, _TRUE.size, _FALSE.size), node

    def _list(self, plan: ListPlan, at: Indices, owners: Indices) -> Read:
        out = at + 1
        counts = np.zeros(len(at), np.int64)
        bad = np.zeros(len(at), np.bool_)
        rounds: list[tuple[Indices, Node | None]] = []
        active = np.flatnonzero(self._text.bytes[out] != _ARRAY_END)
        current = out[active]
        while len(active):
            if len(rounds) >= _MOST_ROUNDS or (len(rounds) >= _ROUNDS_OF_FEW and len(active) * _FEW < len(at)):
                bad[active] = True
                break
            after, node = self._value(plan.element, current, owners[active], plan.required)
            rounds.append((active, node))
            counts[active] += 1
            more = self._text.matches(after, self._comma)
            out[active] = after
            bad[active] = ~(more | (self._text.bytes[after] == _ARRAY_END))
            active, current = active[more], after[more] + self._comma.size
        if bad.any():
            self._strike(bad, out, owners)
        node = None if plan.declared is None else ListNode(plan.declared, counts, rounds)
        return out + 1, node

    def _number(self, plan: NumberPlan, at: Indices, owners: Indices) -> Read:
        declared = plan.declared
        as_text = declared is not None and ((declared.precision or 0) > MOST_IN_A_WORD or _whole_with_point(declared))
        numbers = Numbers.read(self._text, at, pointed=declared is None or as_text or declared.name in WITH_POINT)
        node: Node | None = None
        bad = numbers.bad
        if as_text:
            node = TextNode(None, declared, self._text.segments(at, numbers.ends), owners)
        elif declared is not None:
            values, unfit = numbers.values(declared)
            bad |= unfit
            values[bad] = 0
            node = NumberNode(declared, values, owners)
        else:
            self._see_numbers(plan.place, numbers, owners)
        if bad.any():
            self._strike(bad, numbers.ends, owners)
        return numbers.ends, node

    def _see_numbers(self, place: Place, numbers: Numbers, owners: Indices) -> None:
        fraction = numbers.places > 0
        if fraction.all():
            self._see(place, "fraction", owners)
            return
        long = ~fraction & (numbers.digits > MOST_IN_A_WORD)
        self._see(place, "fraction", owners[fraction])
        self._see(place, "long_integer", owners[long])
        self._see(place, "integer", owners[~(fraction | long)])


def _whole_with_point(declared: Primitive) -> bool:
    return declared.encoding == "number" and declared.name in ("int", "long")
