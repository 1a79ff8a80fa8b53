"""Models of the steps in a stream's YAML file, with their options."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from jobs.config.documents.base import Flag, Problems, SpecModel
from jobs.config.documents.secrets import Secret
from jobs.records.transforms.conditional import (
    AllOf,
    Condition,
    Filter,
    HasHeader,
    IsTombstone,
    Not,
    TopicMatches,
)
from jobs.records.transforms.mask import Mask
from jobs.records.transforms.parse_json import ParseJson
from jobs.records.transforms.select import (
    Extract,
    Flatten,
    Hoist,
    Split,
)
from jobs.records.transforms.set_columns import HEADER, SOURCES, SetColumn
from jobs.records.transforms.sql import SqlCondition
from jobs.records.transforms.timestamps import FormatTimestamp, ParseTimestamp
from jobs.records.transforms.transform import Transform


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as problem:
        raise ValueError(f"is no regular expression: {problem}") from None
    return value


class When(SpecModel):
    """A condition; of several keys all have to hold.

    Args:
        sql: SQL expression over the row that is true. A plain text is one.
        topic: Regular expression that the whole name of the topic matches.
        header: Name of a header that the record has.
        tombstone: Whether an earlier step has left the row without a value.
        negated: Condition that does not hold.
    """

    example = "{sql: amount > 0}"

    sql: Annotated[str, Field(min_length=1)] | None = None
    topic: Annotated[str, AfterValidator(_pattern)] | None = None
    header: Annotated[str, Field(min_length=1)] | None = None
    tombstone: Flag | None = None
    negated: Annotated[When | None, Field(alias="not")] = None

    _short: ClassVar[str] = "sql"

    def _problems(self) -> Problems:
        if not self.conditions:
            yield (), "needs sql, topic, header, tombstone or not"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions of its keys."""
        found: list[Condition] = []
        if self.sql is not None:
            found.append(SqlCondition(self.sql))
        if self.topic is not None:
            found.append(TopicMatches(self.topic))
        if self.header is not None:
            found.append(HasHeader(self.header))
        if self.tombstone is not None:
            found.append(IsTombstone() if self.tombstone else Not(IsTombstone()))
        if self.negated is not None:
            found.append(Not(self.negated.condition))
        return tuple(found)

    @property
    def condition(self) -> Condition:
        """The condition."""
        found = self.conditions
        return found[0] if len(found) == 1 else AllOf(found)


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_listed), Field(min_length=1)]
"""Names or paths: one, or a list of them."""


class FlattenStep(SpecModel):
    """Structs become columns of their own; see `Flatten`.

    Args:
        delimiter: Text between the joined names.
        columns: Structs to flatten. Without it, all structs.
    """

    example = "{delimiter: _}"

    delimiter: str = "_"
    columns: Annotated[tuple[Name, ...], BeforeValidator(_listed)] = ()

    def transform(self) -> Transform:
        return Flatten(self.delimiter, self.columns)


class SetValue(SpecModel):
    """What a column is set to: a literal, or where it is from.

    Args:
        value: Literal of every row. Null needs a type.
        source: Part of the Kafka record: ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestamp_type``,
            ``key`` or ``header:NAME``.
        type: Type of the column, as in schema text.
        replace: Replaces an existing column of this name.
    """

    example = "{value: shop}"

    value: StrictStr | StrictBool | StrictInt | StrictFloat | None = None
    source: Annotated[str | None, Field(alias="from")] = None
    type: str | None = None
    replace: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _value_alone(cls, data: Any) -> Any:
        return data if isinstance(data, (dict, SetValue)) else {"value": data}

    def _problems(self) -> Problems:
        if self.source is not None and self.value is not None:
            yield ("value",), "goes without from: a column has one value"
        if self.source is None and self.value is None and self.type is None:
            yield (), "needs value, or from; null needs a type, such as {type: string}"
        if (
            self.source is not None
            and self.source not in SOURCES
            and (self.source == HEADER or not self.source.startswith(HEADER))
        ):
            yield ("from",), f"must be {', '.join(SOURCES)}, or header:NAME"

    def column(self, name: str) -> SetColumn:
        """Return the value that the column of a name is set to."""
        return SetColumn(name, self.value, self.source, self.type, self.replace)


class HoistStep(SpecModel):
    """Columns are put into a struct; see `Hoist`.

    Args:
        into: Name of the struct.
        columns: Columns of the struct. Without it, all columns.
    """

    example = "{into: payload}"

    into: Name
    columns: Annotated[tuple[Name, ...], BeforeValidator(_listed)] = ()

    _short: ClassVar[str] = "into"

    def transform(self) -> Transform:
        return Hoist(self.into, self.columns)


