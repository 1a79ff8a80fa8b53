"""Record plan, learnt from a few records of a stream: the keys and punctuation that its records share."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from jobs.records.formats.interface.problems import shown_key
from jobs.records.formats.json.block_nodes import (
    BooleanPlan,
    ListPlan,
    Member,
    NullPlan,
    NumberPlan,
    ObjectPlan,
    Place,
    TextPlan,
    ValuePlan,
)
from jobs.records.formats.json.block_text import LONGEST_STEP, Constant
from jobs.records.formats.json.keys import can_be_extra
from jobs.records.formats.json.unknown_fields import Renaming
from jobs.records.schema.declared import (
    TEXTUAL,
    DeclaredType,
    Field,
    ListType,
    Primitive,
    StructType,
)
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule, StructNames
from jobs.records.schema.time_patterns import TIME_TYPES

MOST_UNKNOWN = 100
IDLE_BLOCKS = 64
"""Number of blocks without a key that is not declared, after which the key is forgotten."""
MOST_NAMES = 4
"""Limit of planned keys for one field; records with others are left to the reference."""
_MOST_KEYS = 2_000
_DEEPEST_UNKNOWN = 16
_LONGEST_SAMPLE = 1_000_000


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written."""


def _keys_of(plan: ValuePlan) -> tuple[int, int]:
    """Return the number of keys of a plan, and how many of them are counted as unknown fields."""
    match plan:
        case ObjectPlan():
            inner = [_keys_of(member.value) for member in plan.members]
            counted = sum(member.declared is None for member in plan.members) if plan.declared else 0
            return len(inner) + sum(keys for keys, _ in inner), counted + sum(known for _, known in inner)
        case ListPlan():
            return _keys_of(plan.element)
        case _:
            return 0, 0


def _age(plan: ValuePlan) -> None:
    match plan:
        case ObjectPlan():
            for member in plan.members:
                member.idle += 1
                _age(member.value)
            if any(one.idle > IDLE_BLOCKS for one in plan.members):
                plan.members = [one for one in plan.members if one.declared or one.idle <= IDLE_BLOCKS]
        case ListPlan():
            _age(plan.element)
        case _:
            pass


