"""Undeclared values of a block: what its records hold beside their columns, as the walk has seen it; what they need.

The walk reads every byte of a record, so it knows the kinds of all values, also of those that no column takes. What it
cannot tell for certain, a number that may be beyond 64 bits or a text that may be a time, is left to a look at the
record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyiceberg.types import IcebergType

from jobs.formats.json.block_plan import Place, UndeclaredKind
from jobs.formats.json.block_text import Indices
from jobs.formats.json.new_fields import NewFieldTypes, list_of, object_of, value_type
from jobs.schema.declared import DeclaredType, ListType, StructType
from jobs.schema.needs import Need


@dataclass(slots=True)
class Undeclared:
    """What the records of a block that look as planned hold where nothing is declared.

    Attributes:
        rows: These records.
        seen: Those that have a value of a kind at a place.
    """

    rows: list[Indices] = field(default_factory=list)
    seen: dict[tuple[Place, UndeclaredKind], list[Indices]] = field(default_factory=dict)

    def needs(self, declared: StructType, rules: NewFieldTypes) -> tuple[list[Need], Indices]:
        """What the values need of the table, each with the first record that does; and the records told by that.

        Not told are records that have to be looked at: they may be refused, and then need nothing.

        Args:
            declared: The columns.
            rules: What new fields become.
        """
        found = [(place, value_type(kind, rules), rows) for (place, kind), rows in self.seen.items()]
        doubtful = _together([rows for _, kind, each in found if kind is None for rows in each])
        needs: list[Need] = []
        for place, kind, each in found:
            rows = np.setdiff1d(_together(each), doubtful) if len(doubtful) else _together(each)
            if kind is not None and len(rows):
                needs.append(_need(declared, place, kind, rules, int(rows.min())))
        return needs, np.setdiff1d(_together(self.rows), doubtful)


def _together(rows: list[Indices]) -> Indices:
    return np.concatenate([*rows, np.zeros(0, np.int64)])


def _need(declared: DeclaredType, place: Place, kind: IcebergType, rules: NewFieldTypes, row: int) -> Need:
    """The column of the first key that is not declared; what lies below it is part of its type."""
    path: list[str] = []
    for at, key in enumerate(place):
        match declared:
            case StructType(fields):
                path.append(str(key))
                found = next((each.type for each in fields if each.name == key), None)
                if found is None:
                    for step in reversed(place[at + 1 :]):
                        kind = list_of(kind) if step is None else object_of(step, kind, rules)
                    return Need("add", tuple(path), kind, row)
                declared = found
            case ListType(element):
                path.append("element")
                declared = element
            case _:
                break
    raise ValueError(f"every key of {place} is declared")
