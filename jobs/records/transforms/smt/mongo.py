"""MongoDebeziumTransform of the Iceberg sink: the documents of MongoDB's change events as structs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import (
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    TOO_DEEP,
    WRONG_TYPE,
    ValueProblem,
)
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.parse_json import ParseJson
from jobs.records.transforms.smt.debezium_envelope import kind_at, value_of
from jobs.records.transforms.smt.java import float_text
from jobs.records.transforms.smt.json_to_map import parsed_object
from jobs.records.transforms.smt.keys import KEY_COLUMN
from jobs.records.transforms.smt.known import Known, Properties
from jobs.records.transforms.smt.sink import ICEBERG
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

_NAME = "MongoDebeziumTransform"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATES = ("before", "after")
_CHANGES = "updateDescription"


@dataclass(frozen=True, slots=True)
class MongoDocuments(Transform):
    """Convert the documents before and after a change to plain JSON; a partial update gets a document after it.

    Attributes:
        as_documents: Whether arrays become objects, with the names _0, _1 and so on.
        lenient: Whether an update of a field within another adds a field `a.b`, as the sink does.
        key: The column of the key, a struct with `id`, which gives partial updates their `_id`; None for no `_id`.
    """

    name: ClassVar[str] = "mongo_documents"
    as_documents: bool
    lenient: bool
    key: str | None = None

    def output(self, columns: Columns) -> Columns:
        if self.key is not None and not isinstance(kind_at(columns, (self.key, "id")), ice.StringType):
            said = f"the key of an event of MongoDB is a struct with a text id, and '{self.key}' is none"
            raise TransformProblem(said, (KEY_COLUMN,))
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Read each document separately: its values carry their types."""
        names = rows.columns.names
        batch = rows.batch
        before, after = (batch.column(rows.columns.index(name)).to_pylist() for name in _STATES)
        changes = batch.column(rows.columns.index(_CHANGES)).to_pylist() if _CHANGES in names else [None] * rows.count
        ids = [None] * rows.count if self.key is None else value_of(rows, (self.key, "id")).to_pylist()
        failures: list[RowFailure] = []
        made: dict[str, list[str | None]] = {name: [] for name in _STATES}
        for row in range(rows.count):
            try:
                states = self._states(before[row], after[row], changes[row], ids[row])
            except ValueProblem as problem:
                states = (None, None)
                failures.append(RowFailure(row, problem.error_class, problem.message, problem.field))
            for name, state in zip(_STATES, states, strict=True):
                made[name].append(None if state is None else json.dumps(self._plain(state)))
        arrays = [
            pa.array(made[name], pa.string()) if name in made else batch.column(at) for at, name in enumerate(names)
        ]
        return settled(rows.with_batch(rows.columns, arrays), failures)

    def _states(
        self, before: str | None, after: str | None, changes: Mapping[str, Any] | None, key: str | None
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        if before is None and after is None and changes is None:
            raise ValueProblem(NULL_IN_REQUIRED, "needs before, after or updateDescription, found null", None)
        first = None if before is None else self._document(before, "$.before")
        if after is not None:
            return first, self._document(after, "$.after")
        if changes is None:
            return first, None
        made = self._changed(dict(first or {}), changes)
        if first is None and changes.get("updatedFields") is None:
            raise ValueProblem(NULL_IN_REQUIRED, "needs before or updatedFields, found null", f"$.{_CHANGES}")
        if first is None and key is not None:
            made.setdefault("_id", self._document(f'{{"_id": {key}}}', f"$.{self.key}.id")["_id"])
        return first, made

    def _changed(self, document: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        place = f"$.{_CHANGES}"
        found, removed = described_changes(changes, place, lenient=self.lenient)
        within = changes.get("truncatedArrays") or any("." in each for each in (*found, *removed))
        if within and not self.lenient:
            # The sink adds a field of this name, and leaves the inner field as it was.
            raise ValueProblem(WRONG_TYPE, "needs changes of whole fields, found one of a field within", place)
        document |= found
        return {name: value for name, value in document.items() if name not in removed}

    def _document(self, text: str, place: str) -> dict[str, Any]:
        """Return a document with plain values."""
        return plain_document(text, place, lenient=self.lenient)

    def _plain(self, node: Any) -> Any:
        match node:
            case dict():
                return {name: self._plain(each) for name, each in node.items()}
            case list() if self.as_documents:
                return {f"_{at}": self._plain(each) for at, each in enumerate(node)}
            case list():
                return [self._plain(each) for each in node]
            case _:
                return node


def described_changes(changes: Any, place: str, *, lenient: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Return the changed fields of a document, and the names of the removed ones.

    Args:
        changes: The `updateDescription` of an event.
        place: Its place, as the path of its failure.
        lenient: As for `plain_document`.

    Raises:
        ValueProblem: The description is invalid.
    """
    if not isinstance(changes, Mapping):
        raise ValueProblem(
            WRONG_TYPE, "needs a struct with updatedFields and removedFields, found another value", place
        )
    updated, removed = changes.get("updatedFields"), changes.get("removedFields") or []
    if not isinstance(removed, list) or not all(isinstance(each, str) for each in removed):
        raise ValueProblem(WRONG_TYPE, "needs the names of fields, found another value", f"{place}.removedFields")
    return {} if updated is None else plain_document(updated, f"{place}.updatedFields", lenient=lenient), removed


def plain_document(text: str, place: str, *, lenient: bool = False) -> dict[str, Any]:
    """Return a document of MongoDB with its values as JSON has them, whatever names its types have.

    Args:
        text: The document in MongoDB's extended JSON.
        place: Its place, as the path of its failure.
        lenient: Whether values are changed as Java silently changes them.

    Raises:
        ValueProblem: The text is no document.
    """
    try:
        found = parsed_object(text, lenient=lenient, constants=True)
        return {name: _value(each) for name, each in found.items()}
    except ValueProblem as problem:
        raise ValueProblem(problem.error_class, problem.message, place) from None
    except RecursionError:
        raise ValueProblem(TOO_DEEP, "needs a document that is nested less deep", place) from None
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
        raise ValueProblem(WRONG_TYPE, "needs a document of MongoDB, found something else", place) from None


def _instant(value: Any) -> str:
    """Return a time, given in ms or as text, in ISO 8601."""
    if isinstance(value, str):
        return datetime.fromisoformat(value).astimezone(UTC).isoformat()
    return (
        _EPOCH + timedelta(milliseconds=int(value["$numberLong"] if isinstance(value, dict) else value))
    ).isoformat()


def _binary(value: Any) -> str:
    text = value["base64"] if isinstance(value, dict) else value
    base64.b64decode(text, validate=True)
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_NAMED: Mapping[str, Callable[[Any], Any]] = {
    "$oid": _text,
    "$numberLong": int,
    "$numberInt": int,
    "$numberDouble": lambda value: _finite(float(value)),
    "$numberDecimal": _text,
    "$date": _instant,
    "$binary": _binary,
    "$timestamp": lambda value: (_EPOCH + timedelta(seconds=value["t"])).isoformat(),
    "$symbol": _text,
    "$code": _text,
}
"""Readers of values that MongoDB's JSON writes as an object with one name."""


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueProblem(OUT_OF_RANGE, f"needs numbers that JSON has, found {float_text(number)}")
    return number


def _value(node: Any) -> Any:
    match node:
        case float():
            return _finite(node)
        case dict():
            named = next((name for name in node if name in _NAMED), None)
            if named is not None and not node.keys() - {named, "$type"}:
                return _NAMED[named](node[named])
            if any(name.startswith("$") for name in node):
                raise ValueError(named)
            return {name: _value(each) for name, each in node.items()}
        case list():
            return [_value(each) for each in node]
        case _:
            return node


def _steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    for name in _STATES:
        if not isinstance(kind_at(columns, (name,)), ice.StringType):
            raise TransformProblem(
                f"{_NAME} takes events of MongoDB, with 'before' and 'after' as text; there are "
                f"{', '.join(columns.names)}",
                (),
            )
    mode = properties.choice("array_handling_mode", ("array", "document"), "array")
    if "schema" not in properties:
        raise TransformProblem(
            f"{_NAME} guesses fields from every record; declare the document's beside its properties, such as "
            "schema: '_id string, n long, at timestamptz'",
            (),
        )
    schema = properties.needed("schema")
    parsed = [ParseJson(name, schema, into=name) for name in _STATES]
    return [MongoDocuments(mode == "document", lenient, properties.text(KEY_COLUMN) or None), *parsed]


MONGO = Known(f"{ICEBERG}MongoDebeziumTransform", ("array_handling_mode", "schema", KEY_COLUMN), _steps)
