"""Schema history: frazil's changes of a table's schema, kept in a property of the table."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.records.schema.decoded_columns import whole_property

PROPERTY = "frazil.schema-changes"
MOST = 50
"""Most entries that are kept. Older changes show in the table's own list of schemas only."""
_MOST_CHANGES = 50


class ChangeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a table's schema, of one or more columns.

    Attributes:
        id: Unique id of the commit.
        schema: Id of the schema that the commit made.
        snapshot: The table's head at the time; its rows have the former columns.
        at_ms: Time, milliseconds since 1970.
        changes: Sentences, such as `add column a long`; only the first of many.
        epoch: Epoch of the driver; -1 if somebody asked for the change.
        example: Topic, partition and offset of a record that needs it.
        by: Author of the request, if somebody asked for it.
        added: Number of added columns, nested ones counted.
    """

    id: str
    schema: int
    snapshot: int | None
    at_ms: int
    stream: str
    changes: tuple[str, ...]
    epoch: int = -1
    batch: int = -1
    example: tuple[str, int, int] | None = None
    by: str = ""
    added: int = 0


def new_record(
    stream: str,
    changes: Sequence[str],
    *,
    schema_id: int,
    snapshot_id: int | None,
    epoch: int = -1,
    batch: int = -1,
    example: tuple[str, int, int] | None = None,
    by: str = "",
    added: int = 0,
) -> ChangeRecord:
    """The record of a change that is about to be committed."""
    kept = (*changes[:_MOST_CHANGES], *([f"and {len(changes) - _MOST_CHANGES} more"] * (len(changes) > _MOST_CHANGES)))
    at_ms = time.time_ns() // 1_000_000
    named = (uuid.uuid4().hex, schema_id, snapshot_id, at_ms, stream, kept)
    return ChangeRecord(*named, epoch=epoch, batch=batch, example=example, by=by, added=added)


def schema_history(properties: Mapping[str, str]) -> tuple[ChangeRecord, ...]:
    """Changes of a table's schema, oldest first; none if the property cannot be read."""
    with contextlib.suppress(ValueError, msgspec.DecodeError):
        text = whole_property(properties, PROPERTY)
        return decode_json(text, tuple[ChangeRecord, ...]) if text else ()
    return ()


def with_record(properties: Mapping[str, str], record: ChangeRecord) -> dict[str, str]:
    """The property with another record appended."""
    kept = [*schema_history(properties), record][-MOST:]
    return {PROPERTY: msgspec.json.encode(kept).decode()}


def added_within_hour(properties: Mapping[str, str]) -> int:
    """Number of columns added within the last hour, by the history."""
    hour_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    return sum(record.added for record in schema_history(properties) if record.at_ms > hour_ago_ms)
