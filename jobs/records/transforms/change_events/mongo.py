"""MongoDB's documents in Debezium's envelope: events whose rows are texts become rows of a changelog.

Each document is read separately, since its values carry their types. If an update has only the changed fields, all
others are unavailable: they keep their values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.formats.interface.decoder_spec import rows_of
from jobs.records.formats.interface.problems import BAD_ENVELOPE, NULL_IN_REQUIRED, ValueProblem
from jobs.records.transforms.change_events.changelog import (
    DELETE,
    KEY,
    READ,
    UNAVAILABLE,
    Changes,
    Shape,
)
from jobs.records.transforms.change_events.debezium_events import (
    SourceBlock,
    checked_source,
    event_problem,
    events_of,
    times_of,
    transactions_of,
)
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    column,
    optional,
)
from jobs.records.transforms.parse_json import json_spec, parsed_columns
from jobs.records.transforms.smt.debezium_envelope import kind_at, value_of
from jobs.records.transforms.smt.mongo import described_changes, plain_document
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

_ID, _DOCUMENT, _CHANGES = "_id", "document", "updateDescription"
_WHOLE = "let the connector send whole documents, by capture.mode: change_streams_update_full"


@dataclass(slots=True)
class _Documents:
    """Documents as JSON, with the fields that were not sent, and the failures of others."""

    texts: list[str | None] = field(default_factory=list)
    unavailable: list[list[str] | None] = field(default_factory=list)
    failures: list[RowFailure] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MongoChanges(Transform):
    """Convert each event to its document, with the facts of its change.

    Attributes:
        schema: The fields of documents, in the words of schema text; None for one column with the document's text.
        beside: Columns that records have beside the event.
    """

    name: ClassVar[str] = "changes"
    schema: str | None = None
    beside: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[ice.NestedField, ...]:
        """Return the columns of a document."""
        if self.schema is None:
            return column(_ID, ice.StringType()), column(_DOCUMENT, ice.StringType())
        return tuple(map(optional, rows_of(json_spec(self.schema)).fields))

    def output(self, columns: Columns) -> Columns:
        """Return the document's columns, those beside it, and the changelog's own."""
        event_problem(columns, documents=True)
        checked_source(kind_at(columns, ("source",)))
        if not isinstance(kind_at(columns, (KEY, "id")), ice.StringType):
            said = f"needs decode.key with schema: id string and into: {KEY}: a document's id is in its event's key"
            raise TransformProblem(said, ("envelope",))
        own = next((each for each in self.fields if each.name == _ID), None)
        if own is None:
            raise TransformProblem(f"needs the field {_ID}, the key of documents", ("schema",))
        if self.schema is not None and any(each.required for each in rows_of(json_spec(self.schema)).fields):
            raise TransformProblem("has a field with not null, and all fields of a changelog are optional", ("schema",))
        beside = tuple(each for each in columns if each.name in self.beside)
        return Shape(self.fields, beside, ice.StructType(own)).columns

    def apply(self, rows: Rows) -> Applied:
        """Convert all events at once, each document separately."""
        into = rows.columns.behind(self)
        events = events_of(rows)
        made = self._documents(rows, events.changes)
        failures = [*events.failures, *made.failures]
        arrays, wrong = self._columns(made.texts)
        failures += wrong
        source = SourceBlock(rows.batch.column(rows.columns.index("source")), events.of(READ))
        times, late = times_of(rows)
        ids = arrays[into.index(_ID)]
        key = into.arrow.field(KEY).type
        struct = pa.StructArray.from_arrays([ids], fields=list(key), mask=ids.is_null() if ids.null_count else None)
        unavailable = pa.array(made.unavailable, into.arrow.field(UNAVAILABLE).type)
        beside = [rows.batch.column(rows.columns.index(name)) for name in into.names if name in self.beside]
        transactions = transactions_of(rows, source)
        changes = Changes(arrays, events.ops, beside, times, None, None, transactions, unavailable, struct)
        return settled(changes.rows(rows, into), [*failures, *late], events.filtered)

    def _documents(self, rows: Rows, changes: np.ndarray) -> _Documents:
        names, batch = rows.columns.names, rows.batch

        def values(name: str) -> list[Any]:
            return batch.column(rows.columns.index(name)).to_pylist() if name in names else [None] * rows.count

        ops, after, before, partial = values("op"), values("after"), values("before"), values(_CHANGES)
        keys, made = value_of(rows, (KEY, "id")).to_pylist(), _Documents()
        for row in range(rows.count):
            text: str | None = None
            unavailable: list[str] | None = None
            if changes[row]:
                try:
                    whole = before[row] if ops[row] == DELETE else after[row]
                    if self.schema is None:
                        text = self._as_text(ops[row], after[row], keys[row])
                    else:
                        text, unavailable = self._as_fields(ops[row], whole, partial[row], keys[row])
                except ValueProblem as problem:
                    made.failures.append(RowFailure(row, problem.error_class, problem.message, problem.field))
            made.texts.append(text)
            made.unavailable.append(unavailable)
        return made

    def _as_text(self, op: str, after: str | None, key: str | None) -> str:
        if after is None and op != DELETE:
            raise ValueProblem(NULL_IN_REQUIRED, f"needs the document, found null; {_WHOLE}", "$.after")
        if key is None:
            raise ValueProblem(NULL_IN_REQUIRED, "needs the id of the document, found null", f"$.{KEY}.id")
        return json.dumps({_ID: key, _DOCUMENT: None if op == DELETE else after})

    def _as_fields(
        self, op: str, whole: str | None, partial: Mapping[str, Any] | None, key: str | None
    ) -> tuple[str, list[str] | None]:
        """Return the document as JSON of plain values, and the names of its fields that were not sent."""
        unavailable: list[str] | None = None
        if whole is not None:
            document = plain_document(whole, "$.before" if op == DELETE else "$.after")
        elif op == DELETE:
            document = {}
        elif partial is not None:
            document, sent = _changed(partial)
            unavailable = [each.name for each in self.fields if each.name not in sent] or None
        else:
            raise ValueProblem(NULL_IN_REQUIRED, "needs the document, or updateDescription, found neither", "$.after")
        if key is not None:
            document.setdefault(_ID, plain_document(f'{{"{_ID}": {key}}}', f"$.{KEY}.id")[_ID])
        if document.get(_ID) is None:
            raise ValueProblem(NULL_IN_REQUIRED, "needs the id of the document, found null", f"$.{KEY}.id")
        return json.dumps(document), unavailable

    def _columns(self, texts: list[str | None]) -> tuple[list[pa.Array], list[RowFailure]]:
        schema = self.schema or f"{_ID} string, {_DOCUMENT} string"
        arrays, _, failures = parsed_columns(schema, "ignore", pa.array(texts, pa.string()), self.fields, "$.after")
        return arrays, failures


def _changed(partial: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the changed fields of a document, removed ones as null, and all names that the event covers."""
    place = f"$.{_CHANGES}"
    document, removed = described_changes(partial, place)
    if partial.get("truncatedArrays") or any("." in each for each in (*document, *removed)):
        said = f"needs changes of whole fields, found one of a part of a field; {_WHOLE}"
        raise ValueProblem(BAD_ENVELOPE, said, place)
    document |= dict.fromkeys(removed)
    return document, frozenset({*document, _ID})
