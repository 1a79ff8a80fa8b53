"""Fields that a record's header names are left out of its row, as ExtractNewRecordState of Debezium does it."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.problems import WRONG_TYPE, shown
from jobs.transform.columns import Columns, optional
from jobs.transform.masks import mask_of
from jobs.transform.transform import Applied, RowFailure, Rows, Transform, settled


@dataclass(frozen=True, slots=True)
class DropNamedFields(Transform):
    """Of each row those columns are null that a header of its record names. Columns are the same for all rows.

    Attributes:
        header: Its value is a list of names in JSON; of several with one name the first counts.
        compatible: Whether columns that refuse null stay whatever the header says; else they refuse it no more.
    """

    name: ClassVar[str] = "drop_named_fields"
    header: str
    compatible: bool

    @property
    def asks(self) -> frozenset[str]:
        """The headers."""
        return frozenset({"headers"})

    def output(self, columns: Columns) -> Columns:
        """The same; any of them may be null unless the ones that refuse it stay."""
        if self.compatible:
            return columns
        return Columns(tuple(map(optional, columns)))

    def apply(self, rows: Rows) -> Applied:
        """Each list that differs is read once; a row whose header is no list of names fails."""
        into = rows.columns.behind(self)
        lists = _first_of(rows.frame.part("headers"), self.header).dictionary_encode()
        named: dict[str, list[int]] = {}
        odd: dict[int, str] = {}
        for code, value in enumerate(lists.dictionary.to_pylist()):
            found = _names(value)
            if found is None:
                odd[code] = (
                    f"needs a list of names in the header {self.header}, found {shown(value.decode(errors='replace'))}"
                )
            for name in found or ():
                named.setdefault(name, []).append(code)
        codes = pc.fill_null(lists.indices, -1).to_numpy(zero_copy_only=False)
        failures = (
            [
                RowFailure(int(row), WRONG_TYPE, odd[int(codes[row])])
                for row in np.flatnonzero(np.isin(codes, list(odd)))
            ]
            if odd
            else []
        )
        arrays: list[pa.Array] = []
        for field, array in zip(into, rows.batch.columns, strict=True):
            if not field.required and field.name in named:
                gone = pa.array(np.isin(codes, named[field.name]))
                array = pc.if_else(gone, pa.scalar(None, array.type), array)
            arrays.append(array)
        return settled(rows.with_batch(into, arrays), failures)


def _first_of(headers: pa.Array, name: str) -> pa.Array:
    """For each record the value of its first header of a name; null where there is none."""
    entries = headers.flatten()
    at = np.flatnonzero(mask_of(pc.equal(pc.struct_field(entries, "key"), name)))
    first = np.full(len(headers), -1, np.int64)
    # Of several the first is written last.
    first[pc.list_parent_indices(headers).to_numpy()[at[::-1]]] = at[::-1]
    return pc.struct_field(entries, "value").take(pa.array(first, mask=first < 0))


def _names(value: bytes) -> list[str] | None:
    """The names that a header lists; None if it is no such list."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(each, str) for each in found) else None
