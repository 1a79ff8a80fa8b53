"""Column refusals: the fields and changes of columns that a table does not get, as decoders have to know them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder import EVERY_FIELD, WITHIN
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.problems import shown_key
from jobs.records.schema.evolution import Evolution
from jobs.records.schema.needs import (
    Change,
    EvolutionPolicy,
    Path,
    RecordNeed,
)
from jobs.records.schema.schema_change import RefusedChange, columns_of

MOST_REFUSED = 1_000
"""Refused fields that are told apart; beyond them each record with a new field fails."""


@dataclass(slots=True)
class ColumnRefusals:
    """What one table does not take, where decoders have to know.

    Attributes:
        fields: Fields of records, by their JSON path, with the reason.
        changes: Changes of its columns: records that need them do not wait, but have their values land as text.
    """

    fields: dict[str, str] = field(default_factory=dict)
    changes: set[tuple[Change, Path]] = field(default_factory=set)

    def refuse_field(self, schema: Schema, path: Path, why: str) -> None:
        """Refuse a column for a field."""
        self.fields |= dict.fromkeys(refused_places(schema, path), why)

    def limit(self) -> str | None:
        """Refuse every new field once too many are refused, as with keys that are data; returns why, the first time."""
        if len(self.fields) < MOST_REFUSED or EVERY_FIELD in self.fields:
            return None
        why = self.fields[EVERY_FIELD] = f"more than {MOST_REFUSED:,} fields of records have got no column"
        return why

    def without_columns_of_failing(
        self, found: Evolution, schema: Schema, refused: Iterable[RefusedChange]
    ) -> Evolution:
        """Changes without columns that may be those of records which fail from now on, by a field that gets none.

        The tasks run again, and then only records that land need columns.
        """
        additions = [each for each in refused if each.change == "add"]
        new = {field_place(schema, each.path) for each in additions} - self.fields.keys()
        if not new or EVERY_FIELD in self.fields:
            return found
        many = len(self.fields) + len(new) >= MOST_REFUSED
        return found.without_additions({each.at for each in additions} if many else None)

    def refuse_changes(self, refused: Iterable[RecordNeed | RefusedChange], policy: EvolutionPolicy) -> bool:
        """Refuse changes of columns; returns whether decoders have to know, as their records wait for a change."""
        if policy.clash != "shadow":
            return False
        before = len(self.changes)
        for each in refused:
            if each.change != "add" and policy.answer(each.change) == "auto":
                self.changes.add((each.change, each.path))
        return len(self.changes) > before

    def known_to(self, resolved: ResolvedSchema) -> ResolvedSchema:
        """The decoder of a schema with what is refused as its options."""
        if self.fields:
            refused = dict(resolved.decoder.options.get("refused", ())) | self.fields
            resolved = resolved.with_options({"refused": tuple(refused.items())})
        if self.changes:
            resolved = resolved.with_options({"refused_changes": tuple(sorted(self.changes))})
        return resolved


def refused_places(schema: Schema, path: Path) -> tuple[str, ...]:
    """The JSON paths by which decoders know a field that gets no column; of one in a new field with a mark, too.

    Names may have points in them, so the path alone does not tell it from another field.
    """
    place = field_place(schema, path)
    return (place,) if not path[:-1] or path[:-1] in dict(columns_of(schema)) else (place, f"{place}{WITHIN}")


def field_place(schema: Schema, path: Path) -> str:
    """The JSON path of a column's field as decoders write it: `[]` for elements, `{}` for values of a map."""
    columns, place = dict(columns_of(schema)), "$"
    for at, name in enumerate(path):
        above = columns.get(path[:at]) if at else None
        parent_type = above.field_type if above else None
        if parent_type is not None and not parent_type.is_primitive and not parent_type.is_struct:
            place += "[]" if name == "element" else "{}"
        else:
            # As decoders write it: what is no column may have any name.
            place += f".{name if path[: at + 1] in columns else shown_key(name)}"
    return place
