"""Changes block of a stream's YAML file: its records are changes of a source, and its table is their changelog."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from jobs.config.documents.base import Flag, Problems, SpecModel
from jobs.config.documents.units import Duration
from jobs.config.steps.steps import Step, chain_of
from jobs.config.values.decode import Decode
from jobs.config.values.fields import schema_text
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.transforms.change_events.changelog import (
    CREATE,
    DELETE,
    OPS,
    READ,
    TRUNCATE,
    UPDATE,
)
from jobs.records.transforms.change_events.debezium import DebeziumChanges
from jobs.records.transforms.change_events.debezium_events import EventsOnly
from jobs.records.transforms.change_events.dms import DmsChanges, DmsRecordsOnly
from jobs.records.transforms.change_events.flat_rows import FlatChanges, UpsertChanges
from jobs.records.transforms.change_events.mongo import MongoChanges
from jobs.records.transforms.transform import Chain, Transform

Envelope: TypeAlias = Literal["debezium", "mongo", "dms", "columns", "upsert"]
PLACEHOLDER = "__debezium_unavailable_value"
_GOES_WITH: Mapping[str, tuple[Envelope, ...]] = {
    "before": ("debezium", "dms"),
    "unavailable": ("debezium", "columns", "upsert"),
    "key": ("debezium", "dms", "columns", "upsert"),
    "schema": ("mongo",),
    "op": ("columns",),
    "order_by": ("columns",),
    "at": ("columns", "upsert"),
}
# Fields of records about transactions, schema changes and log messages.
_ASIDE = frozenset(
    {
        *("status", "id", "event_count", "data_collections"),
        *("databaseName", "schemaName", "ddl", "tableChanges", "message"),
    }
)
_OPS: Mapping[str, str] = {"insert": CREATE, "update": UPDATE, "delete": DELETE, "read": READ, "truncate": TRUNCATE}

DELETION_MEMORY = timedelta(days=7)
"""How far a merge looks back for deletions, in Kafka's timestamps, before its newest change."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _schema(value: object) -> object:
    return None if value is None else schema_text(value)


