"""Healing of failed JSON records: which promotions, and which columns that may be null, would let a record land.

What a record means stays the reference's to say: it decodes the record again with the columns as they would be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

from pyiceberg import types as ice

from jobs.formats.problems import MISSING_FIELD, NULL_IN_REQUIRED, OUT_OF_RANGE
from jobs.schema.declared import DeclaredType, Field, ListType, MapType, Primitive, StructType
from jobs.schema.evolution_policy import EvolutionPolicy
from jobs.schema.needs import Change, Need, Path

_MOST_DIGITS = 38
_INDEX = re.compile(r"\[(\d+|\.\.\.)\]")

Token = str | int | None
"""Of a place in a record: a name, an index in a list, or None for some value of a map."""


class Heal(NamedTuple):
    """One change of the columns.

    Attributes:
        change: `widen` or `relax`.
        path: Of the column.
        type: The wider one.
    """

    change: Change
    path: Path
    type: Primitive | None = None

    @classmethod
    def of(cls, need: Need) -> Heal:
        """The change that a need asks for, of a column that is there; the inverse of `iceberg`."""
        match need.type:
            case None:
                return cls(need.change, need.path)
            case ice.DecimalType(precision=precision, scale=scale):
                return cls(need.change, need.path, Primitive("decimal", precision, scale))
            case kind:
                return cls(need.change, need.path, Primitive(str(kind)))

    @property
    def iceberg(self) -> ice.IcebergType | None:
        """The wider type as Iceberg's."""
        match self.type:
            case None:
                return None
            case Primitive("decimal", int() as precision, int() as scale):
                return ice.DecimalType(precision, scale)
            case Primitive(name):
                return {"long": ice.LongType(), "double": ice.DoubleType()}[name]


class ColumnAt(NamedTuple):
    """The column that a failure is about.

    Attributes:
        path: Its path.
        tokens: Where its value stands in the record.
        type: Its type.
    """

    path: Path
    tokens: tuple[Token, ...]
    type: DeclaredType


def column_at(declared: StructType, place: str | None) -> ColumnAt | None:
    """The column at a failure's JSON path such as `$.a.b[2]`; None if no column is there."""
    if place is None or not place.startswith("$"):
        return None
    return next(_columns_at(declared, place[1:], (), ()), None)


def _columns_at(declared: DeclaredType, rest: str, path: Path, tokens: tuple[Token, ...]) -> Iterator[ColumnAt]:
    if not rest:
        yield ColumnAt(path, tokens, declared)
        return
    match declared:
        case StructType(fields):
            # A name may have points in it, and be the beginning of another.
            for each in sorted(fields, key=lambda each: -len(each.name)):
                if rest.startswith("." + each.name):
                    after = rest[len(each.name) + 1 :]
                    yield from _columns_at(each.type, after, (*path, each.name), (*tokens, each.name))
        case ListType(element):
            if index := _INDEX.match(rest):
                at = int(index[1]) if index[1] != "..." else None
                yield from _columns_at(element, rest[index.end() :], (*path, "element"), (*tokens, at))
        case MapType(_, value):
            if index := _INDEX.match(rest):
                yield from _columns_at(value, rest[index.end() :], (*path, "value"), (*tokens, None))
        case _:
            return


def heal(error_class: str, column: ColumnAt, record: Callable[[], Any], policy: EvolutionPolicy) -> Heal | None:
    """The change that a failure asks for; None if no change is a cure, or the policy leaves the table as it is.

    Args:
        error_class: Of the failure.
        column: What it is about.
        record: Gives it as `parsed` does.
        policy: The stream's.
    """
    if error_class in (MISSING_FIELD, NULL_IN_REQUIRED):
        return Heal("relax", column.path) if policy.relax != "ignore" else None
    if error_class != OUT_OF_RANGE or policy.widen == "ignore":
        return None
    match column.type:
        case Primitive("int"):
            return Heal("widen", column.path, Primitive("long"))
        case Primitive("float"):
            return Heal("widen", column.path, Primitive("double"))
        case Primitive("decimal", int() as precision, int() as scale) as old:
            digits = max(map(digits_of, _values_at(record(), column.tokens)), default=0)
            wider = digits + scale
            if precision < wider <= _MOST_DIGITS:
                return Heal("widen", column.path, replace(old, precision=wider))
    return None


def _values_at(value: Any, tokens: tuple[Token, ...]) -> Iterator[Any]:
    if not tokens:
        yield value
        return
    match tokens[0], value:
        case None, dict():
            for inner in value.values():
                yield from _values_at(inner, tokens[1:])
        case None, list():
            for inner in value:
                yield from _values_at(inner, tokens[1:])
        case int() as index, list() if index < len(value):
            yield from _values_at(value[index], tokens[1:])
        case str() as name, dict() if name in value:
            yield from _values_at(value[name], tokens[1:])
        case _:
            return


def digits_of(value: Any) -> int:
    """How many digits a number has before the point."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return 0
    try:
        number = Decimal(value)
    except ArithmeticError:
        return 0
    return max(number.adjusted() + 1, 0) if number.is_finite() and number else 0


def possible(declared: StructType, policy: EvolutionPolicy) -> Iterator[Heal]:
    """Each change that could be asked for of columns that are there, of the widest type."""
    for each in declared.fields:
        yield from _possible(each.type, each.required, (each.name,), policy)


def _possible(kind: DeclaredType, required: bool, path: Path, policy: EvolutionPolicy) -> Iterator[Heal]:
    if required and policy.relax != "ignore":
        yield Heal("relax", path)
    match kind:
        case StructType(fields):
            for each in fields:
                yield from _possible(each.type, each.required, (*path, each.name), policy)
        case ListType(element, inner):
            yield from _possible(element, inner, (*path, "element"), policy)
        case MapType(_, value, inner):
            yield from _possible(value, inner, (*path, "value"), policy)
        case Primitive("int") if policy.widen != "ignore":
            yield Heal("widen", path, Primitive("long"))
        case Primitive("float") if policy.widen != "ignore":
            yield Heal("widen", path, Primitive("double"))
        case Primitive("decimal") if policy.widen != "ignore":
            yield Heal("widen", path, replace(kind, precision=_MOST_DIGITS))
        case _:
            return


def healed(declared: StructType, heals: Collection[Heal]) -> StructType:
    """The columns with changes made; of several types for one the widest."""
    made = [each for each in heals if each.type is not None]
    wider = {each.path: each.type for each in sorted(made, key=lambda each: (each.type and each.type.precision) or 0)}
    relaxed = {each.path for each in heals if each.change == "relax"}
    return StructType(tuple(_healed_field(each, (each.name,), wider, relaxed) for each in declared.fields))


def _healed_field(one: Field, path: Path, wider: dict[Path, Primitive | None], relaxed: set[Path]) -> Field:
    kind: DeclaredType = one.type
    match kind:
        case StructType(fields):
            kind = StructType(tuple(_healed_field(each, (*path, each.name), wider, relaxed) for each in fields))
        case ListType(element, required):
            inner = _healed_field(Field("element", element, required), (*path, "element"), wider, relaxed)
            kind = ListType(inner.type, inner.required)
        case MapType(key, value, required):
            inner = _healed_field(Field("value", value, required), (*path, "value"), wider, relaxed)
            kind = MapType(key, inner.type, inner.required)
        case Primitive():
            # How JSON carries the value stays as it is.
            if (wide := wider.get(path)) is not None:
                kind = replace(kind, name=wide.name, precision=wide.precision, scale=wide.scale)
    return Field(one.name, kind, one.required and path not in relaxed)
