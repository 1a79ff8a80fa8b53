"""Nodes: the values that a walk over a block has read, as Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from jobs.records.formats.columns.primitive_columns import convert_leaf
from jobs.records.formats.json.block_text import Constant, Indices, Mask
from jobs.records.formats.json.columns import spread_struct
from jobs.records.schema.arrow_schema import arrow_type
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)

Place: TypeAlias = tuple[str | None, ...]
"""Keys from the record's top; None stands for the elements of an array."""
UndeclaredKind: TypeAlias = Literal["text", "boolean", "integer", "long_integer", "fraction"]
"""Kind of a value that is not null and has no parts; a `long_integer` may be beyond 64 bits."""


@dataclass(slots=True)
class TextPlan:
    """A text.

    Attributes:
        declared: The declared type; None if the key is not declared.
        place: Place of the text in its record.
        size: Length in bytes of all texts of the last block; None if they differed.
        least: Length in bytes of the shortest text so far; None before the first one.
    """

    declared: Primitive | None
    place: Place
    size: int | None = None
    least: int | None = None


@dataclass(slots=True)
class NumberPlan:
    """A number."""

    declared: Primitive | None
    place: Place


@dataclass(slots=True)
class BooleanPlan:
    """true or false."""

    declared: Primitive | None
    place: Place


@dataclass(slots=True)
class NullPlan:
    """A value that has been nothing but null so far."""

    declared: None = None


@dataclass(slots=True)
class ListPlan:
    """An array.

    Attributes:
        required: Whether an element must not be null.
    """

    declared: ListType | None
    place: Place
    element: ValuePlan
    required: bool


@dataclass(slots=True)
class ObjectPlan:
    """An object with its members in the order in which they come."""

    declared: StructType | None
    place: Place
    members: list[Member] = field(default_factory=list)


@dataclass(slots=True)
class Member:
    """A key and its value.

    Attributes:
        declared: The declared field; None if the key is not declared.
        path: Path by which a key that is not declared is counted.
        first: Bytes before the value if the key is the first one of its object.
        later: Bytes before the value if the key is a later one.
        idle: Number of blocks since a record had it.
        shared: Whether other members are for the same declared field; a record that has two of them is not as planned.
    """

    name: str
    declared: Field | None
    path: str
    value: ValuePlan
    first: Constant
    later: Constant
    idle: int = 0
    shared: bool = False


ValuePlan = TextPlan | NumberPlan | BooleanPlan | NullPlan | ListPlan | ObjectPlan


def plannable(declared: DeclaredType) -> bool:
    """Return whether each key of such a value is known by name; keys of maps, and within `json`, are not."""
    match declared:
        case StructType(fields):
            return all(plannable(one.type) for one in fields)
        case ListType(element):
            return plannable(element)
        case MapType():
            return False
        case Primitive(name):
            return name != "json"


_QUOTE = ord('"')
_NONE: Indices = np.zeros(0, np.int64)

Refused: TypeAlias = set[int]
"""Records with a value that cannot be converted, by their index among those of the walk."""


@dataclass(slots=True)
class TextNode:
    """Texts, or numbers as they are written.

    Attributes:
        plan: The plan that learns that its guess of the length was wrong; None if nothing was guessed.
        owners: The record of each text.
    """

    plan: TextPlan | None
    declared: Primitive | None
    texts: pa.StringArray
    owners: Indices

    def misread(self) -> Indices:
        """Return the records with a quotation mark within a text, which therefore ends earlier than guessed."""
        _, offsets, data = self.texts.buffers()
        if self.plan is None or data is None:
            return _NONE
        quotes = np.frombuffer(data, np.uint8) == _QUOTE
        if not quotes.any():
            return _NONE
        self.plan.size, self.plan.least = None, 0
        ends = np.frombuffer(offsets, np.int32)[1 : len(self.texts) + 1]
        where = np.searchsorted(ends, np.flatnonzero(quotes), "right")
        return self.owners[np.unique(where[where < len(ends)])]

    def array(self, refused: Refused) -> pa.Array:
        assert self.declared is not None
        refused.update(self.misread().tolist())
        if self.declared.name == "string":
            return self.texts
        array, bad = convert_leaf(self.declared, self.texts, required=False)
        refused.update(int(self.owners[one.index]) for one in bad)
        return array


