"""ExtractNewRecordState of Debezium: the row of a change event in place of the event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.columns.value_texts import texts
from jobs.records.formats.interface.problems import WRONG_TYPE, shown
from jobs.records.transforms.cast import cast_problem
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    column,
    optional,
)
from jobs.records.transforms.frame import Frame
from jobs.records.transforms.masks import mask_of
from jobs.records.transforms.record_parts import with_headers
from jobs.records.transforms.smt.debezium_envelope import (
    before_and_after,
    field_path,
    kind_at,
    row_fields,
    struct_or_null,
    value_of,
)
from jobs.records.transforms.smt.known import Known, Properties
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)


@dataclass(frozen=True, slots=True)
class DropNamedFields(Transform):
    """Set the columns to null that a header of the row's record names. Columns are the same for all rows.

    Attributes:
        header: Name of the header, a list of names in JSON; the first of several counts.
        compatible: Whether required columns stay whatever the header says; otherwise all columns become optional.
    """

    name: ClassVar[str] = "drop_named_fields"
    header: str
    compatible: bool

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"headers"})

    def output(self, columns: Columns) -> Columns:
        """Return the same columns; they are optional unless required ones stay."""
        if self.compatible:
            return columns
        return Columns(tuple(map(optional, columns)))

    def apply(self, rows: Rows) -> Applied:
        """Set the columns; each distinct list is read once, and a row whose header is no list of names fails."""
        into = rows.columns.behind(self)
        lists = _first_of(rows.frame.part("headers"), self.header).dictionary_encode()
        named: dict[str, list[int]] = {}
        odd: dict[int, str] = {}
        for code, value in enumerate(lists.dictionary.to_pylist()):
            found = _listed_names(value)
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
    """Return each record's first header of a name; null without one."""
    entries = headers.flatten()
    at = np.flatnonzero(mask_of(pc.equal(pc.struct_field(entries, "key"), name)))
    first = np.full(len(headers), -1, np.int64)
    # The first of several is written last.
    first[pc.list_parent_indices(headers).to_numpy()[at[::-1]]] = at[::-1]
    return pc.struct_field(entries, "value").take(pa.array(first, mask=first < 0))


