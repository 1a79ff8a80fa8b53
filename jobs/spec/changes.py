"""Changes block of a stream's YAML file: its records are changes of a source, and its table is their changelog."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from jobs.formats.primitive.schema import COLUMN_TYPES
from jobs.schema.kept_fields import EXTRA_COLUMN
from jobs.spec.base import Flag, Location, SpecModel
from jobs.spec.decode import Decode
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.table import Table
from jobs.spec.transform.steps import Step, chain_of
from jobs.transform.chain import Chain
from jobs.transform.changes.changelog import KEY
from jobs.transform.changes.debezium import DebeziumChanges
from jobs.transform.changes.events_only import EventsOnly
from jobs.transform.transform import Transform

Envelope: TypeAlias = Literal["debezium"]
_PLACEHOLDER = "__debezium_unavailable_value"
_KAFKA = ("topic", "partition", "offset", "timestamp")


class Changes(SpecModel):
    """What a record says of a row of the source, and where.

    Args:
        envelope: How records say it.
        before: Whether the row before a change is kept, too.
        unavailable: The text that stands for a value which the source did not send.
        key: What the row calls the record's key, of keys that are a single value.
    """

    envelope: Envelope
    before: Flag = False
    unavailable: Annotated[str, Field(min_length=1)] = _PLACEHOLDER
    key: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"envelope": data} if isinstance(data, str) else data

    @property
    def ahead(self) -> Transform | None:
        """The step that values take before the keys of their records are read; None of an envelope without one."""
        return EventsOnly()

    def step(self, beside: tuple[str, ...]) -> Transform:
        """The step that makes changelog rows of records.

        Args:
            beside: Columns that records have beside the envelope.
        """
        return DebeziumChanges(self.before, self.unavailable, self.key, beside)


def row_chain(changes: Changes | None, decode: Decode, steps: tuple[Step, ...]) -> Chain:
    """All steps between decoding and the table: the changelog's first, then those of the list `transform`.

    Args:
        changes: Of a stream of changes; else None.
        decode: Which columns are decoded beside the envelope.
        steps: Of the list.
    """
    listed = chain_of(steps)
    if changes is None:
        return listed
    return Chain((changes.step((*decode.headers, EXTRA_COLUMN)), *listed.steps), leading=1)


def changes_problems(changes: Changes | None, decode: Decode, table: Table) -> list[tuple[Location, str]]:
    """Returns what of a stream's file does not go with a changelog, each with its place.

    Args:
        changes: Of a stream of changes; else None.
        decode: How its records are decoded.
        table: Its table.
    """
    if changes is None:
        return []
    problems: list[tuple[Location, str]] = []
    if decode.format in COLUMN_TYPES:
        problems.append((("changes",), f"takes events with fields; values of the format {decode.format} have none"))
    if (key := decode.key) is not None:
        names = key.columns.names if key.columns.is_resolved or key.columns.into else ()
        if tuple(names) != (KEY,):
            problems.append(
                (("decode", "key", "into"), f"must be {KEY} beside changes, so that the changelog has keys")
            )
    columns = kafka_columns(table.kafka_columns)
    if lost := [part for part in _KAFKA if getattr(columns, part) is None]:
        said = "is needed beside changes: the changes of a row are told apart and ordered by it"
        problems.append((("table", "kafka_columns", *(lost[:1] if table.kafka_columns is not False else ())), said))
    return problems


def hashed_changes(_: Any, changes: Changes) -> Any:
    """What of the block changes rows: what it says beside its defaults, so that later keys move no hash."""
    return {"envelope": changes.envelope} | changes.model_dump(mode="json", exclude_defaults=True)
