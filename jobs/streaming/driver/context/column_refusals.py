"""Column refusals: fields and changes that a table's columns do not take, for the decoders."""

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
"""Most refused fields that are kept apart; beyond them each record with a new field fails."""


@dataclass(slots=True)
class ColumnRefusals:
    """Fields and changes that one table refuses, for the decoders.

    Attributes:
        fields: Refused fields of records, by their JSON path, with the reason.
        changes: Refused changes of columns: records that need them do not wait, and their values land as text.
    """

    fields: dict[str, str] = field(default_factory=dict)
    changes: set[tuple[Change, Path]] = field(default_factory=set)

    def refuse_field(self, schema: Schema, path: Path, why: str) -> None:
        """Refuse a column for a field."""
        self.fields |= dict.fromkeys(refused_places(schema, path), why)

    def limit(self) -> str | None:
        """Refuse every new field after too many refusals, as with keys that are data; returns why, the first time."""
        if len(self.fields) < MOST_REFUSED or EVERY_FIELD in self.fields:
            return None
        why = self.fields[EVERY_FIELD] = f"more than {MOST_REFUSED:,} fields of records have got no column"
        return why

    def without_columns_of_failing(
        self, found: Evolution, schema: Schema, refused: Iterable[RefusedChange]
    ) -> Evolution:
        """Changes without the columns of records that a refused field will make fail.

        The tasks run again, and then only records that land ask for columns.
        """
        additions = [each for each in refused if each.change == "add"]
        new = {field_place(schema, each.path) for each in additions} - self.fields.keys()
        if not new or EVERY_FIELD in self.fields:
            return found
        many = len(self.fields) + len(new) >= MOST_REFUSED
        return found.without_additions({each.at for each in additions} if many else None)

    def refuse_changes(self, refused: Iterable[RecordNeed | RefusedChange], policy: EvolutionPolicy) -> bool:
        """Refuse changes of columns; returns whether decoders need the refusal, because records wait for the change."""
        if policy.clash != "shadow":
            return False
        before = len(self.changes)
        for each in refused:
            if each.change != "add" and policy.answer(each.change) == "auto":
                self.changes.add((each.change, each.path))
        return len(self.changes) > before

    def known_to(self, resolved: ResolvedSchema) -> ResolvedSchema:
        """The resolved schema with the refusals as options of its decoder."""
        if self.fields:
            refused = dict(resolved.decoder.options.get("refused", ())) | self.fields
            resolved = resolved.with_options({"refused": tuple(refused.items())})
        if self.changes:
            resolved = resolved.with_options({"refused_changes": tuple(sorted(self.changes))})
        return resolved


def refused_places(schema: Schema, path: Path) -> tuple[str, ...]:
    """JSON paths by which decoders know a refused field; a field within a new one has a marked path as well.

    Names may contain points, so the path alone may also name another field.
    """
    place = field_place(schema, path)
    return (place,) if not path[:-1] or path[:-1] in dict(columns_of(schema)) else (place, f"{place}{WITHIN}")


def field_place(schema: Schema, path: Path) -> str:
    """JSON path of a column's field in the decoders' notation: `[]` for elements, `{}` for values of a map."""
    columns, place = dict(columns_of(schema)), "$"
    for at, name in enumerate(path):
        above = columns.get(path[:at]) if at else None
        parent_type = above.field_type if above else None
        if parent_type is not None and not parent_type.is_primitive and not parent_type.is_struct:
            place += "[]" if name == "element" else "{}"
        else:
            # In the decoders' notation: a field without a column may have any name.
            place += f".{name if path[: at + 1] in columns else shown_key(name)}"
    return place
