"""Parts of JSON Schemas: what was read of a schema, and what several that hold together say of one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.formats.json_schema.choices import Choices, InFields
from jobs.schema.declared import DeclaredType, Field, Primitive, StructType

_WHOLE, _NUMBER = Primitive("long"), Primitive("double")


@dataclass(frozen=True, slots=True)
class Read:
    """What a schema says.

    Attributes:
        type: None of what has no one type.
        nullable: Whether null is a value.
        choices: Where values of several types are within.
        alternatives: Of a choice of several types.
        fields: Of an object, its properties in the order of columns.
        required: Names of properties that have to be there.
        is_null: Whether null is the only value.
    """

    type: DeclaredType | None
    nullable: bool
    choices: Choices | None = None
    alternatives: tuple[Read, ...] = ()
    fields: Mapping[str, Read] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    is_null: bool = False

    def or_null(self, nullable: bool) -> Read:
        """The same with another answer about null."""
        return replace(self, nullable=nullable)


NO_TYPE = Read(None, True)


def object_of(fields: Mapping[str, Read], required: Iterable[str], *, nullable: bool = False) -> Read:
    """An object with these properties; it has no type if none of them has one."""
    names = frozenset(required)
    columns = tuple(
        Field(name, one.type, name in names and not one.nullable)
        for name, one in fields.items()
        if one.type is not None
    )
    inside = {name: one.choices for name, one in fields.items() if one.choices is not None}
    made = StructType(columns) if columns else None
    return Read(made, nullable, InFields(inside) if inside else None, fields=fields, required=names)


def held_together(parts: Sequence[Read]) -> Read:
    """What several schemas say of a value that is of each of them.

    Objects become one with the properties of all. The alternatives of a choice among them give properties, too, which
    may be missing. Otherwise all that have a type must have the same.
    """
    if len(parts) == 1:
        return parts[0]
    nullable = all(part.nullable for part in parts)
    telling = [part for part in parts if part.type is not None or part.required or part.alternatives]
    typed = [part for part in telling if part.type is not None]
    if not typed:
        return Read(None, nullable, required=_all_required(telling))
    if len(telling) == 1:
        return typed[0].or_null(nullable)
    flat = [
        one
        for part in telling
        for one in ([replace(each, required=frozenset()) for each in part.alternatives] or [part])
    ]
    if all(one.fields or one.type is None for one in flat):
        return _one_object(flat, nullable=nullable)
    types = {one.type for one in typed}
    if types == {_WHOLE, _NUMBER}:
        return Read(_WHOLE, nullable)
    return typed[0].or_null(nullable) if len(types) == 1 else Read(None, nullable)


def _one_object(objects: Sequence[Read], *, nullable: bool) -> Read:
    found: dict[str, list[Read]] = {}
    for one in objects:
        for name, each in one.fields.items():
            found.setdefault(name, []).append(each)
    fields = {name: held_together(each) for name, each in found.items()}
    return object_of(fields, _all_required(objects), nullable=nullable)


def _all_required(parts: Sequence[Read]) -> frozenset[str]:
    return frozenset(name for part in parts for name in part.required)
