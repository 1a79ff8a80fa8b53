"""A column that records have and the table lacks: its type, gathered over all records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyiceberg import types as ice

from jobs.records.schema.compatibility import promotes
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.needs import Coordinates, Path

_TEXTS = (ice.StringType, ice.DateType, ice.TimestampType, ice.TimestamptzType, ice.TimeType, ice.UUIDType)
_NUMBERS = (ice.LongType, ice.DoubleType, ice.DecimalType)
_PARTS = {ice.StructType: "struct", ice.ListType: "list", ice.MapType: "map"}


@dataclass(slots=True)
class NewColumn:
    """A field of records that the table lacks.

    Attributes:
        kinds: Types seen of it, as text, with the first record of each; for a nested one only its kind.
        fields: Fields of structs.
        element: Elements of lists.
        value: Values of maps, whose keys are of the type `key`.
        former: A column that the first record lacks, and that may be the same under its former name.
    """

    kinds: dict[str, tuple[Coordinates, ice.IcebergType]] = field(default_factory=dict)
    fields: dict[str, NewColumn] = field(default_factory=dict)
    element: NewColumn | None = None
    value: NewColumn | None = None
    key: ice.IcebergType | None = None
    former: Path | None = None

    def see(self, kind: ice.IcebergType, at: Coordinates, former: Path | None = None) -> None:
        """Add a record whose field has this type, and the column that the field looks like."""
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
        """Return the first record that has the field."""
        return min(at for at, _ in self.kinds.values())

    @property
    def kind(self) -> str:
        """Return the kind that the first record gives: struct, list, map, or a primitive type as text."""
        return min(self.kinds, key=lambda name: (self.kinds[name][0], name))

    def primitive(self, *, json: bool) -> ice.IcebergType:
        """Return the type of a field without parts: the narrowest that holds all types compatible with the first
        record's.

        Args:
            json: Whether numbers and texts are JSON's: a double takes whole numbers, a string takes every text.
        """
        chosen = self.kinds[self.kind][1]
        others = [kind for name, (_, kind) in sorted(self.kinds.items()) if name not in _PARTS.values()]
        # Twice: a type that did not join with the first may join with the result of the others.
        for kind in others + others:
            chosen = _joined(chosen, kind, json=json)
        return chosen

    def parts(self) -> Iterator[tuple[str, NewColumn]]:
        """Yield the direct parts, by the names that Iceberg gives them."""
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
        """Return the number of columns that it adds, with nested ones."""
        return 1 + sum(inner.size() for _, inner in self.parts())


def _joined(chosen: ice.IcebergType, other: ice.IcebergType, *, json: bool) -> ice.IcebergType:
    """Return the type that holds both if there is one, else the chosen one."""
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
        # A requested decimal takes whole numbers; one without fraction is for numbers that no long holds.
        return next(kind for kind in (chosen, other) if isinstance(kind, ice.DecimalType))
    return chosen