@dataclass(slots=True)
class NumberNode:
    """Numbers or booleans, in the form from which the type is built: a decimal without its point, a time since 1970."""

    declared: Primitive
    values: np.ndarray
    owners: Indices

    def array(self, refused: Refused) -> pa.Array:
        values = self.values
        match self.declared.name:
            case "decimal":
                words = np.empty((len(values), 2), np.int64)
                words[:, 0] = values
                words[:, 1] = values >> 63
                return pa.Array.from_buffers(arrow_type(self.declared), len(values), [None, pa.py_buffer(words)])
            case "int" | "long" | "double" | "boolean":
                return pa.array(values, arrow_type(self.declared))
            case _:
                array, bad = convert_leaf(self.declared, pa.array(values), required=False)
                refused.update(int(self.owners[one.index]) for one in bad)
                return array


@dataclass(slots=True)
class SpreadNode:
    """A node that only some rows have; the others are null.

    Attributes:
        where: Indices of these rows, ascending, one for each of the node's own rows.
        rows: Number of all rows.
    """

    node: Node
    where: Indices
    rows: int

    def array(self, refused: Refused) -> pa.Array:
        take = np.full(self.rows, -1, np.int64)
        take[self.where] = np.arange(len(self.where))
        whole = self.node.array(refused)
        present = take >= 0
        if isinstance(whole, pa.StructArray):
            fields = _struct_of(self.node).fields
            if whole.null_count:
                present &= np.append(np.asarray(whole.is_valid()), False)[take]
            return spread_struct(fields, [whole.field(i) for i in range(len(fields))], present, take)
        return whole.take(pa.array(take, mask=~present))


@dataclass(slots=True)
class EitherNode:
    """Nodes of the same rows; in each row only one of them has a value.

    Attributes:
        parts: Each node, with the mask of the rows that may have their value in it.
    """

    parts: list[tuple[Mask, Node]]

    def array(self, refused: Refused) -> pa.Array:
        made = pa.concat_arrays([node.array(refused) for _, node in self.parts])
        which = np.array([found for found, _ in self.parts]).argmax(axis=0)
        return made.take(pa.array(which * len(which) + np.arange(len(which))))


@dataclass(slots=True)
class StructNode:
    """Objects, none of them null; a field without a node is null in all of them."""

    declared: StructType
    nodes: Mapping[str, Node | None]
    rows: int

    def array(self, refused: Refused) -> pa.Array:
        arrays = self.fields(refused)
        return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(self.declared)))

    def fields(self, refused: Refused) -> list[pa.Array]:
        found = ((one, self.nodes.get(one.name)) for one in self.declared.fields)
        return [
            pa.nulls(self.rows, arrow_type(one.type)) if node is None else node.array(refused) for one, node in found
        ]


@dataclass(slots=True)
class ListNode:
    """Arrays, none of them null.

    Attributes:
        counts: Number of elements of each array.
        rounds: The first elements of all arrays, then the second ones, and so on, each with the arrays that have one.
    """

    declared: ListType
    counts: Indices
    rounds: list[tuple[Indices, Node | None]]

    def array(self, refused: Refused) -> pa.Array:
        kind = arrow_type(self.declared)
        offsets = np.zeros(len(self.counts) + 1, np.int32)
        np.cumsum(self.counts, out=offsets[1:])
        if self.rounds:
            parts = [
                pa.nulls(len(rows), kind.value_type) if node is None else node.array(refused)
                for rows, node in self.rounds
            ]
            places = np.concatenate([offsets[rows] + number for number, (rows, _) in enumerate(self.rounds)])
            order = np.empty(len(places), np.int64)
            order[places] = np.arange(len(places))
            elements = (pa.concat_arrays(parts) if len(parts) > 1 else parts[0]).take(pa.array(order))
        else:
            elements = pa.array([], kind.value_type)
        return pa.ListArray.from_arrays(pa.array(offsets), elements, type=kind)


Node: TypeAlias = TextNode | NumberNode | SpreadNode | EitherNode | StructNode | ListNode


def _struct_of(node: Node) -> StructType:
    match node:
        case StructNode(declared):
            return declared
        case SpreadNode(inner):
            return _struct_of(inner)
        case EitherNode(parts):
            return _struct_of(parts[0][1])
        case _:
            raise TypeError("only an object has fields")
