"""New columns: what many records say of fields that a table lacks, merged to one type for each field.

What is merged is a set of observations, each a field, a kind of type and the first record that has it. So neither the
order of records nor how a batch was cut among tasks makes a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyiceberg import types as ice

from jobs.schema.compatibility import promotes
from jobs.schema.iceberg_schema import schema_text
from jobs.schema.needs import Coordinates, Path

_TEXTS = (ice.StringType, ice.DateType, ice.TimestampType, ice.TimestamptzType, ice.TimeType, ice.UUIDType)
_NUMBERS = (ice.LongType, ice.DoubleType, ice.DecimalType)
_PARTS = {ice.StructType: "struct", ice.ListType: "list", ice.MapType: "map"}


@dataclass(slots=True)
class NewColumn:
    """A field of records that the table lacks.

    Attributes:
        kinds: What was seen of it, by the type in words, with the first record of each; of a nested one its kind only.
        fields: Of structs.
        element: Of lists.
        value: Of maps, whose keys are of the type `key`.
        former: A column that the first record lacks, and that may be the same under its former name.
    """

    kinds: dict[str, tuple[Coordinates, ice.IcebergType]] = field(default_factory=dict)
    fields: dict[str, NewColumn] = field(default_factory=dict)
    element: NewColumn | None = None
    value: NewColumn | None = None
    key: ice.IcebergType | None = None
    former: Path | None = None

    def see(self, kind: ice.IcebergType, at: Coordinates, former: Path | None = None) -> None:
        """Take note of a record whose field has this type, and of the column that the field looks like."""
        if not self.kinds or at < self.first:
            self.former = former
        name = _PARTS.get(type(kind)) or schema_text(kind)
        known = self.kinds.get(name)
        if known is None or at < known[0]:
            self.kinds[name] = (at, kind)
        match kind:
            case ice.StructType():
                for each in kind.fields:
                    self.fields.setdefault(each.name, NewColumn()).see(each.field_type, at)
            case ice.ListType():
                self.element = self.element or NewColumn()
                self.element.see(kind.element_type, at)
            case ice.MapType():
                self.value, self.key = self.value or NewColumn(), self.key or kind.key_type
                self.value.see(kind.value_type, at)
            case _:
                pass

    @property
    def first(self) -> Coordinates:
        """The first record that has the field."""
        return min(at for at, _ in self.kinds.values())

    @property
    def kind(self) -> str:
        """What the first record says that it is: struct, list, map, or a primitive type in words."""
        return min(self.kinds, key=lambda name: (self.kinds[name][0], name))

    def primitive(self, *, json: bool) -> ice.IcebergType:
        """The type of a field without parts: the least that holds what goes with the first record's.

        Args:
            json: Numbers and texts are JSON's: a double takes whole numbers, a string takes every text.
        """
        chosen = self.kinds[self.kind][1]
        others = [kind for name, (_, kind) in sorted(self.kinds.items()) if name not in _PARTS.values()]
        # Twice: what was too wide for the first may go with what the others made of it.
        for kind in others + others:
            chosen = _joined(chosen, kind, json=json)
        return chosen

    def parts(self) -> Iterator[tuple[str, NewColumn]]:
        """What lies directly within, by the name that Iceberg gives it."""
        match self.kind:
            case "struct":
                yield from sorted(self.fields.items(), key=lambda item: (item[1].first, item[0]))
            case "list" if self.element:
                yield "element", self.element
            case "map" if self.value:
                yield "value", self.value
            case _:
                return

    def size(self) -> int:
        """How many columns it makes, nested ones counted."""
        return 1 + sum(inner.size() for _, inner in self.parts())


def _joined(chosen: ice.IcebergType, other: ice.IcebergType, *, json: bool) -> ice.IcebergType:
    """The type that holds both if there is one, else the chosen one."""
    if promotes(other, chosen):
        return chosen
    if promotes(chosen, other):
        return other
    if not json:
        return chosen
    if isinstance(chosen, _TEXTS) and isinstance(other, _TEXTS):
        return ice.StringType()
    if isinstance(chosen, _NUMBERS) and isinstance(other, _NUMBERS):
        if ice.DoubleType() in (chosen, other):
            return ice.DoubleType()
        # A decimal that was asked for takes whole numbers; one without fraction is for numbers that no long holds.
        return next(kind for kind in (chosen, other) if isinstance(kind, ice.DecimalType))
    return chosen