def _words(value: object) -> object:
    """Convert one value, or a list of values, to texts."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(each, str | bool | int) for each in values):
        raise ValueError("must be values of the column: texts, whole numbers, true or false")
    return [str(each).lower() if isinstance(each, bool) else str(each) for each in values]


Name = Annotated[str, Field(min_length=1)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


def _at_least_a_week(value: timedelta) -> timedelta:
    if value < DELETION_MEMORY:
        raise ValueError("must be at least 7d: so long mirrors look for the deletion behind which a change comes late")
    return value


class ChangeOps(SpecModel):
    """The column with the operation, and its values. Without values, Debezium's letters count.

    Args:
        column: Name of the column.
        insert: Values of the column that mean ``insert``.
        update: Values of the column that mean ``update``.
        delete: Values of the column that mean ``delete``.
        read: Values of the column that mark a row of a snapshot.
        truncate: Values of the column that mean ``truncate``.
    """

    example = "{column: op}"

    column: Name
    insert: Words = ()
    update: Words = ()
    delete: Words = ()
    read: Words = ()
    truncate: Words = ()

    _short: ClassVar[str] = "column"

    def _problems(self) -> Problems:
        known: dict[str, str] = {}
        for name in _OPS:
            for at, word in enumerate(getattr(self, name)):
                if (other := known.setdefault(word, name)) != name:
                    yield (name, at), f"'{word}' means {other} already"

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """The values of the column, each with its letter in the changelog."""
        given = [(word, op) for name, op in _OPS.items() for word in getattr(self, name)]
        return tuple(given or [(op, op) for op in OPS])


class Changes(SpecModel):
    """What a record reports about a row of the source, and where it does.

    Args:
        envelope: Form of the change records.
        before: Keeps the row before a change as well.
        unavailable: Placeholder text of a value that the source did not send.
        key: Column name for a record key that is a single value.
        op: Column with the operation. For ``envelope: columns``.
        order_by: Columns by which the source orders its changes, the most significant first. For ``envelope: columns``.
        at: Column with the time of the change. Without it, Kafka's timestamp counts.
        keep: Age after which changes may be deleted once every mirror has a baseline snapshot. At least ``7d``; without
            it, all changes stay.
        schema_text: Fields of MongoDB's documents as schema text. Without it, a document is one column of text.
    """

    example = "{envelope: debezium}"

    envelope: Envelope
    before: Flag = False
    unavailable: Annotated[str, Field(min_length=1)] = PLACEHOLDER
    key: Name | None = None
    op: ChangeOps | None = None
    order_by: Annotated[tuple[Name, ...], BeforeValidator(_listed)] = ()
    at: Name | None = None
    keep: Annotated[Duration, AfterValidator(_at_least_a_week)] | None = None
    schema_text: Annotated[str | None, BeforeValidator(_schema), Field(alias="schema")] = None

    _short: ClassVar[str] = "envelope"

    def _problems(self) -> Problems:
        yield from [
            ((name,), f"goes with envelope: {' or '.join(envelopes)}, not with {self.envelope}")
            for name, envelopes in _GOES_WITH.items()
            if {"schema": "schema_text"}.get(name, name) in self.model_fields_set and self.envelope not in envelopes
        ]
        if self.envelope == "columns" and self.op is None:
            yield (), "needs op: the column with the operation on a row, such as op: __op"

    @property
    def keeps_tombstones(self) -> bool:
        """Whether a record without a value is a change: it deletes the row of its key."""
        return self.envelope == "upsert"

    @property
    def needs_keys(self) -> bool:
        """Whether only a record's key identifies its row."""
        return self.envelope in ("mongo", "upsert")

    @property
    def aside(self) -> frozenset[str]:
        """Fields of records that are no events, for which no column is proposed."""
        return _ASIDE if self.envelope in ("debezium", "mongo") else frozenset()

    @property
    def ahead(self) -> Transform | None:
        """The step that values pass before the keys of their records are read; None if the envelope has none."""
        match self.envelope:
            case "debezium" | "mongo":
                return EventsOnly(documents=self.envelope == "mongo")
            case "dms":
                return DmsRecordsOnly()
            case _:
                return None

    def step(self, beside: tuple[str, ...]) -> Transform:
        """Return the step that makes changelog rows of records.

        Args:
            beside: Columns of records beside the envelope.
        """
        match self.envelope:
            case "debezium":
                return DebeziumChanges(before=self.before, unavailable=self.unavailable, key=self.key, beside=beside)
            case "mongo":
                return MongoChanges(self.schema_text, beside)
            case "dms":
                return DmsChanges(self.before, self.key, beside)
            case "columns":
                assert self.op is not None
                return FlatChanges(
                    op=self.op.column,
                    words=self.op.words,
                    order_by=self.order_by,
                    at=self.at,
                    unavailable=self.unavailable,
                    key=self.key,
                    beside=beside,
                )
            case "upsert":
                return UpsertChanges(at=self.at, unavailable=self.unavailable, key=self.key, beside=beside)


def row_chain(changes: Changes | None, decode: Decode, steps: tuple[Step, ...]) -> Chain:
    """Return all steps between decoding and the table: the changelog's first, then those of the list `transform`.

    Args:
        changes: Block `changes` of the stream; None if it has none.
        decode: Block `decode`, which names columns beside the envelope.
        steps: Steps of the list.
    """
    listed = chain_of(steps)
    if changes is None:
        return listed
    return Chain((changes.step((*decode.headers, EXTRA_COLUMN)), *listed.steps), leading=1)


def hashed_changes(_: Any, changes: Changes) -> Any:
    """Return what of the block changes rows: keys that differ from their defaults, so that new keys change no hash."""
    said = changes.model_dump(mode="json", exclude_defaults=True, exclude={"keep"})
    if changes.schema_text is not None:
        said["schema"] = parse_schema(changes.schema_text).text
    return said | {"envelope": changes.envelope}