def _listed_names(value: bytes) -> list[str] | None:
    """Return the names that a header lists; None if it is no such list."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


_MODES = ("tombstone", "drop", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_NAME = "ExtractNewRecordState"
_DELETED = "__deleted"
Added = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class NewRecordState(Transform):
    """Replace an event by the row after the change; an event without a row before and after it is dropped.

    Attributes:
        mode: The action for a deletion, in Debezium's words.
        fields: Columns to add, each with the path of its values in the event.
        headers: Headers to add, each with the path of its values in the event.
        topic_field: The field of the row whose text replaces the topic's name; None if the name stays.
    """

    name: ClassVar[str] = "extract_new_record_state"
    mode: str
    fields: Added
    headers: Added
    topic_field: str | None

    @property
    def rewrites(self) -> bool:
        """Return whether a deletion becomes a row, which is marked."""
        return self.mode.startswith("rewrite")

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"headers"}) if self.headers else frozenset()

    def output(self, columns: Columns) -> Columns:
        fields = list(row_fields(columns, _NAME, deleted=self.rewrites))
        if self.topic_field is not None and self.topic_field not in [each.name for each in fields]:
            raise TransformProblem(f"there is no field '{self.topic_field}' in after", ("route.by.field",))
        if self.rewrites:
            fields.append(column(_DELETED, ice.StringType()))
        for name, path in self.fields:
            kind = kind_at(columns, path)
            assert kind is not None
            fields.append(column(name, kind))
        return Columns.of(fields)

    def apply(self, rows: Rows) -> Applied:
        into = rows.columns.behind(self)
        after, before = struct_or_null(rows, "after"), struct_or_null(rows, "before")
        deleted, state = after.is_null(), after
        if self.rewrites:
            state = pc.if_else(deleted, *before_and_after(rows, into))
        count = state.type.num_fields
        arrays = [pc.struct_field(state, [number]) for number in range(count)]
        if self.rewrites:
            arrays.append(pc.if_else(deleted, "true", "false"))
        arrays += [value_of(rows, path) for _, path in self.fields]
        made = rows.with_batch(into, [_as(a, f.type) for a, f in zip(arrays, into.arrow, strict=True)])
        made = replace(made, frame=self._frame(rows))
        dropped = pc.and_(deleted, before.is_null())
        if self.mode == "drop":
            dropped = deleted
        elif not self.rewrites and after.null_count:
            gone = deleted if rows.tombstones is None else pc.or_(deleted, rows.tombstones)
            made = replace(made, tombstones=gone)
        return settled(made, filtered=np.flatnonzero(dropped.to_numpy(zero_copy_only=False)))

    def _frame(self, rows: Rows) -> Frame:
        frame = rows.frame
        if self.headers:
            values = []
            for name, path in self.headers:
                kind = kind_at(rows.columns, path)
                assert kind is not None
                values.append((name, texts(value_of(rows, path), kind).cast(pa.binary())))
            frame = frame.with_part("headers", with_headers(frame.part("headers"), values))
        if self.topic_field is not None:
            # A deletion has the row before it, all other events the row after the change.
            of_before = pc.if_else(value_of(rows, ("after",)).is_null(), self._topics(rows, "before"), None)
            topics = pc.coalesce(self._topics(rows, "after"), of_before)
            frame = frame.with_part("topic", pc.coalesce(topics, frame.part("topic")))
        return frame

    def _topics(self, rows: Rows, state: str) -> pa.Array:
        path = (state, self.topic_field or "")
        kind = kind_at(rows.columns, path)
        return pa.nulls(rows.count, pa.string()) if kind is None else texts(value_of(rows, path), kind)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    # A cast to its own type would also check values within nulls.
    return array if array.type.equals(kind) else array.cast(kind)


def _steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    mode = properties.choice("delete.tombstone.handling.mode", _MODES, "tombstone", ignore_case=True)
    row_fields(columns, _NAME, deleted=mode.startswith("rewrite"))
    fields = _added(properties, columns, "add.fields", lenient=lenient)
    headers = _added(properties, columns, "add.headers", lenient=lenient)
    state = NewRecordState(mode, fields, headers, properties.text("route.by.field") or None)
    compatible = properties.choice("drop.fields.keep.schema.compatible", ("true", "false"), "true") == "true"
    # The key is none of the row's columns, so dropping its fields changes nothing.
    properties.choice("drop.fields.from.key", ("true", "false"), "false")
    header = properties.text("drop.fields.header.name")
    return [state, DropNamedFields(header, compatible)] if header else [state]


def _added(properties: Properties, columns: Columns, key: str, *, lenient: bool) -> Added:
    prefix = properties.text(f"{key}.prefix", "__")
    found: list[tuple[str, tuple[str, ...]]] = []
    for entry in properties.names(key):
        text, colon, new = (part.strip() for part in entry.partition(":"))
        path = field_path(columns, text)
        if path is None:
            if lenient:
                continue
            hint = "lenient: true leaves it out, as Debezium does"
            raise TransformProblem(f"there is no field '{text}' in the event; {hint}", (key,))
        kind = kind_at(columns, path)
        if key == "add.headers" and kind is not None and cast_problem(kind, ice.StringType()):
            raise TransformProblem(f"no text for a header can be made of '{text}'", (key,))
        found.append((prefix + (new if colon else text.replace(".", "_")), path))
    return tuple(found)


NEW_RECORD_STATE = Known(
    "io.debezium.transforms.ExtractNewRecordState",
    (
        *("delete.tombstone.handling.mode", "add.fields", "add.fields.prefix", "add.headers", "add.headers.prefix"),
        *("route.by.field", "drop.fields.header.name", "drop.fields.from.key", "drop.fields.keep.schema.compatible"),
        "replace.null.with.default",
    ),
    _steps,
    frozenset({"headers"}),
    ("add.headers", "drop.fields.header.name"),
)
