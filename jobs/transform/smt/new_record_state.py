"""ExtractNewRecordState of Debezium: the row of a change event in place of the event."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.formats.columns.value_texts import texts
from jobs.transform.cast_values import cast_problem
from jobs.transform.columns import Columns, TransformProblem, column
from jobs.transform.frame import Frame
from jobs.transform.record_parts import with_headers
from jobs.transform.smt.debezium_envelope import (
    before_and_after,
    field_path,
    kind_at,
    row_fields,
    struct_or_null,
    value_of,
)
from jobs.transform.smt.dropped_fields import DropNamedFields
from jobs.transform.smt.known import Known
from jobs.transform.smt.properties import Properties
from jobs.transform.transform import Applied, Rows, Transform, settled

_MODES = ("tombstone", "drop", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_NAME = "ExtractNewRecordState"
_DELETED = "__deleted"
Added = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class NewRecordState(Transform):
    """The row as it is behind a change; an event without one before and behind it is dropped.

    Attributes:
        mode: What becomes of a deletion, in Debezium's words.
        fields: Columns that are added, each with the path of its values in the event.
        headers: Headers that are added, likewise.
        topic_field: The field of the row whose text is the topic's name from here on; None: it stays.
    """

    name: ClassVar[str] = "extract_new_record_state"
    mode: str
    fields: Added
    headers: Added
    topic_field: str | None

    @property
    def rewrites(self) -> bool:
        """Whether a deletion is a row, which says so."""
        return self.mode.startswith("rewrite")

    @property
    def asks(self) -> frozenset[str]:
        """The headers, where some are added."""
        return frozenset({"headers"}) if self.headers else frozenset()

    def output(self, columns: Columns) -> Columns:
        """The row's, and those that are added."""
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
        """All rows at once."""
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
            # Of a deletion what was before counts, of all others what is behind the change.
            of_before = pc.if_else(value_of(rows, ("after",)).is_null(), self._topics(rows, "before"), None)
            topics = pc.coalesce(self._topics(rows, "after"), of_before)
            frame = frame.with_part("topic", pc.coalesce(topics, frame.part("topic")))
        return frame

    def _topics(self, rows: Rows, state: str) -> pa.Array:
        path = (state, self.topic_field or "")
        kind = kind_at(rows.columns, path)
        return pa.nulls(rows.count, pa.string()) if kind is None else texts(value_of(rows, path), kind)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    # A cast to its own type looks at what lies within nulls.
    return array if array.type.equals(kind) else array.cast(kind)


def _steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    mode = properties.choice("delete.tombstone.handling.mode", _MODES, "tombstone", ignore_case=True)
    row_fields(columns, _NAME, deleted=mode.startswith("rewrite"))
    fields = _added(properties, columns, "add.fields", lenient=lenient)
    headers = _added(properties, columns, "add.headers", lenient=lenient)
    state = NewRecordState(mode, fields, headers, properties.text("route.by.field") or None)
    compatible = properties.choice("drop.fields.keep.schema.compatible", ("true", "false"), "true") == "true"
    # The key is none of the row's columns, whatever is dropped from it.
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