class ExtractStep(SpecModel):
    """A struct's fields take the row's place; see `Extract`.

    Args:
        column: The struct. A row where it is null counts as a tombstone.
        keep: Columns that stay beside the fields.
    """

    example = "{column: payload}"

    column: Name
    keep: Annotated[tuple[Name, ...], BeforeValidator(_listed)] = ()

    _short: ClassVar[str] = "column"

    def transform(self) -> Transform:
        return Extract(self.column, self.keep)


Unit = Literal["s", "ms", "us", "ns"]


class ParseTimestampStep(SpecModel):
    """Texts or numbers become times; see `ParseTimestamp`.

    Args:
        columns: Columns to parse.
        format: Patterns of the texts, tried in order; ``iso`` is ISO 8601.
        unit: Unit of numbers since 1970.
        zone: Zone of texts that name none.
        into: Type of the column.
    """

    example = "{column: created_at}"

    columns: Annotated[Names, Field(alias="column")]
    format: Annotated[tuple[Name, ...], BeforeValidator(_listed)] = ()
    unit: Unit | None = None
    zone: str | None = None
    into: Annotated[Literal["timestamptz", "timestamp", "date", "time"], Field(alias="as")] = "timestamptz"

    def transform(self) -> Transform:
        return ParseTimestamp(self.columns, self.format, self.unit, self.zone, self.into)


class FormatTimestampStep(SpecModel):
    """Times become texts or numbers; see `FormatTimestamp`.

    Args:
        columns: Columns to format.
        format: Pattern of the text.
        unit: Unit of the whole number since 1970, in place of a pattern.
        zone: Zone of the text. Without it, UTC.
    """

    example = "{column: created_at}"

    columns: Annotated[Names, Field(alias="column")]
    format: Name | None = None
    unit: Unit | None = None
    zone: str | None = None

    def transform(self) -> Transform:
        return FormatTimestamp(self.columns, self.format, self.unit, self.zone)


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


class MaskStep(SpecModel):
    """Values are hidden; see `Mask`.

    Args:
        columns: Columns to hide.
        replacement: Value that takes the place of each. Without it and ``hash``: 0, an empty text, false, 1970, or no
            elements.
        hash: Secret reference to the key of an HMAC-SHA256, which takes the place of the value.
    """

    example = "{columns: [card.number]}"

    columns: Names
    replacement: Annotated[str, BeforeValidator(_text), Field(min_length=1)] | None = None
    hash: Secret | None = None

    def _problems(self) -> Problems:
        if self.replacement is not None and self.hash is not None:
            yield ("hash",), "goes without replacement: a value is hidden in one way"
        if self.hash is not None and "${" not in str(self.hash):
            yield ("hash",), "must be a reference to the key, such as ${env:MASK_KEY}"

    def transform(self) -> Transform:
        return Mask(self.columns, self.replacement, self.hash)


class FilterStep(SpecModel):
    """Rows are dropped; see `Filter`.

    Args:
        keep: Condition of the rows that stay.
        drop: Condition of the rows that are dropped. Exactly one of the two is given.
    """

    example = "{keep: {sql: amount > 0}}"

    keep: When | None = None
    drop: When | None = None

    def _problems(self) -> Problems:
        if (self.keep is None) == (self.drop is None):
            yield (), "needs the rows to keep, or the rows to drop: one of them, such as {drop: {topic: …}}"

    def transform(self) -> Transform:
        chosen = self.drop or self.keep
        return Filter(chosen.condition if chosen else None, drop=self.drop is not None)


class SplitStep(SpecModel):
    """A text becomes columns; see `Split`.

    Args:
        column: Column with the text.
        by: Separator.
        into: Names of the new columns, two at least.
        rest: Lets the last column take all that is left. Otherwise another number of parts fails the record.
    """

    example = "{column: name, by: ' ', into: [first, last]}"

    column: Name
    by: Name
    into: Annotated[tuple[Name, ...], Field(min_length=2)]
    rest: Flag = False

    def transform(self) -> Transform:
        return Split(self.column, self.by, self.into, self.rest)


class ParseJsonStep(SpecModel):
    """A text of JSON becomes columns; see `ParseJson`.

    Args:
        column: Column with the text.
        schema_text: The new columns as schema text.
        into: Struct that takes the columns. Without it, they join the row.
        keep: Keeps the column with the text.
        unknown_fields: Fields without a column are ignored, or fail the record.
    """

    example = "{column: payload, schema: 'id string'}"

    column: Name
    schema_text: Annotated[str, Field(alias="schema")]
    into: Name | None = None
    keep: Flag = False
    unknown_fields: Literal["ignore", "fail"] = "ignore"

    def transform(self) -> Transform:
        return ParseJson(self.column, self.schema_text, self.into, self.keep, self.unknown_fields)


def _some(value: dict[str, Any]) -> dict[str, Any]:
    if not value:
        raise ValueError("needs at least one entry")
    return value


Texts = Annotated[dict[Name, Name], AfterValidator(_some)]
SetValues = Annotated[dict[Name, SetValue], AfterValidator(_some)]
