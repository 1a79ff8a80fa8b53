"""Schema history: what frazil has changed of a table's schema, kept in a property of the table."""

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
"""Entries, the newest; what is older shows in the table's own list of schemas only."""
_MOST_CHANGES = 50


class ChangeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a table's schema, of one or more columns.

    Attributes:
        id: Of the commit; no other has it.
        schema: The id of the schema that it made.
        snapshot: The table's head when it was made; what came before has the columns of before.
        at_ms: When, milliseconds since 1970.
        changes: Sentences, such as `add column a long`; of many the first.
        epoch: The driver's; -1 where somebody asked for the change.
        example: Topic, partition and offset of a record that needs it.
        by: Who asked for it, if somebody did.
        added: How many columns came, nested ones counted.
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
    """What was changed of a table's schema, the oldest first; none if the property cannot be read."""
    with contextlib.suppress(ValueError, msgspec.DecodeError):
        text = whole_property(properties, PROPERTY)
        return decode_json(text, tuple[ChangeRecord, ...]) if text else ()
    return ()


def with_record(properties: Mapping[str, str], record: ChangeRecord) -> dict[str, str]:
    """The property with another record behind those that are there."""
    kept = [*schema_history(properties), record][-MOST:]
    return {PROPERTY: msgspec.json.encode(kept).decode()}


def added_within_hour(properties: Mapping[str, str]) -> int:
    """How many columns were added within the last hour, as the history has it."""
    hour_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    return sum(record.added for record in schema_history(properties) if record.at_ms > hour_ago_ms)