class RecordPlan:
    """The plan of a stream's records.

    Args:
        declared: The record.
        unknown: Whether the plan may contain keys that are not declared.
        names: How keys are matched with declared fields.

    Attributes:
        root: The record's object.
        comma: The bytes between two members or elements.
    """

    def __init__(self, declared: StructType, *, unknown: bool, names: NameRule = EXACT_NAMES) -> None:
        self._levels: dict[str, StructNames] = Renaming(declared, names).levels if names else {}
        self.root: ObjectPlan = ObjectPlan(declared, ())
        self.comma: Constant = Constant.of(b",")
        self._comma: bytes = b","
        self._colon: bytes = b":"
        self._unknown: bool = unknown
        self._keys: int = 0
        self._counted: int = 0

    def learn(self, sample: bytes) -> bool:
        """Learn the keys of a record; return whether any is new."""
        if len(sample) > _LONGEST_SAMPLE or b"\\" in sample:
            return False
        try:
            record = json.loads(sample, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            return False
        if not isinstance(record, _Pairs):
            return False
        self._keys, self._counted = _keys_of(self.root)
        if not self._keys:
            self._colon = b": " if b'": ' in sample else b":"
            self._comma = b", " if b', "' in sample else b","
            self.comma = Constant.of(self._comma)
        return self._learn_object(self.root, record, 0)

    def age(self) -> None:
        """Note that a block begins, and forget undeclared keys that have not come for long."""
        _age(self.root)

    def _learn_object(self, plan: ObjectPlan, pairs: _Pairs, depth: int) -> bool:
        if len({key for key, _ in pairs}) < len(pairs):
            return False
        known = {member.name: index for index, member in enumerate(plan.members)}
        fields = {} if plan.declared is None else {one.name: one for one in plan.declared.fields}
        names = self._levels.get(_path(plan.place)) if self._levels and fields else None
        by_case = {name.casefold() for name in fields} | (names.near.keys() if names else set())
        at, new = 0, False
        for key, value in pairs:
            index = known.get(key)
            if index is None:
                field = fields.get(key if names is None else names.column(key) or key)
                others = [one for one in plan.members if field is not None and one.declared is field]
                member = self._member(plan, key, field, key.casefold() in by_case, value, depth)
                if member is None or len(others) >= MOST_NAMES:
                    continue
                for one in (member, *others):
                    one.shared = bool(others)
                plan.members.insert(at, member)
                known = {one.name: number for number, one in enumerate(plan.members)}
                at, new = at + 1, True
            else:
                at = max(at, index + 1)
                member = plan.members[index]
                if isinstance(member.value, NullPlan) and value is not None:
                    place = (*plan.place, key if member.declared is None else member.declared.name)
                    member.value = self._member_value(member.declared, value, place, depth + 1)
                    new = True
            new |= self._learn_value(member.value, value, depth + 1)
        return new

    def _member(
        self, plan: ObjectPlan, key: str, declared: Field | None, by_case: bool, value: Any, depth: int
    ) -> Member | None:
        counted = declared is None and plan.declared is not None
        if counted and (not self._unknown or by_case or self._counted >= MOST_UNKNOWN):
            return None
        written = b'"' + key.encode() + b'"' + self._colon
        if not can_be_extra(key) or len(written) > LONGEST_STEP - 16 or self._keys >= _MOST_KEYS:
            return None
        self._keys += 1
        self._counted += counted
        place = (*plan.place, key if declared is None else declared.name)
        made = self._member_value(declared, value, place, depth + 1)
        path = f"{_path(plan.place)}.{shown_key(key)}" if counted else ""
        first, later = Constant.of(b"{" + written), Constant.of(self._comma + written)
        return Member(key, declared, path, made, first, later)

    def _member_value(self, declared: Field | None, value: Any, place: Place, depth: int) -> ValuePlan:
        return self._value_of(value, place, depth) if declared is None else self._declared(declared.type, place, value)

    def _learn_value(self, plan: ValuePlan, value: Any, depth: int) -> bool:
        match plan, value:
            case ObjectPlan(), _Pairs():
                return self._learn_object(plan, value, depth)
            case ListPlan(), list() if not isinstance(value, _Pairs):
                new = False
                for one in value[:16]:
                    if isinstance(plan.element, NullPlan) and one is not None:
                        element = None if plan.declared is None else Field("", plan.declared.element)
                        plan.element = self._member_value(element, one, (*plan.place, None), depth + 1)
                        new = True
                    new |= self._learn_value(plan.element, one, depth + 1)
                return new
            case _:
                return False

    def _declared(self, declared: DeclaredType, place: Place, value: Any) -> ValuePlan:
        """Return the plan of a declared value; the sample decides between two ways to write it."""
        match declared:
            case StructType():
                return ObjectPlan(declared, place)
            case ListType(element, required):
                samples = value if isinstance(value, list) and not isinstance(value, _Pairs) else ()
                sample = next((one for one in samples if one is not None), None)
                return ListPlan(declared, place, self._declared(element, (*place, None), sample), required)
            case Primitive("boolean"):
                return BooleanPlan(declared, place)
            case Primitive("int" | "long" | "float" | "double", encoding="text"):
                return TextPlan(declared, place)
            case Primitive("int" | "long" | "float" | "double"):
                return NumberPlan(declared, place)
            case Primitive("decimal", encoding="number"):
                return NumberPlan(declared, place)
            case Primitive("decimal", encoding="unscaled"):
                if value is None:
                    return NullPlan()
                if isinstance(value, str):
                    return TextPlan(declared, place)
                return NumberPlan(replace(declared, encoding="number"), place)
            case Primitive(name, encoding=way) if name in TIME_TYPES and way not in TEXTUAL:
                return NumberPlan(declared, place)
            case Primitive():
                return TextPlan(declared, place)
            case _:
                raise TypeError(f"no plan for {declared}")

    def _value_of(self, value: Any, place: Place, depth: int) -> ValuePlan:
        """Return the plan of a value that is not declared; nothing inside it is counted by a path of its own."""
        match value:
            case bool():
                return BooleanPlan(None, place)
            case int() | float():
                return NumberPlan(None, place)
            case str():
                return TextPlan(None, place)
            case _Pairs() if depth < _DEEPEST_UNKNOWN:
                return ObjectPlan(None, place)
            case list() if depth < _DEEPEST_UNKNOWN:
                return ListPlan(None, place, NullPlan(), required=False)
            case _:
                return NullPlan()


def _path(place: Place) -> str:
    """Return the JSON path of an object all of whose keys above are declared."""
    return "$" + "".join("[]" if key is None else f".{key}" for key in place)
